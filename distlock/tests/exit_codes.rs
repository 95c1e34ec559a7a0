//! The table of exit codes.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use common::Lab;

#[test]
fn hello_on_a_fresh_machine() {
    let lab = Lab::new();
    let mut tool = lab.bare();
    tool.args(["run", "demo", "--", "echo", "hello"]);
    let ended = lab.spawn(tool).wait();
    assert_eq!((ended.code(), &*ended.out, &*ended.err), (0, "hello\n", ""));
    let folder = lab.path(".local/state/distlock");
    assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    let file = folder.join("locks.db");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o077, 0, "{file:?} is open to others");
}

#[test]
fn the_commands_own_code_passes() {
    let lab = Lab::new();
    for (script, code) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 75", 75),
        ("exit 255", 255),
        ("kill -KILL $$", 137),
        ("kill -SEGV $$", 139),
        ("kill -TERM $$", 143),
    ] {
        let ended = lab.run(&["run", "codes", "--", "sh", "-c", script]);
        assert_eq!((ended.code(), &*ended.err), (code, ""), "{script}");
    }
    assert_eq!(lab.state("codes"), "free");
}

#[test]
fn a_command_that_cannot_start_frees_the_lock_at_once() {
    let lab = Lab::new();
    let plain = lab.path("plain");
    std::fs::write(&plain, "no program").unwrap();
    for (command, code, word) in [
        ("no-such-command", 127, "was not found"),
        ("/no/such/file", 127, "was not found"),
        (plain.to_str().unwrap(), 126, "cannot be executed"),
        ("/", 126, "cannot be executed"),
    ] {
        lab.run(&["run", "start", "--", command]).says(code, &[command, word]);
        assert_eq!(lab.state("start"), "free");
    }
}

#[test]
fn a_held_lock_is_named_with_its_holder() {
    let lab = Lab::new();
    let _holder = lab.hold("busy", &["--label", "the first"]);
    let start = Instant::now();
    lab.run(&["run", "busy", "--no-wait", "--", "touch", "ran"]).says(75, &["'busy'", "held by the first"]);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    lab.run(&["run", "busy", "-n", "-E", "9", "--", "touch", "ran"]).says(9, &["'busy'"]);
    let start = Instant::now();
    lab.run(&["run", "busy", "--wait", "300ms", "--", "touch", "ran"]).says(124, &["'busy'", "300ms", "the first"]);
    let waited = start.elapsed();
    assert!(waited >= Duration::from_millis(290) && waited < Duration::from_secs(2), "{waited:?}");
    lab.run(&["run", "busy", "--wait", "0s", "-E", "0", "--", "touch", "ran"]).says(0, &["'busy'"]);
    let quiet = lab.run(&["-q", "run", "busy", "-n", "--", "touch", "ran"]);
    assert_eq!((quiet.code(), &*quiet.err), (75, ""));
    assert!(!lab.path("ran").exists());
}

#[test]
fn usage_is_64_and_help_is_0() {
    let lab = Lab::new();
    for args in [
        &[][..],
        &["walk"],
        &["run"],
        &["run", "x"],
        &["run", "x", "true"],
        &["run", "x", "--wait", "soon", "--", "true"],
        &["run", "x", "--kill-after", "5", "--", "true"],
        &["run", "x", "--wait", "5s", "--no-wait", "--", "true"],
        &["run", "x", "-E", "256", "--", "true"],
        &["revoke", "x", "--token", "-1"],
        &["-q", "-v", "list"],
    ] {
        let ended = lab.run(args);
        assert_eq!(ended.code(), 64, "{args:?} {ended:?}");
        assert!(!ended.err.is_empty());
    }
    for args in [&["--help"][..], &["--version"], &["help", "run"], &["list", "-h"]] {
        let ended = lab.run(args);
        assert_eq!((ended.code(), &*ended.err), (0, ""), "{args:?}");
        assert!(!ended.out.is_empty());
    }
    for subcommand in ["run", "inspect", "list", "revoke", "doctor", "config", "completions"] {
        let help = lab.run(&[subcommand, "--help"]).out;
        assert!(help.contains("Examples:\n  distlock"), "{help}");
    }
}

#[test]
fn completions_know_the_subcommands() {
    let lab = Lab::new();
    for shell in ["bash", "zsh", "fish"] {
        let ended = lab.run(&["completions", shell]);
        assert_eq!(ended.code(), 0);
        assert!(ended.out.contains("revoke"), "{shell}");
    }
}
