//! Sessions: their end, their classes, and what a server without its leader may say.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::{Duration, Instant};

use lock_core::{Capabilities, Clock, DistributedLock, Durability, ErrorKind, LostReason, Released, Renewal, Verdict};
use lock_zk::{ZkConfig, ZkLock};
use support::{Server, ask, eventually, put, request, take};
use tokio::time::{sleep, timeout};
use zookeeper_client::CreateMode;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn the_servers_limits_are_declared_and_kept() {
    let server = Server::start_with("minSessionTimeout=2000\n").await;
    let lock = server.lock().await;
    let capabilities: &Capabilities = lock.capabilities();
    assert_eq!((capabilities.min_ttl, capabilities.max_ttl), (SECOND * 2, SECOND * 60));
    assert_eq!((capabilities.expiry_grain, capabilities.durability), (SECOND, Durability::Single));
    for (asked, effective) in [(10, 2_000), (2_000, 2_000), (2_001, 3_000), (59_000, 60_000), (60_000, 60_000)] {
        let mut lease = take(&lock, "a", asked, 0).await;
        assert_eq!(lease.effective_ttl(), Duration::from_millis(effective));
        lease.release().await.unwrap();
    }
    let err = ask(&lock, &request("a", 60_001, 0)).await.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidTtl);
    assert!(err.to_string().contains("60s"), "{err}");
    let diagnosis = lock.diagnose().await.unwrap();
    assert!(diagnosis.server.starts_with("ZooKeeper 3."), "{}", diagnosis.server);
    assert!(diagnosis.findings.iter().all(|finding| finding.verdict <= Verdict::Limited), "{diagnosis:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_of_one_class_share_a_session_and_a_full_one_is_followed_by_another() {
    let server = Server::start().await;
    let (lock, raw) = (server.lock().await, server.raw().await);
    let owners = async |names: usize| {
        let mut sessions = std::collections::HashMap::new();
        for i in 0..names {
            let folder = format!("/locks/{i}%20{}", "x".repeat(400));
            let node = raw.list_children(&folder).await.unwrap().remove(0);
            let (_, stat) = raw.get_data(&format!("{folder}/{node}")).await.unwrap();
            *sessions.entry(stat.ephemeral_owner).or_insert(0) += folder.len() + 1 + node.len();
        }
        sessions
    };
    let mut leases = Vec::new();
    for i in 0..1_300 {
        leases.push(take(&lock, &format!("{i} {}", "x".repeat(400)), 30_000, 0).await);
        if i == 99 {
            assert_eq!(owners(100).await.len(), 1);
        }
    }
    let sessions = owners(1_300).await;
    assert_eq!(sessions.len(), 2, "{sessions:?}");
    assert!(sessions.values().all(|bytes| *bytes <= 512 * 1024), "{sessions:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_deleted_by_hand_is_told_at_once() {
    let server = Server::start().await;
    let (lock, raw) = (server.lock().await, server.raw().await);
    let mut lease = take(&lock, "a", 20_000, 0).await;
    let loss = tokio::spawn(lease.loss());
    sleep(Duration::from_millis(100)).await;
    let node = raw.list_children("/locks/a").await.unwrap().remove(0);
    raw.delete(&format!("/locks/a/{node}"), None).await.unwrap();
    assert_eq!(timeout(SECOND, loss).await.unwrap().unwrap(), LostReason::Removed);
    assert_eq!(lease.renew().await.unwrap(), Renewal::Lost(LostReason::Removed));
    assert_eq!(lease.release().await.unwrap(), Released::NotHeld);
    take(&lock, "a", 20_000, 0).await.release().await.unwrap();
}

/// Whoever knows a session's number and password may end it.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_somebody_else_ends_is_lost_at_once_and_replaced() {
    let server = Server::start().await;
    let line = support::Tap::before(server.port).await;
    let lock = ZkLock::connect(ZkConfig::from_url(line.url()).unwrap()).await.unwrap();
    let waiter = server.lock().await;
    let lease = take(&lock, "a", 20_000, 0).await;
    let loss = tokio::spawn(lease.loss());
    let next = tokio::spawn(async move { take(&waiter, "a", 20_000, 20_000).await });
    sleep(Duration::from_millis(300)).await;
    let start = Instant::now();
    tokio::task::spawn_blocking(move || line.end_sessions()).await.unwrap();
    assert_eq!(timeout(SECOND, loss).await.unwrap().unwrap(), LostReason::SessionLost);
    let mut next = timeout(SECOND * 3, next).await.unwrap().unwrap();
    assert!(next.fencing_token() > lease.fencing_token(), "{:?}", start.elapsed());
    next.release().await.unwrap();
    // The same client goes on with another session.
    take(&lock, "a", 20_000, 5_000).await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_lost_all_data_ends_the_leases_and_gives_new_ones() {
    let first = Server::start().await;
    let lock = first.lock().await;
    let short = take(&lock, "a", 4_000, 0).await;
    let long = take(&lock, "b", 30_000, 0).await;
    let loss = tokio::spawn(short.loss());
    sleep(Duration::from_millis(100)).await;
    let _second = first.replaced().await;
    eventually(SECOND * 5, async || match ask(&lock, &request("b", 30_000, 0)).await {
        Ok(lease) => lease.expect("nothing is left").release().await.is_ok(),
        Err(e) => {
            assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
            false
        }
    })
    .await;
    assert_eq!(timeout(SECOND * 8, loss).await.unwrap().unwrap(), LostReason::SessionLost);
    drop(long);
}

/// Rule R4: the session must not keep alive for ever what nobody minds.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_never_cleared_ends_with_its_session() {
    let server = Server::start().await;
    let (lock, raw) = (server.lock().await, server.raw().await);
    let mut lease = take(&lock, "a", 3_000, 0).await;
    let loss = tokio::spawn(lease.loss());
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { ask(&lock, &request("a", 3_000, 30_000)).await.map(|lease| lease.is_some()) }
    });
    sleep(Duration::from_millis(300)).await;
    put(&raw, "b", "README", CreateMode::Persistent).await;
    // Sent, and given up before the answer; and nobody abandons it, as a keeper would.
    let forgotten = request("b", 3_000, 0);
    let _ = timeout(Duration::from_micros(1), lock.acquire(&forgotten)).await;
    let stands = async || raw.list_children("/locks/b").await.unwrap().len() == 2;
    eventually(SECOND, stands).await;

    // A lock of another keeper in the same session is renewed all the time, and goes with it.
    let start = Instant::now();
    while !loss.is_finished() {
        assert!(start.elapsed() < SECOND * 6, "the session is kept alive");
        let _ = lease.renew().await;
        sleep(Duration::from_millis(100)).await;
    }
    assert!(start.elapsed() > SECOND * 2, "the session was closed too soon");
    assert_eq!(loss.await.unwrap(), LostReason::SessionLost);
    eventually(SECOND * 2, async || !stands().await).await;
    let answer = timeout(SECOND * 5, waiting).await.unwrap().unwrap();
    assert!(answer.is_err_and(|e| e.is_retryable()), "a place of a closed session was granted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_keeps_strangers_out() {
    let server = Server::start().await;
    let url = |login: &str| server.url().replace("zk://", &format!("zk://{login}@"));
    let connect = async |login: &str| ZkLock::connect(ZkConfig::from_url(url(login)).unwrap()).await.unwrap();
    let (lock, stranger) = (connect("app:s%20cret").await, connect("app:wrong").await);
    let mut lease = take(&lock, "a", 20_000, 0).await;
    let err = ask(&stranger, &request("a", 20_000, 0)).await.unwrap_err();
    assert_eq!((err.kind(), err.is_retryable()), (ErrorKind::Denied, false), "{err}");
    assert!(!format!("{err} {err:?} {stranger:?}").contains("wrong"));
    assert_eq!(lease.release().await.unwrap(), Released::Released);
}

