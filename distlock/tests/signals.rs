//! Signals, and tools that die.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::{Duration, Instant};

use common::{Lab, lives, read, until};
use nix::sys::signal::Signal;

/// Writes a line for each signal that it gets, and ends with 9 when it finds the file `end`.
const COUNTER: &str = "
    for s in TERM INT HUP QUIT USR1 USR2; do trap \"echo $s >>got\" $s; done
    touch ready
    while [ ! -e end ]; do sleep 0.02; done
    exit 9";

#[test]
fn each_signal_reaches_the_command_once() {
    let lab = Lab::new();
    let tool = lab.start(&["run", "signals", "--", "sh", "-c", COUNTER]);
    until("the command to be ready", || lab.path("ready").exists());
    let mut got = String::new();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2] {
        tool.signal(signal);
        got.push_str(&signal.as_str()[3..]);
        got.push('\n');
        until("the signal to arrive", || read(lab.path("got")).len() >= got.len());
    }
    // A second copy of a signal would have to arrive within this time.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(read(lab.path("got")), got);
    std::fs::write(lab.path("end"), "").unwrap();
    let ended = tool.wait();
    assert_eq!(ended.code(), 9);
    // The shell may say that its `sleep` got the signal, too.
    assert!(!ended.err.contains("distlock:"), "{}", ended.err);
    assert_eq!(lab.state("signals"), "free");
}

#[test]
fn a_command_that_a_signal_ends_leaves_no_lock_and_no_process() {
    for (signal, code) in [
        (Signal::SIGTERM, 143),
        (Signal::SIGINT, 130),
        (Signal::SIGHUP, 129),
        (Signal::SIGQUIT, 131),
        (Signal::SIGUSR1, 138),
    ] {
        let lab = Lab::new();
        let tool =
            lab.start(&["run", "ends", "--", "sh", "-c", "echo $$ >pid; ulimit -c 0; while :; do sleep 0.05; done"]);
        until("the command to run", || read(lab.path("pid")).ends_with('\n'));
        tool.signal(signal);
        assert_eq!(tool.wait_within(Duration::from_secs(2)).code(), code, "{signal}");
        assert_eq!(lab.state("ends"), "free");
        assert!(!lives(&read(lab.path("pid"))));
    }
}

#[test]
fn a_signal_ends_a_waiting_tool_at_once() {
    let lab = Lab::new();
    let holder = lab.hold("queue", &[]);
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        let waiter = lab.start(&["-v", "run", "queue", "--", "touch", "ran"]);
        until("the tool to ask", || waiter.err().contains("asking"));
        std::thread::sleep(Duration::from_millis(100));
        let start = Instant::now();
        waiter.signal(signal);
        assert_eq!(waiter.wait().code(), code);
        assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
    }
    let waiters = lab.inspect("queue")["waiters"].as_u64();
    assert!(waiters.is_none_or(|waiters| waiters == 0), "{waiters:?}");
    holder.signal(Signal::SIGTERM);
    assert_eq!(holder.wait().code(), 143);
    // Nobody stands in the way of the next one.
    let start = Instant::now();
    assert_eq!(lab.run(&["run", "queue", "--", "true"]).code(), 0);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert!(!lab.path("ran").exists());
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let lab = Lab::new();
    let mut tool = std::process::Command::new("sh");
    let exe = env!("CARGO_BIN_EXE_distlock");
    tool.env("DISTLOCK_URL", lab.url()).env("HOME", lab.home()).current_dir(lab.home());
    tool.args([
        "-c",
        "trap '' HUP; exec \"$0\" run nohup -- sh -c 'touch ready; while [ ! -e end ]; do sleep 0.02; done'",
        exe,
    ]);
    let tool = lab.spawn(tool);
    until("the command to be ready", || lab.path("ready").exists());
    tool.signal(Signal::SIGHUP);
    std::thread::sleep(Duration::from_millis(100));
    std::fs::write(lab.path("end"), "").unwrap();
    assert_eq!(tool.wait().code(), 0);
}

#[test]
#[cfg(target_os = "linux")]
fn kill_9_takes_the_command_along_and_the_ttl_frees_the_lock() {
    let lab = Lab::new();
    let script = "echo $$ >pid; while :; do sleep 0.05; done";
    let tool = lab.start(&["run", "dead", "--ttl", "1s", "--", "sh", "-c", script]);
    until("the command to run", || read(lab.path("pid")).ends_with('\n'));
    let pid = read(lab.path("pid"));
    assert!(lives(&pid));
    let start = Instant::now();
    tool.signal(Signal::SIGKILL);
    until("the command to die", || !lives(&pid));
    assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
    let next = lab.run(&["run", "dead", "--", "true"]);
    assert_eq!(next.code(), 0);
    let taken = start.elapsed();
    assert!(taken < Duration::from_millis(2500), "{taken:?}");
}

#[test]
fn commands_never_overlap_whatever_ends_the_tools() {
    common::overlap::never(&Lab::new(), 200);
}

#[test]
fn a_cron_job_longer_than_its_period_skips_runs() {
    let lab = Lab::new();
    let job = "set -C; echo >inside || { echo overlap >>overlaps; exit 1; }; sleep 2.2; rm inside; echo >>runs";
    let mut tools = Vec::new();
    let start = Instant::now();
    for i in 1..=30 {
        tools.push(lab.start(&["run", "cron", "--ttl", "1s", "--no-wait", "--", "sh", "-c", job]));
        std::thread::sleep((start + i * Duration::from_millis(250)).saturating_duration_since(Instant::now()));
    }
    let codes: Vec<i32> = tools.into_iter().map(|tool| tool.wait().code()).collect();
    assert_eq!(read(lab.path("overlaps")), "");
    let runs = codes.iter().filter(|code| **code == 0).count();
    assert_eq!(codes.iter().filter(|code| **code == 75).count(), codes.len() - runs, "{codes:?}");
    assert!((3..=5).contains(&runs), "{codes:?}");
}
