//! Several processes on one file.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::time::{Duration, Instant};

use common::{Bench, Child, acquire, boot_time, request, with_ttl};
use lock_core::{DistributedLock, Wait};

fn patient(name: &str) -> lock_core::AcquireRequest {
    let mut request = request(name);
    request.wait = Wait::Until(request.clock.now().after(Duration::from_secs(20)));
    request
}

#[tokio::test]
async fn a_killed_holder_blocks_for_its_ttl_and_no_less() {
    let bench = Bench::new().await;
    let mut child = Child::spawn("hold", &bench.path, "1500");
    let held = child.line().await;
    let [sent, token] = common::numbers(&held);
    child.kill();
    let lease = acquire(&bench.lock, &patient("a")).await.unwrap();
    let after = Duration::from_micros(boot_time() - sent);
    assert!(after >= Duration::from_millis(1500), "early: {after:?}");
    assert!(after < Duration::from_millis(2500), "late: {after:?}");
    assert!(lease.fencing_token().get() > token);
}

#[tokio::test]
async fn processes_exclude_each_other_and_share_the_turns() {
    let bench = Bench::new().await;
    let mut children: Vec<_> = (0..3).map(|_| Child::spawn("contend", &bench.path, "2000")).collect();
    let mut turns = Vec::new();
    for child in &mut children {
        let [n] = common::numbers(&child.line().await);
        turns.push(n);
    }
    let all: u64 = turns.iter().sum();
    assert!(turns.iter().all(|n| n * 10 > all), "each gets more than a tenth: {turns:?}");
    assert_eq!(bench.rows().await, 0);
}

#[tokio::test]
async fn many_processes_may_create_the_file_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/locks.db");
    let mut children: Vec<_> = (0..12).map(|_| Child::spawn("take_once", &path, "-")).collect();
    let mut tokens = Vec::new();
    for child in &mut children {
        let [token] = common::numbers(&child.line().await);
        tokens.push(token);
    }
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 12);
}

#[tokio::test]
async fn a_waiter_of_another_process_gets_a_freed_name_soon() {
    let bench = Bench::new().await;
    let mut slowest = Duration::ZERO;
    for _ in 0..10 {
        let mut lease = acquire(&bench.lock, &patient("a")).await.unwrap();
        let mut child = Child::spawn("hold", &bench.path, "5000");
        bench.wait_for_waiter().await;
        lease.release().await.unwrap();
        let released = Instant::now();
        child.line().await;
        slowest = slowest.max(released.elapsed());
        child.kill();
        common::execute(&bench.path, "DELETE FROM locks").await;
    }
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
}

#[tokio::test]
async fn a_dead_waiter_delays_the_next_by_less_than_a_second() {
    let bench = Bench::new().await;
    let mut lease = acquire(&bench.lock, &patient("a")).await.unwrap();
    let mut child = Child::spawn("hold", &bench.path, "5000");
    bench.wait_for_waiter().await;
    child.kill();
    lease.release().await.unwrap();
    let released = Instant::now();
    acquire(&bench.lock, &patient("a")).await.unwrap();
    assert!(released.elapsed() < Duration::from_secs(1), "{:?}", released.elapsed());
}

#[tokio::test]
async fn who_stops_waiting_leaves_nothing() {
    let bench = Bench::new().await;
    let mut lease = acquire(&bench.lock, &with_ttl(request("a"), Duration::from_secs(60))).await.unwrap();
    let mut limited = request("a");
    limited.wait = Wait::Until(limited.clock.now().after(Duration::from_millis(300)));
    let mut cancelled = request("a");
    cancelled.wait = Wait::Forever;
    let dropped = patient("a");
    let others = async {
        bench.wait_for_waiter().await;
        tokio::time::timeout(Duration::from_millis(100), bench.lock.acquire(&dropped)).await.unwrap_err();
        cancelled.cancel.cancel();
        bench.lock.abandon(&dropped.name, &dropped.owner).await.unwrap();
    };
    let (one, two, ()) = tokio::join!(acquire(&bench.lock, &limited), acquire(&bench.lock, &cancelled), others);
    assert!(one.is_none() && two.is_none());
    assert_eq!(bench.rows().await, 1, "the lease alone");
    lease.release().await.unwrap();
    assert_eq!(bench.rows().await, 0);
}

#[tokio::test]
async fn the_waiters_of_one_process_come_in_order() {
    let bench = Bench::new().await;
    let mut lease = acquire(&bench.lock, &patient("a")).await.unwrap();
    let order = std::sync::Mutex::new(Vec::new());
    let requests: Vec<_> = (0..20).map(|_| patient("a")).collect();
    let waiters = requests.iter().enumerate().map(|(i, request)| {
        let (bench, order) = (&bench, &order);
        async move {
            let mut lease = acquire(&bench.lock, request).await.unwrap();
            order.lock().unwrap().push(i);
            lease.release().await.unwrap();
        }
    });
    let waiters = futures_util::future::join_all(waiters);
    let first = async {
        bench.wait_for_waiter().await;
        lease.release().await.unwrap();
    };
    tokio::join!(waiters, first);
    assert_eq!(*order.lock().unwrap(), (0..20).collect::<Vec<_>>());
}
