//! Where values come from, and what is said about bad ones.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use common::{Ended, Lab};
use serde_json::Value;

/// Runs the tool with a file, variables and arguments.
fn run(lab: &Lab, file: Option<&str>, env: &[(&str, &str)], args: &[&str]) -> Ended {
    let mut tool = lab.bare();
    if let Some(text) = file {
        std::fs::create_dir_all(lab.path(".config/distlock")).unwrap();
        std::fs::write(lab.path(".config/distlock/config.toml"), text).unwrap();
    }
    tool.envs(env.iter().copied()).args(args);
    lab.spawn(tool).wait()
}

fn shown(ended: &Ended, key: &str) -> (String, String) {
    assert_eq!(ended.code(), 0, "{ended:?}");
    let all: Value = serde_json::from_str(&ended.out).unwrap();
    let text = |part: &str| all[key][part].as_str().unwrap().to_owned();
    (text("value"), text("origin"))
}

#[test]
fn flags_beat_the_environment_and_it_beats_the_file() {
    let lab = Lab::new();
    let file = "# mine\nurl = \"memory:?fence_base=3\"\nnamespace = \"file/\"\nttl = \"3s\"\nwait = \"1m\"\n";
    let env = [("DISTLOCK_NAMESPACE", "env/"), ("DISTLOCK_URL", "memory:?fence_base=2"), ("DISTLOCK_WAIT", "")];
    let ended = run(&lab, Some(file), &env, &["--url", "memory:", "config", "--json"]);
    assert_eq!(shown(&ended, "url"), ("memory:".into(), "--url".into()));
    assert_eq!(shown(&ended, "namespace"), ("env/".into(), "DISTLOCK_NAMESPACE".into()));
    let (value, origin) = shown(&ended, "ttl");
    assert_eq!(value, "3s");
    assert!(origin.ends_with("config.toml line 4"), "{origin}");
    assert_eq!(shown(&ended, "wait").0, "1m", "an empty variable counts as unset");
    let plain = run(&lab, None, &[], &["config"]);
    assert!(plain.out.contains("namespace = \"file/\"  # "), "{}", plain.out);
}

#[test]
fn a_named_file_is_the_only_one() {
    let lab = Lab::new();
    let user = "namespace = \"user/\"\n";
    std::fs::write(lab.path("a.toml"), "ttl = \"4s\"").unwrap();
    std::fs::write(lab.path("b.toml"), "ttl = \"5s\"").unwrap();
    let env = [("DISTLOCK_CONFIG", "b.toml")];
    let ended = run(&lab, Some(user), &env, &["config", "--json"]);
    assert_eq!(shown(&ended, "ttl"), ("5s".into(), "b.toml line 1".into()));
    assert_eq!(shown(&ended, "namespace").0, "");
    let ended = run(&lab, None, &env, &["config", "--config", "a.toml", "--json"]);
    assert_eq!(shown(&ended, "ttl").0, "4s");
    run(&lab, None, &[], &["--config", "none.toml", "config"]).says(78, &["none.toml", "No such file"]);
}

#[test]
fn defaults_are_a_file_of_this_user() {
    let lab = Lab::new();
    let ended = run(&lab, None, &[], &["config", "--json"]);
    let place = format!("sqlite://{}/.local/state/distlock/locks.db", lab.home().display());
    assert_eq!(shown(&ended, "url"), (place, "default".into()));
    assert_eq!(shown(&ended, "ttl"), ("30s".into(), "default".into()));
    assert_eq!(shown(&ended, "wait"), ("forever".into(), "default".into()));
    let odd = lab.path("odd é#?");
    let ended = run(&lab, None, &[("XDG_STATE_HOME", odd.to_str().unwrap())], &["run", "x", "--", "true"]);
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert!(odd.join("distlock/locks.db").exists());
    // Looking at the configuration makes nothing.
    assert!(!lab.path(".local").exists());
}

#[test]
fn without_home_the_user_data_base_tells() {
    let lab = Lab::new();
    let mut tool = lab.bare();
    tool.env_remove("HOME").args(["config", "--json"]);
    let (url, _) = shown(&lab.spawn(tool).wait(), "url");
    assert!(url.ends_with("/.local/state/distlock/locks.db"), "{url}");
}

