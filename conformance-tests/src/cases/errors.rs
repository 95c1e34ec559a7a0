//! E: kinds of errors, passing troubles, and secrets.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lock_core::{Effect, ErrorKind, LockError, LockManager, Promise, Released, Revoke, Verdict};
use tokio::time::sleep;

use crate::bench::{give_back, ms};
use crate::case::cases;
use crate::{Bench, Outcome, Stop, ensure};

cases! { "errors":
    contention_is_no_error: [E1];
    a_time_out_says_what_and_who: [E1];
    bad_names_and_ttls_have_kinds_of_their_own: [E1];
    a_closed_manager_says_so: [E1];
    a_lost_guard_says_so: [E1 L1];
    without_a_server_nothing_looks_like_contention: [E1 E2] needs [Network];
    cut_connections_are_absorbed: [E2] needs [Network];
    a_trickling_line_works: [E2] needs [Network];
    a_restarted_server_needs_no_new_client: [E2] needs [Server];
    restarts_in_a_row_stop_nobody: [E2 W2 M1] needs [Server];
    a_server_that_refuses_writes_is_unavailable: [E2 E1 L4] needs [Refusal Server];
    a_guard_outlives_no_refusal_that_its_entry_does_not: [E2 M2 L2] needs [Refusal Server];
    a_release_that_is_refused_goes_on: [E2 O2] needs [Refusal Server];
    data_that_is_no_lock_is_left_alone: [E1 O1] needs [Foreign];
    secrets_are_never_shown: [E3] needs [Network];
    diagnosing_answers: [E1];
}

async fn contention_is_no_error(b: &Bench) -> Outcome {
    let (one, two, name) = (b.client().await?, b.client().await?, b.name());
    let lease = one.take(&name, b.ttl(20_000)).await?;
    for _ in 0..100 {
        ensure!(two.try_take(&name, b.ttl(20_000)).await?.is_none(), "a held name was granted");
    }
    let waited = two.ask(&two.waiting_request(&name, b.ttl(20_000), ms(200))?).await?;
    ensure!(waited.is_none(), "a held name was granted");
    give_back(lease).await
}

async fn a_time_out_says_what_and_who(b: &Bench) -> Outcome {
    let (locks, name) = (b.manager().await?, b.name());
    let guard = locks.lock(name.as_str()).ttl(b.ttl(20_000)).acquire().await?;
    let error = locks.lock(name.as_str()).ttl(b.ttl(20_000)).wait(ms(200)).acquire().await.err();
    let error = error.ok_or("a held name was granted")?;
    ensure!(error.kind() == ErrorKind::Timeout && error.is_retryable(), "the limit answered {error:?}");
    ensure!(error.effect() == Effect::NotApplied, "a time-out left the effect {:?}", error.effect());
    let (text, backend) = (error.to_string(), b.capabilities().backend);
    ensure!(text.contains(name.as_str()) && text.contains(backend), "the text names no lock or backend: {text}");
    ensure!(!text.contains('\n'), "the text has several lines: {text}");
    guard.release().await?;
    Ok(())
}

async fn bad_names_and_ttls_have_kinds_of_their_own(b: &Bench) -> Outcome {
    let (locks, client, name) = (b.manager().await?, b.client().await?, b.name());
    let kind = locks.lock("").try_acquire().await.err().map(|e| e.kind());
    ensure!(kind == Some(ErrorKind::InvalidName), "an empty name answered {kind:?}");
    let error = locks.lock(name.as_str()).ttl(Duration::ZERO).try_acquire().await.err().ok_or("no TTL was granted")?;
    ensure!(error.kind() == ErrorKind::InvalidTtl && !error.is_retryable(), "no TTL answered {error:?}");
    ensure!(error.effect() == Effect::NotApplied, "a refused TTL left the effect {:?}", error.effect());
    // A free name at revoke is an answer and no error.
    let answer = client.revoke(&name, None, Revoke::Mark).await?;
    ensure!(answer == Released::NotHeld, "revoking a free name answered {answer:?}");
    Ok(())
}

async fn a_closed_manager_says_so(b: &Bench) -> Outcome {
    let (locks, name) = (b.manager().await?, b.name());
    locks.close().await?;
    let kind = locks.lock(name.as_str()).ttl(b.ttl(5_000)).acquire().await.err().map(|e| e.kind());
    ensure!(kind == Some(ErrorKind::Closed), "a closed manager answered {kind:?}");
    let kind = locks.inspect(name.as_str()).await.err().map(|e| e.kind());
    ensure!(kind == Some(ErrorKind::Closed), "a closed manager's inspect answered {kind:?}");
    locks.close().await?;
    Ok(())
}

