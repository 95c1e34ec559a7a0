//! Other clients and other data in the same cluster.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use etcd_client::{CompactionOptions, PutOptions};
use lock_core::{DistributedLock, HolderState, LockName, Page};
use support::{Cluster, ask, eventually, give_back, keys, request, take, waiting};

const S: fn(u64) -> Duration = Duration::from_secs;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_lock_excludes_with_us_both_ways() {
    let cluster = Cluster::start().await;
    let lock = cluster.lock().await;
    // Theirs keeps ours out, and ours comes next.
    let mut theirs =
        cluster.etcdctl().args(["lock", "job"]).stdout(Stdio::piped()).spawn().expect("etcdctl is missing");
    let mut line = String::new();
    // Kept open: it dies of a closed pipe without a release.
    let mut said = BufReader::new(theirs.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    assert!(line.starts_with("job/"), "{line}");
    assert!(ask(&lock, &request("job", S(20))).await.is_none());
    let shown = lock.inspect(&LockName::new("job").unwrap()).await.unwrap().unwrap();
    assert_eq!((shown.state, format!("job/{}", shown.owner).as_str()), (HolderState::Foreign, line.trim()));
    let asked = waiting("job", S(20), S(20));
    let next = tokio::spawn({
        let lock = lock.clone();
        async move { ask(&lock, &asked).await.unwrap() }
    });
    assert!(
        eventually(S(5), || async {
            lock.inspect(&LockName::new("job").unwrap()).await.unwrap().is_some_and(|holder| holder.waiters == Some(1))
        })
        .await
    );
    // It releases at an interrupt.
    let killed = std::process::Command::new("kill").args(["-INT", &theirs.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let ours = tokio::time::timeout(S(5), next).await.unwrap().unwrap();
    let _ = theirs.wait();
    // Ours keeps theirs out, and theirs comes next.
    let mut theirs = cluster.etcdctl().args(["lock", "job", "echo", "in"]).stdout(Stdio::piped()).spawn().unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(theirs.try_wait().unwrap().is_none(), "etcdctl lock ran beside us");
    give_back(ours).await;
    let output = tokio::task::spawn_blocking(|| theirs.wait_with_output()).await.unwrap().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "in\n");
}

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
