//! The tool against a MariaDB server of the test's own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use common::mysql::Mysql;
use common::{Lab, until};

#[test]
fn hello_over_mysql() {
    let server = Mysql::start();
    let lab = Lab::at(server.url("app:se%3Acret"));
    let ended = lab.run(&["run", "demo", "--", "echo", "hello"]);
    assert_eq!((ended.code(), &*ended.out, &*ended.err), (0, "hello\n", ""));
    assert_eq!(lab.state("demo"), "free");
    let holder = lab.start(&["run", "demo", "--", "sleep", "30"]);
    until("the lock to be held", || lab.state("demo") == "held");
    assert_eq!(lab.run(&["run", "demo", "--no-wait", "--", "true"]).code(), 75);
    assert_eq!(lab.run(&["revoke", "demo"]).code(), 0);
    drop(holder);
    assert_eq!(lab.run(&["doctor"]).code(), 0);
}

#[test]
fn commands_never_overlap_whatever_ends_the_tools() {
    let server = Mysql::start();
    common::overlap::never(&Lab::at(server.url("app:se%3Acret")), 60);
}

#[test]
fn setups_that_are_wrong_are_told_apart() {
    let server = Mysql::start();
    for (url, code, word) in [
        (server.url("app:hunter2"), 77, "mysql"),
        (server.url("reader:se%3Acret"), 77, "CREATE TABLE"),
        (format!("{}?colour=red", server.url("app:se%3Acret")), 78, "colour"),
        ("mysql://app:hunter2@127.0.0.1:1/locks".into(), 69, "mysql"),
    ] {
        let lab = Lab::at(url);
        let start = std::time::Instant::now();
        let ended = lab.run(&["-vv", "run", "x", "--wait", "2s", "--", "touch", "ran"]);
        assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
        assert_eq!(ended.code(), code, "{ended:?}");
        assert!(ended.err.contains(word) && !ended.err.contains("hunter2"), "{}", ended.err);
        assert!(!lab.path("ran").exists());
    }
}
