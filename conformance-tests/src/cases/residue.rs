//! R: nothing remains.

use std::time::{Duration, Instant};

use lock_core::LockManager;
use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::bench::{SLACK, ms};
use crate::case::cases;
use crate::{Bench, Outcome, Stop, ensure, eventually};

cases! { "residue":
    a_thousand_cycles_leave_nothing: [R1];
    tasks_go_back_to_where_they_were: [R1];
    nothing_is_renewed_after_a_release: [R1 T4];
    a_release_that_meets_a_renewal_is_the_last_word: [R1 T4] needs [Network];
    a_guard_dropped_in_a_runtime_is_released: [R2];
    a_guard_dropped_outside_a_runtime_is_released: [R2];
    a_guard_dropped_in_a_panic_is_released: [R2];
    a_task_that_is_aborted_releases: [R2 X1];
    closing_waits_for_pending_releases: [R2];
    connections_do_not_grow_with_held_names: [R3] needs [Network];
    a_leaked_guard_is_bounded_by_its_greatest_hold: [R4 L6];
    a_runtime_that_ends_leaves_no_immortal_entry: [R4];
    another_executor_serves: [R2 X1];
}

async fn a_thousand_cycles_leave_nothing(b: &Bench) -> Outcome {
    let (locks, end) = (b.manager().await?, Instant::now() + Duration::from_secs(12));
    let names: Vec<_> = (0..20).map(|_| b.name()).collect();
    let mut cycles = 0;
    while cycles < 1_000 && Instant::now() < end {
        let name = &names[cycles % names.len()];
        let guard = locks.lock(name.as_str()).ttl(b.ttl(30_000)).acquire().await?;
        guard.release().await?;
        cycles += 1;
    }
    ensure!(cycles >= 100, "only {cycles} cycles in 12 s");
    if b.capabilities().lists {
        let left = locks.list(b.prefix(), lock_core::Page::first(10)).await?;
        ensure!(left.is_empty(), "after {cycles} cycles these are held: {left:?}");
    }
    Ok(())
}

async fn tasks_go_back_to_where_they_were(b: &Bench) -> Outcome {
    let locks = b.manager_at(b.url(), LockManager::builder().runtime(Handle::current())).await?;
    let cycle = async || {
        let name = b.name();
        let guard = locks.lock(name.as_str()).ttl(b.ttl(10_000)).acquire().await?;
        let waiting = locks.lock(name.as_str()).ttl(b.ttl(10_000)).wait(ms(30)).acquire().await;
        ensure!(waiting.is_err(), "a held name was granted");
        guard.release().await?;
        Ok::<_, Stop>(())
    };
    // What a client keeps for good is there after the first cycles, of which some come to each server.
    for _ in 0..30 {
        cycle().await?;
    }
    sleep(ms(500)).await;
    let base = Handle::current().metrics().num_alive_tasks();
    for _ in 0..30 {
        cycle().await?;
    }
    let back =
        eventually(Duration::from_secs(3), || async { Handle::current().metrics().num_alive_tasks() <= base }).await;
    ensure!(back, "{base} tasks before 30 cycles, {} after", Handle::current().metrics().num_alive_tasks());
    Ok(())
}

async fn nothing_is_renewed_after_a_release(b: &Bench) -> Outcome {
    let (locks, ttl) = (b.manager().await?, b.ttl(600));
    let names: Vec<_> = (0..20).map(|_| b.name()).collect();
    for (i, name) in names.iter().enumerate() {
        let guard = locks.lock(name.as_str()).ttl(ttl).acquire().await?;
        // Around the moment of a renewal, in part of the rounds.
        sleep(if i % 4 == 0 { ttl / 3 } else { ms(i as u64) }).await;
        guard.release().await?;
        ensure!(b.peek(name).await?.is_none(), "a released name is not free");
    }
    sleep(ttl / 2).await;
    for name in &names {
        ensure!(b.peek(name).await?.is_none(), "a released name came back");
    }
    Ok(())
}

/// Renewals are on their way, or their answers are, when the locks are given back.
async fn a_release_that_meets_a_renewal_is_the_last_word(b: &Bench) -> Outcome {
    let proxy = b.proxy().await?;
    let (locks, ttl) = (b.manager_via(&proxy).await?, b.ttl(1_500));
    let mut guards = Vec::new();
    for _ in 0..6 {
        guards.push(locks.lock(b.name().as_str()).ttl(ttl).acquire().await?);
    }
    proxy.delay_replies(ms(100));
    let names: Vec<_> = guards.iter().map(|guard| guard.name().clone()).collect();
    let releases = guards.into_iter().zip(0..).map(|(guard, i)| async move {
        sleep(guard.ttl() / 3 + ms(i * 25)).await;
        guard.release().await
    });
    futures_util::future::try_join_all(releases).await?;
    let end = Instant::now() + ttl;
    while Instant::now() < end {
        for name in &names {
            ensure!(b.peek(name).await?.is_none(), "a renewal came after the release, and the name is held");
        }
        sleep(ms(50)).await;
    }
    Ok(())
}

async fn a_guard_dropped_in_a_runtime_is_released(b: &Bench) -> Outcome {
    let (locks, name) = (b.manager().await?, b.name());
    drop(locks.lock(name.as_str()).ttl(b.ttl(30_000)).acquire().await?);
    ensure!(b.is_free_within(&name, ms(1_000)).await, "a dropped guard was not released");
    Ok(())
}

