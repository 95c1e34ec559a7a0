//! T: leases end in time, and never early.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_core::{AcquireRequest, Clock, ErrorKind, Renewal, TimeSource, Ttl};

use crate::bench::{SLACK, give_back, keep, ms};
use crate::case::cases;
use crate::child::{Child, Task};
use crate::{Bench, Outcome, Stop, ensure};

cases! { "ttl":
    an_abandoned_lease_ends_in_time_and_not_early: [T1];
    a_killed_holder_is_followed_in_time: [T1 W2] needs [Processes];
    a_process_killed_anywhere_leaves_nothing_without_an_end: [T1 U1] needs [Processes];
    without_renewal_the_guard_ends_itself: [T1 L2];
    a_leaked_guard_without_renewal_blocks_nobody: [T1 M3];
    an_expired_lease_is_not_shown: [T1];
    a_restart_adds_at_most_one_ttl: [T1] needs [Server];
    ttls_out_of_range_are_refused_before_anything_is_done: [T2 E1];
    the_backends_own_limit_is_refused: [T2];
    odd_ttls_are_rounded_up_and_shown: [T2];
    the_least_ttl_works: [T2];
    a_clients_clock_decides_nothing: [T3];
    renewing_often_adds_nothing: [T4];
    renewing_prolongs: [T4];
    renewing_never_revives: [T4 O1];
    renewing_never_creates: [T4 L5];
    renewing_moves_the_validity: [T4 M2];
}

async fn an_abandoned_lease_ends_in_time_and_not_early(b: &Bench) -> Outcome {
    // At several phases of the second, since a store may round its times.
    let phases = (0..6).map(|phase| async move {
        let (client, name, ttl) = (b.client().await?, b.name(), b.ttl(700));
        tokio::time::sleep(ms(phase * 170)).await;
        let sent = Instant::now();
        let lease = client.take(&name, ttl).await?;
        let granted = Instant::now();
        let limit = b.end_of(lease.effective_ttl()) + ms(100);
        loop {
            if let Some(next) = client.try_take(&name, b.ttl(5_000)).await? {
                let (earliest, latest) = (sent.elapsed(), granted.elapsed());
                give_back(next).await?;
                // A store that counts whole milliseconds may be off by one of them.
                ensure!(earliest + ms(2) >= ttl, "a lease of {ttl:?} ended after {earliest:?}");
                ensure!(latest <= limit, "a lease of {ttl:?} ended after {latest:?} only");
                return Ok::<_, Stop>(());
            }
            ensure!(granted.elapsed() <= limit, "a lease of {ttl:?} is still there after {:?}", granted.elapsed());
            tokio::time::sleep(ms(20)).await;
        }
    });
    futures_util::future::try_join_all(phases).await.map(drop)
}

async fn a_killed_holder_is_followed_in_time(b: &Bench) -> Outcome {
    let (client, name, ttl) = (b.client().await?, b.name(), b.ttl(1_500));
    let (child, token) = Child::holder(b, &name, ttl).await?;
    // Past several renewals.
    tokio::time::sleep(ttl + ms(200)).await;
    ensure!(client.is_busy(&name).await?, "a living holder was not renewed");
    child.process().kill()?;
    let killed = Instant::now();
    let lease = client.wait_take(&name, b.ttl(5_000), b.end_of(ttl) + SLACK).await?;
    ensure!(killed.elapsed() <= b.end_of(lease.effective_ttl().max(ttl)) + SLACK, "it took {:?}", killed.elapsed());
    ensure!(lease.fencing_token().get() > token, "the token did not rise over a killed holder");
    give_back(lease).await
}

