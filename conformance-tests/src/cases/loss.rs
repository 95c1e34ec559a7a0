//! L: losing a lock, and knowing it.

use std::time::{Duration, Instant};

use lock_core::{ErrorKind, LockGuard, LostReason, Released, Revoke};
use tokio::time::{sleep, timeout};

use crate::bench::{SLACK, ms};
use crate::case::cases;
use crate::{Bench, Outcome, Stop, ensure};

cases! { "loss":
    a_frozen_server_ends_the_guard_in_time: [L2 M2 L1] needs [Freeze];
    a_frozen_server_that_thaws_in_time_is_invisible: [L4 E2] needs [Freeze];
    a_killed_server_ends_the_guard_in_time: [L2 L4] needs [Server];
    an_entry_removed_by_hand_is_noticed: [L5 L1];
    a_takeover_by_hand_is_noticed: [L1 L5 O1];
    a_revoked_holder_is_told: [L1 O3];
    a_greatest_hold_ends_the_guard_first: [L6 L1];
    closing_ends_the_guard_first: [L6 L1 E1];
    a_clean_release_is_no_loss: [L3];
    lost_is_final: [L1];
    a_second_acquisition_is_renewed_for_itself: [L1 T4];
    a_release_around_the_end_answers: [O2 L1];
    lost_wakes_everybody_and_may_release: [L1 R2];
    a_healthy_lock_keeps_its_distance: [L4 T4];
    waiters_do_not_starve_renewals: [L4 W5];
    code_that_blocks_its_runtime_keeps_the_lock: [L4 L2];
    a_short_outage_is_invisible: [L4 E2] needs [Network];
    a_short_silence_is_invisible: [L4 E2] needs [Network];
    a_long_outage_is_a_loss_for_good: [L1 L2] needs [Network];
    a_restart_of_the_server_is_as_declared: [L4 L5 M1] needs [Server];
    a_dead_keeper_is_a_loss: [L1 R4];
}

/// Waits for the loss, which must come within `bound`.
async fn lost_within(guard: &LockGuard, bound: Duration) -> Result<LostReason, Stop> {
    let start = Instant::now();
    let reason = timeout(bound, guard.lost()).await.map_err(|_| format!("no loss was raised within {bound:?}"))?;
    ensure!(!guard.is_held() && guard.remaining().is_zero(), "a lost guard says that it is held");
    ensure!(guard.lost_reason() == Some(reason), "the reason changed after {:?}", start.elapsed());
    Ok(reason)
}

async fn a_frozen_server_ends_the_guard_in_time(b: &Bench) -> Outcome {
    let own = b.own().await?;
    let (locks, name, ttl) = (own.manager().await?, own.name(), own.ttl(1_500));
    let guard = locks.lock(name.as_str()).ttl(ttl).acquire().await?;
    sleep(ttl).await;
    own.server()?.stop()?;
    // Nothing is confirmed any more, so the remaining time only falls.
    sleep(ms(50)).await;
    let left = guard.remaining();
    let reason = lost_within(&guard, left + SLACK).await?;
    ensure!(reason == LostReason::Expired, "the reason is {reason:?}");
    own.server()?.resume()?;
    sleep(ms(200)).await;
    ensure!(!guard.is_held(), "a lost guard came back");
    drop(guard);
    ensure!(own.is_free_within(&name, own.end_of(ttl)).await, "the entry was renewed after its loss");
    own.finish().await
}

async fn a_frozen_server_that_thaws_in_time_is_invisible(b: &Bench) -> Outcome {
    let own = b.own().await?;
    let (locks, name, ttl) = (own.manager().await?, own.name(), own.ttl(6_000));
    let guard = locks.lock(name.as_str()).ttl(ttl).acquire().await?;
    let token = guard.fencing_token();
    // Over at least one renewal and its first retries.
    sleep(guard.ttl() / 4).await;
    own.server()?.stop()?;
    sleep(guard.ttl() / 3).await;
    own.server()?.resume()?;
    sleep(guard.ttl()).await;
    ensure!(guard.is_held(), "an outage shorter than the time left was a loss: {:?}", guard.lost_reason());
    ensure!(guard.fencing_token() == token, "the token changed");
    ensure!(guard.release().await? == Released::Released, "the entry was gone");
    own.finish().await
}

