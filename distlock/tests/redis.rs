//! The tool against a Redis server of the test's own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::{Duration, Instant};

use common::redis::Redis;
use common::{Lab, lives, read, until};
use nix::sys::signal::Signal;

#[test]
fn hello_over_redis() {
    let redis = Redis::start(&[]);
    let lab = Lab::at(redis.url());
    let ended = lab.run(&["run", "demo", "--", "echo", "hello"]);
    assert_eq!((ended.code(), &*ended.out, &*ended.err), (0, "hello\n", ""));
    assert_eq!(lab.state("demo"), "free");
}

#[test]
fn commands_never_overlap_whatever_ends_the_tools() {
    let redis = Redis::start(&[]);
    common::overlap::never(&Lab::at(redis.url()), 200);
}

#[test]
fn a_server_that_does_not_answer_keeps_nobody_longer_than_the_wait_limit() {
    let redis = Redis::start(&[]);
    let lab = Lab::at(redis.url());
    redis.signal(Signal::SIGSTOP);
    let start = Instant::now();
    let ended = lab.run(&["run", "x", "--wait", "2s", "--", "touch", "ran"]);
    assert!(start.elapsed() < Duration::from_millis(2600), "{:?}", start.elapsed());
    ended.says(69, &["redis"]);
    let start = Instant::now();
    lab.run(&["run", "x", "--no-wait", "--", "touch", "ran"]).says(69, &["redis"]);
    assert!(start.elapsed() < Duration::from_millis(3000), "{:?}", start.elapsed());
    let waiter = lab.start(&["run", "x", "--", "touch", "ran"]);
    std::thread::sleep(Duration::from_millis(300));
    let start = Instant::now();
    waiter.signal(Signal::SIGTERM);
    assert_eq!(waiter.wait().code(), 143);
    assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
    redis.signal(Signal::SIGCONT);
    until("the name to be free", || lab.state("x") == "free");
    assert!(!lab.path("ran").exists());
}

/// Milliseconds on the clock by which the script writes its ticks.
fn uptime() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_REALTIME).unwrap();
    now.tv_sec() as u64 * 1000 + now.tv_nsec() as u64 / 1_000_000
}

#[test]
fn no_tick_of_the_command_comes_after_the_lock_ran_out() {
    for trap in ["", "trap '' TERM; "] {
        let redis = Redis::start(&[]);
        let lab = Lab::at(redis.url());
        let script = format!("echo $$ >pid; {trap}while :; do date +%s%3N >>ticks; sleep 0.02; done");
        let tool = lab.start(&["run", "stall", "--ttl", "2s", "--", "sh", "-c", &script]);
        until("some ticks", || read(lab.path("ticks")).lines().count() > 20);
        let stalled = uptime();
        redis.signal(Signal::SIGSTOP);
        let ended = tool.wait_within(Duration::from_secs(10));
        assert_eq!(ended.code(), 79, "{ended:?}");
        assert!(ended.err.starts_with("distlock: lock 'stall' could not be renewed"), "{}", ended.err);
        assert!(!lives(&read(lab.path("pid"))));
        let last: u64 = read(lab.path("ticks")).lines().rfind(|line| line.len() == 13).unwrap().parse().unwrap();
        // The last confirmed renewal was sent before the server stood still.
        assert!(last <= stalled + 1978, "the last tick came {} ms after the server stopped", last - stalled);
        redis.signal(Signal::SIGCONT);
        let next = lab.run(&["run", "stall", "--wait", "5s", "--", "true"]);
        assert_eq!(next.code(), 0, "{next:?}");
        assert_eq!(lab.state("stall"), "free");
    }
}

#[test]
fn an_outage_shorter_than_the_time_left_is_invisible() {
    let redis = Redis::start(&[]);
    let lab = Lab::at(redis.url());
    let tool = lab.start(&["run", "short", "--ttl", "3s", "--", "sh", "-c", "touch in; sleep 3.5; exit 5"]);
    until("the command to run", || lab.path("in").exists());
    redis.signal(Signal::SIGSTOP);
    std::thread::sleep(Duration::from_millis(1000));
    redis.signal(Signal::SIGCONT);
    let ended = tool.wait();
    assert_eq!((ended.code(), &*ended.err), (5, ""));
}

#[test]
fn a_release_that_fails_stands_beside_the_commands_code() {
    let redis = Redis::start(&[]);
    let lab = Lab::at(redis.url());
    let tool = lab.start(&[
        "run",
        "late",
        "--ttl",
        "20s",
        "--",
        "sh",
        "-c",
        "touch in; until [ -e end ]; do sleep 0.02; done; exit 7",
    ]);
    until("the command to run", || lab.path("in").exists());
    drop(redis);
    std::fs::write(lab.path("end"), "").unwrap();
    tool.wait().says(7, &["'late'", "release"]);
}
