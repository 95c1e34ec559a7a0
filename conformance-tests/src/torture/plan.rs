//! Which faults come when: from the seed alone.

use std::time::Duration;

use super::faults::Fault;

/// A row of numbers that follows from its seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// A row of its own for each seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `sides`, which must not be 0.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % sides
    }

    /// True in so many of a thousand cases.
    pub fn chance(&mut self, of_a_thousand: u64) -> bool {
        self.roll(1_000) < of_a_thousand
    }

    /// A span from `least` up to `most`, in milliseconds.
    pub fn span(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(least + self.roll(most - least + 1))
    }
}

/// One fault that is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strike {
    /// When, from the start.
    pub at: Duration,
    /// Which, by its name in the table.
    pub fault: &'static str,
    /// Whom: the worker or name with this number.
    pub victim: usize,
    /// How long it lasts, where it has an end.
    pub span: Duration,
}

/// The least and the greatest time between two faults, in milliseconds.
const PAUSE: (u64, u64) = (300, 1_800);

/// Each so many milliseconds faults leave off for so many: what they may have broken shows best while nothing explains it. Those before are over by
/// then, and the workers need some seconds of it to find their servers again.
const CALM: (u64, u64) = (30_000, 7_000);

/// When the calm begins and ends that is under way at a moment, or comes next.
fn calm(at: Duration) -> (Duration, Duration) {
    let period = Duration::from_millis(CALM.0);
    let end = period * u32::try_from(at.as_millis() / period.as_millis() + 1).unwrap_or(u32::MAX);
    (end - Duration::from_millis(CALM.1), end)
}

/// The faults of a run: the same seed, table and numbers give the same ones.
pub(super) fn strikes(
    seed: u64,
    faults: &[&'static Fault],
    span: Duration,
    workers: usize,
    names: usize,
) -> Vec<Strike> {
    let mut dice = Dice::new(seed);
    let all: u64 = faults.iter().map(|fault| fault.weight).sum();
    let (mut at, mut strikes) = (dice.span(PAUSE.0, PAUSE.1), Vec::new());
    while at < span && all > 0 {
        let (calm, end) = calm(at);
        if at >= calm {
            at = end;
            continue;
        }
        let mut number = dice.roll(all);
        for fault in faults {
            if number < fault.weight {
                let victims = if fault.is_of_a_name() { names } else { workers };
                let victim = dice.roll(victims.max(1) as u64) as usize;
                let span = dice.span(fault.span.0, fault.span.1).min(calm - at);
                strikes.push(Strike { at, fault: fault.name, victim, span });
                break;
            }
            number -= fault.weight;
        }
        at += dice.span(PAUSE.0, PAUSE.1);
    }
    strikes
}

/// The faults of a run over a backend without a server, for showing what a seed means.
pub fn schedule(seed: u64, span: Duration, workers: usize, names: usize) -> Vec<Strike> {
    let all: Vec<_> = super::faults::FAULTS.iter().collect();
    strikes(seed, &all, span, workers, names)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_seed_is_a_schedule_with_a_fault_every_two_seconds_and_a_calm_every_thirty() {
        let span = Duration::from_secs(120);
        let strikes = schedule(7, span, 4, 3);
        assert_eq!(strikes, schedule(7, span, 4, 3));
        assert_ne!(strikes, schedule(8, span, 4, 3));
        let mut last = Duration::ZERO;
        for strike in &strikes {
            let (calm, _) = calm(strike.at);
            assert!(strike.at + strike.span <= calm, "{strike:?}");
            let waited = strike.at - last;
            assert!(waited <= Duration::from_secs(if strike.at.as_secs() / 30 > last.as_secs() / 30 { 9 } else { 2 }));
            last = strike.at;
        }
        assert!(strikes.len() as u64 * 2 >= span.as_secs(), "{}", strikes.len());
        let kinds: std::collections::BTreeSet<_> = strikes.iter().map(|strike| strike.fault).collect();
        assert!(kinds.len() * 3 > super::super::faults::FAULTS.len() * 2, "{kinds:?}");
    }
}
