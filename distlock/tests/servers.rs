//! The tool over each server: what its command inherits, and when it ends while the server stands still. More over Redis: tests/redis.rs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use common::etcd::Etcd;
use common::mysql::Mysql;
use common::redis::Redis;
use common::zk::Zk;
use common::{Lab, lives, read, until};
use nix::sys::signal::Signal;

/// No file and no connection of the tool's, whatever its driver has opened.
fn inherits_nothing(lab: &Lab) {
    let list = ["sh", "-c", "for fd in /proc/$$/fd/*; do echo ${fd##*/}; done"];
    let mut plain = std::process::Command::new(list[0]);
    plain.args(&list[1..]);
    let before = lab.spawn(plain).wait().out;
    let ended = lab.run(&[&["run", "fds", "--"], &list[..]].concat());
    assert_eq!((ended.code(), ended.out), (0, before));
}

/// The command's last tick comes before the lock has run out, and the next one gets it.
fn ends_in_time(lab: &Lab, signal: impl Fn(Signal)) {
    // As read by the script, too.
    let now = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    let script = "echo $$ >pid; trap '' TERM; while :; do date +%s%3N >>ticks; sleep 0.02; done";
    let tool = lab.start(&["run", "stall", "--ttl", "2s", "--", "sh", "-c", script]);
    until("some ticks", || read(lab.path("ticks")).lines().count() > 20);
    let stalled = now();
    signal(Signal::SIGSTOP);
    let ended = tool.wait_within(Duration::from_secs(10));
    assert_eq!(ended.code(), 79, "{ended:?}");
    assert!(!lives(&read(lab.path("pid"))));
    let last: u64 = read(lab.path("ticks")).lines().rfind(|line| line.len() == 13).unwrap().parse().unwrap();
    assert!(last <= stalled + 1978, "the last tick came {} ms after the server stopped", last - stalled);
    signal(Signal::SIGCONT);
    let next = lab.run(&["run", "stall", "--wait", "15s", "--", "true"]);
    assert_eq!(next.code(), 0, "{next:?}");
    assert_eq!(lab.state("stall"), "free");
}

#[test]
fn mysql() {
    let server = Mysql::start();
    let lab = Lab::at(server.url("app:se%3Acret"));
    inherits_nothing(&lab);
    ends_in_time(&lab, |signal| server.signal(signal));
}

#[test]
fn zk() {
    let server = Zk::start("maxSessionTimeout=60000");
    let lab = Lab::at(server.url("", "/locks"));
    inherits_nothing(&lab);
    ends_in_time(&lab, |signal| server.signal(signal));
}

#[test]
fn etcd() {
    let server = Etcd::start(&[]);
    let lab = Lab::at(server.url(""));
    inherits_nothing(&lab);
    ends_in_time(&lab, |signal| server.signal(signal));
}

#[test]
fn redis() {
    let server = Redis::start(&[]);
    let lab = Lab::at(server.url());
    inherits_nothing(&lab);
    // An application's data are waited for, and shown as what they are.
    server.tell(&["SET taken data"]);
    let ended = lab.run(&["run", "taken", "--wait", "500ms", "--", "touch", "ran"]);
    ended.says(124, &["'taken'"]);
    assert_eq!(lab.state("taken"), "foreign");
    assert!(lab.inspect("taken")["until"].is_null(), "it has no end");
    assert!(!lab.path("ran").exists());
}
