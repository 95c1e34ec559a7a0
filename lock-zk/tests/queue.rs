//! What stands in the folder beside our nodes, the order, and the folder itself.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::{Duration, Instant};

use lock_core::{Capabilities, DistributedLock, ErrorKind, HolderState, LockName, LostReason, Released, Revoke};
use support::{Server, ask, eventually, put, request, take};
use tokio::time::timeout;
use zookeeper_client::{CreateMode, Error};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_do_not_contend_are_ignored_and_left_alone() {
    let server = Server::start().await;
    let (lock, raw) = (server.lock().await, server.raw().await);
    let strangers = ["README", "lock-", "x-y-z", "zzz0000000000", "_c_x-lock-12", "__READ__0000000000"];
    for node in strangers {
        put(&raw, "a", node, CreateMode::Persistent).await;
    }
    for _ in 0..3 {
        let mut lease = take(&lock, "a", 5_000, 0).await;
        assert!(ask(&lock, &request("a", 5_000, 100)).await.unwrap().is_none());
        assert_eq!(lease.release().await.unwrap(), Released::Released);
    }
    let mut left = raw.list_children("/locks/a").await.unwrap();
    left.sort_unstable();
    let mut expected = strangers.map(str::to_owned);
    expected.sort_unstable();
    assert_eq!(left, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_holder_has_nothing_to_release_and_lets_the_next_in() {
    let server = Server::start().await;
    let lock = server.lock().await;
    let name = LockName::new("a").unwrap();
    let mut lease = take(&lock, "a", 5_000, 0).await;
    assert_eq!(lock.revoke(&name, None, Revoke::Mark).await.unwrap(), Released::Released);
    assert_eq!(lease.release().await.unwrap(), Released::NotHeld);
    let mut next = take(&lock, "a", 5_000, 0).await;
    assert_eq!(next.release().await.unwrap(), Released::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn contenders_of_curator_and_kazoo_stand_in_the_same_queue() {
    let server = Server::start().await;
    let (lock, raw) = (server.lock().await, server.raw().await);
    let name = LockName::new("a").unwrap();
    for node in ["_c_6c5b5d1e-0c2b-4c53-9d5e-bb7a5be9e9c5-lock-", "0a1b2c__lock__", "0a1b2c__rlock__"] {
        let path = put(&raw, "a", node, CreateMode::EphemeralSequential).await;
        let shown = lock.inspect(&name).await.unwrap().unwrap();
        assert_eq!((shown.state, format!("/locks/a/{}", shown.owner)), (HolderState::Foreign, path.clone()));
        assert!(ask(&lock, &request("a", 5_000, 0)).await.unwrap().is_none(), "{node} does not exclude");
        let err = lock.revoke(&name, None, Revoke::Mark).await.unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Foreign);

        let waiting = tokio::spawn({
            let lock = lock.clone();
            async move { take(&lock, "a", 5_000, 10_000).await }
        });
        eventually(SECOND * 3, async || raw.list_children("/locks/a").await.unwrap().len() == 2).await;
        raw.delete(&path, None).await.unwrap();
        let mut lease = timeout(SECOND, waiting).await.unwrap().unwrap();
        lease.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_holder_stays_the_first_when_the_numbers_wrap() {
    let server = Server::start().await;
    let (lock, raw) = (server.lock().await, server.raw().await);
    for holder in ["_c_x-lock-2147483647", "_c_x-lock--000000001"] {
        let held = put(&raw, "a", holder, CreateMode::Persistent).await;
        // The server's own number for the next node is a small one, which stands behind.
        assert_eq!(ask(&lock, &request("a", 5_000, 0)).await.unwrap().is_none(), holder.contains("--"), "{holder}");
        let _ = raw.delete(&held, None).await;
        for node in raw.list_children("/locks/a").await.unwrap() {
            raw.delete(&format!("/locks/a/{node}"), None).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_vanishes_all_the_time_costs_nobody_an_error() {
    let server = Server::start().await;
    let raw = server.raw().await;
    let remover = tokio::spawn(async move {
        loop {
            match raw.delete("/locks/a", None).await {
                Ok(()) | Err(Error::NoNode | Error::NotEmpty) => tokio::task::yield_now().await,
                Err(e) => panic!("{e}"),
            }
        }
    });
    let mut running = Vec::new();
    for _ in 0..2 {
        let lock = server.lock().await;
        running.extend((0..8).map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move {
                let mut tokens = Vec::new();
                for _ in 0..10 {
                    let mut lease = take(&lock, "a", 20_000, 50_000).await;
                    tokens.push(lease.fencing_token());
                    assert_eq!(lease.release().await.unwrap(), Released::Released);
                }
                tokens
            })
        }));
    }
    for task in running {
        let tokens = timeout(SECOND * 50, task).await.unwrap().unwrap();
        assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    }
    remover.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_of_names_used_once_vanish() {
    let server = Server::start().await;
    let (lock, raw) = (server.lock().await, server.raw().await);
    for i in 0..300 {
        take(&lock, &format!("once-{i}"), 10_000, 0).await.release().await.unwrap();
    }
    eventually(SECOND * 20, async || raw.list_children("/locks").await.unwrap().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_is_cut_off_blocks_nobody_for_its_whole_ttl() {
    let server = Server::start().await;
    let (lock, raw) = (server.lock().await, server.raw().await);
    let mut held = take(&lock, "a", 30_000, 0).await;
    // Its runtime ends without a word, as that of a process does that is killed.
    let url = server.url();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.spawn(async move {
        let lock = lock_zk::ZkLock::connect(lock_zk::ZkConfig::from_url(url).unwrap()).await.unwrap();
        take(&lock, "a", 30_000, 60_000).await
    });
    let is_waiting = async || {
        let nodes = raw.list_children("/locks/a").await.unwrap();
        let mut waiting = 0;
        for node in nodes {
            let data = raw.get_data(&format!("/locks/a/{node}")).await.map(|(data, _)| data).unwrap_or_default();
            waiting += usize::from(data.starts_with(b"1\nwaiting:"));
        }
        waiting == 1
    };
    eventually(SECOND * 5, is_waiting).await;
    runtime.shutdown_background();
    held.release().await.unwrap();
    let freed = Instant::now();
    let mut next = take(&lock, "a", 30_000, 10_000).await;
    let capabilities: &Capabilities = lock.capabilities();
    let limit = capabilities.min_ttl + capabilities.expiry_grain + SECOND;
    assert!(freed.elapsed() <= limit, "{:?}", freed.elapsed());
    next.release().await.unwrap();
}

/// The list of those who wait is larger than what the server takes for a packet.
#[tokio::test(flavor = "multi_thread")]
async fn a_small_buffer_stops_neither_four_hundred_waiters_nor_their_holder() {
    let server = Server::start_as(&["-Djute.maxbuffer=20000"], "").await;
    let (lock, waiter) = (server.lock().await, server.lock().await);
    let mut held = take(&lock, "n", 10_000, 0).await;
    let waiting: Vec<_> = (0..400)
        .map(|_| {
            let waiter = waiter.clone();
            tokio::spawn(async move { ask(&waiter, &request("n", 10_000, 8_000)).await.map(|lease| lease.is_some()) })
        })
        .collect();
    let name = LockName::new("n").unwrap();
    eventually(SECOND * 8, async || lock.inspect(&name).await.unwrap().unwrap().waiters == Some(400)).await;
    let sessions = || {
        let text = server.says("mntr");
        let line = text.lines().find_map(|line| line.strip_prefix("zk_global_sessions\t").map(str::to_owned));
        (line, text.lines().find_map(|line| line.strip_prefix("zk_connection_request_count\t").map(str::to_owned)))
    };
    let before = sessions();
    assert_eq!(held.renew().await.unwrap(), lock_core::Renewal::Renewed);
    for waiter in waiting {
        assert!(!waiter.await.unwrap().unwrap(), "a held name was granted");
    }
    assert_eq!(sessions(), before, "it was dialled anew");
    assert_eq!(held.release().await.unwrap(), Released::Released);
    take(&waiter, "n", 10_000, 3_000).await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_waiter_that_comes_first_is_not_granted_and_blocks_nobody() {
    let server = Server::start().await;
    let (lock, raw) = (server.lock().await, server.raw().await);
    let mut lease = take(&lock, "a", 5_000, 0).await;
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { ask(&lock, &request("a", 5_000, 10_000)).await.map(|lease| lease.is_some()) }
    });
    let waiter = async || {
        let mut nodes = raw.list_children("/locks/a").await.unwrap();
        nodes.sort_by_key(|node| node.rsplit('-').next().map(str::to_owned));
        nodes.get(1).cloned()
    };
    eventually(SECOND * 3, async || waiter().await.is_some()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let path = format!("/locks/a/{}", waiter().await.unwrap());
    raw.set_data(&path, b"written into", None).await.unwrap();
    lease.release().await.unwrap();
    let err = timeout(SECOND * 5, waiting).await.unwrap().unwrap().unwrap_err();
    assert_eq!((err.kind(), err.is_retryable()), (ErrorKind::Unavailable, true), "{err}");
    assert!(err.to_string().contains("revoked"), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_written_into_the_node_ends_the_lease() {
    let server = Server::start().await;
    let (lock, raw) = (server.lock().await, server.raw().await);
    let lease = take(&lock, "a", 10_000, 0).await;
    let loss = tokio::spawn(lease.loss());
    tokio::time::sleep(Duration::from_millis(100)).await;
    let node = raw.list_children("/locks/a").await.unwrap().remove(0);
    raw.set_data(&format!("/locks/a/{node}"), b"", None).await.unwrap();
    assert_eq!(timeout(SECOND, loss).await.unwrap().unwrap(), LostReason::ForceReleased);
}
