//! W: waiting, its limits, its wake-ups and its order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lock_core::{ErrorKind, LockManager, LockName};
use tokio::time::sleep;

use crate::bench::{SLACK, give_back, ms};
use crate::case::cases;
use crate::child::{Child, Task};
use crate::{Bench, Outcome, Stop, ensure, eventually};

cases! { "waiting":
    a_limit_is_kept: [W1 E1];
    not_waiting_answers_at_once: [W1];
    nobody_gives_up_early: [W1 W2];
    a_frozen_server_keeps_nobody_waiting: [W1 E1] needs [Freeze];
    a_dead_port_keeps_nobody_waiting: [W1 E1] needs [Network];
    a_release_reaches_a_waiter: [W2];
    a_thousand_hand_overs: [W2 M1];
    a_release_between_the_steps_of_a_waiter_reaches_it: [W2] needs [Network];
    a_removal_by_hand_reaches_a_waiter: [W2 L5 O1];
    an_expiry_reaches_a_waiter: [W2 T1];
    a_killed_holder_is_followed_by_a_waiter: [W2 T1] needs [Processes];
    who_reaches_the_limit_leaves_no_place: [W3];
    who_is_cancelled_leaves_no_place: [W3 X1];
    a_killed_waiter_ahead_costs_a_second: [W2] needs [Processes];
    a_frozen_waiter_ahead_costs_a_second: [W2] needs [Processes];
    waiters_get_the_name_in_order_or_within_a_bound: [W4];
    requests_do_not_grow_with_the_waiters: [W5] needs [Network];
    waiters_share_connections: [R3 W5] needs [Network];
}

async fn a_limit_is_kept(b: &Bench) -> Outcome {
    let (locks, name, wait) = (b.manager().await?, b.name(), ms(600));
    let guard = locks.lock(name.as_str()).ttl(b.ttl(20_000)).label("the holder").acquire().await?;
    let start = Instant::now();
    let error = locks.lock(name.as_str()).ttl(b.ttl(20_000)).wait(wait).acquire().await.err();
    let took = start.elapsed();
    let error = error.ok_or("a held name was granted")?;
    ensure!(error.kind() == ErrorKind::Timeout, "the limit answered {error:?}");
    ensure!(took + ms(2) >= wait && took <= wait + SLACK, "a limit of {wait:?} took {took:?}");
    let owner = error.holder().map(|holder| holder.owner.clone());
    ensure!(owner == Some(guard.owner().to_string()), "the time-out names the holder {owner:?}");
    guard.release().await?;
    Ok(())
}

async fn not_waiting_answers_at_once(b: &Bench) -> Outcome {
    let (holder, locks, name) = (b.manager().await?, b.manager().await?, b.name());
    let guard = holder.lock(name.as_str()).ttl(b.ttl(20_000)).acquire().await?;
    let start = Instant::now();
    let second = locks.lock(name.as_str()).ttl(b.ttl(20_000)).try_acquire().await?;
    ensure!(second.is_none(), "a held name was granted");
    ensure!(start.elapsed() <= SLACK, "an attempt that must not wait took {:?}", start.elapsed());
    guard.release().await?;
    Ok(())
}

async fn nobody_gives_up_early(b: &Bench) -> Outcome {
    let (holder, name, ttl) = (b.manager().await?, b.name(), b.ttl(20_000));
    let guard = holder.lock(name.as_str()).ttl(ttl).acquire().await?;
    let mut waiters = Vec::new();
    for _ in 0..5 {
        let (locks, name) = (b.manager().await?, name.clone());
        waiters.push(tokio::spawn(async move {
            let guard = locks.lock(name.as_str()).ttl(ttl).wait(Duration::from_secs(15)).acquire().await?;
            sleep(ms(100)).await;
            guard.release().await
        }));
    }
    sleep(ms(300)).await;
    guard.release().await?;
    for waiter in waiters {
        waiter.await?.map_err(|e| format!("a waiter gave up: {e}"))?;
    }
    Ok(())
}

async fn a_frozen_server_keeps_nobody_waiting(b: &Bench) -> Outcome {
    let own = b.own().await?;
    let (locks, name) = (own.manager().await?, own.name());
    own.server()?.stop()?;
    unavailable_in_time(&locks, &name).await?;
    own.server()?.resume()?;
    ensure!(own.is_free_within(&name, Duration::from_secs(5)).await, "a request that gave up left an entry");
    let guard = locks.lock(name.as_str()).ttl(own.ttl(5_000)).wait(ms(3_000)).acquire().await?;
    guard.release().await?;
    own.finish().await
}

