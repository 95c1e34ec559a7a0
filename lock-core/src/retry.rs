//! Pauses between attempts.

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
pub(crate) fn shortened(span: Duration, part: u32) -> Duration {
    // Without random bytes there is no jitter, and nothing else is worse for it.
    let dice = getrandom::u32().unwrap_or(0);
    span - (span / part).mul_f64(f64::from(dice) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..8).map(|_| backoff.next()).collect();
        assert!(pauses[0] <= Backoff::FIRST && pauses[0] >= Backoff::FIRST * 4 / 5);
        assert!(pauses[7] <= Backoff::LAST && pauses[7] >= Backoff::LAST * 4 / 5);
    }
}