async fn a_guard_dropped_outside_a_runtime_is_released(b: &Bench) -> Outcome {
    let (locks, name) = (b.manager().await?, b.name());
    let guard = locks.lock(name.as_str()).ttl(b.ttl(30_000)).acquire().await?;
    let start = Instant::now();
    std::thread::spawn(move || drop(guard)).join().map_err(|_| "the drop panicked")?;
    ensure!(start.elapsed() < SLACK, "the drop blocked for {:?}", start.elapsed());
    ensure!(b.is_free_within(&name, ms(1_000)).await, "a guard dropped on a plain thread was not released");
    Ok(())
}

async fn a_guard_dropped_in_a_panic_is_released(b: &Bench) -> Outcome {
    let (locks, name) = (b.manager().await?, b.name());
    let guard = locks.lock(name.as_str()).ttl(b.ttl(30_000)).acquire().await?;
    let task = tokio::spawn(async move {
        let _guard = guard;
        // Without the panic hook's message, which would look like a failure.
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    ensure!(task.await.is_err_and(|e| e.is_panic()), "the task did not panic");
    ensure!(b.is_free_within(&name, ms(1_000)).await, "a guard dropped in a panic was not released");
    Ok(())
}

async fn a_task_that_is_aborted_releases(b: &Bench) -> Outcome {
    let (locks, name) = (b.manager().await?, b.name());
    let guard = locks.lock(name.as_str()).ttl(b.ttl(30_000)).acquire().await?;
    let task = tokio::spawn(async move {
        let _guard = guard;
        std::future::pending::<()>().await;
    });
    sleep(ms(50)).await;
    task.abort();
    ensure!(b.is_free_within(&name, ms(1_000)).await, "the guard of an aborted task was not released");
    Ok(())
}

async fn closing_waits_for_pending_releases(b: &Bench) -> Outcome {
    let locks = b.manager().await?;
    let names: Vec<_> = (0..20).map(|_| b.name()).collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(locks.lock(name.as_str()).ttl(b.ttl(30_000)).acquire().await?);
    }
    drop(guards);
    locks.close().await?;
    for name in &names {
        ensure!(b.peek(name).await?.is_none(), "closing did not wait for the release of '{name}'");
    }
    Ok(())
}

async fn connections_do_not_grow_with_held_names(b: &Bench) -> Outcome {
    let proxy = b.proxy().await?;
    let locks = b.manager_via(&proxy).await?;
    let mut guards = vec![locks.lock(b.name().as_str()).ttl(b.ttl(30_000)).acquire().await?];
    let before = proxy.open();
    for _ in 0..200 {
        guards.push(locks.lock(b.name().as_str()).ttl(b.ttl(30_000)).acquire().await?);
    }
    let with = proxy.open();
    ensure!(with <= before + 2, "{before} connections with one held name, {with} with two hundred");
    drop(guards);
    locks.close().await?;
    let closed = eventually(ms(2_000), || async { proxy.open() == 0 }).await;
    ensure!(closed, "{} connections are open after closing", proxy.open());
    Ok(())
}

async fn a_leaked_guard_is_bounded_by_its_greatest_hold(b: &Bench) -> Outcome {
    let (locks, name, ttl) = (b.manager().await?, b.name(), b.ttl(800));
    let guard = locks.lock(name.as_str()).ttl(ttl).max_hold(ms(1_500)).acquire().await?;
    std::mem::forget(guard);
    sleep(ms(1_000)).await;
    ensure!(b.peek(&name).await?.is_some(), "a leaked guard was not renewed");
    ensure!(b.is_free_within(&name, ms(500) + b.end_of(ttl) + SLACK).await, "a leaked guard is held for ever");
    Ok(())
}

async fn a_runtime_that_ends_leaves_no_immortal_entry(b: &Bench) -> Outcome {
    let (name, ttl) = (b.name(), b.ttl(1_000));
    let (url, harness, of) = (b.url(), std::sync::Arc::clone(b.harness()), name.clone());
    tokio::task::spawn_blocking(move || -> Outcome {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let settings = LockManager::builder().runtime(runtime.handle().clone());
        let guard = runtime.block_on(async {
            let locks = settings.connect(async move { harness.connect(&url).await }).await?;
            Ok::<_, Stop>(locks.lock(of.as_str()).ttl(ttl).acquire().await?)
        })?;
        drop(runtime);
        drop(guard);
        Ok(())
    })
    .await??;
    ensure!(b.is_free_within(&name, b.end_of(ttl)).await, "an entry outlived the runtime that kept it");
    Ok(())
}

async fn another_executor_serves(b: &Bench) -> Outcome {
    let (locks, name) = (b.manager().await?, b.name());
    let (of, ttl) = (name.clone(), b.ttl(30_000));
    let used = std::thread::spawn(move || {
        futures_executor::block_on(async {
            let guard = locks.lock(of.as_str()).ttl(ttl).acquire().await?;
            guard.renew().await?;
            let waiting = locks.lock(of.as_str()).ttl(ttl).wait(ms(100)).acquire().await;
            ensure!(waiting.is_err(), "a held name was granted");
            guard.release().await?;
            Ok::<_, Stop>(locks.close().await?)
        })
    });
    tokio::task::spawn_blocking(|| used.join()).await?.map_err(|_| "a runtime of tokio was missed")?
}