async fn a_dead_port_keeps_nobody_waiting(b: &Bench) -> Outcome {
    let proxy = b.proxy().await?;
    let (locks, name) = (b.manager_via(&proxy).await?, b.name());
    proxy.refuse(true);
    proxy.cut();
    unavailable_in_time(&locks, &name).await?;
    let start = Instant::now();
    let error = b.manager_via(&proxy).await.err();
    ensure!(error.is_some(), "a manager connected to a dead port");
    ensure!(start.elapsed() <= Duration::from_secs(6), "connecting to a dead port took {:?}", start.elapsed());
    proxy.refuse(false);
    let guard = locks.lock(name.as_str()).ttl(b.ttl(5_000)).wait(ms(3_000)).acquire().await?;
    guard.release().await?;
    Ok(())
}

async fn unavailable_in_time(locks: &LockManager, name: &LockName) -> Outcome {
    let request = || locks.lock(name.as_str()).ttl(Duration::from_secs(20));
    let start = Instant::now();
    let kind = request().wait(ms(1_000)).acquire().await.err().map(|e| e.kind());
    let took = start.elapsed();
    ensure!(kind == Some(ErrorKind::Unavailable), "without a server, waiting answered {kind:?}");
    ensure!(took <= ms(1_000) + SLACK, "a limit of 1 s took {took:?}");

    let start = Instant::now();
    let kind = request().try_acquire().await.err().map(|e| e.kind());
    let took = start.elapsed();
    ensure!(kind == Some(ErrorKind::Unavailable), "without a server, an attempt answered {kind:?}");
    ensure!(took <= lock_core::AcquireRequest::OPERATION_TIMEOUT + SLACK, "an attempt took {took:?}");
    Ok(())
}

async fn a_release_reaches_a_waiter(b: &Bench) -> Outcome {
    let (one, two) = (b.client().await?, b.client().await?);
    for _ in 0..5 {
        let name = b.name();
        let lease = one.take(&name, b.ttl(30_000)).await?;
        let waiting = two.wait_take(&name, b.ttl(30_000), Duration::from_secs(10));
        let releasing = async {
            sleep(ms(150)).await;
            give_back(lease).await?;
            Ok::<_, Stop>(Instant::now())
        };
        let (next, released) = tokio::try_join!(waiting, releasing)?;
        ensure!(released.elapsed() <= ms(1_000), "a freed name reached its waiter after {:?}", released.elapsed());
        give_back(next).await?;
    }
    Ok(())
}

async fn a_thousand_hand_overs(b: &Bench) -> Outcome {
    const WANTED: u64 = 1_000;
    let (name, ttl, end) = (b.name(), b.ttl(20_000), Instant::now() + Duration::from_secs(15));
    let (turns, spans) = (Arc::new(AtomicU64::new(0)), Arc::new(std::sync::Mutex::new(Vec::new())));
    let freed = Arc::new(std::sync::Mutex::new(None::<Instant>));
    let mut running = Vec::new();
    for _ in 0..2 {
        let (locks, name, turns) = (b.manager().await?, name.clone(), Arc::clone(&turns));
        let (spans, freed) = (Arc::clone(&spans), Arc::clone(&freed));
        running.push(tokio::spawn(async move {
            while turns.load(Ordering::Relaxed) < WANTED && Instant::now() < end {
                let guard = locks.lock(name.as_str()).ttl(ttl).wait(Duration::from_secs(10)).acquire().await?;
                if let Some(freed) = freed.lock().map_err(|_| "poisoned")?.take() {
                    spans.lock().map_err(|_| "poisoned")?.push(freed.elapsed());
                }
                let turn = turns.fetch_add(1, Ordering::Relaxed);
                if turn % 3 != 0 {
                    sleep(Duration::from_micros(turn * 37 % 2_000)).await;
                }
                *freed.lock().map_err(|_| "poisoned")? = Some(Instant::now());
                guard.release().await?;
            }
            Ok::<_, Stop>(())
        }));
    }
    for task in running {
        task.await??;
    }
    let turns = turns.load(Ordering::Relaxed);
    ensure!(turns >= 100, "only {turns} hand-overs in 15 s");
    let mut spans = spans.lock().map_err(|_| "poisoned")?;
    spans.sort_unstable();
    let slowest = spans.last().copied().unwrap_or_default();
    ensure!(slowest <= ms(1_000), "the slowest of {turns} hand-overs took {slowest:?}");
    // Looks in between make up for a wake-up that is lost, and shall not be what carries.
    let most = spans.get(spans.len() * 95 / 100).copied().unwrap_or_default();
    ensure!(most <= ms(200), "of {turns} hand-overs the 95th of 100 took {most:?}");
    Ok(())
}

