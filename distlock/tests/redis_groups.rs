//! What the command says and does where Redis servers stand together: behind sentinels and in a cluster, plain and over TLS.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::ffi::OsStr;
use std::process::Command;

use common::{Ended, Lab};
use conformance_tests::servers::redis_group::{Form, RedisGroup};
use tokio::runtime::Runtime;

const SENTINEL: Form = Form::Sentinel { replicas: 1 };

/// Runs the command at a URL.
fn run(lab: &Lab, url: &str, authority: Option<&OsStr>, args: &[&str]) -> Ended {
    let mut command: Command = lab.tool(args);
    command.env("DISTLOCK_URL", url);
    if let Some(authority) = authority {
        command.env("SSL_CERT_FILE", authority);
    }
    lab.spawn(command).wait()
}

/// Looks until `doctor` says all of it, for the servers tell each other with a delay; checks the exit code.
#[track_caller]
fn doctor(url: &str, code: i32, words: &[&str]) {
    doctor_trusting(None, url, code, words);
}

#[track_caller]
fn doctor_trusting(authority: Option<&OsStr>, url: &str, code: i32, words: &[&str]) {
    let lab = Lab::new();
    let mut last = String::new();
    let told = (0..30).any(|_| {
        let ended = run(&lab, url, authority, &["doctor"]);
        last = format!("exit {}: {}{}", ended.code(), ended.out, ended.err);
        ended.code() == code && words.iter().all(|word| ended.out.contains(word))
    });
    assert!(told, "not {code} and {words:?}: {last}");
}

fn with_replicas(url: &str, min: u32) -> String {
    format!("{url}?min_replicas={min}")
}

const MAY_FORGET: &str = "1, fed later than a grant is answered: a failover may forget the last grants";
const CONFIRMED: &str = "1, of which 1 have a grant before it is answered";
const NONE: &str = "none: while this server is down no lock is taken or renewed";
const TOO_FEW: &str = "fewer than 1 are linked: nothing is granted";

/// What is the same of both: replicas that are there, and one that is gone.
fn replicas_are_told_of(runtime: &Runtime, group: &RedisGroup, all_well: &str, replica: usize) {
    let url = group.url(None, false);
    doctor(&url, 0, &[all_well, MAY_FORGET, "give min_replicas in the URL"]);
    doctor(&with_replicas(&url, 1), 0, &[all_well, CONFIRMED]);
    group.kill(replica).unwrap();
    doctor(&url, 0, &[NONE]);
    doctor(&with_replicas(&url, 1), 69, &[TOO_FEW, "see INFO replication, or lower min_replicas"]);
    group.start_again(replica).unwrap();
    runtime.block_on(group.ready()).unwrap();
    doctor(&with_replicas(&url, 1), 0, &[all_well, CONFIRMED]);
}

#[test]
fn doctor_tells_of_sentinels_and_of_a_replica_that_is_missing() {
    let runtime = Runtime::new().unwrap();
    let group = runtime.block_on(RedisGroup::start(SENTINEL)).unwrap();
    let primary = runtime.block_on(group.primary("")).unwrap();
    let all_well = "sentinels: 3 of 3 see who is needed for a failover";
    replicas_are_told_of(&runtime, &group, all_well, 1 - primary);
    for sentinel in group.servers()..group.servers() + 2 {
        group.kill(sentinel).unwrap();
    }
    doctor(&group.url(None, false), 78, &["sentinels: 0 of 3 see who is needed for a failover", "SENTINEL CKQUORUM"]);
}

#[test]
fn doctor_tells_of_a_cluster_and_of_the_replica_of_any_primary() {
    let runtime = Runtime::new().unwrap();
    let group = runtime.block_on(RedisGroup::start(Form::Cluster)).unwrap();
    let all_well = "cluster: 3 primaries serve all slots";
    // The trial's own primary has its replica, and so has the first, so that only a look at all of them finds the missing one.
    let trial = runtime.block_on(group.primary("distlock doctor")).unwrap();
    let other = (1..group.servers() / 2).find(|primary| *primary != trial).unwrap();
    let url = group.url(None, false);
    doctor(&url, 0, &[all_well, MAY_FORGET]);
    group.kill(other + group.servers() / 2).unwrap();
    doctor(&url, 0, &[NONE]);
    doctor(&with_replicas(&url, 1), 78, &["a lock was taken", TOO_FEW]);
    group.start_again(other + group.servers() / 2).unwrap();
    runtime.block_on(group.ready()).unwrap();
    replicas_are_told_of(&runtime, &group, all_well, trial + group.servers() / 2);
}

/// Every connection is made over TLS: to sentinels, to whom they name, to each node, and to the one that listens.
fn locks_over_tls(form: Form, all_well: &str) {
    let runtime = Runtime::new().unwrap();
    let group = runtime.block_on(RedisGroup::start_tls(form)).unwrap();
    let (lab, url) = (Lab::new(), group.url(None, false));
    assert!(url.starts_with("rediss+"), "{url}");
    let authority = group.certificate().unwrap().authority();
    let authority = Some(authority.as_os_str());
    // As many names as reach all nodes of a cluster.
    for name in ["a", "b", "c", "d", "e", "f"] {
        let ended = run(&lab, &with_replicas(&url, 1), authority, &["run", name, "--", "echo", name]);
        assert_eq!((ended.code(), ended.out.trim()), (0, name), "{ended:?}");
    }
    doctor_trusting(authority, &url, 0, &[all_well, MAY_FORGET, "wake-ups are pushed", "a lock was taken"]);
    let ended = run(&lab, &url, None, &["run", "a", "--wait", "1s", "--", "true"]);
    assert_eq!(ended.code(), 69, "a server that nobody vouches for was trusted: {ended:?}");
    assert!(ended.err.contains("certificate"), "{}", ended.err);
    let ended = run(&lab, &url.replace("rediss+", "redis+"), authority, &["run", "a", "--wait", "1s", "--", "true"]);
    assert_eq!(ended.code(), 69, "a TLS port was spoken to in plain: {ended:?}");
}

#[test]
fn sentinels_and_their_primary_are_spoken_to_over_tls() {
    locks_over_tls(SENTINEL, "sentinels: 3 of 3");
}

#[test]
fn a_cluster_is_spoken_to_over_tls() {
    locks_over_tls(Form::Cluster, "cluster: 3 primaries serve all slots");
}