#[test]
fn a_file_is_refused_with_its_line() {
    let lab = Lab::new();
    for (text, words) in [
        ("ttl = \"5s\"\nurll = \"x\"\n", &["config.toml line 2", "unknown field `urll`", "`url`"][..]),
        ("\n\nttl = 5\n", &["config.toml line 3", "expected a string"]),
        ("ttl = \"5 parsecs\"\n", &["config.toml line 1", "the TTL '5 parsecs'", "30s"]),
        ("\nttl = \"1ms\"\n", &["config.toml line 2", "10ms"]),
        ("wait = \"soon\"\n", &["config.toml line 1", "the wait limit 'soon'"]),
        ("url = \"redis://u:hunter2@h/\n", &["config.toml line 1"]),
        ("url = [\"hunter2\"]\n", &["config.toml line 1"]),
        ("url = \"mongodb://u:hunter2@h/\"\n", &["'mongodb'", "sqlite", "config.toml line 1"]),
    ] {
        let ended = run(&lab, Some(text), &[], &["run", "x", "--", "touch", "ran"]);
        ended.says(78, words);
        assert!(!ended.err.contains("hunter2"), "{}", ended.err);
    }
    assert!(!lab.path("ran").exists());
}

#[test]
fn a_bad_variable_is_named() {
    let lab = Lab::new();
    for (name, value) in [("DISTLOCK_TTL", "0s"), ("DISTLOCK_WAIT", "x"), ("DISTLOCK_URL", "hunter2")] {
        let ended = run(&lab, None, &[(name, value)], &["run", "x", "--", "true"]);
        ended.says(78, &[name]);
        assert!(!ended.err.contains("hunter2"));
    }
    let long = "n".repeat(129);
    run(&lab, None, &[("DISTLOCK_NAMESPACE", &long)], &["list"]).says(78, &["DISTLOCK_NAMESPACE", "128 bytes"]);
}

#[test]
fn no_secret_is_shown() {
    let lab = Lab::new();
    let url = "redis://app:hunter2@db:6379/0?password=hunter2";
    for args in [&["--url", url, "config"][..], &["--url", url, "config", "--json"]] {
        let ended = run(&lab, None, &[], args);
        assert!(!ended.out.contains("hunter2") && ended.out.contains("redis://***@db:6379/0"), "{}", ended.out);
    }
    let mut tool = lab.bare();
    tool.args(["--url", "mysql://app:hunter2@127.0.0.1:1/", "-vv", "run", "x", "--", "true"]);
    let ended = lab.spawn(tool).wait();
    // Nothing listens there, or the backend is not built in, or the database is missing in the URL.
    assert!(matches!(ended.code(), 69 | 78), "{ended:?}");
    assert!(!ended.err.contains("hunter2"), "{}", ended.err);
}

#[test]
fn a_backend_that_is_not_there_names_its_feature() {
    let lab = Lab::new();
    for (url, words) in [
        #[cfg(not(feature = "mysql"))]
        ("mysql://h/db", &["not built in", "with the feature 'mysql'"][..]),
        #[cfg(not(feature = "zk"))]
        ("ZK://h1:2181,h2:2181/c", &["not built in", "with the feature 'zk'"][..]),
        #[cfg(not(feature = "etcd"))]
        ("etcd://h1:2379,h2:2379", &["not built in", "with the feature 'etcd'"][..]),
        #[cfg(not(feature = "redis"))]
        ("redis://h/", &["not built in", "with the feature 'redis'"][..]),
        (
            "mongodb://h/",
            &[
                "'mongodb'",
                "memory, sqlite, redis, rediss, redis+sentinel, rediss+sentinel, redis+cluster, rediss+cluster, mysql, zk, etcd",
            ][..],
        ),
        ("memory:?colour=red", &["'colour'"][..]),
        ("sqlite:///tmp/x.db?colour=red", &["'colour'"][..]),
    ] {
        run(&lab, None, &[], &["--url", url, "run", "x", "--", "touch", "ran"]).says(78, words);
    }
    assert!(!lab.path("ran").exists());
}