/// A slow line takes the steps of waiting apart, and the release falls between them.
async fn a_release_between_the_steps_of_a_waiter_reaches_it(b: &Bench) -> Outcome {
    let proxy = b.proxy().await?;
    let (holder, waiter) = (b.client().await?, b.client_via(&proxy).await?);
    // What waiting opens at its first use is open before.
    let (warm, ttl) = (b.name(), b.ttl(30_000));
    let lease = holder.take(&warm, ttl).await?;
    let _ = waiter.ask(&waiter.waiting_request(&warm, ttl, ms(200))?).await?;
    give_back(lease).await?;
    proxy.delay_requests(ms(25));
    proxy.delay_replies(ms(25));
    let (holder, waiter) = (&holder, &waiter);
    let phases = (0..20).map(|phase| async move {
        let name = b.name();
        let lease = holder.take(&name, ttl).await?;
        let waiting = waiter.wait_take(&name, ttl, Duration::from_secs(20));
        let releasing = async {
            sleep(ms(phase * 20)).await;
            give_back(lease).await?;
            Ok::<_, Stop>(Instant::now())
        };
        let (next, released) = tokio::try_join!(waiting, releasing)?;
        let took = released.elapsed();
        ensure!(took <= ms(1_000) + SLACK, "freed {} ms after the first step, noticed after {took:?}", phase * 20);
        give_back(next).await
    });
    futures_util::future::try_join_all(phases).await.map(drop)
}

async fn a_removal_by_hand_reaches_a_waiter(b: &Bench) -> Outcome {
    let (first, second, name) = (b.manager().await?, b.manager().await?, b.name());
    let guard = first.lock(name.as_str()).ttl(b.ttl(4_000)).acquire().await?;
    let waiting = second.lock(name.as_str()).ttl(b.ttl(20_000)).wait(Duration::from_secs(20)).acquire();
    let removing = async {
        sleep(ms(400)).await;
        b.remove(&name).await?;
        Ok::<_, Stop>(Instant::now())
    };
    let (next, removed) = tokio::join!(waiting, removing);
    let (next, removed) = (next?, removed?);
    ensure!(removed.elapsed() <= ms(1_000) + SLACK, "a waiter got what was removed after {:?}", removed.elapsed());
    let bound = (guard.ttl() / 3).max(ms(1_000)) + SLACK;
    let told = tokio::time::timeout(bound, guard.lost()).await;
    ensure!(told.is_ok() && !guard.is_held(), "the first holder was not told that another is in");
    drop(guard);
    sleep(ms(300)).await;
    let owner = b.peek(&name).await?.map(|entry| entry.owner);
    ensure!(owner == Some(next.owner().to_string()), "the first holder touched its successor's entry");
    ensure!(next.release().await? == lock_core::Released::Released, "the successor's lease was gone");
    Ok(())
}

async fn an_expiry_reaches_a_waiter(b: &Bench) -> Outcome {
    let (one, two, name, ttl) = (b.client().await?, b.client().await?, b.name(), b.ttl(500));
    let lease = one.take(&name, ttl).await?;
    let limit = b.end_of(lease.effective_ttl());
    let start = Instant::now();
    let next = two.wait_take(&name, b.ttl(5_000), limit + Duration::from_secs(10)).await?;
    ensure!(start.elapsed() <= limit + ms(100), "an expired name reached its waiter after {:?}", start.elapsed());
    give_back(next).await
}

async fn a_killed_holder_is_followed_by_a_waiter(b: &Bench) -> Outcome {
    let (client, name, ttl) = (b.client().await?, b.name(), b.ttl(1_500));
    let (child, _) = Child::holder(b, &name, ttl).await?;
    let waiting = client.wait_take(&name, b.ttl(5_000), Duration::from_secs(30));
    let killing = async {
        sleep(ms(300)).await;
        child.process().kill()?;
        Ok::<_, Stop>(Instant::now())
    };
    let (lease, killed) = tokio::try_join!(waiting, killing)?;
    ensure!(killed.elapsed() <= b.end_of(ttl) + SLACK, "a dead holder was followed after {:?}", killed.elapsed());
    give_back(lease).await
}

