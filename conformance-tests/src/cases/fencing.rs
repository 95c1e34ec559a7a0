//! F: tokens rise.

use std::sync::{Arc, Mutex};

use lock_core::{FencingToken, LockManager, LockName, Revoke};

use crate::bench::{SLACK, give_back, keep, ms};
use crate::case::cases;
use crate::{Bench, Client, Outcome, Stop, ensure};

cases! { "fencing":
    tokens_rise_over_releases: [F1];
    tokens_rise_over_expiry: [F1];
    tokens_rise_over_removal_by_hand: [F1];
    tokens_rise_over_revocation: [F1 O3];
    tokens_rise_over_reconnection: [F1];
    tokens_rise_over_a_restart: [F1] needs [Server];
    tokens_rise_among_many_holders: [F1 M1];
    a_lease_keeps_one_token: [F1];
    loss_of_all_data_is_as_declared: [F2] needs [Wipe];
    a_fence_base_lifts_every_token: [F3];
}

/// Takes the name once more; its token must be greater than the last one.
async fn next_token(client: &Client, name: &LockName, last: &mut FencingToken, after: &str) -> Result<(), Stop> {
    let lease = client.wait_take(name, std::time::Duration::from_secs(30), ms(5_000)).await?;
    let token = lease.fencing_token();
    ensure!(token > *last, "after {after} the token went from {last} to {token}");
    *last = token;
    give_back(lease).await
}

async fn tokens_rise_over_releases(b: &Bench) -> Outcome {
    let (one, two, name, mut last) = (b.client().await?, b.client().await?, b.name(), FencingToken::new(0));
    for _ in 0..50 {
        next_token(&one, &name, &mut last, "a release").await?;
        next_token(&two, &name, &mut last, "a release by another client").await?;
    }
    Ok(())
}

async fn tokens_rise_over_expiry(b: &Bench) -> Outcome {
    let (client, name) = (b.client().await?, b.name());
    let mut last = FencingToken::new(0);
    for _ in 0..5 {
        next_token(&client, &name, &mut last, "a release").await?;
    }
    for _ in 0..2 {
        let lease = client.take(&name, b.ttl(150)).await?;
        ensure!(lease.fencing_token() > last, "the token went from {last} to {}", lease.fencing_token());
        last = lease.fencing_token();
        ensure!(b.is_free_within(&name, b.end_of(lease.effective_ttl())).await, "the lease did not end");
        next_token(&client, &name, &mut last, "an expiry").await?;
    }
    Ok(())
}

async fn tokens_rise_over_removal_by_hand(b: &Bench) -> Outcome {
    let (client, name, mut last) = (b.client().await?, b.name(), FencingToken::new(0));
    for _ in 0..5 {
        let lease = client.take(&name, b.ttl(30_000)).await?;
        ensure!(lease.fencing_token() > last, "the token went from {last} to {}", lease.fencing_token());
        last = lease.fencing_token();
        b.remove(&name).await?;
        next_token(&client, &name, &mut last, "a removal by hand").await?;
    }
    Ok(())
}

async fn tokens_rise_over_revocation(b: &Bench) -> Outcome {
    let (client, name, mut last) = (b.client().await?, b.name(), FencingToken::new(0));
    for how in [Revoke::Now, Revoke::Mark, Revoke::Now] {
        let lease = client.wait_take(&name, b.ttl(300), b.end_of(b.ttl(300)) + SLACK).await?;
        ensure!(lease.fencing_token() > last, "the token went from {last} to {}", lease.fencing_token());
        last = lease.fencing_token();
        client.revoke(&name, None, how).await?;
        ensure!(b.is_free_within(&name, b.end_of(lease.effective_ttl())).await, "the lease did not end");
        next_token(&client, &name, &mut last, "a revocation").await?;
    }
    Ok(())
}

async fn tokens_rise_over_reconnection(b: &Bench) -> Outcome {
    let (name, mut last) = (b.name(), FencingToken::new(0));
    for _ in 0..5 {
        let locks = b.manager().await?;
        let guard = locks.lock(name.as_str()).ttl(b.ttl(10_000)).acquire().await?;
        ensure!(guard.fencing_token() > last, "the token went from {last} to {}", guard.fencing_token());
        last = guard.fencing_token();
        drop(guard);
        locks.close().await?;
    }
    Ok(())
}