async fn a_lost_guard_says_so(b: &Bench) -> Outcome {
    let (locks, name) = (b.manager().await?, b.name());
    let guard = locks.lock(name.as_str()).ttl(b.ttl(20_000)).auto_renew(false).acquire().await?;
    b.remove(&name).await?;
    let error = guard.renew().await.err().ok_or("the renewal of a removed entry was confirmed")?;
    ensure!(error.kind() == ErrorKind::Lost && !error.is_retryable(), "renewing a removed entry answered {error:?}");
    ensure!(error.lost_reason().is_some(), "the error gives no reason: {error}");
    let answer = guard.release().await?;
    ensure!(answer == Released::NotHeld, "releasing a lost guard answered {answer:?}");
    Ok(())
}

async fn without_a_server_nothing_looks_like_contention(b: &Bench) -> Outcome {
    let proxy = b.proxy().await?;
    let (locks, name) = (b.manager_via(&proxy).await?, b.name());
    let guard = locks.lock(name.as_str()).ttl(b.ttl(30_000)).acquire().await?;
    proxy.refuse(true);
    proxy.cut();
    for request in 0..2 {
        let error = match request {
            0 => locks.lock(name.as_str()).ttl(b.ttl(30_000)).try_acquire().await.err(),
            _ => locks.lock(name.as_str()).ttl(b.ttl(30_000)).wait(ms(300)).acquire().await.err(),
        };
        let error = error.ok_or("a server that is gone looks like contention, or like a grant")?;
        ensure!(error.kind() == ErrorKind::Unavailable && error.is_retryable(), "a server that is gone: {error:?}");
    }
    let kind = locks.inspect(name.as_str()).await.err().map(|e| e.kind());
    ensure!(kind == Some(ErrorKind::Unavailable), "inspecting without a server answered {kind:?}");
    let kind = guard.renew().await.err().map(|e| e.kind());
    ensure!(kind == Some(ErrorKind::Unavailable), "renewing without a server answered {kind:?}");
    ensure!(guard.is_held(), "an outage shorter than the TTL is a loss");
    proxy.refuse(false);
    guard.release().await?;
    ensure!(b.is_free_within(&name, ms(5_000)).await, "the release did not reach the server");
    Ok(())
}

async fn cut_connections_are_absorbed(b: &Bench) -> Outcome {
    let proxy = b.proxy().await?;
    let locks = b.manager_via(&proxy).await?;
    for _ in 0..15 {
        let name = b.name();
        proxy.cut();
        let guard = locks.lock(name.as_str()).ttl(b.ttl(20_000)).wait(ms(3_000)).acquire().await?;
        proxy.cut();
        guard.renew().await.or_else(|e| if e.kind() == ErrorKind::Unavailable { Ok(()) } else { Err(e) })?;
        ensure!(guard.is_held(), "a cut connection is a loss: {:?}", guard.lost_reason());
        proxy.cut();
        drop(guard.release().await);
        ensure!(b.is_free_within(&name, ms(3_000)).await, "a cut connection cost the release");
    }
    Ok(())
}

async fn a_trickling_line_works(b: &Bench) -> Outcome {
    let proxy = b.proxy().await?;
    let (locks, name) = (b.manager_via(&proxy).await?, b.name());
    proxy.trickle(true);
    let guard = locks.lock(name.as_str()).ttl(b.ttl(6_000)).wait(ms(5_000)).acquire().await?;
    for _ in 0..3 {
        sleep(ms(100)).await;
        guard.renew().await?;
    }
    ensure!(guard.release().await? == Released::Released, "a slow line cost the lock");
    Ok(())
}

async fn a_restarted_server_needs_no_new_client(b: &Bench) -> Outcome {
    let own = b.own().await?;
    let locks = own.manager().await?;
    for _ in 0..2 {
        let name = own.name();
        let guard = locks.lock(name.as_str()).ttl(own.ttl(5_000)).wait(ms(5_000)).acquire().await?;
        guard.release().await?;
        own.server()?.restart().await?;
    }
    let name = own.name();
    let guard = locks.lock(name.as_str()).ttl(own.ttl(5_000)).wait(ms(5_000)).acquire().await?;
    guard.release().await?;
    own.finish().await
}

