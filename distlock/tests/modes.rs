//! What the tool writes belongs to its user alone, whatever the umask says.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use common::{Lab, until};

/// Each file and folder below a folder, and itself, with its permission bits.
fn modes(folder: &Path) -> Vec<(PathBuf, u32)> {
    let bits = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
    let mut found = vec![(folder.to_owned(), bits(folder))];
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(modes(&path));
        } else {
            found.push((path.clone(), bits(&path)));
        }
    }
    found.sort();
    found
}

/// The tool holds a lock in a file below `top`, which it makes itself, under a umask that takes nothing away.
fn private(lab: &Lab, top: &str, url: Option<&str>) {
    let marker = lab.path("held");
    let tool = env!("CARGO_BIN_EXE_distlock");
    let script = format!("umask 000; exec '{tool}' run jobs/x -- sh -c 'touch held; exec sleep 60'");
    let mut command = lab.clean("sh");
    command.args(["-c", &script]).envs(url.map(|url| ("DISTLOCK_URL", url)));
    let holder = lab.spawn(command);
    until("the holder to run", || marker.exists());
    // What the child makes is the child's matter, and shows that nothing was taken away.
    assert_eq!(marker.metadata().unwrap().permissions().mode() & 0o777, 0o666);
    let found = modes(&lab.path(top));
    for name in ["locks.db", "locks.db-wal", "locks.db-shm"] {
        assert!(found.iter().any(|(path, _)| path.ends_with(name)), "no {name} in {found:?}");
    }
    for (path, mode) in &found {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(*mode, expected, "{} has the mode {mode:o}", path.display());
    }
    drop(holder);
}

#[test]
fn the_default_file_and_the_folders_on_the_way_to_it() {
    private(&Lab::new(), ".local", None);
}

#[test]
fn a_file_of_the_users_choice_and_its_folders() {
    let lab = Lab::new();
    let url = format!("sqlite://{}/a/b/c/locks.db", lab.home().display());
    private(&lab, "a", Some(&url));
}
