//! Guards in the hands of users: any executor, any thread, any end.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_executor::block_on;
use lock_core::memory::MemoryLock;
use lock_core::*;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn locks() -> (MemoryLock, LockManager) {
    let memory = MemoryLock::new();
    let manager = LockManager::new(Arc::new(memory.client())).unwrap();
    (memory, manager)
}

fn free_within_a_second(memory: &MemoryLock, name: &str) {
    let name = LockName::new(name).unwrap();
    let start = Instant::now();
    while block_on(memory.inspect(&name)).unwrap().is_some() {
        assert!(start.elapsed() < ms(1000), "still held");
        std::thread::sleep(ms(1));
    }
}

#[test]
fn no_tokio_runtime_is_needed() {
    let (memory, locks) = locks();
    let guard = block_on(locks.lock("x").acquire()).unwrap();
    assert!(block_on(locks.lock("x").try_acquire()).unwrap().is_none());
    assert_eq!(block_on(guard.release()).unwrap(), Released::Released);
    block_on(locks.close()).unwrap();
    free_within_a_second(&memory, "x");
}

#[test]
fn r2_a_guard_may_be_dropped_anywhere() {
    let (memory, locks) = locks();
    // On a plain thread.
    let guard = block_on(locks.lock("a").acquire()).unwrap();
    std::thread::spawn(move || drop(guard)).join().unwrap();
    free_within_a_second(&memory, "a");
    // In a panic.
    let guard = block_on(locks.lock("b").acquire()).unwrap();
    std::thread::spawn(move || {
        let _guard = guard;
        panic!("on purpose");
    })
    .join()
    .unwrap_err();
    free_within_a_second(&memory, "b");
    // Together with its runtime, in an aborted task.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let guard = runtime.block_on(locks.lock("c").acquire()).unwrap();
    let task = runtime.spawn(async move {
        let _guard = guard;
        std::future::pending::<()>().await;
    });
    task.abort();
    free_within_a_second(&memory, "c");
    // After the manager.
    let guard = block_on(locks.lock("d").acquire()).unwrap();
    drop(locks);
    assert!(guard.is_held());
    drop(guard);
    free_within_a_second(&memory, "d");
}

#[test]
fn b33_user_code_that_blocks_its_runtime_does_not_starve_renewals() {
    let (memory, locks) = locks();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let guard = locks.lock("x").ttl(ms(200)).acquire().await.unwrap();
        std::thread::sleep(ms(1000));
        assert!(guard.is_held());
        assert!(block_on(memory.inspect(guard.name())).unwrap().is_some());
    });
}

#[test]
fn keepers_on_a_blocked_runtime_tell_the_truth_at_the_first_look() {
    let memory = MemoryLock::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let handle = tokio::runtime::Handle::current();
        let locks = LockManager::builder().runtime(handle).build(Arc::new(memory.client())).unwrap();
        let guard = locks.lock("x").ttl(ms(100)).acquire().await.unwrap();
        std::thread::sleep(ms(300));
        assert!(!guard.is_held());
        assert_eq!(guard.lost().await, LostReason::Expired);
    });
}

#[test]
fn a_runtime_that_ends_is_a_loss_by_the_clock_or_at_once() {
    let memory = MemoryLock::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let locks = LockManager::builder().runtime(runtime.handle().clone()).build(Arc::new(memory)).unwrap();
    let guard = block_on(locks.lock("x").acquire()).unwrap();
    drop(runtime);
    assert_eq!(block_on(guard.lost()), LostReason::KeeperDied);
    assert_eq!(block_on(locks.lock("y").acquire()).unwrap_err().kind(), ErrorKind::Internal);
}

#[test]
fn b95_lost_wakes_all_who_wait_and_the_guard_may_go_from_there() {
    let (memory, locks) = locks();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let guard = locks.lock("x").acquire().await.unwrap();
        let held = guard.held();
        let watchers: Vec<_> = (0..3).map(|_| tokio::spawn(held.lost())).collect();
        let last = tokio::spawn(async move {
            let reason = guard.lost().await;
            (reason, guard.release().await.unwrap())
        });
        memory.revoke(&LockName::new("x").unwrap(), None, Revoke::Now).await.unwrap();
        for watcher in watchers {
            assert_eq!(watcher.await.unwrap(), LostReason::ForceReleased);
        }
        assert_eq!(last.await.unwrap(), (LostReason::ForceReleased, Released::NotHeld));
        assert_eq!(held.lost().await, LostReason::ForceReleased, "level-triggered");
    });
}

#[test]
fn a_leaked_guard_keeps_its_lock_until_max_hold() {
    let (memory, locks) = locks();
    let guard = block_on(locks.lock("x").ttl(ms(100)).max_hold(ms(300)).acquire()).unwrap();
    std::mem::forget(guard);
    std::thread::sleep(ms(200));
    assert!(block_on(memory.inspect(&LockName::new("x").unwrap())).unwrap().is_some());
    free_within_a_second(&memory, "x");
}

#[test]
fn m3_two_tasks_of_one_process_are_strangers_and_owners_are_new_each_time() {
    let (_, locks) = locks();
    let first = block_on(locks.lock("x").acquire()).unwrap();
    assert!(block_on(locks.lock("x").try_acquire()).unwrap().is_none());
    let (owner, token) = (first.owner(), first.fencing_token());
    block_on(first.release()).unwrap();
    let second = block_on(locks.lock("x").acquire()).unwrap();
    assert_ne!(second.owner(), owner);
    assert!(second.fencing_token() > token);
}

