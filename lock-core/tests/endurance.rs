//! A day of renewals under paused time.

mod support;

use std::time::Duration;

use lock_core::*;
use support::{Act, Call, Puppet, ms};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const TTL: Duration = Duration::from_secs(30);

/// So many seconds apart that the moments of the looks drift through the phases of renewing.
const LOOK: Duration = Duration::from_millis(17_001);

async fn hold_for_a_day(guard: &LockGuard, locks: &LockManager) {
    let tasks = tokio::runtime::Handle::current().metrics();
    let begun = tasks.num_alive_tasks();
    let mut left = DAY;
    while !left.is_zero() {
        let step = left.min(LOOK);
        tokio::time::sleep(step).await;
        left -= step;
        assert!(guard.is_held(), "lost after {:?}: {:?}", DAY - left, guard.lost_reason());
        assert!(
            locks.lock("x").try_acquire().await.expect("an answer").is_none(),
            "two holders after {:?}",
            DAY - left
        );
    }
    assert!(tasks.num_alive_tasks() <= begun + 1, "{begun} tasks became {}", tasks.num_alive_tasks());
}

#[tokio::test(start_paused = true)]
async fn a_day_costs_a_renewal_every_third_of_the_ttl() {
    let (puppet, locks) = Puppet::managed();
    let guard = locks.lock("x").ttl(TTL).acquire().await.unwrap();
    let token = guard.fencing_token();
    hold_for_a_day(&guard, &locks).await;
    let (renewals, thirds) = (puppet.calls(Call::Renew) as f64, DAY.as_secs_f64() / (TTL.as_secs_f64() / 3.0));
    // Jitter takes up to a tenth off each wait.
    assert!((thirds * 0.99..=thirds * 1.25).contains(&renewals), "{renewals} renewals for {thirds} thirds");
    assert_eq!(guard.fencing_token(), token);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    assert!(puppet.world().entry.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_day_of_bad_lines_loses_nothing_while_some_renewal_of_each_ttl_gets_through() {
    let (puppet, locks) = Puppet::managed();
    let guard = locks.lock("x").ttl(TTL).acquire().await.unwrap();
    // Each third one gets through; the lost ones take up to the operation time-out of 2 s.
    let bad = [Act::Fails, Act::DeafAfter, Act::Well(1500), Act::DeafBefore, Act::Fails, Act::Well(0)];
    puppet.world().renewals = bad.into_iter().cycle().take(100_000).collect();
    hold_for_a_day(&guard, &locks).await;
    assert!(puppet.calls(Call::Renew) > 9000);
    // And then none at all: the end is as near as on the first day.
    puppet.world().renewals = [Act::DeafBefore; 100].into();
    let silent = puppet.now();
    guard.lost().await;
    assert!(puppet.now().saturating_since(silent) <= TTL + ms(500));
}