#[test]
fn bad_names_are_refused_before_any_io() {
    let lab = Lab::new();
    let long = "n".repeat(513);
    for (name, word) in [("", "must not be empty"), (&*long, "513 bytes")] {
        for args in [&["run", name, "--", "touch", "ran"][..], &["inspect", name], &["revoke", name]] {
            lab.run(args).says(64, &[word, "1 to 512 bytes"]);
        }
    }
    let mut tool = lab.tool(&["run"]);
    tool.arg(OsString::from_vec(b"a\xff".to_vec())).args(["--", "touch", "ran"]);
    lab.spawn(tool).wait().says(64, &["UTF-8"]);
    assert!(!lab.path("ran").exists());
    assert!(!lab.path("locks.db").exists());
    // A blank is a byte like any other.
    assert_eq!(lab.run(&["run", " ", "--", "true"]).code(), 0);
    let fits = "é".repeat(256);
    assert_eq!(lab.run(&["run", &fits, "--", "true"]).code(), 0);
}

#[test]
fn bad_ttls_are_64_and_long_waits_are_none() {
    let lab = Lab::new();
    for ttl in ["0", "0s", "9ms", "366d", "99999999999999999999years", "-1s", "5"] {
        let flag = format!("--ttl={ttl}");
        lab.run(&["run", "x", &flag, "--", "touch", "ran"]).says(64, &["--ttl"]);
    }
    assert!(!lab.path("ran").exists());
    for wait in ["forever", "99999999999999999999years", "1000000years", "5s"] {
        assert_eq!(lab.run(&["run", "x", "--wait", wait, "--ttl", "10s", "--", "true"]).code(), 0, "{wait}");
    }
}

#[test]
fn foreign_text_cannot_forge_a_line() {
    let lab = Lab::new();
    let name = "a\n\x1b[31mdistlock: all is well";
    let _holder = lab.hold(name, &["--label", "x\ny\x1b[2J"]);
    let ended = lab.run(&["run", name, "-n", "--", "true"]);
    ended.says(75, &["a\\n\\u{1b}[31m", "x\\ny"]);
    assert!(!ended.err.contains('\x1b'));
    let list = lab.run(&["list"]).out;
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(!list.contains('\x1b'));
}

#[test]
fn inspect_and_list_show_what_is_held() {
    let lab = Lab::new();
    let free = lab.inspect("a/1");
    assert_eq!((&free["state"], &free["token"]), (&Value::from("free"), &Value::Null));
    assert_eq!(lab.run(&["list"]).out, "");
    let _one = lab.hold("a/1", &["--label", "first"]);
    let _two = lab.hold("b/1", &[]);
    let held = lab.inspect("a/1");
    assert_eq!((&held["state"], &held["label"]), (&Value::from("held"), &Value::from("first")));
    assert_eq!(held["owner"].as_str().unwrap().len(), 32);
    assert!(held["remaining_ms"].as_u64().unwrap() <= 30_000);
    assert!(held["until"].as_str().unwrap() > held["since"].as_str().unwrap());
    let text = lab.run(&["inspect", "a/1"]).out;
    assert!(text.starts_with("a/1: held\n  label     first\n"), "{text}");
    let names = |args: &[&str]| -> Vec<String> {
        let all: Value = serde_json::from_str(&lab.run(args).out).unwrap();
        all.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&["list", "--json"]), ["a/1", "b/1"]);
    assert_eq!(names(&["list", "--json", "--prefix", "b"]), ["b/1"]);
    assert_eq!(names(&["list", "--json", "--namespace", "a/"]), ["1"]);
    assert_eq!(names(&["list", "--json", "--namespace", "c/"]), [""; 0]);
}

#[test]
fn doctor_answers_for_the_default() {
    let lab = Lab::new();
    let ended = lab.run(&["doctor"]);
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert!(ended.out.to_lowercase().contains("sqlite"), "{}", ended.out);
}

#[test]
fn a_place_that_cannot_hold_the_file_is_named() {
    let lab = Lab::new();
    std::fs::write(lab.path("file"), "").unwrap();
    for place in ["/proc/none/locks.db".into(), lab.path("file/locks.db")] {
        let url = format!("sqlite://{}", place.display());
        let ended = run(&lab, None, &[], &["--url", &url, "run", "x", "--", "true"]);
        assert!([69, 77, 78].contains(&ended.code()), "{ended:?}");
        assert_eq!(ended.err.lines().count(), 1);
        assert!(ended.err.contains("sqlite") && ended.err.contains("locks.db"), "{}", ended.err);
    }
}