async fn who_reaches_the_limit_leaves_no_place(b: &Bench) -> Outcome {
    let (one, two, name) = (b.client().await?, b.client().await?, b.name());
    let lease = one.take(&name, b.ttl(30_000)).await?;
    let request = two.waiting_request(&name, b.ttl(30_000), ms(250))?;
    ensure!(two.ask(&request).await?.is_none(), "a held name was granted");
    nothing_waits(b, &name).await?;
    give_back(lease).await?;
    // Nobody stands in the way: a place left behind would be served first.
    give_back(one.take(&name, b.ttl(5_000)).await?).await
}

async fn who_is_cancelled_leaves_no_place(b: &Bench) -> Outcome {
    let (one, two, name) = (b.client().await?, b.client().await?, b.name());
    let lease = one.take(&name, b.ttl(30_000)).await?;
    let request = two.waiting_request(&name, b.ttl(30_000), Duration::from_secs(30))?;
    let start = Instant::now();
    let (answer, ()) = tokio::join!(two.ask(&request), async {
        sleep(ms(250)).await;
        request.cancel.cancel();
    });
    ensure!(answer?.is_none(), "a held name was granted");
    ensure!(start.elapsed() <= ms(250) + request.operation_timeout, "giving up took {:?}", start.elapsed());
    nothing_waits(b, &name).await?;
    give_back(lease).await?;
    give_back(one.take(&name, b.ttl(5_000)).await?).await
}

async fn nothing_waits(b: &Bench, name: &LockName) -> Outcome {
    let waiters = b.client().await?.inspect(name).await?.and_then(|holder| holder.waiters);
    ensure!(waiters.unwrap_or(0) == 0, "{waiters:?} are said to wait, and nobody does");
    Ok(())
}

async fn a_killed_waiter_ahead_costs_a_second(b: &Bench) -> Outcome {
    dead_waiter_ahead(b, |child| child.process().kill()).await
}

async fn a_frozen_waiter_ahead_costs_a_second(b: &Bench) -> Outcome {
    dead_waiter_ahead(b, |child| child.process().stop()).await
}

async fn dead_waiter_ahead(b: &Bench, die: fn(&Child) -> Outcome) -> Outcome {
    let (one, two, name) = (b.client().await?, b.client().await?, b.name());
    let lease = one.take(&name, b.ttl(30_000)).await?;
    let child = Child::start(b, Task::Hold, &name, b.ttl(1_500), "")?;
    // Until it stands in the queue, where that is shown; else for a while.
    eventually(ms(1_500), || async {
        one.inspect(&name).await.is_ok_and(|shown| shown.is_some_and(|holder| holder.waiters >= Some(1)))
    })
    .await;
    let waiting = two.wait_take(&name, b.ttl(5_000), Duration::from_secs(20));
    let dying = async {
        sleep(ms(300)).await;
        die(&child)?;
        give_back(lease).await?;
        Ok::<_, Stop>(Instant::now())
    };
    let (next, released) = tokio::try_join!(waiting, dying)?;
    let took = released.elapsed();
    // The name may have reached the dead one just before it died: then it is a dead holder.
    let limit = Duration::from_secs(2) + SLACK;
    ensure!(took <= limit, "a dead waiter ahead cost {took:?}");
    give_back(next).await?;
    drop(child);
    ensure!(b.is_free_within(&name, b.end_of(b.ttl(1_500)) + SLACK).await, "the dead waiter got the name");
    Ok(())
}

async fn waiters_get_the_name_in_order_or_within_a_bound(b: &Bench) -> Outcome {
    if b.capabilities().fifo { in_order_of_arrival(b).await } else { nobody_starves(b).await }
}

