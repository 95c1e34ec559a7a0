//! X: futures may be dropped at any point.

use std::time::Duration;

use lock_core::{LockManager, LockName, Page, Released, Revoke};
use tokio::time::{sleep, timeout};

use crate::bench::{give_back, ms};
use crate::case::cases;
use crate::{Bench, Outcome, ensure};

cases! { "cancellation":
    an_acquisition_dropped_anywhere_leaves_nothing: [X1 U1];
    a_wait_dropped_anywhere_leaves_nothing: [X1 W3];
    an_acquisition_dropped_on_a_slow_line_leaves_nothing: [X1 U1] needs [Network];
    a_backends_request_dropped_anywhere_can_be_abandoned: [X1 U1];
    a_renewal_that_is_dropped_harms_nothing: [X1 T4];
    a_release_that_is_dropped_goes_on: [X1 R2];
    questions_that_are_dropped_harm_nothing: [X1];
    work_that_is_dropped_releases: [X1 R2];
    a_dropped_answer_is_not_taken_for_anothers: [X1 M1] needs [Network];
}

/// Moments from before the request is sent until after its answer is there.
fn moments(count: u64) -> impl Iterator<Item = Duration> {
    (0..count).map(|i| Duration::from_micros(i * i * 7 % 4_000))
}

async fn an_acquisition_dropped_anywhere_leaves_nothing(b: &Bench) -> Outcome {
    let locks = b.manager().await?;
    dropped_at(b, &locks, moments(60)).await
}

async fn an_acquisition_dropped_on_a_slow_line_leaves_nothing(b: &Bench) -> Outcome {
    let proxy = b.proxy().await?;
    let locks = b.manager_via(&proxy).await?;
    proxy.delay_requests(ms(30));
    proxy.delay_replies(ms(30));
    dropped_at(b, &locks, (0..20).map(|i| ms(i * 7))).await
}

async fn dropped_at(b: &Bench, locks: &LockManager, moments: impl Iterator<Item = Duration>) -> Outcome {
    let other = b.client().await?;
    let names: Vec<_> = (0..4).map(|_| b.name()).collect();
    for (moment, name) in moments.zip(names.iter().cycle()) {
        // A guard that comes in time is dropped as well.
        let _ = timeout(moment, locks.lock(name.as_str()).ttl(b.ttl(30_000)).acquire()).await;
        let next = other.wait_take(name, b.ttl(30_000), ms(3_000)).await;
        let next = next.map_err(|e| format!("dropped after {moment:?}: {e:?}"))?;
        give_back(next).await?;
    }
    Ok(())
}

async fn a_wait_dropped_anywhere_leaves_nothing(b: &Bench) -> Outcome {
    let (locks, other) = (b.manager().await?, b.client().await?);
    for round in 0..6 {
        let name = b.name();
        let lease = other.take(&name, b.ttl(30_000)).await?;
        for moment in moments(8) {
            let wait = locks.lock(name.as_str()).ttl(b.ttl(30_000)).acquire();
            ensure!(timeout(moment * 10, wait).await.is_err(), "a held name was granted");
        }
        if round % 2 == 0 {
            sleep(ms(300)).await;
        }
        give_back(lease).await?;
        let next = other.wait_take(&name, b.ttl(30_000), ms(1_500)).await;
        give_back(next.map_err(|e| format!("a place was left behind: {e:?}"))?).await?;
    }
    Ok(())
}

async fn a_backends_request_dropped_anywhere_can_be_abandoned(b: &Bench) -> Outcome {
    let (client, other) = (b.client().await?, b.client().await?);
    let names: Vec<LockName> = (0..4).map(|_| b.name()).collect();
    for (moment, name) in moments(40).zip(names.iter().cycle()) {
        let request = client.waiting_request(name, b.ttl(30_000), ms(3_000))?;
        drop(timeout(moment, client.acquire(&request)).await);
        client.abandon(name, &request.owner).await?;
        let next = other.wait_take(name, b.ttl(30_000), ms(500)).await;
        give_back(next.map_err(|e| format!("abandoned after {moment:?}: {e:?}"))?).await?;
    }
    Ok(())
}

async fn a_renewal_that_is_dropped_harms_nothing(b: &Bench) -> Outcome {
    let (locks, name) = (b.manager().await?, b.name());
    let guard = locks.lock(name.as_str()).ttl(b.ttl(10_000)).acquire().await?;
    for moment in moments(30) {
        let _ = timeout(moment, guard.renew()).await;
    }
    guard.renew().await?;
    ensure!(guard.is_held(), "dropped renewals cost the lock: {:?}", guard.lost_reason());
    ensure!(guard.release().await? == Released::Released, "dropped renewals cost the entry");
    Ok(())
}

async fn a_release_that_is_dropped_goes_on(b: &Bench) -> Outcome {
    let (locks, name) = (b.manager().await?, b.name());
    for moment in moments(20) {
        let guard = locks.lock(name.as_str()).ttl(b.ttl(30_000)).wait(ms(3_000)).acquire().await?;
        let _ = timeout(moment, guard.release()).await;
        ensure!(b.is_free_within(&name, ms(1_000)).await, "a release dropped after {moment:?} did not go on");
    }
    Ok(())
}

async fn questions_that_are_dropped_harm_nothing(b: &Bench) -> Outcome {
    let (locks, name) = (b.manager().await?, b.name());
    let guard = locks.lock(name.as_str()).ttl(b.ttl(30_000)).acquire().await?;
    for moment in moments(15) {
        let _ = timeout(moment, locks.inspect(name.as_str())).await;
        let _ = timeout(moment, locks.list(b.prefix(), Page::first(10))).await;
        let _ = timeout(moment, locks.diagnose()).await;
    }
    let shown = locks.inspect(name.as_str()).await?.map(|holder| holder.owner);
    ensure!(shown == Some(guard.owner().to_string()), "after dropped questions {shown:?} is shown");
    let _ = timeout(Duration::from_micros(300), locks.revoke(name.as_str(), None, Revoke::Now)).await;
    drop(guard);
    ensure!(b.is_free_within(&name, ms(1_000)).await, "a dropped revocation left an entry");
    let _ = timeout(Duration::from_micros(1), locks.close()).await;
    Ok(locks.close().await?)
}

async fn work_that_is_dropped_releases(b: &Bench) -> Outcome {
    let (locks, name) = (b.manager().await?, b.name());
    let work = locks.lock(name.as_str()).ttl(b.ttl(30_000)).run(|_held| std::future::pending::<()>());
    let _ = timeout(ms(200), work).await;
    ensure!(b.is_free_within(&name, ms(1_000)).await, "work that was dropped kept its lock");
    Ok(())
}

async fn a_dropped_answer_is_not_taken_for_anothers(b: &Bench) -> Outcome {
    let (proxy, holder) = (b.proxy().await?, b.client().await?);
    let client = b.client_via(&proxy).await?;
    let (free, held) = (b.name(), b.name());
    let lease = holder.take(&held, b.ttl(60_000)).await?;
    proxy.delay_replies(ms(8));
    for _ in 0..60 {
        let request = client.request(&free, b.ttl(30_000))?;
        drop(timeout(ms(3), client.acquire(&request)).await);
        // The answer to the first request comes now; it must not be read as the answer to this one.
        let busy = client.try_take(&held, b.ttl(30_000)).await?.is_none();
        ensure!(busy, "another request's answer was taken for a grant");
        client.abandon(&free, &request.owner).await?;
    }
    give_back(lease).await
}
