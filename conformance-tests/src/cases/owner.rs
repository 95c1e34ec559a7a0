//! O: renew and release compare the owner; revoking keeps everybody out.

use std::time::Duration;

use lock_core::{ErrorKind, FencingToken, LostReason, Released, Renewal, Revoke};

use crate::bench::{SLACK, give_back, keep, ms};
use crate::case::cases;
use crate::{Bench, Outcome, ensure};

cases! { "owner":
    stale_holder_after_a_takeover_by_hand: [O1 T4];
    stale_holder_after_a_takeover_by_expiry: [O1 T4 F1];
    what_is_delivered_late_spares_the_successor: [O1 T4] needs [Network];
    a_repeated_release_spares_the_next_lock: [O1 O2] needs [Network];
    release_is_idempotent: [O2];
    release_after_expiry_answers_at_once: [O2];
    a_release_that_meets_a_frozen_server_goes_on: [O2 E2] needs [Freeze];
    release_frees_the_name_for_others: [O2 M1];
    a_mark_tells_the_holder_and_keeps_others_out: [O3 L1];
    revoking_now_frees_the_name: [O3 L5];
    revoking_compares_the_token: [O3];
    revoking_a_free_name_is_not_held: [O3];
    inspect_shows_the_holder: [O3];
    list_shows_held_names_in_pages: [O3 N1];
}

async fn stale_holder_after_a_takeover_by_hand(b: &Bench) -> Outcome {
    let (client, name) = (b.client().await?, b.name());
    let mut stale = client.take(&name, b.ttl(5_000)).await?;
    let foreign = b.replace_owner(&name, b.ttl(60_000)).await?;

    let renewal = stale.renew().await?;
    ensure!(matches!(renewal, Renewal::Lost(_)), "the renewal of a stale holder answered {renewal:?}");
    let release = stale.release().await?;
    ensure!(release == Released::NotHeld, "the release of a stale holder answered {release:?}");

    let entry = b.peek(&name).await?.ok_or("the foreign entry is gone")?;
    ensure!(entry.owner == foreign, "the foreign entry changed its owner to {}", entry.owner);
    let left = entry.remaining.ok_or("the foreign entry lost its time to live")?;
    let whole = b.ttl(60_000);
    ensure!(left <= whole && left >= whole - ms(10_000), "the foreign entry has {left:?} left of {whole:?}");
    b.sweep().await
}

async fn stale_holder_after_a_takeover_by_expiry(b: &Bench) -> Outcome {
    let (first, second, name) = (b.client().await?, b.client().await?, b.name());
    let ttl = b.ttl(300);
    let mut stale = first.take(&name, ttl).await?;
    let mut next = second.wait_take(&name, b.ttl(20_000), b.end_of(ttl) + SLACK).await?;
    ensure!(next.fencing_token() > stale.fencing_token(), "the token did not rise over an expiry");

    let renewal = stale.renew().await?;
    ensure!(matches!(renewal, Renewal::Lost(_)), "the renewal of a stale holder answered {renewal:?}");
    ensure!(stale.release().await? == Released::NotHeld, "a stale holder released its successor's lease");
    ensure!(first.is_busy(&name).await?, "the successor's lease is gone");
    keep(&mut next).await?;
    give_back(next).await
}

async fn what_is_delivered_late_spares_the_successor(b: &Bench) -> Outcome {
    let ways = [(false, false), (false, true), (true, false), (true, true)];
    futures_util::future::try_join_all(ways.map(|(renew, request)| delivered_late(b, renew, request))).await.map(drop)
}

/// A renewal or release that is on its way while its lease ends and another takes the name; or whose answer is, in case it takes a second step.
async fn delivered_late(b: &Bench, renew: bool, request: bool) -> Outcome {
    let (proxy, name) = (b.proxy().await?, b.name());
    let (first, second) = (b.client_via(&proxy).await?, b.client().await?);
    let mut patient = first.request(&name, b.ttl(1_000))?;
    patient.operation_timeout = Duration::from_secs(10);
    let mut stale = first.ask(&patient).await?.ok_or("a free name is busy")?;
    if request {
        proxy.hold_requests(true)
    } else {
        proxy.hold_replies(true)
    }
    let late =
        tokio::spawn(
            async move { if renew { stale.renew().await.map(drop) } else { stale.release().await.map(drop) } },
        );
    let mut next = second.wait_take(&name, b.ttl(20_000), b.end_of(b.ttl(1_000)) * 2 + SLACK).await?;
    proxy.black_hole(false);
    // Whether it is answered, and how, is another case's matter.
    let _ = tokio::time::timeout(SLACK, late).await;
    tokio::time::sleep(ms(300)).await;
    keep(&mut next).await?;
    let left = b.peek(&name).await?.ok_or("what came late removed the successor's lease")?.remaining;
    ensure!(left.is_some_and(|left| left > ms(10_000)), "what came late left {left:?} of 20 s to the successor");
    give_back(next).await
}

