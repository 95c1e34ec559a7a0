//! The invariants of ARCHITECTURE.md, looked up in the sources.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const BACKENDS: [&str; 5] = ["sqlite", "redis", "mysql", "zk", "etcd"];

/// The folders of the backends.
fn backends() -> impl Iterator<Item = String> {
    BACKENDS.into_iter().map(|backend| format!("lock-{backend}"))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Each Rust file below a folder of the workspace, with its text.
fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    fn walk(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(folder), &mut found);
    assert!(!found.is_empty(), "no sources in {folder}");
    found
}

fn shipping() -> Vec<(PathBuf, String)> {
    let ours = ["lock-core", "distlock", "conformance-tests"].map(str::to_owned);
    ours.into_iter().chain(backends()).flat_map(|folder| sources(&format!("{folder}/src"))).collect()
}

/// The text from the first brace after `at` to the one that closes it.
fn block(text: &str, at: usize) -> &str {
    let start = at + text[at..].find('{').unwrap();
    let mut depth = 0;
    for (offset, c) in text[start..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[start..=start + offset];
        }
    }
    panic!("a brace is not closed");
}

fn dependencies(package: &str, edges: &str) -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "-p", package, "-e", edges, "--prefix", "none", "--all-features"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    tree.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn the_core_depends_on_no_driver_no_command_line_and_no_exporter() {
    let tree = dependencies("lock-core", "normal");
    for stranger in ["redis", "sqlx", "zookeeper-client", "etcd-client", "clap", "tonic", "metrics-util", "serde"] {
        assert!(!tree.iter().any(|name| name == stranger), "lock-core depends on {stranger}");
    }
}

#[test]
fn a_backend_depends_on_the_core_alone() {
    for backend in BACKENDS {
        let package = format!("lock-{backend}");
        let tree = dependencies(&package, "normal");
        let ours = tree.iter().filter(|name| name.starts_with("lock-") || name.starts_with("distlock"));
        for name in ours {
            assert!(*name == package || name == "lock-core", "{package} depends on {name}");
        }
    }
}

#[test]
fn no_drop_spawns() {
    for (path, text) in shipping() {
        for (at, _) in text.match_indices(" Drop for ") {
            assert!(!block(&text, at).contains("spawn"), "{}: a Drop spawns", path.display());
        }
    }
}

#[test]
fn nothing_behaves_otherwise_under_test() {
    for (path, text) in shipping() {
        for (at, _) in text.match_indices("#[cfg(test)]") {
            let next = text[at..].lines().nth(1).unwrap_or_default().trim();
            assert!(
                next.starts_with("mod ") || next.starts_with("pub(super) mod "),
                "{}: cfg(test) on something but a module",
                path.display()
            );
        }
        assert!(!text.contains("cfg!(test)"), "{}", path.display());
    }
}

#[test]
fn the_traits_of_the_contract_have_no_default_methods() {
    for (file, name) in [("backend.rs", "pub trait DistributedLock"), ("lease.rs", "pub trait Lease")] {
        let text = fs::read_to_string(root().join("lock-core/src").join(file)).unwrap();
        let body = &block(&text, text.find(name).unwrap())[1..];
        assert!(!body[..body.len() - 1].contains('{'), "{name} has a method with a body");
    }
}

#[test]
fn guards_and_leases_are_not_cloned() {
    for (path, text) in shipping() {
        for (at, _) in text.match_indices("Lease {").chain(text.match_indices("struct LockGuard")) {
            let line_start = text[..at].rfind('\n').map_or(0, |n| n + 1);
            if !text[line_start..at + 12].contains("struct ") {
                continue;
            }
            let above = text[..line_start].rfind("\n\n").map_or("", |n| &text[n..line_start]);
            assert!(!above.contains("Clone"), "{}: a guard or a lease is Clone", path.display());
        }
    }
}

