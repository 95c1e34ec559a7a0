//! Pauses between attempts.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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
    fn pauses_grow_to_their_bound() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..8).map(|_| backoff.next()).collect();
        assert!(pauses[0] <= Backoff::FIRST && pauses[0] >= Backoff::FIRST * 4 / 5);
        assert!(pauses[7] <= Backoff::LAST && pauses[7] >= Backoff::LAST * 4 / 5);
    }
}
