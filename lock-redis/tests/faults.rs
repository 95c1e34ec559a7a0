//! What the server, the network and a missing right do to it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::{Duration, Instant};

use lock_core::{Acquisition, DistributedLock, Effect, ErrorKind, LockError, Released, Renewal};
use lock_redis::RedisLock;
use support::{Server, connect, grant, granted, is_busy, name, request, until, waiting};

async fn refused(lock: &RedisLock, text: &str) -> LockError {
    lock.acquire(&request(text, 5000)).await.unwrap_err()
}

#[tokio::test]
async fn a_late_request_of_an_abandoned_owner_takes_nothing() {
    let server = Server::start().await;
    let (lock, other) = (server.connect().await, server.connect().await);
    let mut raw = server.raw().await;
    for round in 0..10 {
        server.signal("STOP");
        let mut request = request("n", 60_000);
        request.operation_timeout = Duration::from_millis(50);
        let err = lock.acquire(&request).await.unwrap_err();
        assert_eq!((err.kind(), err.effect()), (ErrorKind::Unavailable, Effect::Unknown), "{err}");
        // The acquisition lies in the stopped server's socket; whichever it reads first, nothing of it may stay.
        let abandon = tokio::spawn({
            let (other, request) = (other.clone(), request.clone());
            async move { other.abandon(&request.name, &request.owner).await }
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        server.signal("CONT");
        abandon.await.unwrap().unwrap();
        // One more round trip on either connection, so that all that was sent has been read.
        let _ = lock.inspect(&name("n")).await.unwrap();
        let _: redis::Value = raw.run(&["PING"]).await;
        assert_eq!(raw.run::<u32>(&["EXISTS", "n"]).await, 0, "round {round}");
    }
}

#[tokio::test]
async fn a_release_after_a_doubtful_acquisition_leaves_a_tomb() {
    let server = Server::start().await;
    let lock = server.connect().await;
    let mut raw = server.raw().await;
    let mut slow = request("n", 60_000);
    slow.operation_timeout = Duration::from_millis(50);
    server.signal("STOP");
    lock.acquire(&slow).await.unwrap_err();
    server.signal("CONT");
    slow.operation_timeout = Duration::from_secs(2);
    let mut lease = grant(&lock, &slow).await;
    assert_eq!(lease.release().await.unwrap(), Released::Released);
    assert_eq!(lock.acquire(&slow).await.unwrap_err().effect(), Effect::NotApplied);
    assert_eq!(raw.run::<u32>(&["EXISTS", "n"]).await, 0);
    let mut next = grant(&lock, &request("n", 5000)).await;
    assert_eq!(next.release().await.unwrap(), Released::Released);
}

/// Whatever moment a task dies at, no entry without a time to live stays, and the number of connections is constant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_tasks_leave_nothing_that_lasts() {
    let server = Server::start().await;
    let lock = server.connect().await;
    let mut raw = server.raw().await;
    for n in 0..300_u64 {
        let mine = lock.clone();
        let task = tokio::spawn(async move {
            let request = waiting("n", 200, Duration::from_secs(5));
            let mut lease = granted(mine.acquire(&request).await.unwrap());
            lease.renew().await.unwrap();
            lease.release().await.unwrap();
        });
        tokio::time::sleep(Duration::from_micros(n * 37 % 900)).await;
        task.abort();
        let _ = task.await;
    }
    for (key, ttl) in raw.ttls().await {
        assert!(ttl != -1, "{key:?} would stay for ever");
    }
    grant(&lock, &waiting("n", 200, Duration::from_secs(5))).await;
    // This one, the commands' and the subscription's.
    until(Duration::from_secs(5), "three connections", || {
        let mut raw = raw.clone();
        async move { raw.run::<String>(&["CLIENT", "LIST"]).await.lines().count() == 3 }
    })
    .await;
}

#[tokio::test]
async fn a_broken_connection_is_dialled_anew_without_a_word() {
    let server = Server::start().await;
    let lock = server.connect().await;
    let mut raw = server.raw().await;
    let mut lease = grant(&lock, &request("n", 60_000)).await;
    for _ in 0..5 {
        let _: i32 = raw.run(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
        assert_eq!(lease.renew().await.unwrap(), Renewal::Renewed);
        let _: i32 = raw.run(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
        assert!(is_busy(&lock, &request("n", 5000)).await);
    }
    // A release is not sent twice: its answer would not be its own. The keeper repeats it.
    let _: i32 = raw.run(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
    let released = match lease.release().await {
        Err(e) => {
            assert_eq!((e.kind(), e.effect()), (ErrorKind::Unavailable, Effect::Unknown), "{e}");
            lease.release().await.unwrap()
        }
        Ok(released) => released,
    };
    assert_eq!(released, Released::Released);
}

#[tokio::test]
async fn a_server_that_hangs_is_unavailable_and_dialled_anew() {
    let server = Server::start().await;
    let lock = server.connect().await;
    let raw = server.raw().await;
    let mut lease = grant(&lock, &request("held", 60_000)).await;
    server.signal("STOP");
    let mut request_n = request("n", 5000);
    request_n.operation_timeout = Duration::from_millis(100);
    let started = Instant::now();
    let err = lock.acquire(&request_n).await.unwrap_err();
    assert_eq!((err.kind(), err.is_retryable()), (ErrorKind::Unavailable, true));
    assert!(started.elapsed() < Duration::from_secs(1));
    server.signal("CONT");
    assert_eq!(lease.renew().await.unwrap(), Renewal::Renewed);
    until(Duration::from_secs(5), "three connections", || {
        let mut raw = raw.clone();
        async move { raw.run::<String>(&["CLIENT", "LIST"]).await.lines().count() == 3 }
    })
    .await;
}

#[tokio::test]
async fn a_grant_that_comes_after_its_ttl_is_none() {
    let server = Server::start().await;
    let lock = server.connect().await;
    server.signal("STOP");
    let late = request("n", 500);
    let acquiring = tokio::spawn({
        let (lock, late) = (lock.clone(), late.clone());
        async move { lock.acquire(&late).await }
    });
    tokio::time::sleep(Duration::from_millis(700)).await;
    server.signal("CONT");
    let err = acquiring.await.unwrap().unwrap_err();
    assert_eq!((err.kind(), err.effect()), (ErrorKind::Unavailable, Effect::Applied), "{err}");
    assert_eq!(grant(&lock, &late).await.effective_ttl(), Duration::from_millis(500), "a retry is no stranger");
}

#[tokio::test]
async fn refusals_of_the_server_are_their_own_kind_and_leave_no_half() {
    let server = Server::start().await;
    let lock = server.connect().await;
    let mut raw = server.raw().await;
    let mut lease = grant(&lock, &request("held", 60_000)).await;
    for (setting, bad, good, word) in
        [("min-replicas-to-write", "1", "0", "min-replicas-to-write"), ("maxmemory", "1", "0", "maxmemory")]
    {
        let _: redis::Value = raw.run(&["CONFIG", "SET", setting, bad]).await;
        let err = refused(&lock, "n").await;
        assert_eq!((err.kind(), err.is_retryable()), (ErrorKind::Unavailable, true), "{err}");
        assert!(err.to_string().contains(word) && err.to_string().contains("'n'"), "{err}");
        if setting == "maxmemory" {
            assert_eq!(lease.renew().await.unwrap(), Renewal::Renewed, "a held lock is renewed at maxmemory too");
        }
        let _: redis::Value = raw.run(&["CONFIG", "SET", setting, good]).await;
        assert_eq!(raw.run::<u32>(&["EXISTS", "n"]).await, 0);
        grant(&lock, &request("n", 5000)).await.release().await.unwrap();
    }
    assert_eq!(lease.release().await.unwrap(), Released::Released);
}

#[tokio::test]
async fn a_replica_is_unavailable_until_it_is_primary_again() {
    let server = Server::start().await;
    let lock = server.connect().await;
    let mut raw = server.raw().await;
    let mut lease = grant(&lock, &request("held", 60_000)).await;
    let _: redis::Value = raw.run(&["REPLICAOF", "127.0.0.1", "1"]).await;
    let err = refused(&lock, "n").await;
    assert_eq!((err.kind(), err.is_retryable()), (ErrorKind::Unavailable, true), "{err}");
    assert_eq!(lease.renew().await.unwrap_err().kind(), ErrorKind::Unavailable);
    let _: redis::Value = raw.run(&["REPLICAOF", "NO", "ONE"]).await;
    assert_eq!(lease.renew().await.unwrap(), Renewal::Renewed);
    grant(&lock, &request("n", 5000)).await;
}

#[tokio::test]
async fn a_waiter_reports_a_server_that_is_gone() {
    let server = Server::start().await;
    let lock = server.connect().await;
    let _lease = grant(&lock, &request("n", 60_000)).await;
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire(&waiting("n", 5000, Duration::from_secs(60))).await }
    });
    until(Duration::from_secs(5), "queued", || {
        let lock = lock.clone();
        async move { lock.inspect(&name("n")).await.unwrap().unwrap().waiters == Some(1) }
    })
    .await;
    drop(server);
    let err = tokio::time::timeout(Duration::from_secs(5), waiter).await.unwrap().unwrap().unwrap_err();
    assert_eq!((err.kind(), err.is_retryable()), (ErrorKind::Unavailable, true), "{err}");
    let err = refused(&lock, "n").await;
    assert_eq!(err.effect(), Effect::NotApplied, "nothing was sent: {err}");
}

/// The rule that docs/redis.md gives.
const RULE: &[&str] = &[
    "ACL",
    "SETUSER",
    "app",
    "reset",
    "on",
    ">p#a@s:s/w",
    "~locks:*",
    "&distlock:*",
    "+@connection",
    "+@string",
    "+@hash",
    "+@sortedset",
    "+@keyspace",
    "+@pubsub",
    "+eval",
    "+evalsha",
    "+time",
    "-@dangerous",
    "+info",
];
const PASSWORD: &str = "p%23a%40s%3As%2Fw";

#[tokio::test]
async fn the_documented_rule_is_enough() {
    let server = Server::start().await;
    let mut raw = server.raw().await;
    let _: redis::Value = raw.run(RULE).await;
    let page = include_str!("../../docs/redis.md");
    let shown = RULE.join(" ").replace("p#a@s:s/w", "PASSWORD");
    assert!(page.contains(&shown), "docs/redis.md shows: {shown}");
    let lock = connect(&format!("redis://app:{PASSWORD}@127.0.0.1:{}/", server.port)).await.unwrap();
    let mut lease = grant(&lock, &request("locks:n", 5000)).await;
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire(&waiting("locks:n", 5000, Duration::from_secs(10))).await }
    });
    until(Duration::from_secs(5), "queued", || {
        let lock = lock.clone();
        async move { lock.inspect(&name("locks:n")).await.unwrap().unwrap().waiters == Some(1) }
    })
    .await;
    assert_eq!(lease.renew().await.unwrap(), Renewal::Renewed);
    assert_eq!(lease.release().await.unwrap(), Released::Released);
    granted(waiter.await.unwrap().unwrap());
    assert_eq!(lock.list("locks:", lock_core::Page::first(10)).await.unwrap().len(), 1);
    lock.diagnose().await.unwrap();
    let err = refused(&lock, "elsewhere").await;
    assert_eq!(err.kind(), ErrorKind::Denied, "{err}");
}

