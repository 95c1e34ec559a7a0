//! The keeper under paused time, rule by rule.

mod support;

use std::sync::Arc;
use std::time::Duration;

use lock_core::*;
use support::{Act, Call, Puppet, ms};

#[tokio::test(start_paused = true)]
async fn l4_renews_at_a_third_and_never_falls_below_half() {
    let (puppet, locks) = Puppet::managed();
    let guard = locks.lock("x").ttl(ms(1000)).acquire().await.unwrap();
    for _ in 0..3000 {
        tokio::time::sleep(ms(20)).await;
        assert!(guard.is_held() && guard.remaining() >= ms(500), "{guard:?}");
    }
    let renewals = puppet.calls(Call::Renew);
    assert!((180..=215).contains(&renewals), "{renewals} renewals in 60 s at a TTL of 1 s");
}

#[tokio::test(start_paused = true)]
async fn l4_an_outage_shorter_than_the_time_left_is_not_seen() {
    let (puppet, locks) = Puppet::managed();
    let guard = locks.lock("x").ttl(ms(6000)).acquire().await.unwrap();
    puppet.world().renewals = vec![Act::DeafBefore, Act::Fails, Act::Denies, Act::DeafAfter, Act::Fails].into();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(guard.is_held());
    assert_eq!(guard.lost_reason(), None);
}