async fn a_killed_server_ends_the_guard_in_time(b: &Bench) -> Outcome {
    let own = b.own().await?;
    let (locks, name, ttl) = (own.manager().await?, own.name(), own.ttl(1_200));
    let guard = locks.lock(name.as_str()).ttl(ttl).acquire().await?;
    own.server()?.kill()?;
    let left = guard.remaining();
    ensure!(left <= guard.ttl(), "{left:?} remain of {:?}", guard.ttl());
    lost_within(&guard, left + SLACK).await?;
    let error = guard.renew().await.err().map(|e| e.kind());
    ensure!(error == Some(ErrorKind::Lost), "renewing a lost guard answered {error:?}");
    Ok(())
}

/// Until when a holder must have noticed what happened to its entry.
fn noticing(b: &Bench, ttl: Duration) -> Duration {
    if b.capabilities().pushes_loss { ms(1_000) } else { ttl / 3 + SLACK }
}

async fn an_entry_removed_by_hand_is_noticed(b: &Bench) -> Outcome {
    let (locks, name, ttl) = (b.manager().await?, b.name(), b.ttl(6_000));
    let guard = locks.lock(name.as_str()).ttl(ttl).acquire().await?;
    sleep(ms(100)).await;
    b.remove(&name).await?;
    let reason = lost_within(&guard, noticing(b, guard.ttl())).await?;
    let expected = [LostReason::Removed, LostReason::ForceReleased, LostReason::SessionLost];
    ensure!(expected.contains(&reason), "the reason is {reason:?}");
    ensure!(b.peek(&name).await?.is_none(), "the removed entry was made again");
    drop(guard);
    sleep(ms(200)).await;
    ensure!(b.peek(&name).await?.is_none(), "the removed entry was made again");
    Ok(())
}

async fn a_takeover_by_hand_is_noticed(b: &Bench) -> Outcome {
    let (locks, name, ttl) = (b.manager().await?, b.name(), b.ttl(6_000));
    let guard = locks.lock(name.as_str()).ttl(ttl).acquire().await?;
    let foreign = b.replace_owner(&name, b.ttl(60_000)).await?;
    let reason = lost_within(&guard, noticing(b, guard.ttl())).await?;
    let expected = [LostReason::TakenOver, LostReason::Removed, LostReason::ForceReleased];
    ensure!(expected.contains(&reason), "the reason is {reason:?}");
    let answer = guard.release().await?;
    ensure!(answer == Released::NotHeld, "releasing a lost guard answered {answer:?}");
    let entry = b.peek(&name).await?.ok_or("the foreign entry is gone")?;
    ensure!(entry.owner == foreign, "the foreign entry changed its owner");
    b.sweep().await
}

async fn a_revoked_holder_is_told(b: &Bench) -> Outcome {
    let (locks, operator, name) = (b.manager().await?, b.manager().await?, b.name());
    let guard = locks.lock(name.as_str()).ttl(b.ttl(3_000)).acquire().await?;
    operator.revoke(name.as_str(), Some(guard.fencing_token()), Revoke::Mark).await?;
    let reason = lost_within(&guard, noticing(b, guard.ttl())).await?;
    ensure!(reason == LostReason::ForceReleased, "the reason is {reason:?}");
    drop(guard);
    ensure!(b.is_free_within(&name, b.end_of(b.ttl(3_000))).await, "the mark outlived the revoked lease");
    Ok(())
}

async fn a_greatest_hold_ends_the_guard_first(b: &Bench) -> Outcome {
    let (locks, name, ttl) = (b.manager().await?, b.name(), b.ttl(4_000));
    let guard = locks.lock(name.as_str()).ttl(ttl).max_hold(ms(500)).acquire().await?;
    let owner = guard.owner().to_string();
    let reason = lost_within(&guard, ms(500) + SLACK).await?;
    ensure!(reason == LostReason::MaxHold, "the reason is {reason:?}");
    entry_stays_until_the_drop(b, guard, &name, &owner).await
}

async fn closing_ends_the_guard_first(b: &Bench) -> Outcome {
    let (locks, name, ttl) = (b.manager().await?, b.name(), b.ttl(4_000));
    let guard = locks.lock(name.as_str()).ttl(ttl).acquire().await?;
    let owner = guard.owner().to_string();
    let closing = tokio::spawn({
        let locks = locks.clone();
        async move { locks.close().await }
    });
    let reason = lost_within(&guard, SLACK).await?;
    ensure!(reason == LostReason::Closed, "the reason is {reason:?}");
    let kind = locks.lock("another").try_acquire().await.err().map(|e| e.kind());
    ensure!(kind == Some(ErrorKind::Closed), "a closed manager answered {kind:?}");
    entry_stays_until_the_drop(b, guard, &name, &owner).await?;
    Ok(closing.await??)
}