async fn a_process_killed_anywhere_leaves_nothing_without_an_end(b: &Bench) -> Outcome {
    let (ttl, folder) = (b.ttl(2_000), tempfile::tempdir()?);
    let path = folder.path().join("number");
    let file = path.to_str().ok_or("the temporary folder's name is not UTF-8")?;
    let names: Vec<_> = (0..12).map(|_| b.name()).collect();
    for (i, name) in names.iter().enumerate() {
        std::fs::write(&path, "0")?;
        let child = Child::start(b, Task::Count(100_000), name, ttl, file)?;
        // Until it is at work.
        let started = || async { std::fs::read_to_string(&path).is_ok_and(|number| number != "0") };
        ensure!(crate::eventually(Duration::from_secs(10), started).await, "a child did not start");
        tokio::time::sleep(Duration::from_micros(i as u64 * 137)).await;
        child.process().kill()?;
        if let Some(entry) = b.peek(name).await? {
            ensure!(entry.remaining.is_some(), "a killed process left an entry without an end");
        }
    }
    for name in &names {
        ensure!(b.is_free_within(name, b.end_of(ttl)).await, "the entry of a killed process stayed");
    }
    Ok(())
}

async fn a_leaked_guard_without_renewal_blocks_nobody(b: &Bench) -> Outcome {
    let (locks, name, ttl) = (b.manager().await?, b.name(), b.ttl(500));
    let guard = locks.lock(name.as_str()).ttl(ttl).auto_renew(false).acquire().await?;
    std::mem::forget(guard);
    let next = locks.lock(name.as_str()).ttl(b.ttl(5_000)).wait(b.end_of(ttl) + SLACK).acquire().await;
    next.map_err(|e| format!("a leaked guard blocks its own process: {e}"))?.release().await?;
    Ok(())
}

async fn without_renewal_the_guard_ends_itself(b: &Bench) -> Outcome {
    let (locks, name, ttl) = (b.manager().await?, b.name(), b.ttl(600));
    let start = Instant::now();
    let guard = locks.lock(name.as_str()).ttl(ttl).auto_renew(false).acquire().await?;
    let effective = guard.ttl();
    let reason = tokio::time::timeout(effective + SLACK, guard.lost()).await.map_err(|_| "lost was not raised")?;
    ensure!(!guard.is_held() && guard.remaining().is_zero(), "a lost guard says that it is held");
    ensure!(start.elapsed() <= effective + SLACK, "lost was raised after {:?}", start.elapsed());
    ensure!(reason == lock_core::LostReason::Expired, "the reason is {reason:?}");
    ensure!(b.is_free_within(&name, b.end_of(ms(0)) + SLACK).await, "the entry outlived its guard");
    Ok(())
}

async fn an_expired_lease_is_not_shown(b: &Bench) -> Outcome {
    let (client, name, ttl) = (b.client().await?, b.name(), b.ttl(300));
    let lease = client.take(&name, ttl).await?;
    tokio::time::sleep(b.end_of(lease.effective_ttl())).await;
    let shown = client.inspect(&name).await?;
    ensure!(shown.is_none(), "an expired lease is shown: {shown:?}");
    Ok(())
}

async fn a_restart_adds_at_most_one_ttl(b: &Bench) -> Outcome {
    let own = b.own().await?;
    let (client, name, ttl) = (own.client().await?, own.name(), own.ttl(3_000));
    let lease = client.take(&name, ttl).await?;
    let start = Instant::now();
    own.server()?.restart().await?;
    if !b.capabilities().leases_survive_restart {
        ensure!(own.is_free_within(&name, ms(1_000)).await, "declared to end with the server, and still there");
        return own.finish().await;
    }
    let whole = if b.capabilities().restart_adds_ttl { ttl * 2 } else { ttl };
    let limit = own.end_of(whole) + Duration::from_secs(1);
    ensure!(own.is_free_within(&name, limit).await, "the lease outlived a restart by more than is declared");
    ensure!(start.elapsed() + ms(100) >= ttl, "a restart ended a lease of {:?} early", lease.effective_ttl());
    own.finish().await
}

