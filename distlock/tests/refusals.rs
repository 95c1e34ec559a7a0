//! What is wrong with a server, a login or a right: each has its exit code, and one line that names lock, backend and remedy.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::net::TcpListener;
use std::time::Instant;

use common::Lab;
use common::etcd::Etcd;
use common::mysql::Mysql;
use common::redis::{Redis, free_port};
use common::zk::Zk;

/// What stands for passwords here, right and wrong ones.
const SECRETS: [&str; 4] = ["hunter2", "s3cret", "se:cret", "se%3Acret"];

/// A fault: the URL that leads to it, the exit code, and words of the remedy.
struct Row(&'static str, String, i32, &'static [&'static str]);

fn refuse(backend: &str, rows: &[Row]) {
    refuse_as(backend, "jobs/x", rows);
}

fn refuse_as(backend: &str, name: &str, rows: &[Row]) {
    let start = Instant::now();
    for Row(fault, url, code, words) in rows {
        let lab = Lab::at(url);
        // What may pass is tried again until the limit; on a busy machine the limit must leave time for the first try.
        let wait = if *words == NO_ANSWER { "2s" } else { "5s" };
        let args = ["run", name, "--wait", wait, "--", "touch", "ran"];
        let run = |flags: &[&str]| lab.run_in_time(&[flags, &args].concat(), *code, words);
        let plain = run(&[]);
        println!("{fault}: {} {}", plain.code(), plain.err.trim_end());
        plain.says(*code, words);
        plain.says(*code, &[backend, name, "; "]);
        let server = url.rsplit(['@', '/']).find(|part| part.contains(':') && !part.ends_with(':')).unwrap_or_default();
        assert!(*code != 69 || plain.err.contains(server), "{fault}: {server} is not named: {}", plain.err);
        let mut shown = plain.err;
        if *code == 77 {
            let verbose = run(&["-vv"]);
            assert_eq!(verbose.code(), *code, "{fault}: {verbose:?}");
            shown += &verbose.err;
        }
        for secret in SECRETS {
            assert!(!shown.contains(secret), "{fault}: {shown}");
        }
        assert!(!lab.path("ran").exists(), "{fault}: the command ran");
    }
    println!("{backend}: {} faults in {:?}", rows.len(), start.elapsed());
}

/// Nothing is wrong here.
fn accept(url: &str) {
    let ended = Lab::at(url).run_in_time(&["run", "jobs/x", "--", "true"], 0, &[]);
    assert_eq!((ended.code(), &*ended.err), (0, ""), "{ended:?}");
}

/// What is said when the time runs out, which is all that can be known then.
const NO_ANSWER: &[&str] = &["check that the server", "majority"];

/// Nobody listens; somebody takes the connection and never says a word; no such host.
fn unreachable(scheme: &str, login: &str, path: &str) -> Vec<Row> {
    let url = |at: String| format!("{scheme}://{login}{at}{path}");
    vec![
        Row("closed port", url(format!("127.0.0.1:{}", free_port())), 69, &["check"]),
        Row("silent server", url(format!("127.0.0.1:{}", silent())), 69, NO_ANSWER),
        Row("no such host", url("no-such-host.invalid:1234".into()), 69, &["check"]),
    ]
}

/// The port of a server that takes connections and does not answer, for as long as this process lives.
fn silent() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || listener.incoming().collect::<Vec<_>>());
    port
}

#[test]
fn redis() {
    let server = Redis::start(&["--requirepass", "hunter2"]);
    server.tell(&[
        "AUTH hunter2",
        "ACL SETUSER noscript on >s3cret ~* &* +@all -eval -evalsha",
        "ACL SETUSER nokeys on >s3cret ~other:* &* +@all",
        "ACL SETUSER nowrite on >s3cret ~* &* +@all -@write",
    ]);
    let replica = Redis::start(&["--replicaof", "127.0.0.1", "1"]);
    let at = |login: &str| format!("redis://{login}127.0.0.1:{}/", server.port);
    let mut rows = unreachable("redis", ":s3cret@", "/");
    rows.extend([
        Row("no password", at(""), 77, &["redis://[USER]:PASSWORD@HOST"]),
        Row("wrong password", at(":s3cret@"), 77, &["check user and password"]),
        Row("no such user", at("nobody:s3cret@"), 77, &["check user and password"]),
        Row("no right to run scripts", at("noscript:s3cret@"), 77, &["+evalsha"]),
        Row("no right on the name", at("nokeys:s3cret@"), 77, &["the names", "+@keyspace"]),
        Row("no right to write", at("nowrite:s3cret@"), 77, &["+@string"]),
        Row("no such database", at(":hunter2@") + "99", 78, &["check the database number"]),
        Row("unknown parameter", at(":hunter2@") + "?colour=red", 78, &["colour"]),
        Row("TLS to a plain port", at(":hunter2@").replace("redis:", "rediss:"), 69, NO_ANSWER),
        Row("a replica", replica.url(), 69, &["give the primary"]),
    ]);
    refuse("redis", &rows);
}

