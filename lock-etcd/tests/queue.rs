//! The queue where the one before is of this process: what is heard from it is only a hint, and silence is not trusted.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::{Duration, Instant};

use etcd_client::{Client, DeleteOptions};
use lock_core::{AcquireRequest, DistributedLock, FencingToken, Lease, Released, Revoke};
use lock_etcd::EtcdLock;
use support::{Cluster, ask, eventually, give_back, keys, take, waiting};
use tokio::task::JoinHandle;

const S: fn(u64) -> Duration = Duration::from_secs;
/// Longer than anybody relies on a neighbour's word.
const LONG: Duration = Duration::from_millis(1_200);

type Waiter = JoinHandle<Box<dyn Lease>>;

/// A waiter that has its place when this returns, as the last of so many entries.
async fn line_up(lock: &EtcdLock, client: &mut Client, asked: AcquireRequest, entries: usize) -> Waiter {
    let (lock, folder) = (lock.clone(), format!("{}/", asked.name));
    let waiter = tokio::spawn(async move { ask(&lock, &asked).await.unwrap() });
    stand(client, &folder, entries).await;
    waiter
}

async fn stand(client: &mut Client, folder: &str, entries: usize) {
    let all = eventually(S(5), || {
        let (mut client, folder) = (client.clone(), folder.to_owned());
        async move { keys(&mut client, &folder).await.len() == entries }
    });
    assert!(all.await, "{:?} are not {entries} entries", keys(client, folder).await);
}

/// The waiter's lock, which it must get within the second of W2.
async fn soon(waiter: Waiter) -> Box<dyn Lease> {
    tokio::time::timeout(S(1), waiter).await.expect("a freed name was not noticed within 1 s").unwrap()
}