async fn entry_stays_until_the_drop(b: &Bench, guard: LockGuard, name: &lock_core::LockName, owner: &str) -> Outcome {
    sleep(ms(300)).await;
    let entry = b.peek(name).await?;
    ensure!(entry.is_some_and(|entry| entry.owner == owner), "the entry was deleted under its holder's feet");
    drop(guard);
    ensure!(b.is_free_within(name, ms(1_000) + SLACK).await, "the drop of a lost guard did not free the name");
    Ok(())
}

async fn a_clean_release_is_no_loss(b: &Bench) -> Outcome {
    let locks = b.manager().await?;
    let mut watched = Vec::new();
    for round in 0..40 {
        let guard = locks.lock(b.name().as_str()).ttl(b.ttl(5_000)).acquire().await?;
        watched.push((guard.held(), tokio::spawn(guard.lost())));
        match round % 2 {
            0 => drop(guard),
            _ => ensure!(guard.release().await? == Released::Released, "a living guard was not held"),
        }
    }
    sleep(ms(500)).await;
    for (held, lost) in watched {
        ensure!(!lost.is_finished() && held.lost_reason().is_none(), "a clean release raised {:?}", held.lost_reason());
        ensure!(!held.is_held(), "a released lock says that it is held");
        lost.abort();
    }
    Ok(())
}

async fn lost_is_final(b: &Bench) -> Outcome {
    let (locks, name) = (b.manager().await?, b.name());
    let first = locks.lock(name.as_str()).ttl(b.ttl(1_500)).acquire().await?;
    b.remove(&name).await?;
    let reason = lost_within(&first, noticing(b, first.ttl())).await?;
    let second = locks.lock(name.as_str()).ttl(b.ttl(10_000)).acquire().await?;
    ensure!(second.owner() != first.owner(), "a new acquisition has the old owner");
    ensure!(second.fencing_token() > first.fencing_token(), "a new acquisition has no greater token");
    let error = first.renew().await.err();
    ensure!(error.as_ref().is_some_and(|e| e.kind() == ErrorKind::Lost), "renewing a lost guard answered {error:?}");
    ensure!(timeout(SLACK, first.lost()).await == Ok(reason), "lost is not ready a second time");
    drop(first);
    sleep(ms(200)).await;
    ensure!(second.is_held() && b.peek(&name).await?.is_some(), "the drop of a lost guard touched its successor");
    second.release().await?;
    Ok(())
}

async fn a_second_acquisition_is_renewed_for_itself(b: &Bench) -> Outcome {
    let (locks, other, name, ttl) = (b.manager().await?, b.client().await?, b.name(), b.ttl(1_200));
    let first = locks.lock(name.as_str()).ttl(ttl).acquire().await?;
    b.remove(&name).await?;
    lost_within(&first, noticing(b, first.ttl())).await?;
    let second = locks.lock(name.as_str()).ttl(ttl).acquire().await?;
    drop(first);
    let end = Instant::now() + second.ttl() * 3;
    while Instant::now() < end {
        ensure!(other.try_take(&name, ttl).await?.is_none(), "another got in beside the second acquisition");
        ensure!(second.is_held(), "the second acquisition was lost: {:?}", second.lost_reason());
        sleep(ms(100)).await;
    }
    second.release().await?;
    Ok(())
}

async fn a_release_around_the_end_answers(b: &Bench) -> Outcome {
    let (locks, ttl) = (b.manager().await?, b.ttl(300));
    let releases = (0..40).map(|i| {
        let name = b.name();
        let locks = &locks;
        async move {
            let guard = locks.lock(name.as_str()).ttl(ttl).auto_renew(false).acquire().await?;
            // From a little before to a little after the whole TTL, when the keeper ends by itself.
            sleep((guard.ttl() + Duration::from_micros(i * 400)).saturating_sub(ms(8))).await;
            let answer = guard.release().await;
            ensure!(answer.is_ok(), "a release around the end of the TTL answered {answer:?}");
            Ok(())
        }
    });
    futures_util::future::try_join_all(releases).await.map(drop)
}