#[tokio::test]
async fn without_channels_waiters_poll() {
    let server = Server::start().await;
    let mut raw = server.raw().await;
    let _: redis::Value = raw.run(&["ACL", "SETUSER", "u", "on", ">p", "~locks:*", "+@all", "resetchannels"]).await;
    let lock = connect(&format!("redis://u:p@127.0.0.1:{}/", server.port)).await.unwrap();
    let mut lease = grant(&lock, &request("locks:n", 60_000)).await;
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire(&waiting("locks:n", 5000, Duration::from_secs(10))).await }
    });
    until(Duration::from_secs(5), "queued", || {
        let lock = lock.clone();
        async move { lock.inspect(&name("locks:n")).await.unwrap().unwrap().waiters == Some(1) }
    })
    .await;
    lease.release().await.unwrap();
    let released = Instant::now();
    granted(waiter.await.unwrap().unwrap());
    assert!(released.elapsed() < Duration::from_secs(1), "{:?}", released.elapsed());
}

#[tokio::test]
async fn missing_rights_show_before_a_lock_is_left() {
    let server = Server::start().await;
    let mut raw = server.raw().await;
    let _: redis::Value = raw.run(&["ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all", "-eval", "-evalsha"]).await;
    let err = connect(&format!("redis://u:p@127.0.0.1:{}/", server.port)).await.unwrap_err();
    assert_eq!((err.kind(), err.is_retryable()), (ErrorKind::Denied, false), "{err}");
    // A right that a script meets half way: the entry may be there, so the keeper cleans up.
    let _: redis::Value = raw.run(&["ACL", "SETUSER", "v", "on", ">p", "~*", "&*", "+@all", "-hincrby"]).await;
    let lock = connect(&format!("redis://v:p@127.0.0.1:{}/", server.port)).await.unwrap();
    let request = request("n", 60_000);
    let err = lock.acquire(&request).await.unwrap_err();
    assert_eq!((err.kind(), err.effect()), (ErrorKind::Denied, Effect::Unknown), "{err}");
    lock.abandon(&request.name, &request.owner).await.unwrap();
    assert_eq!(raw.run::<u32>(&["EXISTS", "n"]).await, 0);
}

