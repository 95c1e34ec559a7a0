//! The queue: order, hand-over, and what it survives.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lock_core::{Acquisition, DistributedLock, HolderState, Released, Wait};
use lock_redis::RedisLock;
use support::{Raw, Server, connect, grant, granted, is_busy, name, request, until, waiting};

const NAME: &str = "job";

/// What stands under the helper key of a kind: its name is `job`, 0xFF, the kind and a tag.
async fn helper(raw: &mut Raw, kind: u8) -> Option<Vec<u8>> {
    let keys = raw.ttls().await;
    keys.into_iter().map(|(key, _)| key).find(|key| key.starts_with(b"job\xff") && key.get(4) == Some(&kind))
}

async fn queue_length(raw: &mut Raw) -> u32 {
    match helper(raw, b'q').await {
        // Behind the waiters lie owners that were given up.
        Some(key) => raw.bytes(&[b"ZCOUNT", &key, b"-inf", b"(5000000000000000"]).await,
        None => 0,
    }
}

/// Starts a waiter and comes back when it stands in the queue.
async fn queue_up(
    lock: &RedisLock,
    raw: &mut Raw,
    length: u32,
    wait: Duration,
) -> tokio::task::JoinHandle<Result<Acquisition, lock_core::LockError>> {
    let lock = lock.clone();
    let task = tokio::spawn(async move { lock.acquire(&waiting(NAME, 5000, wait)).await });
    until(Duration::from_secs(5), "queued", || {
        let mut raw = raw.clone();
        async move { queue_length(&mut raw).await == length }
    })
    .await;
    task
}

#[tokio::test]
async fn waiters_of_two_processes_are_served_in_order() {
    let server = Server::start().await;
    let (a, b) = (server.connect().await, server.connect().await);
    let mut raw = server.raw().await;
    let mut lease = grant(&a, &request(NAME, 5000)).await;
    let mut waiters = Vec::new();
    for n in 0..8 {
        let lock = if n % 3 == 0 { &a } else { &b };
        waiters.push(queue_up(lock, &mut raw, n + 1, Duration::from_secs(20)).await);
    }
    assert!(is_busy(&b, &request(NAME, 5000)).await);
    assert_eq!(a.inspect(&name(NAME)).await.unwrap().unwrap().waiters, Some(8));
    let mut last = lease.fencing_token();
    for waiter in waiters {
        let freed = Instant::now();
        assert_eq!(lease.release().await.unwrap(), Released::Released);
        lease = granted(waiter.await.unwrap().unwrap());
        assert!(freed.elapsed() < Duration::from_secs(1), "{:?}", freed.elapsed());
        assert!(lease.fencing_token() > last);
        last = lease.fencing_token();
    }
    lease.release().await.unwrap();
    assert_eq!(queue_length(&mut raw).await, 0);
}

#[tokio::test]
async fn a_try_does_not_pass_those_who_wait() {
    let server = Server::start().await;
    let lock = server.connect().await;
    let mut raw = server.raw().await;
    let mut lease = grant(&lock, &request(NAME, 5000)).await;
    let waiter = queue_up(&lock, &mut raw, 1, Duration::from_secs(10)).await;
    lease.release().await.unwrap();
    assert!(is_busy(&lock, &request(NAME, 5000)).await);
    granted(waiter.await.unwrap().unwrap());
}

#[tokio::test]
async fn who_gives_up_leaves_no_entry() {
    let server = Server::start().await;
    let lock = server.connect().await;
    let mut raw = server.raw().await;
    let lease = grant(&lock, &request(NAME, 60_000)).await;
    let Acquisition::Busy(Some(holder)) = lock.acquire(&waiting(NAME, 5000, Duration::from_millis(100))).await.unwrap()
    else {
        panic!("busy, with its holder")
    };
    assert_eq!((holder.state, holder.token), (HolderState::Held, Some(lease.fencing_token())));
    assert_eq!(queue_length(&mut raw).await, 0);

    let mut cancelled = request(NAME, 5000);
    cancelled.wait = Wait::Forever;
    let cancel = cancelled.cancel.clone();
    let task = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire(&cancelled).await }
    });
    until(Duration::from_secs(5), "queued", || {
        let mut raw = raw.clone();
        async move { queue_length(&mut raw).await == 1 }
    })
    .await;
    cancel.cancel();
    assert!(matches!(task.await.unwrap().unwrap(), Acquisition::Busy(_)));
    assert_eq!(queue_length(&mut raw).await, 0);

    // Dropped, as the keeper does when it stops waiting for the backend: abandon cleans up.
    let dropped = waiting(NAME, 5000, Duration::from_secs(60));
    let (owner, lock_name) = (dropped.owner, dropped.name.clone());
    let task = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire(&dropped).await }
    });
    until(Duration::from_secs(5), "queued", || {
        let mut raw = raw.clone();
        async move { queue_length(&mut raw).await == 1 }
    })
    .await;
    task.abort();
    let _ = task.await;
    assert_eq!(lock.abandon(&lock_name, &owner).await.unwrap(), Released::NotHeld);
    assert_eq!(queue_length(&mut raw).await, 0);
}