async fn lost_wakes_everybody_and_may_release(b: &Bench) -> Outcome {
    let (locks, name) = (b.manager().await?, b.name());
    let guard = locks.lock(name.as_str()).ttl(b.ttl(2_000)).acquire().await?;
    let bound = noticing(b, guard.ttl());
    let waiting: Vec<_> = (0..3).map(|_| tokio::spawn(timeout(bound, guard.lost()))).collect();
    let releasing = tokio::spawn(async move {
        guard.lost().await;
        let start = Instant::now();
        (guard.release().await, start.elapsed())
    });
    b.remove(&name).await?;
    for waiter in waiting {
        waiter.await?.map_err(|_| "a task that waits for the loss was not woken")?;
    }
    let (answer, took) = releasing.await?;
    ensure!(
        matches!(answer, Ok(Released::NotHeld)) && took <= ms(1_000),
        "a release answered {answer:?} after {took:?}"
    );
    Ok(())
}

async fn a_healthy_lock_keeps_its_distance(b: &Bench) -> Outcome {
    let (locks, name, ttl) = (b.manager().await?, b.name(), b.ttl(1_500));
    let guard = locks.lock(name.as_str()).ttl(ttl).acquire().await?;
    let (mut least, end) = (guard.ttl(), Instant::now() + guard.ttl() * 4);
    while Instant::now() < end {
        least = least.min(guard.remaining());
        ensure!(guard.is_held(), "a healthy lock was lost: {:?}", guard.lost_reason());
        sleep(ms(10)).await;
    }
    // Half of it, less what a busy machine may take.
    ensure!(least >= ttl / 5, "the remaining time fell to {least:?} of {ttl:?}");
    guard.release().await?;
    Ok(())
}

async fn waiters_do_not_starve_renewals(b: &Bench) -> Outcome {
    let (locks, name, ttl) = (b.manager().await?, b.name(), b.ttl(1_500));
    let guard = locks.lock(name.as_str()).ttl(ttl).acquire().await?;
    let wait = guard.ttl() * 2;
    let waiters = (0..50).map(|_| locks.lock(name.as_str()).ttl(ttl).wait(wait).acquire());
    let waiting = tokio::spawn(futures_util::future::join_all(waiters.collect::<Vec<_>>()));
    let mut least = guard.ttl();
    while !waiting.is_finished() {
        least = least.min(guard.remaining());
        sleep(ms(10)).await;
    }
    ensure!(guard.is_held() && least >= ttl / 5, "beside 50 waiters the remaining time fell to {least:?} of {ttl:?}");
    ensure!(waiting.await?.iter().all(Result::is_err), "a held name was granted");
    let start = Instant::now();
    guard.release().await?;
    ensure!(start.elapsed() <= SLACK, "the release took {:?}", start.elapsed());
    Ok(())
}

async fn code_that_blocks_its_runtime_keeps_the_lock(b: &Bench) -> Outcome {
    let (locks, other, name, ttl) = (b.manager().await?, b.client().await?, b.name(), b.ttl(700));
    let blocking = std::thread::spawn({
        let name = name.clone();
        move || -> Result<bool, Stop> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let guard = locks.lock(name.as_str()).ttl(ttl).acquire().await?;
                std::thread::sleep(ttl * 3);
                let held = guard.is_held();
                guard.release().await?;
                Ok(held)
            })
        }
    });
    let mut entered = false;
    let end = Instant::now() + ttl * 2;
    let _ = b.is_free_within(&name, Duration::ZERO).await;
    crate::eventually(ms(2_000), || async { matches!(b.peek(&name).await, Ok(Some(_))) }).await;
    while Instant::now() < end {
        entered |= other.is_busy(&name).await.is_ok_and(|busy| !busy);
        sleep(ms(50)).await;
    }
    let held = tokio::task::spawn_blocking(|| blocking.join()).await?.map_err(|_| "the blocking thread panicked")??;
    ensure!(held && !entered, "after blocking: held {held}; a contender got in: {entered}");
    Ok(())
}

async fn a_short_outage_is_invisible(b: &Bench) -> Outcome {
    let proxy = b.proxy().await?;
    let (locks, name, ttl) = (b.manager_via(&proxy).await?, b.name(), b.ttl(4_000));
    let guard = locks.lock(name.as_str()).ttl(ttl).acquire().await?;
    for _ in 0..2 {
        sleep(ms(300)).await;
        proxy.refuse(true);
        proxy.cut();
        sleep(guard.ttl() / 3).await;
        proxy.refuse(false);
        sleep(guard.ttl() / 3).await;
    }
    sleep(guard.ttl()).await;
    ensure!(guard.is_held(), "a short outage was a loss: {:?}", guard.lost_reason());
    ensure!(guard.release().await? == Released::Released, "a short outage cost the entry");
    Ok(())
}