/// The heart of rule M2: a follower without its leader goes on answering, and must not be believed.
#[tokio::test(flavor = "multi_thread")]
async fn a_follower_without_its_leader_proves_nothing() {
    let servers = Server::ensemble().await;
    let follower = servers.iter().find(|server| server.mode() == "follower").unwrap();
    let leader = servers.iter().find(|server| server.mode() == "leader").unwrap();
    let lock = follower.lock().await;
    assert_eq!(lock.capabilities().durability, Durability::Quorum);
    let clock = Clock::system();
    let mut lease = take(&lock, "a", 3_000, 0).await;

    // A renewal counts from its own beginning, and takes as long as the leader needs to ask its followers.
    for _ in 0..3 {
        sleep(SECOND / 2).await;
        let sent = clock.now();
        assert_eq!(lease.renew().await.unwrap(), Renewal::Renewed);
        assert!(lease.valid_until() >= lock_core::Deadline::valid_until(sent, lease.effective_ttl()));
        assert!(clock.now().saturating_since(sent) >= Duration::from_millis(100), "it was proved too soon");
    }
    leader.signal("STOP");
    let before = lease.valid_until();
    // Until the last proof is a twentieth of the TTL old, no other is asked for.
    sleep(lease.effective_ttl() / 10).await;
    let stopped = Instant::now();
    while stopped.elapsed() < SECOND {
        let answer = timeout(Duration::from_millis(500), lease.renew()).await;
        assert!(!matches!(answer, Ok(Ok(Renewal::Renewed))), "a follower without its leader confirmed a renewal");
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(lease.valid_until(), before);
    leader.signal("CONT");
    let outlives = |found: lock_core::Diagnosis| found.verdict(lock_core::Promise::Survival) == Verdict::Kept;
    eventually(SECOND * 30, async || lock.diagnose().await.is_ok_and(outlives)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_silent_for_a_while_is_waited_for_as_long_as_the_limit_says() {
    let server = Server::start().await;
    server.signal("STOP");
    let config = ZkConfig::from_url(server.url()).unwrap().connect_timeout(SECOND * 30);
    let mut connecting = tokio::spawn(ZkLock::connect(config));
    // Longer than the least time-out, which is asked for to learn the servers' own.
    let early = timeout(SECOND * 3, &mut connecting).await;
    server.signal("CONT");
    assert!(early.is_err(), "{early:?}");
    let lock = connecting.await.unwrap().unwrap();
    take(&lock, "a", 2_000, 0).await.release().await.unwrap();
}