/// The release is carried out and its answer cut off, so it is repeated, while the same manager takes the name again.
async fn a_repeated_release_spares_the_next_lock(b: &Bench) -> Outcome {
    let proxy = b.proxy().await?;
    let (locks, other, name, ttl) = (b.manager_via(&proxy).await?, b.client().await?, b.name(), b.ttl(30_000));
    for round in 0..3 {
        let first = locks.lock(name.as_str()).ttl(ttl).acquire().await?;
        proxy.cut_after_request(true);
        drop(first);
        let next = locks.lock(name.as_str()).ttl(ttl).wait(ms(10_000)).acquire();
        let (next, ()) = tokio::join!(next, async {
            tokio::time::sleep(ms(round * 100)).await;
            proxy.cut_after_request(false);
        });
        let next = next?;
        for _ in 0..10 {
            ensure!(other.is_busy(&name).await? && next.is_held(), "a release took the next lock of its client");
            tokio::time::sleep(ms(50)).await;
        }
        ensure!(next.release().await? == Released::Released, "a release took the next lock of its client");
    }
    Ok(())
}

async fn release_is_idempotent(b: &Bench) -> Outcome {
    let (client, name) = (b.client().await?, b.name());
    let mut lease = client.take(&name, b.ttl(5_000)).await?;
    let answers = (lease.release().await?, lease.release().await?);
    ensure!(answers == (Released::Released, Released::NotHeld), "two releases answered {answers:?}");
    Ok(())
}

async fn release_after_expiry_answers_at_once(b: &Bench) -> Outcome {
    let (client, name) = (b.client().await?, b.name());
    let ttl = b.ttl(200);
    let mut lease = client.take(&name, ttl).await?;
    ensure!(b.is_free_within(&name, b.end_of(ttl)).await, "the lease did not end");
    let start = std::time::Instant::now();
    let answer = lease.release().await?;
    ensure!(answer == Released::NotHeld, "the release of an expired lease answered {answer:?}");
    ensure!(start.elapsed() < SLACK, "the release took {:?}", start.elapsed());
    Ok(())
}

async fn release_frees_the_name_for_others(b: &Bench) -> Outcome {
    let (first, second, name) = (b.client().await?, b.client().await?, b.name());
    for _ in 0..20 {
        give_back(first.take(&name, b.ttl(30_000)).await?).await?;
        give_back(second.take(&name, b.ttl(30_000)).await?).await?;
    }
    Ok(())
}

async fn a_mark_tells_the_holder_and_keeps_others_out(b: &Bench) -> Outcome {
    let (holder, operator, name) = (b.client().await?, b.client().await?, b.name());
    let ttl = b.ttl(1_500);
    let mut lease = holder.take(&name, ttl).await?;
    let answer = operator.revoke(&name, None, Revoke::Mark).await?;
    ensure!(answer == Released::Released, "revoking a held name answered {answer:?}");
    ensure!(operator.is_busy(&name).await?, "a mark let somebody in at once");

    let told = match tokio::time::timeout(ms(1_000), lease.loss()).await {
        Ok(reason) => Renewal::Lost(reason),
        Err(_) => lease.renew().await?,
    };
    ensure!(told == Renewal::Lost(LostReason::ForceReleased), "the revoked holder was told {told:?}");
    ensure!(b.is_free_within(&name, b.end_of(ttl)).await, "the mark outlived the revoked lease");
    Ok(())
}

async fn revoking_now_frees_the_name(b: &Bench) -> Outcome {
    let (holder, operator, name) = (b.client().await?, b.client().await?, b.name());
    let mut lease = holder.take(&name, b.ttl(20_000)).await?;
    let answer = operator.revoke(&name, Some(lease.fencing_token()), Revoke::Now).await?;
    ensure!(answer == Released::Released, "revoking a held name answered {answer:?}");
    let next = operator.take(&name, b.ttl(20_000)).await?;
    ensure!(next.fencing_token() > lease.fencing_token(), "the token did not rise over a revocation");
    let renewal = lease.renew().await?;
    ensure!(matches!(renewal, Renewal::Lost(_)), "the revoked holder's renewal answered {renewal:?}");
    give_back(next).await
}

