//! The keeper against a model: whatever backend, network, clock and user do in whatever order, M2, L1 to L3, L6, R1 and U1 hold.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use lock_core::*;
use proptest::prelude::*;
use support::{Act, Call, Puppet, ms};

#[derive(Clone, Debug)]
struct Script {
    ttl: u64,
    auto_renew: bool,
    max_hold: Option<u64>,
    min_hold: u64,
    wait: Option<u64>,
    acquires: Vec<Act>,
    renewals: Vec<Act>,
    releases: Vec<Act>,
    /// What the world does, each after so many milliseconds more.
    turns: Vec<(u64, Turn)>,
    end: End,
    end_at: u64,
}

#[derive(Clone, Copy, Debug)]
enum Turn {
    Stolen,
    Removed,
    PushedLoss,
    ClockJump(u64),
    UserRenews,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Drop,
    Release,
    Cancel,
    Close,
    Keep,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0u64..40).prop_map(Act::Well),
        1 => (40u64..3000).prop_map(Act::Well),
        2 => Just(Act::Fails),
        1 => Just(Act::Denies),
        1 => Just(Act::DeafAfter),
        1 => Just(Act::DeafBefore),
    ]
}

fn script() -> impl Strategy<Value = Script> {
    let turn = prop_oneof![
        1 => Just(Turn::Stolen),
        1 => Just(Turn::Removed),
        1 => Just(Turn::PushedLoss),
        1 => (1u64..4000).prop_map(Turn::ClockJump),
        3 => Just(Turn::UserRenews),
    ];
    let end = prop_oneof![Just(End::Drop), Just(End::Release), Just(End::Cancel), Just(End::Close), Just(End::Keep)];
    let acts = |n| prop::collection::vec(act(), 0..n);
    let ttl = prop_oneof![4 => 10u64..3000, 1 => 20_000u64..60_000];
    let plan = (ttl, prop::bool::weighted(0.8), prop::option::weighted(0.2, 1u64..4000), 0u64..800);
    let answers = (acts(4), acts(12), acts(4));
    let user = (prop::option::of(0u64..5000), prop::collection::vec((0u64..1500, turn), 0..4), end, 0u64..6000);
    (plan, answers, user).prop_map(
        |((ttl, auto_renew, max_hold, min_hold), (acquires, renewals, releases), (wait, turns, end, end_at))| Script {
            ttl,
            auto_renew,
            max_hold,
            min_hold,
            wait,
            acquires,
            renewals,
            releases,
            turns,
            end,
            end_at,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, max_shrink_iters: 4000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_keeper_keeps_the_contract_in_any_order_of_events(script in script()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(play(script))?;
    }
}

async fn play(script: Script) -> Result<(), TestCaseError> {
    let (puppet, manager) = Puppet::managed();
    {
        let mut world = puppet.world();
        world.acquires = script.acquires.clone().into();
        world.renewals = script.renewals.clone().into();
        world.releases = script.releases.clone().into();
    }
    let mut request = manager.lock("x").ttl(ms(script.ttl)).auto_renew(script.auto_renew).min_hold(ms(script.min_hold));
    if let Some(span) = script.max_hold {
        request = request.max_hold(ms(span));
    }
    let asked = puppet.now();
    let acquired = match (script.wait, script.end) {
        (_, End::Cancel) => tokio::time::timeout(ms(script.end_at), request.acquire()).await.ok(),
        (Some(limit), _) => Some(request.wait(ms(limit)).acquire().await),
        (None, _) => Some(request.try_acquire().await.map(|guard| guard.expect("nobody else is there"))),
    };
    // W1: whoever waits is answered in time.
    let limit = script.wait.map_or(AcquireRequest::OPERATION_TIMEOUT, ms) + ms(250);
    if script.end != End::Cancel {
        let took = puppet.now().saturating_since(asked);
        prop_assert!(took <= limit, "W1: answered after {took:?}, the limit was {limit:?}");
    }
    match acquired {
        Some(Ok(guard)) => hold(&script, &puppet, &manager, guard).await?,
        // U1: nothing is left, and not only when the TTL has taken it. A backend that does not listen is given two time-outs.
        _ => {
            tokio::time::sleep(AcquireRequest::OPERATION_TIMEOUT * 3).await;
            let now = puppet.now();
            let left = puppet.world().entry.filter(|(_, until)| *until > now);
            prop_assert!(left.is_none(), "U1: an acquisition that failed has left {left:?}");
        }
    }
    // R1, U1: when all has settled, nothing of ours is in the store, by deletion or by its TTL, and nobody writes any more.
    tokio::time::sleep(ms(script.ttl * 2) + Duration::from_secs(20)).await;
    let settled = puppet.world().log.len();
    if let Some((owner, until)) = puppet.world().entry {
        prop_assert!(until == Deadline::NEVER || until <= puppet.now(), "R1: an entry of {owner} is left");
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    prop_assert_eq!(puppet.world().log.len(), settled, "R1: somebody still writes");
    Ok(())
}

async fn hold(script: &Script, puppet: &Puppet, manager: &LockManager, guard: LockGuard) -> Result<(), TestCaseError> {
    let (held, owner) = (guard.held(), guard.owner());
    let mut turns = script.turns.clone();
    let mut due = 0;
    let mut by_hand = false;
    let mut lost: Option<LostReason> = None;
    let start = tokio::time::Instant::now();
    let deletions = |puppet: &Puppet| puppet.calls(Call::Release) + puppet.calls(Call::Abandon);
    let deleted_before = deletions(puppet);
    let mut lease_end = puppet.now().after(ms(script.ttl));
    // U3: what is handed out is alive, but for the last milliseconds of a very short TTL.
    prop_assert!(held.is_held() || script.ttl < 50, "U3: handed out after its end");
    let mut valid_until = puppet.now();
    let mut renewals = Vec::new();
    while start.elapsed() < ms(script.end_at) {
        if let Some((after, turn)) = turns.first().copied()
            && start.elapsed() >= ms(due + after)
        {
            due += after;
            turns.remove(0);
            by_hand |= matches!(turn, Turn::Stolen | Turn::Removed);
            match turn {
                Turn::Stolen => puppet.steal(),
                Turn::Removed => puppet.world().entry = None,
                Turn::PushedLoss => puppet.loss.cancel(),
                Turn::ClockJump(span) => puppet.clock.advance(ms(span)),
                Turn::UserRenews => renewals.push(()),
            }
        }
        if renewals.pop().is_some() {
            let _ = tokio::time::timeout(ms(5), guard.renew()).await;
        }
        // M2: held means that the store has a live entry of ours, unless somebody tampered with it.
        if held.is_held() {
            prop_assert!(by_hand || puppet.is_live(owner), "M2: held without an entry");
            prop_assert!(lost.is_none(), "L1: a lost guard is held again");
            // The send of the last confirmed request and the whole TTL: no later than the last reply and the TTL.
            valid_until = held.valid_until().unwrap_or(valid_until);
            lease_end = held.valid_until().map_or(lease_end, |until| until.after(ms(script.ttl) / 100 + ms(2)));
        } else {
            // L2: level-triggered, and final with its reason.
            let reason = held.lost_reason();
            prop_assert!(reason.is_some(), "L2: not held, not released, not lost");
            prop_assert!(lost.is_none() || lost == reason, "L1: the reason changed");
            let polled = futures_util::poll!(Box::pin(held.lost()));
            prop_assert_eq!(polled, std::task::Poll::Ready(reason.unwrap()), "L2");
            // L4: nothing but time makes a lease expire; no failed renewal does.
            let early = reason == Some(LostReason::Expired) && puppet.now().after(ms(6)) < valid_until;
            prop_assert!(lost.is_some() || !early, "L4: expired before its time");
            lost = reason;
        }
        // L6: nothing is deleted while the guard exists and its TTL has not passed.
        if puppet.now() < lease_end {
            prop_assert_eq!(deletions(puppet), deleted_before, "L6: deleted under the holder's feet");
        }
        tokio::time::sleep(ms(3)).await;
    }
    let was_held = held.is_held();
    match script.end {
        End::Drop | End::Cancel => drop(guard),
        End::Keep => {
            // A leaked guard keeps its lock until the process ends; only a loss, or max_hold, ends it.
            if lost.is_some() || script.max_hold.is_some() || !script.auto_renew {
                std::mem::forget(guard);
            } else {
                drop(guard);
            }
        }
        End::Release => {
            let answer = guard.release().await;
            prop_assert!(!held.is_held());
            if answer.is_ok() {
                let renewed = puppet.calls(Call::Renew);
                tokio::time::sleep(Duration::from_secs(5)).await;
                prop_assert_eq!(puppet.calls(Call::Renew), renewed, "R1: renewed after the release");
                prop_assert!(!puppet.is_live(owner), "O2: released, and still there");
            }
        }
        End::Close => {
            let closing = manager.close();
            let mut closing = std::pin::pin!(closing);
            let _ = futures_util::poll!(closing.as_mut());
            tokio::time::sleep(ms(1)).await;
            prop_assert!(!held.is_held(), "close: still held");
            drop(guard);
            closing.await.map_err(|e| TestCaseError::fail(e.to_string()))?;
            prop_assert!(!puppet.is_live(owner) || puppet.now() >= lease_end, "close: an entry is left");
            return Ok(());
        }
    }
    // L3: a clean end is no loss, however late one looks.
    if was_held && script.end != End::Keep {
        tokio::time::sleep(ms(script.ttl * 2)).await;
        prop_assert_eq!(held.lost_reason(), None, "L3");
    }
    Ok(())
}