#[tokio::test]
async fn a_waiter_follows_a_holder_that_died_and_a_dead_waiter_before_it() {
    let server = Server::start().await;
    let (holder, live) = (server.connect().await, server.connect().await);
    let mut raw = server.raw().await;
    let _lease = grant(&holder, &request(NAME, 1500)).await;
    let ends = Instant::now() + Duration::from_millis(1500);
    // A process of its own that dies with its waiter: its runtime is shut down.
    let url = server.url();
    let (queued, is_queued) = std::sync::mpsc::channel();
    let dead = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let lock = connect(&url).await.unwrap();
            let request = waiting(NAME, 5000, Duration::from_secs(60));
            let _ = tokio::time::timeout(Duration::from_millis(300), lock.acquire(&request)).await;
            std::mem::forget(lock);
        });
        runtime.shutdown_background();
        queued.send(()).unwrap();
    });
    is_queued.recv().unwrap();
    dead.join().unwrap();
    let waiter = queue_up(&live, &mut raw, 2, Duration::from_secs(10)).await;
    granted(waiter.await.unwrap().unwrap());
    let late = Instant::now().saturating_duration_since(ends);
    assert!(late < Duration::from_secs(2), "{late:?} after the end of the lease");
}

#[tokio::test]
async fn waiters_live_through_a_queue_that_is_deleted() {
    let server = Server::start().await;
    let lock = server.connect().await;
    let mut raw = server.raw().await;
    let mut lease = grant(&lock, &request(NAME, 60_000)).await;
    let mut waiters = Vec::new();
    for n in 1..=3 {
        waiters.push(queue_up(&lock, &mut raw, n, Duration::from_secs(20)).await);
    }
    for kind in [b'q', b'b'] {
        let key = helper(&mut raw, kind).await.unwrap();
        let _: i32 = raw.bytes(&[b"DEL", &key]).await;
    }
    until(Duration::from_secs(2), "queued again", || {
        let mut raw = raw.clone();
        async move { queue_length(&mut raw).await == 3 }
    })
    .await;
    for waiter in waiters {
        lease.release().await.unwrap();
        lease = granted(waiter.await.unwrap().unwrap());
    }
}

#[tokio::test]
async fn requests_for_each_grant_do_not_grow_with_the_waiters() {
    let server = Server::start().await;
    let lock = server.connect().await;
    let mut raw = server.raw().await;
    let mut costs = Vec::new();
    for waiters in [4, 100] {
        let mut lease = grant(&lock, &request(NAME, 60_000)).await;
        let (sender, mut grants) = tokio::sync::mpsc::channel(1);
        for _ in 0..waiters {
            let (lock, sender) = (lock.clone(), sender.clone());
            tokio::spawn(async move {
                let lease = granted(lock.acquire(&waiting(NAME, 60_000, Duration::from_secs(60))).await.unwrap());
                sender.send(lease).await.unwrap();
            });
        }
        until(Duration::from_secs(5), "queued", || {
            let mut raw = raw.clone();
            async move { queue_length(&mut raw).await == waiters }
        })
        .await;
        let before = scripts(&mut raw).await;
        let started = Instant::now();
        for _ in 0..waiters {
            lease.release().await.unwrap();
            lease = grants.recv().await.unwrap();
        }
        let polls = started.elapsed().as_millis() as u64 / 20 + 2;
        costs.push((scripts(&mut raw).await - before).saturating_sub(polls) as f64 / f64::from(waiters));
        lease.release().await.unwrap();
    }
    assert!(costs.iter().all(|cost| *cost <= 3.0), "scripts for each grant with 4 and with 100 waiters: {costs:?}");
}

