//! What the command gets, and what it leaves behind.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{BOUND, Lab, lives, read, until};

fn variables(text: &str) -> BTreeMap<String, String> {
    text.split('\0').filter_map(|line| line.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

#[test]
fn the_environment_is_untouched_but_for_four_variables() {
    let lab = Lab::new();
    let with = |mut command: std::process::Command| {
        command.env("ODD", "two\nlines").env("DISTLOCK_URL", lab.url()).env("DISTLOCK_NAMESPACE", "n/");
        variables(&lab.spawn(command).wait().out)
    };
    let mut plain = std::process::Command::new("env");
    plain.arg("-0").env("HOME", lab.home()).current_dir(lab.home());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("XDG_") || name.starts_with("DISTLOCK_")) {
        plain.env_remove(name);
    }
    let before = with(plain);
    let mut tool = lab.bare();
    tool.args(["run", "my name", "--ttl", "7s", "--", "env", "-0"]);
    let mut after = with(tool);
    assert_eq!(after.remove("DISTLOCK_NAME").as_deref(), Some("my name"));
    assert_eq!(after.remove("DISTLOCK_TTL_MS").as_deref(), Some("7000"));
    assert!(after.remove("DISTLOCK_FENCING_TOKEN").unwrap().parse::<u64>().unwrap() > 0);
    assert_eq!(after.remove("DISTLOCK_OWNER").unwrap().len(), 32);
    assert_eq!(after, before);
}

#[test]
fn the_url_is_not_added() {
    let lab = Lab::new();
    let mut tool = lab.bare();
    tool.args(["--url", lab.url(), "run", "x", "--", "env"]);
    assert!(!lab.spawn(tool).wait().out.contains("sqlite:"));
}

#[test]
fn tokens_rise_from_run_to_run() {
    let lab = Lab::new();
    let token = || {
        let ended = lab.run(&["run", "fence", "--", "sh", "-c", "echo $DISTLOCK_FENCING_TOKEN"]);
        ended.out.trim().parse::<u64>().unwrap()
    };
    let (first, second) = (token(), token());
    assert!(second > first);
}

#[test]
#[cfg(target_os = "linux")]
fn only_the_three_streams_are_open() {
    let lab = Lab::new();
    let list = ["sh", "-c", "for fd in /proc/$$/fd/*; do echo ${fd##*/}; done"];
    let mut plain = std::process::Command::new(list[0]);
    plain.args(&list[1..]);
    let before = lab.spawn(plain).wait().out;
    let ended = lab.run(&[&["run", "fds", "--"], &list[..]].concat());
    assert_eq!(ended.out, before);
}

#[test]
fn stdin_and_arguments_pass_through() {
    let lab = Lab::new();
    let mut tool = lab.tool(&["run", "pipe", "--", "sh", "-c", "printf '%s|' \"$@\"; cat", "sh", "--ttl", "", "a b"]);
    let mut child = tool.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let text = "line\n".repeat(100_000);
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn({
        let text = text.clone();
        move || stdin.write_all(text.as_bytes()).unwrap()
    });
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert_eq!(out.status.code(), Some(0));
    assert_eq!(String::from_utf8(out.stdout).unwrap(), format!("--ttl||a b|{text}"));
}

#[test]
fn a_grandchild_in_the_background_holds_neither_tool_nor_lock() {
    let lab = Lab::new();
    let start = Instant::now();
    let ended = lab.run(&["run", "daemon", "--", "sh", "-c", "sleep 20 & echo $!"]);
    assert_eq!(ended.code(), 0);
    assert!(start.elapsed() < Duration::from_secs(5));
    assert!(lives(&ended.out), "the grandchild is left alone");
    assert_eq!(lab.state("daemon"), "free");
    let pid = nix::unistd::Pid::from_raw(ended.out.trim().parse().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
}

#[test]
fn a_lock_outlives_its_ttl_while_the_command_runs() {
    let lab = Lab::new();
    let holder = lab.start(&["run", "long", "--ttl", "300ms", "--", "sh", "-c", "touch in; sleep 1.5; touch done"]);
    until("the holder to run", || lab.path("in").exists());
    let next = lab.run(&["run", "long", "--", "sh", "-c", "test -e done && echo after"]);
    assert_eq!(next.out, "after\n");
    assert_eq!(holder.wait_within(BOUND).code(), 0);
}

#[test]
fn a_command_is_the_leader_of_its_own_group() {
    let lab = Lab::new();
    let ended = lab.run(&["run", "group", "--", "sh", "-c", "cut -d' ' -f1,5 /proc/$$/stat"]);
    let (pid, group) = ended.out.trim().split_once(' ').unwrap();
    assert_eq!(pid, group);
    assert_eq!(read(lab.path("none")), "");
}