async fn tokens_rise_over_a_restart(b: &Bench) -> Outcome {
    let own = b.own().await?;
    let (name, mut last) = (own.name(), FencingToken::new(0));
    if !(b.capabilities().leases_survive_restart || b.capabilities().fencing_survives_data_loss) {
        // The store is lost with the server, and the tokens with it, as declared: then they start again.
        next_token(&own.client().await?, &name, &mut last, "a release").await?;
        let before = last;
        own.server()?.restart().await?;
        let lease = own.client().await?.take(&name, own.ttl(5_000)).await?;
        ensure!(lease.fencing_token() <= before, "declared to lose its tokens at a restart, and kept them");
        give_back(lease).await?;
        return own.finish().await;
    }
    for _ in 0..3 {
        for _ in 0..3 {
            next_token(&own.client().await?, &name, &mut last, "a release").await?;
        }
        own.server()?.restart().await?;
        next_token(&own.client().await?, &name, &mut last, "a restart").await?;
    }
    own.finish().await
}

async fn tokens_rise_among_many_holders(b: &Bench) -> Outcome {
    let (name, tokens) = (b.name(), Arc::new(Mutex::new(Vec::new())));
    let take = |locks: LockManager| {
        let (name, tokens, ttl) = (name.clone(), Arc::clone(&tokens), b.ttl(10_000));
        tokio::spawn(async move {
            for _ in 0..10 {
                let guard = locks.lock(name.as_str()).ttl(ttl).acquire().await?;
                tokens.lock().map_err(|_| "poisoned")?.push(guard.fencing_token());
                guard.release().await?;
            }
            Ok::<_, Stop>(())
        })
    };
    let (one, two) = (b.manager().await?, b.manager().await?);
    for task in [take(one.clone()), take(one), take(two.clone()), take(two)] {
        task.await??;
    }
    let tokens = tokens.lock().map_err(|_| "poisoned")?;
    ensure!(tokens.len() == 40 && tokens.is_sorted_by(|a, b| a < b), "the tokens, in order of the grants: {tokens:?}");
    Ok(())
}

async fn a_lease_keeps_one_token(b: &Bench) -> Outcome {
    let (client, name) = (b.client().await?, b.name());
    let mut lease = client.take(&name, b.ttl(20_000)).await?;
    let token = lease.fencing_token();
    for _ in 0..10 {
        keep(&mut lease).await?;
        ensure!(lease.fencing_token() == token, "a renewal moved the token from {token} to {}", lease.fencing_token());
        let shown = client.inspect(&name).await?.and_then(|holder| holder.token);
        ensure!(shown == Some(token), "the token is {token}, but {shown:?} is shown");
    }
    give_back(lease).await
}

async fn loss_of_all_data_is_as_declared(b: &Bench) -> Outcome {
    let own = b.own().await?;
    let (name, mut last) = (own.name(), FencingToken::new(0));
    for _ in 0..20 {
        next_token(&own.client().await?, &name, &mut last, "a release").await?;
    }
    own.wipe().await?;
    let client = own.client().await?;
    let lease = client.take(&name, own.ttl(10_000)).await?;
    let (token, survives) = (lease.fencing_token(), b.capabilities().fencing_survives_data_loss);
    ensure!(
        (token > last) == survives,
        "after a loss the token went from {last} to {token}; declared to rise: {survives}"
    );
    give_back(lease).await?;
    own.finish().await
}

async fn a_fence_base_lifts_every_token(b: &Bench) -> Outcome {
    const BASE: u64 = 1 << 40;
    let (plain, name) = (b.manager().await?, b.name());
    let lifted = b.manager_at(b.url(), LockManager::builder().fence_base(BASE)).await?;
    let guard = plain.lock(name.as_str()).ttl(b.ttl(10_000)).acquire().await?;
    let low = guard.fencing_token().get();
    guard.release().await?;

    let guard = lifted.lock(name.as_str()).ttl(b.ttl(10_000)).acquire().await?;
    let high = guard.fencing_token();
    ensure!(high.get() > BASE + low, "the token went from {low} to {high} with a base of {BASE}");
    let shown = lifted.inspect(name.as_str()).await?.and_then(|holder| holder.token);
    ensure!(shown == Some(high), "the token is {high}, but {shown:?} is shown");
    let unlifted = plain.inspect(name.as_str()).await?.and_then(|holder| holder.token);
    ensure!(unlifted == Some(FencingToken::new(high.get() - BASE)), "without the base {unlifted:?} is shown");
    let answer = lifted.revoke(name.as_str(), Some(high), Revoke::Now).await?;
    ensure!(answer == lock_core::Released::Released, "revoking by the lifted token answered {answer:?}");
    Ok(())
}