async fn scripts(raw: &mut Raw) -> u64 {
    let stats: String = raw.run(&["INFO", "commandstats"]).await;
    let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap_or_default();
    line.split_once("calls=").and_then(|(_, rest)| rest.split(',').next()).map_or(0, |calls| calls.parse().unwrap())
}

#[tokio::test]
async fn plain_clients_get_their_turn_beside_a_queue_that_is_never_empty() {
    let server = Server::start().await;
    let mut raw = server.raw().await;
    let stop = Arc::new(AtomicBool::new(false));
    let lock = server.connect().await;
    let mut loops = Vec::new();
    for _ in 0..4 {
        let (lock, stop) = (lock.clone(), stop.clone());
        loops.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let request = waiting(NAME, 5000, Duration::from_secs(10));
                granted(lock.acquire(&request).await.unwrap()).release().await.unwrap();
            }
        }));
    }
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let taken: Option<String> = raw.run(&["SET", NAME, "token", "NX", "PX", "50"]).await;
        if taken.is_some() {
            break;
        }
        assert!(Instant::now() < end, "a plain client starves");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.store(true, Ordering::Relaxed);
    for task in loops {
        task.await.unwrap();
    }
}

/// Several processes count up under the lock, while subscribers are killed and the queue is deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_overlaps_and_nobody_is_stuck_under_faults() {
    const PROCESSES: usize = 4;
    const WAITERS: usize = 5;
    let server = Server::start().await;
    let inside = Arc::new(AtomicU32::new(0));
    let (overlaps, grants) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU64::new(0)));
    let last_grant = Arc::new(std::sync::Mutex::new((Instant::now(), Duration::ZERO)));
    let greatest = Arc::new(AtomicU64::new(0));
    let end = Instant::now() + Duration::from_secs(10);
    let mut tasks = Vec::new();
    for _ in 0..PROCESSES {
        let lock = server.connect().await;
        for _ in 0..WAITERS {
            let (lock, inside, overlaps, grants) = (lock.clone(), inside.clone(), overlaps.clone(), grants.clone());
            let (last_grant, greatest) = (last_grant.clone(), greatest.clone());
            tasks.push(tokio::spawn(async move {
                while Instant::now() < end {
                    let request = waiting(NAME, 5000, Duration::from_secs(10));
                    let mut lease = granted(lock.acquire(&request).await.unwrap());
                    if inside.fetch_add(1, Ordering::SeqCst) != 0 {
                        overlaps.fetch_add(1, Ordering::SeqCst);
                    }
                    let token = lease.fencing_token().get();
                    assert!(greatest.fetch_max(token, Ordering::SeqCst) < token, "tokens rise");
                    {
                        let mut last = last_grant.lock().unwrap();
                        last.1 = last.1.max(last.0.elapsed());
                        last.0 = Instant::now();
                    }
                    grants.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    lease.release().await.unwrap();
                }
            }));
        }
    }
    let mut raw = server.raw().await;
    let mut faults = 0;
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(97)).await;
        match faults % 4 {
            0 => drop(raw.run::<i32>(&["CLIENT", "KILL", "TYPE", "pubsub"]).await),
            1 => {
                if let Some(key) = helper(&mut raw, b'q').await {
                    let _: i32 = raw.bytes(&[b"DEL", &key]).await;
                }
            }
            2 => drop(raw.run::<i32>(&["CLIENT", "KILL", "TYPE", "pubsub"]).await),
            _ => {
                if let Some(key) = helper(&mut raw, b'b').await {
                    let _: i32 = raw.bytes(&[b"DEL", &key]).await;
                }
            }
        }
        faults += 1;
    }
    for task in tasks {
        task.await.unwrap();
    }
    let (grants, gap) = (grants.load(Ordering::SeqCst), last_grant.lock().unwrap().1);
    println!("{grants} grants, {faults} faults, longest gap {gap:?}");
    assert_eq!(overlaps.load(Ordering::SeqCst), 0);
    assert!(grants > 200, "{grants}");
    assert!(gap < Duration::from_secs(2), "{gap:?}");
    assert_eq!(queue_length(&mut raw).await, 0);
    for (key, ttl) in raw.ttls().await {
        assert!(ttl > 0, "{key:?} would stay for ever");
    }
}