async fn in_order_of_arrival(b: &Bench) -> Outcome {
    let (client, name, ttl) = (b.client().await?, b.name(), b.ttl(30_000));
    let lease = client.take(&name, ttl).await?;
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for number in 0..6 {
        let (waiter, order, name) = (b.client().await?, Arc::clone(&order), name.clone());
        waiters.push(tokio::spawn(async move {
            let lease = waiter.wait_take(&name, ttl, Duration::from_secs(20)).await?;
            order.lock().map_err(|_| "poisoned")?.push(number);
            sleep(ms(10)).await;
            give_back(lease).await
        }));
        sleep(ms(100)).await;
    }
    give_back(lease).await?;
    for waiter in waiters {
        waiter.await??;
    }
    {
        let order = order.lock().map_err(|_| "poisoned")?;
        ensure!(order.is_sorted(), "declared fifo, served in the order {order:?}");
    }
    // Who asks again at once stands behind the other. One that a busy machine keeps from asking in time loses a turn.
    let (one, two) = turns_of_two(b, ms(1_500)).await?;
    ensure!(
        one.min(two) * 5 >= (one + two) * 2,
        "declared fifo, of two that compete, one had {one} turns and one {two}"
    );
    Ok(())
}

async fn nobody_starves(b: &Bench) -> Outcome {
    let (one, two) = turns_of_two(b, Duration::from_secs(5)).await?;
    ensure!(one.min(two) * 10 >= one + two, "of two that compete, one had {one} turns and one {two}");
    Ok(())
}

/// How often each of two managers was in that ask again at once.
async fn turns_of_two(b: &Bench, span: Duration) -> Result<(u64, u64), Stop> {
    let (name, end) = (b.name(), Instant::now() + span);
    let take_turns = |locks: LockManager| {
        let (name, ttl) = (name.clone(), b.ttl(10_000));
        tokio::spawn(async move {
            let mut turns = 0_u64;
            while Instant::now() < end {
                let guard = locks.lock(name.as_str()).ttl(ttl).acquire().await?;
                turns += 1;
                sleep(ms(20)).await;
                guard.release().await?;
            }
            Ok::<_, Stop>(turns)
        })
    };
    let (one, two) = (take_turns(b.manager().await?), take_turns(b.manager().await?));
    Ok((one.await??, two.await??))
}

async fn requests_do_not_grow_with_the_waiters(b: &Bench) -> Outcome {
    let few = requests_per_grant(b, 4).await?;
    let many = requests_per_grant(b, 80).await?;
    ensure!(many <= few * 1.5 + 3.0, "{few:.1} requests a grant with 4 waiters, {many:.1} with 80");
    Ok(())
}

/// Counts what goes over the line while a number of waiters hand the name on, each once and again.
async fn requests_per_grant(b: &Bench, waiters: u32) -> Result<f64, Stop> {
    const GRANTS: u64 = 80;
    let (proxy, name) = (b.proxy().await?, b.name());
    let locks = b.manager_via(&proxy).await?;
    let grants = Arc::new(AtomicU64::new(0));
    let before = proxy.requests();
    let mut running = Vec::new();
    for _ in 0..waiters {
        let (locks, name, grants, ttl) = (locks.clone(), name.clone(), Arc::clone(&grants), b.ttl(20_000));
        running.push(tokio::spawn(async move {
            while grants.load(Ordering::Relaxed) < GRANTS {
                let guard = locks.lock(name.as_str()).ttl(ttl).wait(Duration::from_secs(30)).acquire().await?;
                grants.fetch_add(1, Ordering::Relaxed);
                sleep(ms(10)).await;
                guard.release().await?;
            }
            Ok::<_, Stop>(())
        }));
    }
    for task in running {
        task.await??;
    }
    Ok((proxy.requests() - before) as f64 / grants.load(Ordering::Relaxed) as f64)
}

async fn waiters_share_connections(b: &Bench) -> Outcome {
    let (proxy, name) = (b.proxy().await?, b.name());
    let locks = b.manager_via(&proxy).await?;
    let guard = locks.lock(name.as_str()).ttl(b.ttl(20_000)).acquire().await?;
    let waiter = |wait| locks.lock(name.as_str()).ttl(b.ttl(20_000)).wait(wait).acquire();
    // One that waits opens whatever waiting needs.
    let _ = waiter(ms(300)).await;
    let before = proxy.open();
    let waiting: Vec<_> = (0..100).map(|_| waiter(ms(1_000))).collect();
    let waiting = tokio::spawn(futures_util::future::join_all(waiting));
    sleep(ms(500)).await;
    let during = proxy.open();
    let all_refused = waiting.await?.iter().all(Result::is_err);
    ensure!(all_refused, "a held name was granted");
    ensure!(during <= before + 2, "{before} connections with one waiter, {during} with a hundred");
    guard.release().await?;
    Ok(())
}