/// Sentinels, and nodes of a cluster, are asked first: what they answer, or do not, is told apart from what the server does.
#[test]
fn redis_behind_others() {
    let server = Redis::start(&["--requirepass", "hunter2"]);
    let plain = Redis::start(&[]);
    let (open, guarded) = (Redis::sentinel(server.port, ""), Redis::sentinel(server.port, "requirepass s3cret\n"));
    let at = |login: &str, sentinel: &Redis, rest: &str| {
        format!("redis+sentinel://{login}127.0.0.1:{}/{rest}", sentinel.port)
    };
    let mut rows = unreachable("redis+sentinel", ":s3cret@", "/orders");
    rows.extend(unreachable("redis+cluster", ":s3cret@", "/"));
    for row in &mut rows {
        // Several are asked, each for a short time, so it is known who did not answer.
        row.3 = &["check"];
    }
    rows.extend([
        Row("no such service", at(":hunter2@", &open, "bookings"), 78, &["'bookings'", "SENTINEL MASTERS"]),
        Row("no service", at(":hunter2@", &open, ""), 78, &["/SERVICE"]),
        Row("wrong password", at(":s3cret@", &open, "orders"), 77, &["check user and password"]),
        Row("no password", at("", &open, "orders"), 77, &["PASSWORD@"]),
        Row("no password for the sentinel", at(":hunter2@", &guarded, "orders"), 77, &["sentinel_password"]),
        Row(
            "wrong password for the sentinel",
            at(":hunter2@", &guarded, "orders?sentinel_password=hunter2"),
            77,
            &["check"],
        ),
        Row(
            "too few replicas",
            at(":hunter2@", &open, "orders?min_replicas=1"),
            69,
            &["0 of 1 replicas", "min_replicas"],
        ),
        Row("unknown parameter", at(":hunter2@", &open, "orders?colour=red"), 78, &["colour"]),
        Row("no sentinel", format!("redis+sentinel://127.0.0.1:{}/orders", plain.port), 78, &["no sentinel", "ports"]),
        Row("no cluster", format!("redis+cluster://:hunter2@127.0.0.1:{}/", server.port), 78, &["redis://"]),
        Row("a database", format!("redis+cluster://:hunter2@127.0.0.1:{}/1", server.port), 78, &["no database"]),
    ]);
    refuse("redis", &rows);
    accept(&at(":hunter2@", &guarded, "orders?sentinel_password=s3cret"));
}

#[test]
fn mysql() {
    let server = Mysql::start();
    accept(&server.url("app:se%3Acret"));
    let at = |login: &str, rest: &str| server.url(login) + rest;
    let mut rows = unreachable("mysql", "app:s3cret@", "/locks");
    rows.extend([
        Row("wrong password", at("app:hunter2", ""), 77, &["check user and password"]),
        Row("no such user", at("nobody:hunter2", ""), 77, &["check user and password"]),
        Row("no table and no right to make one", at("reader:se%3Acret", "?table=absent"), 77, &["CREATE TABLE"]),
        Row("no right to write", at("poor:se%3Acret", ""), 77, &["INSERT", "grant SELECT, INSERT"]),
        Row("no right on the database", at("app:se%3Acret", "2"), 77, &["locks2", "grant"]),
        Row("no such database", at("admin:se%3Acret", "2"), 78, &["create the database"]),
        Row("another program's table", at("app:se%3Acret", "?table=other"), 78, &["?table="]),
        Row("unknown parameter", at("app:se%3Acret", "?colour=red"), 78, &["colour"]),
        Row("no TLS where it is asked for", at("app:se%3Acret", "?ssl-mode=verify_identity"), 69, &["ssl-ca"]),
    ]);
    refuse("mysql", &rows);
    server.run("SET GLOBAL read_only=1");
    let twice = at("app:se%3Acret", "").replace("/locks", &format!(",127.0.0.1:{}/locks", server.port));
    let rows = [
        Row("read-only server", at("app:se%3Acret", ""), 69, &["give the primary"]),
        Row("none that takes writes", twice, 69, &["none of the servers", "read_only=0"]),
    ];
    refuse("mysql", &rows);
}

