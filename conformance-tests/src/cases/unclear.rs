//! U: what becomes of an acquisition whose answer did not come.

use std::time::{Duration, Instant};

use lock_core::{LockManager, LockName, LostReason, Released};
use tokio::time::{sleep, timeout};

use crate::bench::{SLACK, give_back, ms};
use crate::case::cases;
use crate::proxy::Proxy;
use crate::{Bench, Outcome, ensure};

cases! { "unclear":
    a_retry_recognises_its_own_entry: [U2];
    abandoning_removes_the_entry_of_its_owner_alone: [U1 O1];
    abandoning_removes_the_place_in_the_queue: [U1 W3];
    what_is_handed_out_is_alive: [U3];
    an_answer_cut_off_is_recognised_by_the_retry: [U2 E2] needs [Network];
    answers_cut_off_to_the_end_leave_nothing: [U1 E1] needs [Network];
    a_request_delivered_late_leaves_nothing: [U1] needs [Network];
    a_request_overtaken_by_its_clean_up_leaves_nothing: [U1] needs [Network];
    a_request_to_a_frozen_server_leaves_nothing: [U1] needs [Freeze];
    a_server_that_thaws_in_time_grants_once: [U2 W1] needs [Freeze];
    what_is_taken_right_after_a_silence_is_alive: [U3 M1 L1] needs [Network];
    a_slow_answer_shortens_what_remains: [U3 M2] needs [Network];
    a_grant_that_comes_too_late_is_none: [U3] needs [Network];
    a_release_cut_off_goes_on: [O2 R1] needs [Network];
    a_server_that_is_gone_for_a_while_gets_the_release: [O2 R1] needs [Network];
}

async fn a_retry_recognises_its_own_entry(b: &Bench) -> Outcome {
    let (client, other, name) = (b.client().await?, b.client().await?, b.name());
    let request = client.request(&name, b.ttl(20_000))?;
    let first = client.ask(&request).await?.ok_or("a free name is busy")?;
    // As if the answer had been lost: the very same request again, by this client or by one that reconnected.
    let again = timeout(ms(2_000), client.ask(&request)).await.map_err(|_| "a retry waits for itself")??;
    let again = again.ok_or("a retry takes its own entry for another's")?;
    let third = other.ask(&request).await?.ok_or("a retry by another connection takes its own entry for another's")?;
    ensure!(again.fencing_token() >= first.fencing_token(), "the token fell in a retry");
    ensure!(other.is_busy(&name).await?, "the retries ended the lease");
    give_back(third).await?;
    ensure!(b.peek(&name).await?.is_none(), "one release did not end what several tries had taken");
    Ok(())
}

async fn abandoning_removes_the_entry_of_its_owner_alone(b: &Bench) -> Outcome {
    let (client, name) = (b.client().await?, b.name());
    let request = client.request(&name, b.ttl(20_000))?;
    let lease = client.ask(&request).await?.ok_or("a free name is busy")?;
    let stranger = client.request(&name, b.ttl(20_000))?;
    let answer = client.abandon(&name, &stranger.owner).await?;
    ensure!(answer == Released::NotHeld, "abandoning for a stranger answered {answer:?}");
    ensure!(client.is_busy(&name).await?, "abandoning for a stranger removed another's entry");

    drop(lease);
    let answer = client.abandon(&name, &request.owner).await?;
    ensure!(answer == Released::Released, "abandoning a granted request answered {answer:?}");
    ensure!(b.peek(&name).await?.is_none(), "an abandoned entry is still there");
    let answer = client.abandon(&name, &request.owner).await?;
    ensure!(answer == Released::NotHeld, "abandoning twice answered {answer:?}");
    Ok(())
}

async fn abandoning_removes_the_place_in_the_queue(b: &Bench) -> Outcome {
    let (client, other, name) = (b.client().await?, b.client().await?, b.name());
    let lease = client.take(&name, b.ttl(30_000)).await?;
    for _ in 0..3 {
        let request = other.waiting_request(&name, b.ttl(30_000), Duration::from_secs(30))?;
        // The keeper drops a request whose answer takes too long, and abandons it then.
        let answer = timeout(ms(150), other.ask(&request)).await;
        ensure!(answer.is_err(), "a held name was not waited for");
        other.abandon(&name, &request.owner).await?;
    }
    give_back(lease).await?;
    let next = client.wait_take(&name, b.ttl(5_000), ms(200)).await?;
    give_back(next).await
}

async fn what_is_handed_out_is_alive(b: &Bench) -> Outcome {
    let locks = b.manager().await?;
    for _ in 0..3 {
        let (name, ttl) = (b.name(), b.ttl(400));
        let Ok(guard) = locks.lock(name.as_str()).ttl(ttl).auto_renew(false).wait(ms(3_000)).acquire().await else {
            continue;
        };
        let entry = b.peek(&name).await?;
        let is_own = entry.is_some_and(|entry| entry.owner == guard.owner().to_string());
        ensure!(is_own || !guard.is_held(), "what was handed out had ended before");
        drop(guard);
    }
    Ok(())
}