async fn revoking_compares_the_token(b: &Bench) -> Outcome {
    let (holder, operator, name) = (b.client().await?, b.client().await?, b.name());
    let mut lease = holder.take(&name, b.ttl(20_000)).await?;
    let other = FencingToken::new(lease.fencing_token().get() + 1);
    for how in [Revoke::Mark, Revoke::Now] {
        let answer = operator.revoke(&name, Some(other), how).await?;
        ensure!(answer == Released::NotHeld, "revoking another token ({how:?}) answered {answer:?}");
    }
    keep(&mut lease).await?;
    give_back(lease).await
}

async fn revoking_a_free_name_is_not_held(b: &Bench) -> Outcome {
    let (client, name) = (b.client().await?, b.name());
    for how in [Revoke::Mark, Revoke::Now] {
        let answer = client.revoke(&name, None, how).await?;
        ensure!(answer == Released::NotHeld, "revoking a free name ({how:?}) answered {answer:?}");
    }
    ensure!(client.inspect(&name).await?.is_none(), "revoking a free name left an entry");
    Ok(())
}

async fn inspect_shows_the_holder(b: &Bench) -> Outcome {
    let (holder, other, name) = (b.client().await?, b.client().await?, b.name());
    let ttl = b.ttl(20_000);
    let request = holder.request(&name, ttl)?;
    let lease = holder.ask(&request).await?.ok_or("a free name is busy")?;

    let shown = other.inspect(&name).await?.ok_or("a held name is shown as free")?;
    ensure!(shown.name == name, "another name is shown: {}", shown.name);
    ensure!(shown.owner == request.owner.to_string(), "another owner is shown: {}", shown.owner);
    ensure!(shown.token == Some(lease.fencing_token()), "another token is shown: {:?}", shown.token);
    let left = shown.remaining.ok_or("no remaining time is shown")?;
    ensure!(left <= lease.effective_ttl() && left + ms(5_000) >= ttl, "{left:?} are shown of {ttl:?}");
    give_back(lease).await?;
    ensure!(other.inspect(&name).await?.is_none(), "a released name is shown as held");
    Ok(())
}

async fn list_shows_held_names_in_pages(b: &Bench) -> Outcome {
    let client = b.client().await?;
    if !b.capabilities().lists {
        let kind = client.list("", lock_core::Page::first(1)).await.err().map(|e| e.kind());
        ensure!(kind == Some(lock_core::ErrorKind::Unsupported), "an undeclared list answered {kind:?}");
        return Ok(());
    }
    let mut held = Vec::new();
    for text in ["list/a", "list/b", "list/c", "list/d", "list/e", "list", "lisp"] {
        held.push(client.take(&b.name_of(text)?, b.ttl(20_000)).await?);
    }
    let prefix = format!("{}-list/", b.prefix());
    let (mut seen, mut page) = (Vec::new(), lock_core::Page::first(2));
    for _ in 0..4 {
        let part = client.list(&prefix, page.clone()).await?;
        seen.extend(
            part.iter()
                .map(|holder| holder.name.as_str().strip_prefix(&prefix).unwrap_or("of another prefix").to_owned()),
        );
        match part.last() {
            Some(last) if part.len() == 2 => page = lock_core::Page::after(last.name.clone(), 2),
            _ => break,
        }
    }
    ensure!(seen == ["a", "b", "c", "d", "e"], "the pages show {seen:?}");
    for lease in held {
        give_back(lease).await?;
    }
    ensure!(client.list(&prefix, lock_core::Page::first(9)).await?.is_empty(), "released names are listed");
    Ok(())
}

async fn a_release_that_meets_a_frozen_server_goes_on(b: &Bench) -> Outcome {
    let own = b.own().await?;
    let (locks, name) = (own.manager().await?, own.name());
    let guard = locks.lock(name.as_str()).ttl(own.ttl(60_000)).acquire().await?;
    own.server()?.stop()?;
    let answer = guard.release().await;
    let kind = answer.as_ref().err().map(lock_core::LockError::kind);
    ensure!(kind == Some(ErrorKind::Unavailable), "a release that nobody confirmed answered {answer:?}");
    own.server()?.resume()?;
    ensure!(own.is_free_within(&name, ms(5_000)).await, "the release did not go on in the background");
    own.finish().await
}