async fn a_short_silence_is_invisible(b: &Bench) -> Outcome {
    let proxy = b.proxy().await?;
    let (locks, name, ttl) = (b.manager_via(&proxy).await?, b.name(), b.ttl(5_000));
    let guard = locks.lock(name.as_str()).ttl(ttl).acquire().await?;
    let before = proxy.open();
    sleep(ms(200)).await;
    proxy.black_hole(true);
    sleep(guard.ttl() * 2 / 5).await;
    // The old connections stay dark: only new ones work.
    proxy.forget_open();
    proxy.black_hole(false);
    sleep(guard.ttl()).await;
    ensure!(guard.is_held(), "a short silence was a loss: {:?}", guard.lost_reason());
    ensure!(guard.release().await? == Released::Released, "a short silence cost the entry");
    ensure!(proxy.open() <= before * 2 + 2, "{before} connections before, {} after", proxy.open());
    Ok(())
}

async fn a_long_outage_is_a_loss_for_good(b: &Bench) -> Outcome {
    let proxy = b.proxy().await?;
    let (locks, other, name, ttl) = (b.manager_via(&proxy).await?, b.client().await?, b.name(), b.ttl(1_200));
    let guard = locks.lock(name.as_str()).ttl(ttl).acquire().await?;
    proxy.refuse(true);
    proxy.cut();
    let left = guard.remaining();
    lost_within(&guard, left + SLACK).await?;
    let next = other.wait_take(&name, b.ttl(10_000), b.end_of(ttl)).await?;
    proxy.refuse(false);
    sleep(ms(1_000)).await;
    ensure!(!guard.is_held(), "a lost guard came back with the line");
    drop(guard);
    sleep(ms(500)).await;
    ensure!(other.is_busy(&name).await?, "a lost holder that came back removed its successor's lease");
    crate::bench::give_back(next).await
}

async fn a_restart_of_the_server_is_as_declared(b: &Bench) -> Outcome {
    let own = b.own().await?;
    let (locks, name, ttl) = (own.manager().await?, own.name(), own.ttl(4_000));
    let guard = locks.lock(name.as_str()).ttl(ttl).acquire().await?;
    sleep(ms(200)).await;
    own.server()?.restart().await?;
    if b.capabilities().leases_survive_restart {
        sleep(guard.ttl() + ms(500)).await;
        ensure!(guard.is_held(), "declared to survive a restart, lost: {:?}", guard.lost_reason());
        ensure!(guard.release().await? == Released::Released, "a restart cost the entry");
    } else {
        // Another comes in at once, which nobody can help; the first one must know, and leave it alone.
        let next = own.client().await?.wait_take(&name, own.ttl(20_000), ms(1_000)).await?;
        lost_within(&guard, guard.ttl() / 3 + Duration::from_secs(1)).await?;
        drop(guard);
        sleep(ms(200)).await;
        crate::bench::give_back(next).await?;
        ensure!(own.peek(&name).await?.is_none(), "the keeper made a lost entry again");
    }
    own.finish().await
}

async fn a_dead_keeper_is_a_loss(b: &Bench) -> Outcome {
    let (name, ttl) = (b.name(), b.ttl(1_500));
    let (url, harness, of) = (b.url(), std::sync::Arc::clone(b.harness()), name.clone());
    let guard = tokio::task::spawn_blocking(move || -> Result<LockGuard, Stop> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let settings = lock_core::LockManager::builder().runtime(runtime.handle().clone());
        let guard = runtime.block_on(async {
            let locks = settings.connect(async move { harness.connect(&url).await }).await?;
            Ok::<_, Stop>(locks.lock(of.as_str()).ttl(ttl).acquire().await?)
        })?;
        runtime.shutdown_timeout(ms(500));
        Ok(guard)
    })
    .await??;
    let reason = lost_within(&guard, SLACK).await?;
    ensure!(reason == LostReason::KeeperDied, "the reason is {reason:?}");
    drop(guard);
    ensure!(b.is_free_within(&name, b.end_of(ttl)).await, "an entry outlived its keeper");
    Ok(())
}
