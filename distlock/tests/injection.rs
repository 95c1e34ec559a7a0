//! Names, prefixes, labels and namespaces are data on every server: never SQL, Lua, a pattern or a path.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::Lab;
use common::etcd::Etcd;
use common::mysql::Mysql;
use common::redis::Redis;
use common::zk::Zk;

/// Each would do something to its neighbours if it were anything but text.
const TEXTS: [&str; 14] = [
    "'; DELETE FROM distributed_lock; --",
    "\" OR 1=1 OR \"\"=\"",
    "`; DROP TABLE distributed_lock; #",
    "\\' OR 1=1 -- \\",
    "{table}{now}?1 ? $1",
    "'..redis.call('FLUSHALL')..'",
    "]]) redis.call('FLUSHALL') --[[",
    "*",
    "%_",
    "[a-z]*?^\\",
    "../canary",
    "..",
    "//canary/../",
    "canary%2F%00\r\nDEL canary\r\n",
];

fn harmless(url: String) {
    let lab = Lab::at(url);
    let _canary = lab.hold("canary", &["--ttl", "20s"]);
    for text in TEXTS {
        for args in [
            &["run", text, "--label", text, "--ttl", "10s", "--", "true"][..],
            &["--namespace", text, "run", "canary", "--ttl", "10s", "--", "true"],
            &["inspect", text],
        ] {
            let ended = lab.run_in_time(args, 0, &[]);
            assert_eq!(ended.code(), 0, "{args:?}: {ended:?}");
        }
        let holder = lab.hold(text, &["--label", text, "--ttl", "10s"]);
        let seen = lab.inspect(text);
        assert_eq!((seen["name"].as_str(), seen["label"].as_str()), (Some(text), Some(text)), "{seen}");
        // As a prefix it finds itself, and nothing that it would match as a pattern.
        let listed = lab.run_in_time(&["list", "--prefix", text, "--json"], 0, &[]);
        let listed: Vec<serde_json::Value> = serde_json::from_str(&listed.out).unwrap();
        let names: Vec<_> = listed.iter().map(|holder| holder["name"].as_str().unwrap()).collect();
        assert_eq!(names, [text]);
        let revoked = lab.run_in_time(&["revoke", text, "--now"], 0, &[]);
        assert_eq!(revoked.code(), 0, "{revoked:?}");
        drop(holder);
        let again = lab.run_in_time(&["revoke", text, "--now"], 1, &[]);
        assert_eq!(again.code(), 1, "{again:?}");
        assert_eq!(lab.state("canary"), "held", "after {text}");
    }
    let left = lab.run_in_time(&["list", "--json"], 0, &[]);
    let left: Vec<serde_json::Value> = serde_json::from_str(&left.out).unwrap();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn sqlite() {
    harmless(Lab::new().url().to_owned());
}

#[test]
fn redis() {
    harmless(Redis::start(&[]).url());
}

#[test]
fn mysql() {
    let server = Mysql::start();
    harmless(server.url("app:se%3Acret"));
    for text in TEXTS {
        let encoded: String = text.bytes().map(|b| format!("%{b:02X}")).collect();
        for part in [format!("?table={encoded}"), format!("?table=distributed_lock%60{encoded}")] {
            Lab::at(server.url("app:se%3Acret") + &part)
                .run(&["inspect", "canary"])
                .says(78, &["mysql", "no name for the table"]);
        }
        // A database of that name is not there, which is all that is to be said of it.
        let other = server.url("admin:se%3Acret").replace("/locks", &format!("/{encoded}"));
        let ended = Lab::at(other).run_in_time(&["inspect", "canary"], 78, &[]);
        assert!(matches!(ended.code(), 77 | 78), "{ended:?}");
    }
}

#[test]
fn zk() {
    harmless(Zk::start("maxSessionTimeout=60000").url("", "/locks"));
}

#[test]
fn etcd() {
    harmless(Etcd::start(&[]).url(""));
}
