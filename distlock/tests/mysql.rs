//! The tool against a MariaDB server of the test's own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

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