#[tokio::test(start_paused = true)]
async fn l2_a_silent_backend_is_a_loss_before_the_validity_ends() {
    let (puppet, locks) = Puppet::managed();
    let guard = locks.lock("x").ttl(ms(2000)).acquire().await.unwrap();
    let valid_until = guard.valid_until().unwrap();
    puppet.world().renewals = [Act::DeafBefore; 100].into();
    assert_eq!(guard.lost().await, LostReason::Expired);
    assert!(puppet.now() < valid_until, "woken {:?} late", puppet.now().saturating_since(valid_until));
    assert!(!guard.is_held());
    assert_eq!(guard.renew().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
async fn l2_a_suspend_is_noticed_within_half_a_second_of_its_end() {
    let (puppet, locks) = Puppet::managed();
    let guard = locks.lock("x").ttl(ms(30_000)).acquire().await.unwrap();
    let mut lost = Box::pin(guard.lost());
    assert!(futures_util::poll!(&mut lost).is_pending());
    puppet.clock.advance(Duration::from_secs(60));
    assert!(!guard.is_held(), "the first look tells the truth");
    let resumed = tokio::time::Instant::now();
    assert_eq!(lost.await, LostReason::Expired);
    assert!(resumed.elapsed() <= ms(500), "{:?}", resumed.elapsed());
}

#[tokio::test(start_paused = true)]
async fn l1_reasons_come_through_and_stay() {
    for (hurt, reason) in [("steal", LostReason::TakenOver), ("remove", LostReason::Removed)] {
        let (puppet, locks) = Puppet::managed();
        let guard = locks.lock("x").ttl(ms(3000)).acquire().await.unwrap();
        match hurt {
            "steal" => puppet.steal(),
            _ => puppet.world().entry = None,
        }
        let error = guard.renew().await.unwrap_err();
        assert_eq!((error.kind(), error.lost_reason()), (ErrorKind::Lost, Some(reason)));
        assert_eq!(guard.lost().await, reason);
        assert_eq!(guard.release().await.unwrap(), Released::NotHeld);
    }
}

#[tokio::test(start_paused = true)]
async fn l5_a_pushed_loss_comes_at_once() {
    let (puppet, locks) = Puppet::managed();
    let guard = locks.lock("x").acquire().await.unwrap();
    puppet.loss.cancel();
    assert_eq!(tokio::time::timeout(ms(1), guard.lost()).await, Ok(LostReason::Removed));
}

#[tokio::test(start_paused = true)]
async fn l6_max_hold_raises_first_and_deletes_after_the_guard() {
    let (puppet, locks) = Puppet::managed();
    let guard = locks.lock("x").ttl(ms(1000)).max_hold(ms(4000)).acquire().await.unwrap();
    let granted = puppet.now();
    assert_eq!(guard.lost().await, LostReason::MaxHold);
    assert!(puppet.now().saturating_since(granted) < ms(4010));
    tokio::time::sleep(ms(500)).await;
    assert_eq!(puppet.calls(Call::Release), 0, "deleted under the holder's feet");
    drop(guard);
    tokio::time::sleep(ms(1)).await;
    assert_eq!(puppet.calls(Call::Release), 1);
}

#[tokio::test(start_paused = true)]
async fn l6_without_renewal_it_is_lost_at_its_end_and_renewed_by_hand_before() {
    let (puppet, locks) = Puppet::managed();
    let guard = locks.lock("x").ttl(ms(2000)).auto_renew(false).acquire().await.unwrap();
    tokio::time::sleep(ms(1000)).await;
    guard.renew().await.unwrap();
    tokio::time::sleep(ms(1500)).await;
    assert!(guard.is_held());
    assert!(guard.remaining() > ms(440) && guard.remaining() <= ms(500), "{:?}", guard.remaining());
    guard.renew().await.unwrap();
    assert_eq!(guard.lost().await, LostReason::Expired);
    assert_eq!(puppet.calls(Call::Renew), 2);
}

#[tokio::test(start_paused = true)]
async fn min_hold_keeps_the_name_and_its_renewals_after_an_early_drop() {
    let (puppet, locks) = Puppet::managed();
    let guard = locks.lock("x").ttl(ms(300)).min_hold(ms(2000)).acquire().await.unwrap();
    let (held, owner) = (guard.held(), guard.owner());
    drop(guard);
    assert!(!held.is_held());
    tokio::time::sleep(ms(1990)).await;
    assert!(puppet.is_live(owner), "free before the least hold was over");
    tokio::time::sleep(ms(20)).await;
    assert!(!puppet.is_live(owner));
    assert_eq!(held.lost_reason(), None);
}

#[tokio::test(start_paused = true)]
async fn o2_a_release_that_fails_is_tried_again_and_answers_in_time() {
    let (puppet, locks) = Puppet::managed();
    let guard = locks.lock("x").ttl(ms(30_000)).acquire().await.unwrap();
    puppet.world().releases = [Act::Fails; 5].into();
    assert_eq!(guard.release().await.unwrap(), Released::Released);

    let guard = locks.lock("x").ttl(ms(30_000)).acquire().await.unwrap();
    let owner = guard.owner();
    puppet.world().releases = [Act::Fails; 40].into();
    let asked = puppet.now();
    let error = guard.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("tried again until its time runs out in 2"), "{error}");
    assert!(puppet.now().saturating_since(asked) < ms(2500));
    tokio::time::sleep(ms(15_000)).await;
    assert!(!puppet.is_live(owner), "it did not go on in the background");
}

#[tokio::test(start_paused = true)]
async fn b77_a_release_after_the_end_takes_one_round_trip() {
    let (puppet, locks) = Puppet::managed();
    let guard = locks.lock("x").ttl(ms(500)).auto_renew(false).acquire().await.unwrap();
    tokio::time::sleep(ms(2000)).await;
    let asked = puppet.now();
    assert_eq!(guard.release().await.unwrap(), Released::NotHeld);
    assert!(puppet.now().saturating_since(asked) < ms(5));
    assert!(puppet.calls(Call::Release) <= 1);
}

#[tokio::test(start_paused = true)]
async fn u1_an_acquire_without_answer_is_abandoned() {
    let (puppet, locks) = Puppet::managed();
    puppet.world().acquires = [Act::DeafAfter].into();
    let error = locks.lock("x").wait(ms(1000)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    tokio::time::sleep(ms(10)).await;
    assert_eq!(puppet.calls(Call::Abandon), 1);
    assert_eq!(puppet.world().entry, None);
}

#[tokio::test(start_paused = true)]
async fn u2_a_retry_bears_the_same_owner() {
    let (puppet, locks) = Puppet::managed();
    puppet.world().acquires = [Act::Fails, Act::Fails].into();
    let guard = locks.lock("x").acquire().await.unwrap();
    assert_eq!(puppet.calls(Call::Acquire), 3);
    assert!(puppet.is_live(guard.owner()));
}

#[tokio::test(start_paused = true)]
async fn u3_a_grant_after_its_ttl_is_no_grant() {
    let (puppet, locks) = Puppet::managed();
    puppet.world().acquires = [Act::Well(1500); 9].into();
    let error = locks.lock("x").ttl(ms(1000)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    tokio::time::sleep(ms(10)).await;
    assert_eq!(puppet.world().entry, None, "what was granted too late is left");

    puppet.world().acquires = [Act::Well(800)].into();
    let guard = locks.lock("x").ttl(ms(1000)).auto_renew(false).acquire().await.unwrap();
    assert!(guard.remaining() <= ms(200), "validity counted from the answer: {:?}", guard.remaining());
    guard.release().await.unwrap();

    // One that would be lost in the same breath is asked for again.
    puppet.world().acquires = [Act::Well(987)].into();
    let guard = locks.lock("x").ttl(ms(1000)).auto_renew(false).acquire().await.unwrap();
    assert!(guard.remaining() > ms(900), "handed out with {:?} left", guard.remaining());
}

#[tokio::test(start_paused = true)]
async fn w1_whoever_does_not_wait_is_answered_within_the_operation_time_out() {
    let (puppet, locks) = Puppet::managed();
    puppet.world().acquires = [Act::DeafBefore].into();
    let asked = puppet.now();
    let error = locks.lock("x").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(puppet.now().saturating_since(asked) <= AcquireRequest::OPERATION_TIMEOUT);

    puppet.world().acquires = [Act::Fails; 100].into();
    let asked = puppet.now();
    assert_eq!(locks.lock("x").try_acquire().await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(puppet.now().saturating_since(asked) <= AcquireRequest::OPERATION_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn w1_the_limit_is_kept_and_its_end_is_a_timeout() {
    let (puppet, locks) = Puppet::managed();
    puppet.steal();
    let asked = puppet.now();
    let error = locks.lock("x").wait(ms(3000)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let took = puppet.now().saturating_since(asked);
    assert!(took >= ms(3000) && took < ms(3250), "{took:?}");
    assert!(locks.lock("x").try_acquire().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn b87_enormous_limits_mean_none_and_enormous_ttls_are_refused() {
    let (puppet, locks) = Puppet::managed();
    for ttl in [Duration::ZERO, ms(9), Duration::MAX, Duration::from_secs(u64::MAX)] {
        let error = locks.lock("x").ttl(ttl).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidTtl, "{ttl:?}");
    }
    assert_eq!(puppet.calls(Call::Acquire), 0, "refused before any I/O");
    for limit in [Duration::MAX, Duration::from_secs(u64::MAX), ms(i64::MAX as u64)] {
        locks.lock("x").wait(limit).max_hold(limit).acquire().await.unwrap().release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn x1_a_dropped_acquire_leaves_nothing() {
    for act in [Act::Well(500), Act::DeafAfter, Act::DeafBefore] {
        let (puppet, locks) = Puppet::managed();
        puppet.world().acquires = [act].into();
        let _ = tokio::time::timeout(ms(100), locks.lock("x").acquire()).await.unwrap_err();
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(puppet.world().entry, None, "{act:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn r1_a_release_during_a_renewal_is_the_last_word() {
    let (puppet, locks) = Puppet::managed();
    let guard = locks.lock("x").ttl(ms(3000)).acquire().await.unwrap();
    puppet.world().renewals = [Act::Well(300)].into();
    while puppet.calls(Call::Renew) == 0 {
        tokio::time::sleep(ms(5)).await;
    }
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let calls = puppet.world().log.len();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(puppet.world().log.len(), calls);
}

#[tokio::test(start_paused = true)]
async fn close_tells_guards_and_waiters_and_waits_for_the_releases() {
    let (puppet, locks) = Puppet::managed();
    let guard = locks.lock("x").acquire().await.unwrap();
    let waiter = tokio::spawn(locks.lock("x").acquire());
    tokio::time::sleep(ms(50)).await;
    let closing = tokio::spawn({
        let locks = locks.clone();
        async move { locks.close().await }
    });
    assert_eq!(guard.lost().await, LostReason::Closed);
    assert_eq!(waiter.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(locks.lock("y").acquire().await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(locks.inspect("y").await.unwrap_err().kind(), ErrorKind::Closed);
    tokio::time::sleep(ms(50)).await;
    assert!(!closing.is_finished(), "the guard is still there");
    drop(guard);
    closing.await.unwrap().unwrap();
    assert_eq!(puppet.world().entry, None);
    assert!(puppet.world().closed);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_backend_is_a_loss_and_leaves_nothing() {
    let (puppet, locks) = Puppet::managed();
    let guard = locks.lock("x").ttl(ms(1000)).acquire().await.unwrap();
    puppet.world().renewals = [Act::Panics].into();
    assert_eq!(guard.lost().await, LostReason::KeeperDied);
    tokio::time::sleep(ms(10)).await;
    assert_eq!(puppet.calls(Call::Abandon), 1);
    assert_eq!(guard.release().await.unwrap(), Released::NotHeld);

    puppet.world().acquires = [Act::Panics].into();
    assert_eq!(locks.lock("x").acquire().await.unwrap_err().kind(), ErrorKind::Internal);
}

#[tokio::test(start_paused = true)]
async fn run_drops_the_work_at_the_loss_and_answers_what_it_answered() {
    let (puppet, locks) = Puppet::managed();
    let borrowed = String::from("state");
    let length = locks
        .lock("x")
        .run(|held| {
            let borrowed = &borrowed;
            async move { (held.is_held(), borrowed.len()) }
        })
        .await;
    assert_eq!(length.unwrap(), (true, 5));

    puppet.world().renewals = [Act::DeafBefore; 99].into();
    let error = locks.lock("x").ttl(ms(500)).run(|_| std::future::pending::<()>()).await.unwrap_err();
    assert!(matches!(error, RunError::Lost { reason: LostReason::Expired, .. }), "{error}");

    puppet.steal();
    let error = locks.lock("x").wait(ms(10)).run(|_| async {}).await.unwrap_err();
    assert!(matches!(&error, RunError::NotAcquired(e) if e.kind() == ErrorKind::Timeout), "{error}");
}

#[tokio::test(start_paused = true)]
async fn run_keeps_the_result_when_the_release_fails() {
    let (puppet, locks) = Puppet::managed();
    puppet.world().releases = [Act::Denies; 999].into();
    let ran = locks.lock("x").ttl(ms(500)).run_released(|_| async { 7 }).await.unwrap();
    assert_eq!(ran.value, 7);
    assert_eq!(ran.release.unwrap_err().kind(), ErrorKind::Denied);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_locks_cost_their_renewals_and_no_more() {
    let locks = {
        let clock = lock_core::testing::ManualClock::following_tokio();
        let memory = memory::MemoryLock::with_clock(clock.clock());
        LockManager::builder()
            .clock(clock.clock())
            .runtime(tokio::runtime::Handle::current())
            .build(Arc::new(memory))
            .unwrap()
    };
    let mut guards = Vec::new();
    for n in 0..10_000 {
        guards.push(locks.lock(format!("n{n}")).acquire().await.unwrap());
    }
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(guards.iter().all(LockGuard::is_held));
    drop(guards);
    locks.close().await.unwrap();
}

#[test]
fn r2_the_last_clone_gives_a_departing_guard_a_moment_and_no_more() {
    use futures_executor::block_on;
    let clock = lock_core::testing::ManualClock::new();
    for (act, left) in [(Act::Well(30), false), (Act::DeafBefore, true)] {
        let puppet = Puppet::new(&clock);
        puppet.world().releases = [act].into();
        let locks = LockManager::builder().clock(clock.clock()).build(Arc::new(puppet.clone())).unwrap();
        let other = locks.clone();
        let guard = block_on(locks.lock("x").acquire()).unwrap();
        let start = std::time::Instant::now();
        drop(guard);
        drop(other);
        assert!(start.elapsed() < ms(20), "a guard, or a clone that is not the last, has waited");
        drop(locks);
        assert!(start.elapsed() < ms(400), "waited {:?}", start.elapsed());
        assert_eq!(puppet.world().entry.is_some(), left, "{act:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn l6_a_guard_that_speaks_just_as_its_keeper_ends_is_answered() {
    let (puppet, locks) = Puppet::managed();
    let guard = locks.lock("x").ttl(ms(1000)).auto_renew(false).acquire().await.unwrap();
    puppet.world().releases = [Act::Well(100)].into();
    // The whole TTL has passed: the keeper is deleting what may be left when the guard speaks.
    while puppet.calls(Call::Release) == 0 {
        tokio::time::sleep(ms(1)).await;
    }
    assert_eq!(guard.renew().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(guard.release().await.unwrap(), Released::NotHeld);
}

#[tokio::test(start_paused = true)]
async fn l6_a_release_that_meets_the_end_of_its_keeper_is_answered() {
    let (puppet, locks) = Puppet::managed();
    let guard = locks.lock("x").ttl(ms(1000)).auto_renew(false).acquire().await.unwrap();
    puppet.world().releases = [Act::Well(100)].into();
    while puppet.calls(Call::Release) == 0 {
        tokio::time::sleep(ms(1)).await;
    }
    assert_eq!(guard.release().await.unwrap(), Released::NotHeld);
}