fn entry(asked: &AcquireRequest) -> String {
    format!("{}/{}", asked.name, asked.owner)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_order_of_arrival_holds_across_processes() {
    let cluster = Cluster::start().await;
    let (locks, mut client) = ([cluster.lock().await, cluster.lock().await], cluster.client().await);
    let held = take(&locks[0], "x").await;
    let mut waiters = Vec::new();
    for number in 0..12 {
        // Some have a neighbour before them, and some a stranger.
        let lock = &locks[usize::from(number % 4 < 2)];
        waiters.push(line_up(lock, &mut client, waiting("x", S(20), S(30)), number + 2).await);
    }
    let mut last = held.fencing_token();
    give_back(held).await;
    for waiter in waiters {
        let next = soon(waiter).await;
        assert!(next.fencing_token() > last, "{:?} after {last:?}", next.fencing_token());
        last = next.fencing_token();
        give_back(next).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_leaves_or_loses_its_place_lets_the_next_one_close_up() {
    let cluster = Cluster::start().await;
    let (lock, mut client) = (cluster.lock().await, cluster.client().await);
    let held = take(&lock, "x").await;
    let (dropped, removed) = (waiting("x", S(20), S(30)), waiting("x", S(20), S(30)));
    let first = line_up(&lock, &mut client, waiting("x", S(20), S(30)), 2).await;
    let second = line_up(&lock, &mut client, dropped.clone(), 3).await;
    let third = line_up(&lock, &mut client, removed.clone(), 4).await;
    let fourth = line_up(&lock, &mut client, waiting("x", S(20), S(30)), 5).await;
    // Its entry stays until its clean-up, and nobody passes it before that.
    second.abort();
    client.delete(entry(&removed), None).await.unwrap();
    give_back(held).await;
    give_back(soon(first).await).await;
    assert!(!eventually(Duration::from_millis(300), || async { fourth.is_finished() }).await, "a place was passed");
    lock.abandon(&dropped.name, &dropped.owner).await.unwrap();
    let fourth = soon(fourth).await;
    // Who was removed by hand stands at the end now.
    let behind = line_up(&lock, &mut client, waiting("x", S(20), S(30)), 3).await;
    let token = fourth.fencing_token();
    give_back(fourth).await;
    let third = soon(third).await;
    assert!(third.fencing_token() > token);
    give_back(third).await;
    give_back(soon(behind).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_neighbour_that_goes_without_a_word_is_missed() {
    let cluster = Cluster::start().await;
    let (lock, mut client) = (cluster.lock().await, cluster.client().await);
    // A holder whose entry is removed by hand, and who does nothing about it; at once, and once the waiter has its watch.
    for settled in [Duration::ZERO, LONG] {
        let asked = waiting("x", S(20), S(30));
        let held = ask(&lock, &asked).await.unwrap();
        let waiter = line_up(&lock, &mut client, waiting("x", S(20), S(30)), 2).await;
        tokio::time::sleep(settled).await;
        client.delete(entry(&asked), None).await.unwrap();
        give_back(soon(waiter).await).await;
        drop(held);
        lock.abandon(&asked.name, &asked.owner).await.unwrap();
    }
    // A waiter whose future nobody polls any more, and whose place is gone.
    for settled in [Duration::ZERO, LONG] {
        let held = take(&lock, "x").await;
        let asked = waiting("x", S(20), S(30));
        let mut frozen = Box::pin(lock.acquire(&asked));
        tokio::select! {
            _ = &mut frozen => panic!("a held name was granted"),
            () = stand(&mut client, "x/", 2) => {}
        }
        let waiter = line_up(&lock, &mut client, waiting("x", S(20), S(30)), 3).await;
        tokio::time::sleep(settled).await;
        client.delete(entry(&asked), None).await.unwrap();
        give_back(held).await;
        give_back(soon(waiter).await).await;
        drop(frozen);
        lock.abandon(&asked.name, &asked.owner).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_neighbour_is_no_proof_that_the_name_is_free() {
    let cluster = Cluster::start().await;
    let (lock, mut client) = (cluster.lock().await, cluster.client().await);
    let asked = waiting("x", S(20), S(30));
    let held = ask(&lock, &asked).await.unwrap();
    let waiter = line_up(&lock, &mut client, waiting("x", S(20), S(30)), 2).await;
    // Its keeper has died; its entry lives.
    drop(held);
    assert!(!eventually(LONG, || async { waiter.is_finished() }).await, "granted beside a living entry");
    lock.abandon(&asked.name, &asked.owner).await.unwrap();
    let mut held = soon(waiter).await;
    // A mark keeps everybody out until its holder has released.
    let waiter = line_up(&lock, &mut client, waiting("x", S(20), S(30)), 2).await;
    let token = held.fencing_token();
    assert_eq!(lock.revoke(&asked.name, Some(token), Revoke::Mark).await.unwrap(), Released::Released);
    assert!(!eventually(LONG, || async { waiter.is_finished() }).await, "granted beside a mark");
    assert_eq!(held.release().await.unwrap(), Released::NotHeld);
    let next = soon(waiter).await;
    assert!(next.fencing_token() > token && token > FencingToken::new(0));
    give_back(next).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_whose_lease_or_fence_was_lost_stand_again() {
    let cluster = Cluster::start().await;
    let (lock, mut client) = (cluster.lock().await, cluster.client().await);
    let held = take(&lock, "x").await;
    let mut waiters = Vec::new();
    for number in 0..4 {
        waiters.push(line_up(&lock, &mut client, waiting("x", S(20), S(30)), number + 2).await);
    }
    // The lease of the places, and not that of the lock: the second of two that are there.
    let found = client.get("x/", Some(etcd_client::GetOptions::new().with_prefix())).await.unwrap();
    let lease = found
        .kvs()
        .iter()
        .map(|kv| kv.lease())
        .find(|lease| found.kvs().iter().filter(|kv| kv.lease() == *lease).count() == 4);
    client.lease_revoke(lease.unwrap()).await.unwrap();
    stand(&mut client, "x/", 5).await;
    // All fences at once, as after clean-ups.
    let fences = DeleteOptions::new().with_prefix();
    client.delete(b"\xffdistlock/".to_vec(), Some(fences)).await.unwrap();
    waiters.push(line_up(&lock, &mut client, waiting("x", S(20), S(30)), 6).await);
    give_back(held).await;
    let mut last = FencingToken::new(0);
    while !waiters.is_empty() {
        let (next, _, rest) = tokio::time::timeout(S(1), futures_util::future::select_all(waiters)).await.unwrap();
        let next = next.unwrap();
        assert!(next.fencing_token() > last);
        last = next.fencing_token();
        give_back(next).await;
        waiters = rest;
    }
    give_back(take(&lock, "x").await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_below_a_name_keeps_no_waiter_from_it() {
    let cluster = Cluster::start().await;
    let (lock, mut client) = (cluster.lock().await, cluster.client().await);
    for number in 0..40 {
        client.put(format!("x/data-{number}"), "v", None).await.unwrap();
    }
    let held = take(&lock, "x").await;
    let first = line_up(&lock, &mut client, waiting("x", S(20), S(30)), 42).await;
    let second = line_up(&lock, &mut client, waiting("x", S(20), S(30)), 43).await;
    let start = Instant::now();
    give_back(held).await;
    give_back(soon(first).await).await;
    give_back(soon(second).await).await;
    assert!(start.elapsed() < S(1));
    stand(&mut client, "x/", 40).await;
}