async fn ttls_out_of_range_are_refused_before_anything_is_done(b: &Bench) -> Outcome {
    let (locks, name) = (b.manager().await?, b.name());
    let far = [Ttl::MAX + ms(1), Duration::from_millis(i64::MAX as u64), Duration::from_secs(u64::MAX), Duration::MAX];
    for ttl in [Duration::ZERO, Duration::from_nanos(1), ms(9)].into_iter().chain(far) {
        let error = locks.lock(name.as_str()).ttl(ttl).try_acquire().await.err();
        let kind = error.as_ref().map(lock_core::LockError::kind);
        ensure!(kind == Some(ErrorKind::InvalidTtl), "a TTL of {ttl:?} answered {error:?}");
        ensure!(b.peek(&name).await?.is_none(), "a refused TTL of {ttl:?} left an entry");
    }
    // A huge wait means no limit, and overflows nothing.
    let guard = locks.lock(name.as_str()).ttl(b.ttl(5_000)).wait(Duration::MAX).acquire().await?;
    guard.release().await?;
    Ok(())
}

async fn the_backends_own_limit_is_refused(b: &Bench) -> Outcome {
    let (client, name, most) = (b.client().await?, b.name(), b.capabilities().max_ttl);
    give_back(client.take(&name, most).await?).await?;
    // Through a manager: a limit that is the library's own is refused before the backend is asked.
    let error = b.manager().await?.lock(name.as_str()).ttl(most + ms(1)).try_acquire().await.err();
    let kind = error.as_ref().map(lock_core::LockError::kind);
    ensure!(kind == Some(ErrorKind::InvalidTtl), "a TTL beyond the limit answered {error:?}");
    if most < Ttl::MAX {
        let kind = client.acquire(&client.request(&name, most + ms(1))?).await.err().map(|e| e.kind());
        ensure!(kind == Some(ErrorKind::InvalidTtl), "the backend itself answered {kind:?} to a TTL beyond its limit");
    }
    Ok(())
}

async fn odd_ttls_are_rounded_up_and_shown(b: &Bench) -> Outcome {
    let client = b.client().await?;
    for asked in [ms(1_500), ms(2_999), ms(300), ms(1_001), ms(10), ms(59_999)] {
        let (name, start) = (b.name(), Instant::now());
        let lease = client.take(&name, asked).await?;
        ensure!(lease.effective_ttl() >= asked, "{asked:?} were asked, {:?} granted", lease.effective_ttl());
        let shown = b.peek(&name).await?;
        let spent = start.elapsed();
        if let Some(left) = shown.and_then(|entry| entry.remaining) {
            let lease_ends = lease.effective_ttl().saturating_sub(spent);
            ensure!(left + ms(20) >= lease_ends, "of {asked:?}, {left:?} stand in the store after {spent:?}");
        }
        let mut lease = lease;
        lease.release().await?;
    }
    Ok(())
}

async fn the_least_ttl_works(b: &Bench) -> Outcome {
    let (client, name) = (b.client().await?, b.name());
    // So short a lease has no time for a connection to be opened.
    give_back(client.take(&name, b.ttl(5_000)).await?).await?;
    let lease = client.take(&name, Ttl::MIN).await?;
    let next = client.wait_take(&name, b.ttl(5_000), b.end_of(lease.effective_ttl()) + SLACK).await?;
    give_back(next).await
}

/// A clock that is wrong by a fixed span.
#[derive(Debug)]
struct Skewed {
    ahead: Duration,
    behind: Duration,
}

impl TimeSource for Skewed {
    fn now(&self) -> Duration {
        let now = Clock::system().now().saturating_since(Clock::system().now().before(Duration::MAX));
        (now + self.ahead).saturating_sub(self.behind)
    }
}