#[test]
fn the_namespace_and_the_fence_base_are_invisible_from_inside() {
    let memory = MemoryLock::new();
    let locks = LockManager::builder()
        .namespace(Namespace::new("prod/").unwrap())
        .fence_base(1_000_000)
        .build(Arc::new(memory.client()))
        .unwrap();
    let guard = block_on(locks.lock("x").label("me").acquire()).unwrap();
    assert_eq!(guard.name().as_str(), "x");
    assert!(guard.fencing_token().get() > 1_000_000);
    assert!(block_on(memory.inspect(&LockName::new("prod/x").unwrap())).unwrap().is_some());
    let holder = block_on(locks.inspect("x")).unwrap().unwrap();
    assert_eq!((holder.name.as_str(), holder.token), ("x", Some(guard.fencing_token())));
    assert_eq!(holder.label.as_deref(), Some("me"));
    let listed = block_on(locks.list("", Page::first(10))).unwrap();
    assert_eq!(listed.len(), 1);
    let too_old = Some(FencingToken::new(5));
    assert_eq!(block_on(locks.revoke("x", too_old, Revoke::Mark)).unwrap(), Released::NotHeld);
    let seen = holder.token;
    assert_eq!(block_on(locks.revoke("x", seen, Revoke::Mark)).unwrap(), Released::Released);
    assert_eq!(block_on(guard.lost()), LostReason::ForceReleased);
}

#[test]
fn what_is_public_can_cross_threads() {
    fn is<T: Send + Sync + Unpin>() {}
    fn sends<T: Send>(_: &T) {}
    is::<LockManager>();
    is::<LockGuard>();
    is::<Held>();
    is::<LockError>();
    let (_, locks) = locks();
    sends(&locks.lock("x").acquire());
    sends(&locks.lock("x").try_acquire());
    sends(&locks.lock("x").run(|_| async {}));
    sends(&locks.close());
    let guard = block_on(locks.lock("x").acquire()).unwrap();
    sends(&guard.lost());
    sends(&guard.renew());
    sends(&guard.release());
    let _object_safe: Option<(Box<dyn DistributedLock>, Box<dyn Lease>)> = None;
}

/// What is counted while a story is told, with its keepers on this thread, where the recorder is.
fn counted(story: impl AsyncFnOnce(&LockManager, &MemoryLock)) -> Vec<String> {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let memory = MemoryLock::new();
            let handle = tokio::runtime::Handle::current();
            let locks = LockManager::builder().runtime(handle).build(Arc::new(memory.client())).unwrap();
            story(&locks, &memory).await;
            locks.close().await.unwrap();
        });
    });
    snapshotter
        .snapshot()
        .into_vec()
        .into_iter()
        .map(|(key, _, _, value)| {
            let key = key.key();
            let labels: Vec<_> = key.labels().map(|l| format!("{}={}", l.key(), l.value())).collect();
            let value = match value {
                DebugValue::Counter(n) => n.to_string(),
                DebugValue::Gauge(_) => "gauge".into(),
                DebugValue::Histogram(values) => format!("{} values", values.len()),
            };
            format!("{} {} {value}", key.name(), labels.join(","))
        })
        .collect()
}

#[test]
fn l3_a_grant_that_nobody_waits_for_any_more_is_no_loss() {
    let seen = counted(async |locks, memory| {
        // Sent by the first poll and dropped before the keeper, on this same thread, has begun.
        tokio::select! {
            biased;
            _ = locks.lock("x").acquire() => unreachable!("granted by nobody"),
            () = std::future::ready(()) => {}
        }
        locks.lock("y").acquire().await.unwrap().release().await.unwrap();
        let name = LockName::new("x").unwrap();
        while memory.inspect(&name).await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
    });
    let grants = "distlock_acquisitions_total backend=memory,outcome=granted 2";
    assert!(seen.iter().any(|line| line == grants), "{seen:#?}");
    assert!(!seen.iter().any(|line| line.starts_with("distlock_losses_total")), "{seen:#?}");
}

#[test]
fn what_happens_is_counted() {
    let seen = counted(async |locks, memory| {
        let guard = locks.lock("x").acquire().await.unwrap();
        assert!(locks.lock("x").try_acquire().await.unwrap().is_none());
        guard.renew().await.unwrap();
        guard.release().await.unwrap();
        let guard = locks.lock("x").acquire().await.unwrap();
        memory.revoke(guard.name(), None, Revoke::Now).await.unwrap();
        guard.lost().await;
        drop(guard);
    });
    for expected in [
        "distlock_acquisitions_total backend=memory,outcome=granted 2",
        "distlock_acquisitions_total backend=memory,outcome=busy 1",
        "distlock_wait_seconds backend=memory 2 values",
        "distlock_renewals_total backend=memory,outcome=renewed 1",
        "distlock_renewal_margin_seconds backend=memory 1 values",
        "distlock_releases_total backend=memory,outcome=released 1",
        "distlock_losses_total backend=memory,reason=force_released 1",
    ] {
        assert!(seen.iter().any(|line| line == expected), "{expected} is not in {seen:#?}");
    }
}