async fn an_answer_cut_off_is_recognised_by_the_retry(b: &Bench) -> Outcome {
    let proxy = b.proxy().await?;
    let (locks, other) = (b.manager_via(&proxy).await?, b.client().await?);
    for _ in 0..3 {
        let name = b.name();
        proxy.cut_after_request(true);
        let mending = async {
            sleep(ms(250)).await;
            proxy.cut_after_request(false);
        };
        let request = locks.lock(name.as_str()).ttl(b.ttl(20_000)).wait(ms(5_000)).acquire();
        let (guard, ()) = tokio::join!(request, mending);
        let guard = guard.map_err(|e| format!("the retry did not recognise its own entry: {e}"))?;
        ensure!(other.is_busy(&name).await?, "what was handed out is not held");
        ensure!(guard.release().await? == Released::Released, "the retry's guard was not held");
        ensure!(b.peek(&name).await?.is_none(), "one release did not end what several tries had taken");
    }
    Ok(())
}

async fn answers_cut_off_to_the_end_leave_nothing(b: &Bench) -> Outcome {
    let proxy = b.proxy().await?;
    let (locks, name) = (b.manager_via(&proxy).await?, b.name());
    proxy.cut_after_request(true);
    refused(&locks, &name, b.ttl(30_000)).await?;
    proxy.cut_after_request(false);
    stays_free(b, &name).await
}

async fn a_request_delivered_late_leaves_nothing(b: &Bench) -> Outcome {
    let proxy = b.proxy().await?;
    let (locks, name) = (b.manager_via(&proxy).await?, b.name());
    proxy.hold_requests(true);
    refused(&locks, &name, b.ttl(30_000)).await?;
    proxy.hold_requests(false);
    stays_free(b, &name).await
}

/// The worst of them: the request is on its way on a connection that the client has given up, and its clean-up takes a new one.
async fn a_request_overtaken_by_its_clean_up_leaves_nothing(b: &Bench) -> Outcome {
    let proxy = b.proxy().await?;
    let (locks, name) = (b.manager_via(&proxy).await?, b.name());
    // What the client opens at the first use of the name must be open before.
    locks.lock(name.as_str()).ttl(b.ttl(30_000)).acquire().await?.release().await?;
    proxy.hold_requests_of_open();
    refused(&locks, &name, b.ttl(30_000)).await?;
    // Long enough for the clean-up to be done.
    sleep(ms(2_500)).await;
    proxy.hold_requests(false);
    sleep(ms(300)).await;
    stays_free(b, &name).await
}

async fn a_request_to_a_frozen_server_leaves_nothing(b: &Bench) -> Outcome {
    let own = b.own().await?;
    let (locks, name) = (own.manager().await?, own.name());
    own.server()?.stop()?;
    refused(&locks, &name, own.ttl(30_000)).await?;
    own.server()?.resume()?;
    stays_free(&own, &name).await?;
    own.finish().await
}

/// Its requests lie in the server by then, those that were given up with the last.
async fn a_server_that_thaws_in_time_grants_once(b: &Bench) -> Outcome {
    let own = b.own().await?;
    let (locks, other, name) = (own.manager().await?, own.client().await?, own.name());
    own.server()?.stop()?;
    let request = locks.lock(name.as_str()).ttl(own.ttl(20_000)).wait(ms(10_000)).acquire();
    let thawing = async {
        sleep(ms(2_500)).await;
        own.server()?.resume()
    };
    let (guard, thawed) = tokio::join!(request, thawing);
    thawed?;
    let guard = guard.map_err(|e| format!("a request waits for what it left behind itself: {e}"))?;
    ensure!(other.is_busy(&name).await?, "what was handed out is not held");
    ensure!(guard.release().await? == Released::Released, "what was handed out was not held");
    ensure!(own.peek(&name).await?.is_none(), "one release did not end what several tries had taken");
    own.finish().await
}

/// The silence ends at about the time at which the server forgets the old lease or session.
async fn what_is_taken_right_after_a_silence_is_alive(b: &Bench) -> Outcome {
    let spans = (0..6).map(|part| async move {
        let (proxy, name, ttl) = (b.proxy().await?, b.name(), b.ttl(1_000));
        let locks = b.manager_via(&proxy).await?;
        let first = locks.lock(name.as_str()).ttl(ttl).acquire().await?;
        proxy.black_hole(true);
        sleep(first.ttl() + (b.capabilities().expiry_grain + ms(500)) * part / 5).await;
        proxy.black_hole(false);
        let second = locks.lock(name.as_str()).ttl(ttl).wait(ms(10_000)).acquire().await?;
        ensure!(!first.is_held(), "two guards of one name are held");
        drop(first);
        let end = Instant::now() + second.ttl() * 3 / 2;
        while Instant::now() < end {
            let is_own = b.peek(&name).await?.is_some_and(|entry| entry.owner == second.owner().to_string());
            ensure!(is_own || !second.is_held(), "what was taken after a silence is held, and its entry is gone");
            sleep(ms(50)).await;
        }
        // Else the machine was too busy to renew it, which is another matter.
        if second.lost_reason() != Some(LostReason::Expired) {
            ensure!(second.is_held(), "what was taken after a silence ended: {:?}", second.lost_reason());
            ensure!(second.release().await? == Released::Released, "what was taken after a silence was not held");
        }
        Ok(())
    });
    futures_util::future::try_join_all(spans).await.map(drop)
}