async fn a_clients_clock_decides_nothing(b: &Bench) -> Outcome {
    let (holder, other, name) = (b.client().await?, b.client().await?, b.name());
    let skewed = |ahead, behind| Clock::from_source(Arc::new(Skewed { ahead, behind }));
    let (day, ttl) = (Duration::from_secs(86_400), b.ttl(1_500));
    let request_by = |clock: Clock| -> Result<AcquireRequest, Stop> {
        let mut request = holder.request(&name, ttl)?;
        request.clock = clock;
        Ok(request)
    };
    let start = Instant::now();
    let lease = holder.ask(&request_by(skewed(Duration::ZERO, day))?).await?.ok_or("a free name is busy")?;
    let stolen = other.ask(&request_by(skewed(day, Duration::ZERO))?).await?;
    ensure!(stolen.is_none(), "a client whose clock is ahead took a living lease");
    let limit = b.end_of(lease.effective_ttl());
    ensure!(b.is_free_within(&name, limit).await, "a client whose clock is behind keeps its lease");
    ensure!(start.elapsed() + ms(2) >= ttl, "the lease ended after {:?}", start.elapsed());
    Ok(())
}

async fn renewing_often_adds_nothing(b: &Bench) -> Outcome {
    let (client, name, ttl) = (b.client().await?, b.name(), b.ttl(2_000));
    let mut lease = client.take(&name, ttl).await?;
    for _ in 0..50 {
        keep(&mut lease).await?;
    }
    let last = Instant::now();
    let left = b.peek(&name).await?.ok_or("the entry is gone")?.remaining.ok_or("the entry has no time to live")?;
    ensure!(left <= lease.effective_ttl() + b.capabilities().expiry_grain, "{left:?} are left of a TTL of {ttl:?}");
    let limit = b.end_of(lease.effective_ttl());
    ensure!(b.is_free_within(&name, limit).await, "still there {:?} after the last renewal", last.elapsed());
    Ok(())
}

async fn renewing_prolongs(b: &Bench) -> Outcome {
    let (client, other, name, ttl) = (b.client().await?, b.client().await?, b.name(), b.ttl(900));
    let mut lease = client.take(&name, ttl).await?;
    let start = Instant::now();
    while start.elapsed() < ttl * 2 {
        tokio::time::sleep(ttl / 4).await;
        keep(&mut lease).await?;
    }
    ensure!(other.is_busy(&name).await?, "a renewed lease ended");
    give_back(lease).await
}

async fn renewing_never_revives(b: &Bench) -> Outcome {
    let (client, other, name, ttl) = (b.client().await?, b.client().await?, b.name(), b.ttl(300));
    for taken_between in [false, true] {
        let mut lease = client.take(&name, ttl).await?;
        ensure!(b.is_free_within(&name, b.end_of(lease.effective_ttl())).await, "the lease did not end");
        if taken_between {
            give_back(other.take(&name, b.ttl(5_000)).await?).await?;
        }
        let answer = lease.renew().await?;
        ensure!(matches!(answer, Renewal::Lost(_)), "the renewal of an expired lease answered {answer:?}");
        ensure!(b.peek(&name).await?.is_none(), "a renewal revived an expired lease");
    }
    Ok(())
}

async fn renewing_never_creates(b: &Bench) -> Outcome {
    let (client, name) = (b.client().await?, b.name());
    let mut lease = client.take(&name, b.ttl(20_000)).await?;
    b.remove(&name).await?;
    let answer = lease.renew().await?;
    ensure!(matches!(answer, Renewal::Lost(_)), "the renewal of a removed lease answered {answer:?}");
    ensure!(b.peek(&name).await?.is_none(), "a renewal made a removed entry again");
    Ok(())
}

async fn renewing_moves_the_validity(b: &Bench) -> Outcome {
    let (locks, name, ttl) = (b.manager().await?, b.name(), b.ttl(4_000));
    let guard = locks.lock(name.as_str()).ttl(ttl).auto_renew(false).acquire().await?;
    let token = guard.fencing_token();
    for _ in 0..3 {
        tokio::time::sleep(ms(400)).await;
        let before = guard.remaining();
        guard.renew().await?;
        let after = guard.remaining();
        ensure!(
            after > before && after <= guard.ttl(),
            "a renewal moved the remaining time from {before:?} to {after:?}"
        );
        ensure!(guard.fencing_token() == token, "a renewal changed the token");
    }
    guard.release().await?;
    Ok(())
}