async fn restarts_in_a_row_stop_nobody(b: &Bench) -> Outcome {
    let own = b.own().await?;
    let (name, ttl, survives) = (own.name(), own.ttl(10_000), b.capabilities().leases_survive_restart);
    let (inside, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let turns: [Arc<AtomicU64>; 2] = Default::default();
    let mut running = Vec::new();
    for turns in &turns {
        let (locks, name) = (own.manager().await?, name.clone());
        let (inside, over, turns) = (Arc::clone(&inside), Arc::clone(&over), Arc::clone(turns));
        running.push(tokio::spawn(async move {
            while !over.load(Ordering::SeqCst) {
                let guard = locks.lock(name.as_str()).ttl(ttl).wait(Duration::from_secs(20)).acquire().await?;
                let alone = inside.fetch_add(1, Ordering::SeqCst) == 0;
                ensure!(alone || !survives, "two holders at once");
                sleep(ms(50)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                turns.fetch_add(1, Ordering::SeqCst);
                drop(guard.release().await);
            }
            Ok::<_, Stop>(())
        }));
    }
    for round in 0..3 {
        sleep(ms(300)).await;
        own.server()?.restart().await?;
        let before = turns.each_ref().map(|turns| turns.load(Ordering::SeqCst));
        let both = || turns.iter().zip(before).all(|(turns, before)| turns.load(Ordering::SeqCst) > before + 1);
        let go_on = crate::eventually(Duration::from_secs(5), || async { both() }).await;
        ensure!(go_on, "after restart {round} not both go on: {before:?}, now {turns:?}");
    }
    over.store(true, Ordering::SeqCst);
    for task in running {
        task.await??;
    }
    own.finish().await
}

async fn a_server_that_refuses_writes_is_unavailable(b: &Bench) -> Outcome {
    let own = b.own().await?;
    let (locks, name, ttl) = (own.manager().await?, own.name(), own.ttl(6_000));
    let guard = locks.lock(name.as_str()).ttl(ttl).acquire().await?;
    own.refuse_writes(true).await?;
    let free = own.name();
    for wait in [ms(0), ms(500)] {
        let error = locks.lock(free.as_str()).ttl(ttl).wait(wait).acquire().await.err();
        let kind = error.as_ref().map(LockError::kind);
        ensure!(kind == Some(ErrorKind::Unavailable), "a server that refuses writes answered {error:?}");
    }
    sleep(guard.ttl() / 3).await;
    own.refuse_writes(false).await?;
    sleep(guard.ttl()).await;
    ensure!(guard.is_held(), "a short refusal is a loss: {:?}", guard.lost_reason());
    ensure!(guard.release().await? == Released::Released, "a short refusal cost the entry");
    locks.lock(free.as_str()).ttl(ttl).wait(ms(2_000)).acquire().await?.release().await?;
    own.finish().await
}

/// Where renewals are refused with all else, the guard ends with its entry; where they are not, both go on.
async fn a_guard_outlives_no_refusal_that_its_entry_does_not(b: &Bench) -> Outcome {
    let own = b.own().await?;
    let (locks, name, ttl) = (own.manager().await?, own.name(), own.ttl(2_000));
    let guard = locks.lock(name.as_str()).ttl(ttl).acquire().await?;
    let owner = guard.owner().to_string();
    own.refuse_writes(true).await?;
    let end = Instant::now() + guard.ttl() * 3 / 2;
    while Instant::now() < end {
        let held = guard.is_held();
        let stands = own.peek(&name).await?.is_some_and(|entry| entry.owner == owner);
        ensure!(stands || !guard.is_held() || !held, "a guard says that it is held, and its entry has ended");
        sleep(ms(20)).await;
    }
    let held = guard.is_held();
    let error = locks.lock(name.as_str()).ttl(ttl).try_acquire().await.err();
    let kind = error.as_ref().map(LockError::kind);
    ensure!(held || kind == Some(ErrorKind::Unavailable), "a server that refuses writes answered {error:?}");
    own.refuse_writes(false).await?;
    sleep(ms(200)).await;
    ensure!(guard.is_held() == held, "a lost guard came back, or a held one was lost with the refusal");
    ensure!((guard.release().await? == Released::Released) == held, "the release of a guard that is held: {held}");
    locks.lock(name.as_str()).ttl(ttl).wait(ttl + ms(5_000)).acquire().await?.release().await?;
    own.finish().await
}

async fn a_release_that_is_refused_goes_on(b: &Bench) -> Outcome {
    let own = b.own().await?;
    let (locks, name) = (own.manager().await?, own.name());
    let guard = locks.lock(name.as_str()).ttl(own.ttl(30_000)).acquire().await?;
    own.refuse_writes(true).await?;
    let (answer, ()) = tokio::join!(guard.release(), sleep(ms(1_000)));
    ensure!(!matches!(answer, Ok(Released::NotHeld)), "a release that was refused answered NotHeld");
    own.refuse_writes(false).await?;
    ensure!(own.is_free_within(&name, ms(4_000)).await, "a release that was refused did not go on");
    own.finish().await
}

async fn data_that_is_no_lock_is_left_alone(b: &Bench) -> Outcome {
    let locks = b.manager().await?;
    for kind in 0..10 {
        let (name, held) = (b.name(), b.name());
        let guard = locks.lock(held.as_str()).ttl(b.ttl(3_000)).acquire().await?;
        if !b.put_foreign(&name, kind).await? {
            guard.release().await?;
            break;
        }
        let before = b.residue(&name).await?;
        let is_refusal = |error: &LockError| matches!(error.kind(), ErrorKind::Foreign | ErrorKind::Timeout);
        match locks.lock(name.as_str()).ttl(b.ttl(5_000)).try_acquire().await {
            Ok(None) => {}
            Ok(Some(_)) => return Err("data that is no lock was overwritten".into()),
            Err(error) => ensure!(is_refusal(&error), "data that is no lock answered {error:?}"),
        }
        let start = std::time::Instant::now();
        let error = locks.lock(name.as_str()).ttl(b.ttl(5_000)).wait(ms(400)).acquire().await.err();
        let error = error.ok_or("data that is no lock was overwritten")?;
        ensure!(is_refusal(&error), "waiting for data that is no lock answered {error:?}");
        ensure!(start.elapsed() <= ms(1_000), "a limit of 400 ms took {:?}", start.elapsed());
        let after = b.residue(&name).await?;
        ensure!(before == after, "data that is no lock went from {before:?} to {after:?}");
        b.remove(&name).await?;

        // The same in the place of a held entry is a loss, and stays.
        b.put_foreign(&held, kind).await?;
        let lost = tokio::time::timeout(guard.ttl() / 3 + ms(1_000), guard.lost()).await;
        ensure!(lost.is_ok(), "data in the place of the entry was not noticed");
        drop(guard);
        sleep(ms(200)).await;
        ensure!(!b.residue(&held).await?.is_empty(), "data in the place of the entry was deleted");
        b.remove(&held).await?;
    }
    Ok(())
}

async fn secrets_are_never_shown(b: &Bench) -> Outcome {
    const SECRET: &str = "hunter2-s3cr3t";
    let proxy = b.proxy().await?;
    let with_secret = b.url_via(&proxy)?.replacen("://", &format!("://someone:{SECRET}@"), 1);
    let mut shown = Vec::new();
    let mut note = |error: LockError| {
        shown.push(format!("{error} {error:?} {error:#?}"));
        let mut cause = Error::source(&error);
        while let Some(error) = cause {
            shown.push(format!("{error} {error:?}"));
            cause = error.source();
        }
    };
    // A server that refuses the password, one that resets, one that is silent, and a URL with a mistake.
    for disturb in 0..3 {
        proxy.refuse(disturb == 1);
        proxy.black_hole(disturb == 2);
        let settings = LockManager::builder().connect_timeout(ms(1_000)).operation_timeout(ms(500));
        let (harness, url) = (std::sync::Arc::clone(b.harness()), with_secret.clone());
        match settings.connect(async move { harness.connect(&url).await }).await {
            Ok(locks) => {
                if let Err(error) = locks.lock(b.name().as_str()).ttl(b.ttl(5_000)).wait(ms(500)).acquire().await {
                    note(error);
                }
            }
            Err(error) => note(error),
        }
    }
    for url in [format!("{with_secret}?nonsense=1"), with_secret.replacen("127.0.0.1", "127.0.0.1:x", 1)] {
        if let Err(error) = b.harness().connect(&url).await {
            note(error);
        }
    }
    shown.push(format!("{:?} {:?}", b.client().await?, b.manager().await?));
    ensure!(shown.len() > 1, "no error was seen");
    let leak = shown.iter().find(|text| text.contains(SECRET));
    ensure!(leak.is_none(), "the secret is shown: {leak:?}");
    Ok(())
}

async fn diagnosing_answers(b: &Bench) -> Outcome {
    let diagnosis = b.manager().await?.diagnose().await?;
    ensure!(!diagnosis.server.is_empty(), "the diagnosis names no server");
    for promise in Promise::ALL {
        for cited in promise.rules() {
            let known = crate::rules::RULES.iter().any(|rule| rule.id == *cited);
            ensure!(known, "the promise {promise:?} cites the unknown rule {cited}");
        }
        let found: Vec<_> = diagnosis.findings.iter().filter(|finding| finding.promise == promise).collect();
        ensure!(!found.is_empty(), "nothing is said about the promise {promise:?}");
        ensure!(!promise.is_needed() || diagnosis.verdict(promise) != Verdict::NotKept, "not kept: {found:?}");
        let silent =
            found.iter().find(|it| it.value.is_empty() || (it.verdict != Verdict::Kept && it.advice.is_empty()));
        ensure!(silent.is_none(), "a finding without a word of what was seen and what to do: {silent:?}");
    }
    Ok(())
}
