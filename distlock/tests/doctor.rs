//! What `doctor` says of servers that are well, and of those that are set up badly.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::os::unix::fs::PermissionsExt;

use common::etcd::Etcd;
use common::mysql::Mysql;
use common::redis::Redis;
use common::zk::Zk;
use common::{Ended, Lab};

/// Runs `doctor` there, and checks the exit code and that each of these is said. Broken promises are told on stderr, too, in one line.
#[track_caller]
fn doctor(url: impl Into<String>, args: &[&str], code: i32, words: &[&str]) -> Ended {
    let lab = Lab::at(url);
    let ended = lab.run_in_time(&[&["doctor"], args].concat(), code, words);
    assert_eq!(ended.code(), code, "{ended:?}");
    for word in words {
        assert!(ended.out.contains(word), "no '{word}' in {}{}", ended.out, ended.err);
    }
    let told = if code == 0 { 0 } else { 1 };
    assert_eq!(ended.err.lines().count(), told, "{}", ended.err);
    assert!(code == 0 || ended.err.starts_with("distlock: not kept: "), "{}", ended.err);
    for secret in ["hunter2", "s3cret", "se:cret"] {
        assert!(!ended.out.contains(secret) && !ended.err.contains(secret), "{ended:?}");
    }
    ended
}

/// As [`doctor`], where all is well.
#[track_caller]
fn healthy(url: impl Into<String>, args: &[&str], words: &[&str]) {
    let ended = doctor(url, args, 0, words);
    for word in ["  NO  ", "  ?   ", "NOT KEPT", "unknown"] {
        assert!(!ended.out.contains(word), "'{word}' in {}", ended.out);
    }
}

#[test]
fn redis() {
    let server = Redis::start(&["--appendonly", "yes"]);
    let at = |login: &str| server.url().replace("://", &format!("://{login}"));
    healthy(
        server.url(),
        &[],
        &["Redis ", "one holder at a time: kept\n", "wake-ups are pushed", "a lock was taken", "fence_base=1"],
    );
    server.tell(&[
        "ACL SETUSER blind on >s3cret ~* &* +@all -info -config",
        "ACL SETUSER deaf on >s3cret ~* resetchannels +@all",
        "ACL SETUSER narrow on >s3cret ~jobs:* &* +@all",
        "CONFIG SET appendonly no",
        "CONFIG SET maxmemory-policy volatile-lru",
    ]);
    doctor(
        server.url(),
        &[],
        0,
        &["outlive the crash or loss of a server: NOT KEPT", "volatile-lru, maxmemory without limit"],
    );
    doctor(
        at("blind:s3cret@"),
        &[],
        0,
        &["one holder at a time: unknown", "  ?   eviction: this user may not see", "+info"],
    );
    doctor(at("deaf:s3cret@"), &[], 0, &["is woken in time: kept, but", "this user may not listen", "&distlock:*"]);
    doctor(at("narrow:s3cret@"), &[], 77, &["given back: NOT KEPT", "  NO  trial:", "--name"]);
    doctor(at("narrow:s3cret@"), &["--name", "jobs:x"], 0, &["a lock was taken"]);
    doctor(
        at("narrow:hunter2@"),
        &[],
        77,
        &["  NO  connection:", "check user and password", "one holder at a time: unknown"],
    );
    server.tell(&["CONFIG SET maxmemory 100mb", "CONFIG SET maxmemory-policy allkeys-lru"]);
    let words =
        ["one holder at a time: NOT KEPT", "  NO  eviction: allkeys-lru", "CONFIG SET maxmemory-policy noeviction"];
    doctor(server.url(), &[], 78, &words);
    server.tell(&["CONFIG SET maxmemory-policy noeviction", "REPLICAOF 127.0.0.1 1"]);
    doctor(server.url(), &[], 69, &["  NO  role: a replica", "give the primary", "  NO  trial:"]);
}

#[test]
fn mysql() {
    let server = Mysql::start();
    let at = |login: &str, table: &str| server.url(login) + "?table=" + table;
    let app = "app:se%3Acret";
    let absent = ["  NO  trial:", "CREATE TABLE", "  ?   table: absent is not there"];
    doctor(at("reader:se%3Acret", "absent"), &[], 77, &absent);
    healthy(
        at(app, "good"),
        &[],
        &[
            "MariaDB 1",
            "good, layout 1, InnoDB",
            "rights: SELECT, INSERT, UPDATE and DELETE",
            "READ-COMMITTED",
            "read_only: off",
        ],
    );
    let lacking = [
        "this user lacks INSERT, UPDATE, DELETE on good",
        "GRANT INSERT, UPDATE, DELETE ON `locks`.`good` TO 'poor'@'%'",
    ];
    doctor(at("poor:se%3Acret", "good"), &[], 77, &lacking);
    doctor(at(app, "other"), &[], 78, &["  NO  table: other is not as this library makes it", "?table="]);
    server.run(
        "CREATE TABLE slow LIKE good; ALTER TABLE slow ENGINE=MyISAM; SET GLOBAL innodb_flush_log_at_trx_commit=2",
    );
    let slow = [
        "  NO  table: slow is on MyISAM",
        "ALTER TABLE slow ENGINE=InnoDB",
        "  but disk: innodb_flush_log_at_trx_commit is 2",
    ];
    doctor(at(app, "slow"), &[], 78, &slow);
    server.run("SET GLOBAL read_only=1");
    doctor(at(app, "good"), &[], 69, &["  NO  read_only: on", "SET GLOBAL read_only=0", "  NO  trial:"]);
}