#[tokio::test]
async fn a_wrong_address_password_or_database_is_told_apart_and_no_secret_is_shown() {
    let server = Server::start_with(&["--requirepass", "hunter2"]).await;
    let port = server.port;
    for (url, kind) in [
        ("redis://127.0.0.1:1/".to_owned(), ErrorKind::Unavailable),
        (format!("redis://127.0.0.1:{port}/"), ErrorKind::Denied),
        (format!("redis://:hunter3@127.0.0.1:{port}/"), ErrorKind::Denied),
        (format!("redis://nobody:hunter3@127.0.0.1:{port}/"), ErrorKind::Denied),
        (format!("redis://:hunter2@127.0.0.1:{port}/99"), ErrorKind::Config),
        (format!("rediss://:hunter2@127.0.0.1:{port}/"), ErrorKind::Unavailable),
    ] {
        let started = Instant::now();
        let err = connect(&url).await.unwrap_err();
        assert_eq!(err.kind(), kind, "{url}: {err}");
        assert!(!format!("{err} {err:?}").contains("hunter"), "{err}");
        assert!(started.elapsed() < Duration::from_secs(6));
    }
    let lock = connect(&format!("redis://:hunter2@127.0.0.1:{port}/3")).await.unwrap();
    grant(&lock, &request("n", 5000)).await;
    assert!(!format!("{lock:?}").contains("hunter"));
}

