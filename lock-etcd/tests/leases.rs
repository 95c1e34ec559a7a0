//! Shared leases, the fence on them, and how they end.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::{Duration, Instant};

use lock_core::{DistributedLock, LostReason, Renewal};
use support::{Cluster, Line, ask, eventually, give_back, keys, request, take, waiting};

const S: fn(u64) -> Duration = Duration::from_secs;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_one_ttl_share_a_lease_and_close_ends_it() {
    let cluster = Cluster::start().await;
    let (lock, mut client) = (cluster.lock().await, cluster.client().await);
    let mut held = Vec::new();
    for i in 0..50 {
        held.push(ask(&lock, &request(&format!("n{i}"), S(7))).await.unwrap());
    }
    let leases = client.lease_client().leases().await.unwrap().leases().len();
    // One for the locks, one for waiters, that is being let go.
    assert!(leases <= 2, "{leases} leases for 50 locks of one TTL");
    assert!(held.iter().all(|lease| lease.effective_ttl() == S(7)));
    for lease in held {
        give_back(lease).await;
    }
    lock.close().await.unwrap();
    assert!(keys(&mut client, "n").await.is_empty());
    assert!(
        eventually(S(4), || {
            let mut leases = client.lease_client();
            async move { leases.leases().await.unwrap().leases().is_empty() }
        })
        .await
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_without_renewal_has_a_lease_of_its_own_and_none_after_its_release() {
    let cluster = Cluster::start().await;
    let (lock, client) = (cluster.lock().await, cluster.client().await);
    let mut asked = request("x", S(1_000));
    asked.renewed = false;
    let lease = ask(&lock, &asked).await.unwrap();
    let mut busy = request("x", S(1_000));
    busy.renewed = false;
    assert!(ask(&lock, &busy).await.is_none());
    give_back(lease).await;
    assert!(
        eventually(S(4), || {
            let mut leases = client.lease_client();
            async move { leases.leases().await.unwrap().leases().is_empty() }
        })
        .await
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_that_is_overtaken_by_its_clean_up_fails_at_the_fence() {
    let cluster = Cluster::start().await;
    let line = Line::to(cluster.0[0].port).await;
    let (lock, mut client) = (line.lock().await, cluster.client().await);
    // One that holds, and one that waits: their leases and sentinels are there before.
    let mut held = take(&lock, "held").await;
    assert!(ask(&lock, &waiting("held", S(20), Duration::from_millis(100))).await.is_none());
    for waits in [false, true] {
        let name = if waits { "held" } else { "x" };
        let asked = waiting(name, S(20), S(60));
        line.hold_open();
        let given_up = tokio::time::timeout(Duration::from_millis(400), lock.acquire(&asked)).await;
        assert!(given_up.is_err(), "a request was answered that never arrived");
        // On a new connection; the other locks on the lease go on as well.
        lock.abandon(&asked.name, &asked.owner).await.unwrap();
        assert_eq!(held.renew().await.unwrap(), Renewal::Renewed);
        line.deliver();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let left = keys(&mut client, &format!("{name}/")).await;
        assert_eq!(left.len(), usize::from(waits), "a put came after its clean-up: {left:?}");
        give_back(take(&lock, "y").await).await;
        assert_eq!(held.renew().await.unwrap(), Renewal::Renewed);
    }
    give_back(held).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_nobody_releases_takes_its_shared_lease_along() {
    let cluster = Cluster::start().await;
    let (lock, mut client) = (cluster.lock().await, cluster.client().await);
    let mut kept = ask(&lock, &request("kept", S(2))).await.unwrap();
    // Its keeper died.
    drop(ask(&lock, &request("orphan", S(2))).await.unwrap());
    let start = Instant::now();
    let lost = loop {
        match kept.renew().await.unwrap() {
            Renewal::Renewed => tokio::time::sleep(Duration::from_millis(200)).await,
            Renewal::Lost(reason) => break reason,
        }
        assert!(start.elapsed() < S(4), "the heart-beat goes on for {:?}", start.elapsed());
    };
    assert_eq!(lost, LostReason::SessionLost);
    // New locks have a new lease, and the orphan ends.
    let next = ask(&lock, &request("next", S(2))).await.unwrap();
    assert!(start.elapsed() < S(4));
    for _ in 0..50 {
        if keys(&mut client, "orphan/").await.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(keys(&mut client, "orphan/").await.is_empty(), "an orphan is immortal");
    drop(next);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_revoked_by_hand_is_a_lost_session_within_a_second() {
    let cluster = Cluster::start().await;
    let (lock, mut client) = (cluster.lock().await, cluster.client().await);
    let mut held = ask(&lock, &request("x", S(9))).await.unwrap();
    let id = client.get("x/", Some(etcd_client::GetOptions::new().with_prefix())).await.unwrap().kvs()[0].lease();
    let loss = held.loss();
    cluster.ctl(&["lease", "revoke", &format!("{id:x}")]);
    let reason = tokio::time::timeout(S(1), loss).await.expect("a revoked lease was not noticed");
    assert_eq!(reason, LostReason::SessionLost);
    // The answer to a keep-alive of a lease that is gone is no error, but a TTL of 0.
    assert_eq!(held.renew().await.unwrap(), Renewal::Lost(LostReason::SessionLost));
    give_back(take(&lock, "x").await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_servers_minimum_is_what_is_granted_and_shown() {
    let cluster = Cluster::start_with(1, &[]).await;
    let lock = cluster.lock().await;
    assert_eq!(lock.capabilities().min_ttl, S(2));
    let short = ask(&lock, &request("short", Duration::from_millis(300))).await.unwrap();
    assert_eq!(short.effective_ttl(), S(2));
    let odd = ask(&lock, &request("odd", Duration::from_millis(2_999))).await.unwrap();
    assert_eq!(odd.effective_ttl(), S(3));
    give_back(short).await;
    give_back(odd).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_ended_unnoticed_costs_the_next_request_nothing() {
    let cluster = Cluster::start().await;
    let (lock, mut client) = (cluster.lock().await, cluster.client().await);
    let locks = lock_core::LockManager::new(std::sync::Arc::new(lock)).unwrap();
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
    for lease in client.leases().await.unwrap().leases() {
        client.lease_revoke(lease.id()).await.unwrap();
    }
    locks.lock("b").acquire().await.unwrap().release().await.unwrap();
}