#[test]
fn zk() {
    let server = Zk::start("minSessionTimeout=1000\nmaxSessionTimeout=60000");
    let words = [
        "ZooKeeper 3.",
        "all answer: standalone",
        "one server alone",
        "digest",
        "out of the way after 1s",
        "30s, as asked for",
    ];
    healthy(server.url("owner:s3cret@", "/guarded"), &[], &words);
    let denied = ["  NO  trial:", "zk://USER:PASSWORD@HOST", "setAcl /guarded"];
    doctor(server.url("", "/guarded"), &[], 77, &denied);
    doctor(server.url("", "/open"), &[], 0, &["one holder at a time: kept, but", "world", "a folder of its own"]);
    let lab = Lab::at(server.url("", "/open"));
    let ended = lab.spawn({
        let mut tool = lab.tool(&["doctor"]);
        tool.env("DISTLOCK_TTL", "2min");
        tool
    });
    let ended = ended.wait();
    assert_eq!(ended.code(), 64, "{ended:?}");
    assert!(ended.out.contains("give a TTL from 10ms to 60s"), "{ended:?}");
    let sluggish = Zk::start("minSessionTimeout=50000\nmaxSessionTimeout=60000");
    let words = [
        "effective TTL: 60s where 30s was asked for",
        "delays those behind it for 50s",
        "lower tickTime or minSessionTimeout",
    ];
    doctor(sluggish.url("", ""), &[], 0, &words);
}

#[test]
fn etcd() {
    let guarded = Etcd::start(&[]);
    healthy(
        guarded.url(""),
        &[],
        &["etcd 3.", "alarms: none", "members: 1", "the shortest lease is 1s", "tokens start anew"],
    );
    guarded.guard();
    healthy(guarded.url("app:s3cret@"), &["--name", "jobs/x"], &["a lock was taken"]);
    doctor(guarded.url("app:s3cret@"), &[], 77, &["  NO  trial:", "grant-permission", "--name"]);
    doctor(guarded.url("other:s3cret@"), &[], 77, &["  NO  connection:", "grant-permission"]);
    let full = Etcd::start(&["--quota-backend-bytes", "1000000"]);
    full.fill();
    doctor(full.url(""), &[], 69, &["  NO  connection:", "quota", "disarm"]);
    doctor(Etcd::without_quorum().url(""), &[], 69, &["  NO  connection:", "majority"]);
}

#[test]
fn sqlite_and_memory() {
    let lab = Lab::new();
    healthy(lab.url(), &[], &["SQLite 3.", "journal: WAL", "a local one", "mode 600"]);
    let holder = lab.hold("distlock doctor", &["--label", "somebody"]);
    doctor(lab.url(), &[], 0, &["given back: unknown", "  ?   trial: sqlite: acquire 'distlock doctor'", "--name"]);
    drop(holder);
    lab.run(&["revoke", "--now", "distlock doctor"]);
    std::fs::set_permissions(lab.path("locks.db"), std::fs::Permissions::from_mode(0o666)).unwrap();
    doctor(lab.url(), &[], 0, &["one holder at a time: kept, but", "  but rights:", "chmod go-w"]);
    doctor("memory:?fence_base=5000", &[], 0, &["of this process alone", "fence_base=5002", "of a server: NOT KEPT"]);
    let other = Lab::at("memory:?colour=red");
    other.run(&["doctor"]).says(78, &["colour"]);
}

#[test]
fn json_has_the_same_keys_whatever_is_found() {
    let lab = Lab::new();
    let keys = |text: &str| {
        let found: serde_json::Value = serde_json::from_str(text).unwrap();
        let mut keys: Vec<_> = found.as_object().unwrap().keys().cloned().collect();
        let promises = found["promises"].as_array().unwrap();
        keys.extend(promises.iter().map(|it| it["promise"].as_str().unwrap().to_owned()));
        keys.extend(promises[0].as_object().unwrap().keys().cloned());
        keys.extend(promises[0]["findings"][0].as_object().unwrap().keys().cloned());
        (keys, found)
    };
    let (good, found) = keys(&lab.run(&["doctor", "--json"]).out);
    assert_eq!((&found["kept"], &found["promises"][0]["verdict"]), (&true.into(), &"kept".into()));
    let ended = doctor("redis://127.0.0.1:1/", &["--json"], 69, &[]);
    let (bad, found) = keys(&ended.out);
    assert_eq!((&found["kept"], &found["fence_base"]), (&false.into(), &serde_json::Value::Null));
    assert_eq!(good, bad);
}