#[test]
fn zk() {
    let (server, alone) = (Zk::start("maxSessionTimeout=60000"), Zk::without_quorum());
    // The folder is its maker's alone; below the root it is made where it is missing.
    accept(&server.url("owner:s3cret@", "/guarded/locks"));
    accept(&server.url("", "/made/on/the/way"));
    let mut rows = unreachable("zk", "owner:s3cret@", "/x");
    rows.extend([
        Row("no login", server.url("", "/guarded/locks"), 77, &["zk://USER:PASSWORD@HOST"]),
        Row("another's login", server.url("owner:hunter2@", "/guarded/locks"), 77, &["zk://USER:PASSWORD@HOST"]),
        Row("no right to make the folder", server.url("", "/guarded/new"), 77, &["zk://USER:PASSWORD@HOST"]),
        Row("a lost majority", alone.url("owner:s3cret@", "/x"), 69, &["majority"]),
        Row("unknown parameter", server.url("", "/x?colour=red"), 78, &["colour"]),
    ]);
    refuse("zk", &rows);
    let lab = Lab::at(server.url("", "/x"));
    let ended = lab.run_in_time(&["run", "jobs/x", "--ttl", "1h", "--", "true"], 64, &[]);
    ended.says(64, &["zk", "jobs/x", "to 60s"]);
}

#[test]
fn etcd() {
    let (plain, guarded, alone) = (Etcd::start(&[]), Etcd::start(&[]), Etcd::without_quorum());
    let full = Etcd::start(&["--quota-backend-bytes", "1000000"]);
    guarded.guard();
    full.fill();
    let mut rows = unreachable("etcd", "app:s3cret@", "");
    rows.extend([
        Row("wrong password", guarded.url("app:hunter2@"), 77, &["check user and password"]),
        Row("no such user", guarded.url("nobody:hunter2@"), 77, &["check user and password"]),
        Row("no login", guarded.url(""), 77, &["etcd://USER:PASSWORD@HOST"]),
        Row("no role", guarded.url("other:s3cret@"), 77, &["grant-permission"]),
        Row("half of the rights", guarded.url("half:s3cret@"), 77, &["grant-permission"]),
        Row("a login where there are no users", plain.url("app:s3cret@"), 78, &["leave user and password out"]),
        Row("a lost majority", alone.url(""), 69, NO_ANSWER),
        Row("no space", full.url(""), 69, &["quota", "disarm"]),
        Row("TLS to a plain port", plain.url("").replace("etcd:", "etcds:"), 69, &["speaks what the URL says"]),
        Row("unknown parameter", plain.url("") + "?colour=red", 78, &["colour"]),
    ]);
    refuse("etcd", &rows);
    refuse_as("etcd", "other/x", &[Row("no right on the name", guarded.url("app:s3cret@"), 77, &["grant-permission"])]);
    accept(&guarded.url("app:s3cret@"));
}

#[test]
fn sqlite() {
    let lab = Lab::new();
    std::fs::write(lab.path("text"), "no database\n".repeat(500)).unwrap();
    let at = |file: &str| format!("sqlite://{}/{file}", lab.home().display());
    refuse(
        "sqlite",
        &[
            Row("a folder", at(""), 78, &["name a file"]),
            Row("another kind of file", at("text"), 78, &["name another file"]),
            Row("a file for a folder", at("text/locks.db"), 78, &["check the path"]),
            // Not even root may make a file there.
            Row("no right", "sqlite:///sys/locks.db".into(), 77, &["the right to"]),
            Row("unknown parameter", at("x.db?colour=red"), 78, &["colour"]),
        ],
    );
}
