//! A command whose lock is lost is ended in time, and the code tells.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Lab, Running, lives, read, until};
use nix::fcntl::{FcntlArg, OFlag, fcntl};

/// Starts a tool whose command writes its process id, and then ticks.
fn ticking(lab: &Lab, flags: &[&str], script: &str) -> (Running, String) {
    let script = format!("echo $$ >pid.new; mv pid.new pid; {script}");
    let args = [&["run", "lost"], flags, &["--", "sh", "-c", &script]].concat();
    let tool = lab.start(&args);
    until("the command to run", || lab.path("pid").exists());
    (tool, read(lab.path("pid")))
}

#[test]
fn a_revoked_lock_stops_the_command() {
    let lab = Lab::new();
    let (tool, pid) = ticking(&lab, &["--ttl", "600ms"], "while :; do sleep 0.02; done");
    assert_eq!(lab.run(&["revoke", "lost"]).code(), 0);
    let ended = tool.wait_within(Duration::from_secs(2));
    ended.says(79, &["'lost'", "revoked", "TERM"]);
    assert!(!lives(&pid));
    assert_eq!(lab.run(&["run", "lost", "--wait", "2s", "--", "true"]).code(), 0);
}

#[test]
fn a_lock_freed_at_once_stops_the_command_too() {
    let lab = Lab::new();
    let (tool, pid) = ticking(&lab, &["--ttl", "600ms"], "while :; do sleep 0.02; done");
    lab.run(&["revoke", "lost", "--token", "999999999"]).says(1, &["'lost'", "999999999"]);
    assert!(lives(&pid));
    assert_eq!(lab.run(&["revoke", "lost", "--now"]).code(), 0);
    assert_eq!(tool.wait_within(Duration::from_secs(2)).code(), 79);
    assert!(!lives(&pid));
}

#[test]
fn a_command_that_ignores_term_is_killed_before_the_lock_runs_out() {
    let lab = Lab::new();
    let (tool, pid) = ticking(&lab, &["--ttl", "900ms"], "trap '' TERM; while :; do sleep 0.02; done");
    lab.run(&["revoke", "lost"]);
    let ended = tool.wait_within(Duration::from_secs(2));
    assert_eq!(ended.code(), 79);
    assert!(!lives(&pid));
}

#[test]
fn what_the_command_started_is_ended_with_it() {
    let lab = Lab::new();
    let script = "sh -c 'trap \"\" TERM; echo $$ >deep.new; mv deep.new deep; while :; do sleep 0.02; done' & wait";
    let (tool, _) = ticking(&lab, &["--ttl", "900ms"], script);
    until("the grandchild to run", || lab.path("deep").exists());
    lab.run(&["revoke", "lost"]);
    assert_eq!(tool.wait_within(Duration::from_secs(3)).code(), 79);
    until("the grandchild to die", || !lives(&read(lab.path("deep"))));
}

#[test]
fn a_reader_that_does_not_read_keeps_no_command_alive() {
    let lab = Lab::new();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let script = "trap '' TERM; echo $$ >pid.new; mv pid.new pid; while :; do sleep 0.02; done";
    let mut command = lab.tool(&["run", "lost", "--ttl", "900ms", "--", "sh", "-c", script]);
    let mut tool = command.stdin(Stdio::null()).stderr(writer.try_clone().unwrap()).spawn().unwrap();
    drop(command);
    until("the command to run", || lab.path("pid").exists());
    let pid = read(lab.path("pid"));
    let flags = OFlag::from_bits_truncate(fcntl(&writer, FcntlArg::F_GETFL).unwrap());
    fcntl(&writer, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).unwrap();
    while nix::unistd::write(&writer, &[b'x'; 4096]).is_ok() {}
    while nix::unistd::write(&writer, b"x").is_ok() {}
    fcntl(&writer, FcntlArg::F_SETFL(flags)).unwrap();
    let start = Instant::now();
    assert_eq!(lab.run(&["revoke", "lost"]).code(), 0);
    until("the command to die", || !lives(&pid));
    assert!(start.elapsed() < Duration::from_millis(1300), "{:?}", start.elapsed());
    until("the lock to be free", || lab.state("lost") == "free");
    drop(writer);
    let rest = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).map(|_| text)
    });
    until("the tool to end", || tool.try_wait().unwrap().is_some());
    assert_eq!(tool.wait().unwrap().code(), Some(79));
    let text = rest.join().unwrap().unwrap();
    assert!(text.contains("distlock: lock 'lost' was lost: it was revoked"), "{}", text.trim_start_matches('x'));
}

#[test]
fn max_hold_stops_the_command() {
    let lab = Lab::new();
    let start = Instant::now();
    let (tool, pid) = ticking(&lab, &["--ttl", "600ms", "--max-hold", "1s"], "while :; do sleep 0.02; done");
    let ended = tool.wait_within(Duration::from_secs(5));
    let took = start.elapsed();
    ended.says(79, &["greatest time"]);
    assert!(took >= Duration::from_millis(1000) && took < Duration::from_millis(1800), "{took:?}");
    assert!(!lives(&pid));
    assert_eq!(lab.run(&["run", "lost", "--wait", "2s", "--", "true"]).code(), 0);
}

#[test]
fn the_commands_code_wins_when_nobody_could_know_of_the_loss() {
    let lab = Lab::new();
    // The next renewal is three seconds away.
    let (tool, _) = ticking(&lab, &["--ttl", "9s"], "until [ -e end ]; do sleep 0.02; done; exit 7");
    assert_eq!(lab.run(&["revoke", "lost", "--now"]).code(), 0);
    std::fs::write(lab.path("end"), "").unwrap();
    tool.wait().says(7, &["'lost'", "not held any more"]);
}
