//! Other data in the same cluster. Other clients: conformance-tests/tests/neighbours.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::{Duration, Instant};

use etcd_client::{CompactionOptions, PutOptions};
use lock_core::{DistributedLock, Page};
use support::{Cluster, ask, give_back, keys, request, take, waiting};

const S: fn(u64) -> Duration = Duration::from_secs;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_without_a_lease_and_keys_further_below_are_not_in_the_way() {
    let cluster = Cluster::start().await;
    let (lock, mut client) = (cluster.lock().await, cluster.client().await);
    for key in ["a", "a/data", "a/b/data"] {
        client.put(key, "v", None).await.unwrap();
    }
    let lease = client.lease_grant(600, None).await.unwrap().id();
    client.put("a/b/deep", "v", Some(PutOptions::new().with_lease(lease))).await.unwrap();
    let below = take(&lock, "a/c").await;
    let held = take(&lock, "a").await;
    assert!(ask(&lock, &request("a", S(20))).await.is_none());
    let asked = waiting("a", S(20), Duration::from_millis(200));
    assert!(ask(&lock, &asked).await.is_none());
    // What is on a lease and looks like no lock is not listed.
    let listed = lock.list("a", Page::first(10)).await.unwrap();
    let names: Vec<_> = listed.iter().map(|holder| holder.name.as_str()).collect();
    assert_eq!(names, ["a", "a/c"]);
    give_back(held).await;
    give_back(below).await;
    assert_eq!(keys(&mut client, "a").await, ["a", "a/b/data", "a/b/deep", "a/data"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_does_not_disturb_who_waits_or_holds() {
    let cluster = Cluster::start().await;
    let (lock, other, mut client) = (cluster.lock().await, cluster.lock().await, cluster.client().await);
    let held = take(&lock, "x").await;
    let loss = tokio::spawn(held.loss());
    let asked = waiting("x", S(20), S(20));
    let next = tokio::spawn(async move { ask(&other, &asked).await.unwrap() });
    let mut revision = 0;
    for _ in 0..100 {
        revision = client.put("noise", "v", None).await.unwrap().header().unwrap().revision();
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    client.compact(revision, Some(CompactionOptions::new())).await.unwrap();
    client.put("noise", "v", None).await.unwrap();
    assert!(!next.is_finished() && !loss.is_finished());
    let start = Instant::now();
    give_back(held).await;
    let next = tokio::time::timeout(S(1), next).await.expect("the waiter slept on").unwrap();
    assert!(start.elapsed() < S(1));
    give_back(next).await;
    loss.abort();
}