#[test]
fn exit_codes_live_in_the_command_line() {
    for (path, text) in shipping() {
        let inside = path.to_string_lossy().contains("distlock/src/")
            || path.to_string_lossy().contains("conformance-tests/src/");
        let speaks = text.contains("process::exit") || text.contains("ExitCode") || text.contains("eprintln!");
        assert!(inside || !speaks, "{}: speaks to a terminal", path.display());
        let library =
            ["distlock/src/lib.rs", "distlock/src/url.rs", "distlock/src/registry.rs", "distlock/src/options.rs"];
        assert!(!(speaks && library.iter().any(|file| path.ends_with(file))), "{}", path.display());
    }
}

#[test]
fn every_backend_has_its_rooms_its_suite_and_its_page() {
    for backend in BACKENDS {
        let source = root().join(format!("lock-{backend}/src"));
        for role in ["config.rs", "backend.rs", "lease.rs", "wait.rs", "errors.rs", "fence.rs", "untrusted.rs"] {
            assert!(source.join(role).is_file(), "lock-{backend} has no {role}");
        }
        assert!(root().join(format!("conformance-tests/tests/{backend}.rs")).is_file(), "{backend} has no suite");
        assert!(root().join(format!("docs/{backend}.md")).is_file(), "{backend} has no page");
    }
    for entry in fs::read_dir(root()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some(backend) = name.strip_prefix("lock-").filter(|backend| *backend != "core") {
            assert!(BACKENDS.contains(&backend), "lock-{backend} is not looked at by this test");
        }
    }
}

#[test]
fn backends_have_no_timers_but_the_one_they_wait_with() {
    for backend in BACKENDS {
        for (path, text) in sources(&format!("lock-{backend}/src")) {
            let shipped = text.split("#[cfg(test)]").next().unwrap();
            let has = ["time::sleep", "time::interval", "sleep_until"].iter().any(|timer| shipped.contains(timer));
            // A new SQLite file is switched to WAL by whoever comes first, and SQLite itself does not wait there.
            let allowed = path.ends_with("wait.rs") || path.ends_with("lock-sqlite/src/schema.rs");
            assert!(!has || allowed, "{}: a timer outside wait.rs", path.display());
        }
    }
}

#[test]
fn nothing_is_left_open_and_no_test_is_ignored() {
    for folder in ["lock-core", "distlock", "conformance-tests"].map(str::to_owned).into_iter().chain(backends()) {
        for (path, text) in sources(&folder) {
            if path.ends_with("tidy.rs") {
                continue;
            }
            for mark in ["todo!(", "unimplemented!(", "#[ignore", "dbg!(", "FIXME"] {
                assert!(!text.contains(mark), "{}: {mark}", path.display());
            }
        }
    }
}

#[test]
fn files_fit_into_the_head() {
    for (path, text) in shipping() {
        let lines = text.lines().count();
        assert!(lines <= 450, "{}: {lines} lines; is it still one idea?", path.display());
    }
}

#[test]
fn every_decision_is_a_record() {
    for entry in fs::read_dir(root().join("docs/adr")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        for part in ["## Context", "## Decision", "## Consequences", "## Turned down"] {
            assert!(text.contains(part), "{}: no {part}", path.display());
        }
    }
}

/// Lines that are neither empty nor comments.
fn lines_of_code(file: &str) -> usize {
    let text = fs::read_to_string(root().join(file)).unwrap();
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

#[test]
fn the_guide_for_new_backends_counts_right() {
    let example = |file: &str| lines_of_code(&format!("examples/folder-lock/{file}"));
    let (backend, harness) = (example("src/lib.rs") + example("src/table.rs"), example("tests/conformance.rs"));
    let said = format!("{backend} lines of code for the backend and {harness} for its harness");
    let guide = fs::read_to_string(root().join("docs/new-backend.md")).unwrap();
    assert!(guide.contains(&said), "docs/new-backend.md should say: {said}");
}