#[tokio::test]
async fn a_cluster_node_serves_names_with_any_braces() {
    let server = Server::start_with(&["--cluster-enabled", "yes"]).await;
    let raw = server.raw().await;
    let _: redis::Value = raw.clone().run(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
    until(Duration::from_secs(10), "the cluster is up", || {
        let mut raw = raw.clone();
        async move { raw.run::<String>(&["CLUSTER", "INFO"]).await.contains("cluster_state:ok") }
    })
    .await;
    let lock = server.connect().await;
    for text in ["plain", "{a}b", "a{b", "}{", "{}x", "a{b}{c}", "{", "}", "é{}{"] {
        let mut lease = grant(&lock, &request(text, 60_000)).await;
        let waiter = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire(&waiting(text, 60_000, Duration::from_secs(10))).await }
        });
        until(Duration::from_secs(5), "queued", || {
            let lock = lock.clone();
            async move { lock.inspect(&name(text)).await.unwrap().unwrap().waiters == Some(1) }
        })
        .await;
        assert_eq!(lease.renew().await.unwrap(), Renewal::Renewed);
        assert_eq!(lease.release().await.unwrap(), Released::Released);
        let next = granted(waiter.await.unwrap().unwrap());
        assert!(next.fencing_token() > lease.fencing_token());
        lock.revoke(&name(text), None, lock_core::Revoke::Now).await.unwrap();
        assert!(matches!(lock.acquire(&request(text, 5000)).await.unwrap(), Acquisition::Granted(_)));
    }
}

#[tokio::test]
async fn a_node_that_does_not_serve_the_slot_is_named() {
    let server = Server::start_with(&["--cluster-enabled", "yes"]).await;
    let lock = server.connect().await;
    let err = refused(&lock, "n").await;
    assert_eq!((err.kind(), err.is_retryable()), (ErrorKind::Unavailable, true), "{err}");
    assert!(err.to_string().contains("CLUSTER"), "{err}");
}
