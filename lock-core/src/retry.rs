//! Pauses between attempts, and moments of renewal.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::Deadline;

/// Pauses that double from [`Backoff::FIRST`] to [`Backoff::LAST`], each shortened by up to a fifth at random, so that
/// many clients that failed together do not come back together.
#[derive(Clone, Debug)]
pub(crate) struct Backoff(Duration, Duration);

impl Backoff {
    pub(crate) const FIRST: Duration = Duration::from_millis(10);
    pub(crate) const LAST: Duration = Duration::from_millis(250);

    pub(crate) fn new(first: Duration, last: Duration) -> Self {
        Self(first, last)
    }

    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(self.1);
        shortened(pause, 5)
    }

    pub(crate) async fn sleep(&mut self) {
        tokio::time::sleep(self.next()).await;
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new(Self::FIRST, Self::LAST)
    }
}

/// Moments at equal distances, the same for all locks of a manager and others in each process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rhythm {
    /// From 0 to 1: where in a step the moment lies.
    phase: f64,
}

impl Rhythm {
    pub(crate) fn random() -> Self {
        const WHOLE: Duration = Duration::from_secs(1);
        Self { phase: (WHOLE - shortened(WHOLE, 1)).as_secs_f64() }
    }

    /// The last of these moments, `step` apart, that is not after `latest`.
    pub(crate) fn at_or_before(&self, latest: Deadline, step: Duration) -> Deadline {
        let first = Deadline::PAST.after(step.mul_f64(self.phase));
        let over = latest.saturating_since(first).as_nanos() % step.as_nanos().max(1);
        // Less than a step, and no TTL is longer than 2^64 ns.
        latest.before(Duration::from_nanos(over as u64))
    }
}

/// `span` less a random part of up to one `part`-th of it.
///
/// The dice need not be good, but cheap, and other in each process: they start from the hasher's random keys.
pub(crate) fn shortened(span: Duration, part: u32) -> Duration {
    static DICE: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one(0)));
    // The step of SplitMix64 and the upper half of its product: even enough for a pause.
    let step = DICE.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
    let dice = (step ^ (step >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 32;
    span - (span / part).mul_f64(dice as f64 / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_random_part_is_spread_over_its_range() {
        let span = Duration::from_secs(10);
        let cuts: Vec<f64> = (0..1000).map(|_| (span - shortened(span, 10)).as_secs_f64()).collect();
        let mean = cuts.iter().sum::<f64>() / 1000.0;
        assert!((0.45..0.55).contains(&mean), "{mean}");
        assert!(cuts.iter().all(|cut| (0.0..=1.0).contains(cut)));
    }

    #[test]
    fn moments_are_a_step_apart_and_never_late() {
        let rhythm = Rhythm::random();
        let step = Duration::from_millis(1000);
        let at = |ms: u64| Deadline::PAST.after(Duration::from_millis(ms));
        let first = rhythm.at_or_before(at(10_000), step);
        assert!(first <= at(10_000) && first > at(9_000), "{rhythm:?}");
        for late in (0..1000).step_by(100) {
            let moment = rhythm.at_or_before(first.after(step * 7 + Duration::from_millis(late)), step);
            let off = moment.saturating_since(first).abs_diff(step * 7);
            assert!(off <= Duration::from_nanos(1), "{moment:?} {first:?}");
        }
    }

    #[test]
    fn pauses_grow_to_their_bound() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..8).map(|_| backoff.next()).collect();
        assert!(pauses[0] <= Backoff::FIRST && pauses[0] >= Backoff::FIRST * 4 / 5);
        assert!(pauses[7] <= Backoff::LAST && pauses[7] >= Backoff::LAST * 4 / 5);
    }
}
