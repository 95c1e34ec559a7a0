//! What workers bring back: four moments of each grant.

use conformance_tests::Stop;
use serde::{Deserialize, Serialize};

use crate::stats::quantile;

/// The call of acquire, its return, the call of release, its return: nanoseconds of the machine's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant(pub u64, pub u64, pub u64, pub u64);

/// The grants of each worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grants(pub Vec<Vec<Grant>>);

impl Grants {
    pub fn count(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// Grants per second, from the first call to the last return.
    pub fn rate(&self) -> f64 {
        let all = || self.0.iter().flatten();
        let (Some(start), Some(end)) = (all().map(|grant| grant.0).min(), all().map(|grant| grant.3).max()) else {
            return 0.0;
        };
        self.count() as f64 / (end - start) as f64 * 1e9
    }

    /// The least and the most often served worker.
    pub fn least_and_most(&self) -> (usize, usize) {
        let each = || self.0.iter().map(Vec::len);
        (each().min().unwrap_or(0), each().max().unwrap_or(0))
    }

    /// A quantile of how long an acquire and its release took together without the hold, in microseconds.
    pub fn cycle_micros(&self, q: f64) -> f64 {
        let all: Vec<_> = self.0.iter().flatten().map(|g| (g.1 - g.0 + g.3 - g.2) as f64 / 1e3).collect();
        quantile(&all, q)
    }

    /// From each call of release to the return of acquire in the worker that was next, in microseconds; of one and the same name.
    ///
    /// # Errors
    /// When two workers held it at the same time.
    pub fn hand_overs(&self) -> Result<Vec<f64>, Stop> {
        let mut all: Vec<_> =
            self.0.iter().enumerate().flat_map(|(worker, grants)| grants.iter().map(move |g| (g, worker))).collect();
        all.sort_by_key(|(grant, _)| grant.1);
        let mut spans = Vec::new();
        for pair in all.windows(2) {
            let [(before, giver), (after, taker)] = pair else { continue };
            let Some(span) = after.1.checked_sub(before.2) else {
                return Err(format!("workers {giver} and {taker} held the lock at the same time").into());
            };
            // Who waited already; else it is the time until somebody asked.
            if giver != taker && after.0 < before.2 {
                spans.push(span as f64 / 1e3);
            }
        }
        Ok(spans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hand_overs_are_those_to_who_waited() -> Result<(), Stop> {
        let grants = Grants(vec![
            vec![Grant(0, 1_000, 5_000, 6_000), Grant(20_000, 21_000, 30_000, 31_000)],
            vec![Grant(2_000, 8_000, 12_000, 13_000)],
        ]);
        // The second worker waited since 2 µs; nobody waited when it released.
        assert_eq!(grants.hand_overs()?, [3.0]);
        assert_eq!(grants.least_and_most(), (1, 2));
        assert_eq!(grants.count(), 3);
        assert!((grants.rate() - 3.0 / 31e-6).abs() < 1e-3);
        assert_eq!(grants.cycle_micros(0.0), 2.0);
        Ok(())
    }

    #[test]
    fn two_holders_at_once_are_seen() {
        let grants = Grants(vec![vec![Grant(0, 1, 10, 11)], vec![Grant(0, 9, 12, 13)]]);
        assert!(grants.hand_overs().is_err());
    }

    #[test]
    fn nothing_has_no_rate() {
        assert_eq!((Grants::default().rate(), Grants::default().least_and_most()), (0.0, (0, 0)));
    }
}