async fn refused(locks: &LockManager, name: &LockName, ttl: Duration) -> Outcome {
    let answer = locks.lock(name.as_str()).ttl(ttl).wait(ms(400)).acquire().await;
    ensure!(answer.is_err(), "a request without an answer was granted");
    Ok(())
}

/// Free soon, and free for good.
async fn stays_free(b: &Bench, name: &LockName) -> Outcome {
    ensure!(b.is_free_within(name, ms(5_000)).await, "an acquisition that failed left an entry");
    let end = Instant::now() + ms(1_500);
    while Instant::now() < end {
        ensure!(b.peek(name).await?.is_none(), "an acquisition that failed came late");
        sleep(ms(20)).await;
    }
    Ok(())
}

/// Opens the connections that a name takes before the line becomes slow.
async fn slow_line(b: &Bench, name: &LockName, delay: Duration) -> Result<(Proxy, LockManager), crate::Stop> {
    let proxy = b.proxy().await?;
    let locks = b.manager_via(&proxy).await?;
    locks.lock(name.as_str()).ttl(b.ttl(5_000)).acquire().await?.release().await?;
    proxy.delay_replies(delay);
    Ok((proxy, locks))
}

async fn a_slow_answer_shortens_what_remains(b: &Bench) -> Outcome {
    let (name, ttl) = (b.name(), b.ttl(6_000));
    let (proxy, locks) = slow_line(b, &name, ms(800)).await?;
    let guard = locks.lock(name.as_str()).ttl(ttl).auto_renew(false).wait(ms(5_000)).acquire().await?;
    let left = guard.remaining();
    ensure!(left <= guard.ttl() - ms(800), "after an answer that took 800 ms, {left:?} remain of {ttl:?}");
    if guard.renew().await.is_ok() {
        let left = guard.remaining();
        ensure!(left <= guard.ttl() - ms(800), "after a renewal that took 800 ms, {left:?} remain of {ttl:?}");
    }
    proxy.delay_replies(Duration::ZERO);
    guard.release().await?;
    Ok(())
}

async fn a_grant_that_comes_too_late_is_none(b: &Bench) -> Outcome {
    let name = b.name();
    let (proxy, locks) = slow_line(b, &name, b.ttl(600) + SLACK).await?;
    if let Ok(Some(guard)) = locks.lock(name.as_str()).ttl(b.ttl(600)).auto_renew(false).try_acquire().await {
        ensure!(!guard.is_held(), "a grant that came after its TTL says that it is held");
        return Err("a grant that came after its TTL was handed out".into());
    }
    proxy.delay_replies(Duration::ZERO);
    stays_free(b, &name).await
}

async fn a_release_cut_off_goes_on(b: &Bench) -> Outcome {
    let proxy = b.proxy().await?;
    let (locks, name) = (b.manager_via(&proxy).await?, b.name());
    let guard = locks.lock(name.as_str()).ttl(b.ttl(30_000)).acquire().await?;
    proxy.cut_after_request(true);
    let (answer, ()) = tokio::join!(guard.release(), async {
        sleep(ms(250)).await;
        proxy.cut_after_request(false);
    });
    drop(answer);
    stays_free(b, &name).await
}

async fn a_server_that_is_gone_for_a_while_gets_the_release(b: &Bench) -> Outcome {
    let proxy = b.proxy().await?;
    let (locks, other, name) = (b.manager_via(&proxy).await?, b.client().await?, b.name());
    let guard = locks.lock(name.as_str()).ttl(b.ttl(30_000)).acquire().await?;
    proxy.refuse(true);
    proxy.cut();
    let released = guard.release().await;
    ensure!(!matches!(released, Ok(Released::NotHeld)), "a release without a server answered NotHeld");
    sleep(ms(500)).await;
    proxy.refuse(false);
    ensure!(b.is_free_within(&name, ms(5_000)).await, "the release did not go on in the background");
    // Nothing in the process stands in the way of its own next acquisition.
    locks.lock(name.as_str()).ttl(b.ttl(5_000)).wait(ms(3_000)).acquire().await?.release().await?;
    give_back(other.take(&name, b.ttl(5_000)).await?).await
}
