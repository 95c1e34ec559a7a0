//! What the waiters believed, and what follows from it.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use super::TTL;
use crate::Stop;

/// One hold as its holder saw it; times in nanoseconds of the machine's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Belief {
    /// When the guard was handed out.
    pub(super) from: u64,
    /// The last look that said "held".
    pub(super) last: u64,
    /// Until when the guard was valid at that look.
    pub(super) valid_until: u64,
    pub(super) token: u64,
    /// 1 once the holder has given the lock back.
    pub(super) released: u64,
}

pub(super) const BYTES: usize = 40;

impl Belief {
    pub(super) fn to_bytes(self) -> [u8; BYTES] {
        let words = [self.from, self.last, self.valid_until, self.token, self.released];
        let mut bytes = [0; BYTES];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let mut words = bytes.chunks_exact(8).map(|chunk| {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        let mut next = || words.next().unwrap_or_default();
        Self { from: next(), last: next(), valid_until: next(), token: next(), released: next() }
    }

    /// When the backend could give the name to the next one: after the release, or when the TTL of the last renewal is over.
    fn free_from(&self) -> u64 {
        let margin = TTL / 100 + Duration::from_millis(2);
        if self.released == 1 { self.last } else { self.valid_until + margin.as_nanos() as u64 }
    }
}

/// What a siege came to.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// How often the lock was granted.
    pub grants: usize,
    /// How many holders were gone without a release.
    pub unreleased: usize,
    /// Pairs of holders that believed in the same instant that they held it.
    pub overlaps: usize,
    /// Grants whose token was not above the one before.
    pub tokens_out_of_order: usize,
    /// The longest time that the store showed nobody as the holder while others waited.
    pub longest_free: Duration,
    /// The longest time from the end of one hold to the next, as the holders saw it; a process that dies with a grant that it has not
    /// written down yet makes it longer by the TTL.
    pub longest_gap: Duration,
    /// The median of these times.
    pub median_gap: Duration,
    /// What was done to it, and how often.
    pub faults: Vec<(&'static str, usize)>,
    /// Keys other than an idle counter that were left at the end.
    pub leftovers: Vec<String>,
}

impl Verdict {
    pub(super) fn of(
        folder: &Path,
        longest_free: Duration,
        faults: Vec<(&'static str, usize)>,
        leftovers: Vec<String>,
    ) -> Result<Self, Stop> {
        let mut beliefs = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let bytes = std::fs::read(entry?.path())?;
            beliefs.extend(bytes.chunks_exact(BYTES).map(Belief::from_bytes).filter(|belief| belief.from > 0));
        }
        Ok(Self { longest_free, faults, leftovers, ..Self::judge(beliefs) })
    }

    fn judge(mut beliefs: Vec<Belief>) -> Self {
        beliefs.sort_by_key(|belief| belief.from);
        let mut verdict = Self {
            grants: beliefs.len(),
            unreleased: beliefs.iter().filter(|belief| belief.released == 0).count(),
            overlaps: 0,
            tokens_out_of_order: 0,
            longest_free: Duration::ZERO,
            longest_gap: Duration::ZERO,
            median_gap: Duration::ZERO,
            faults: Vec::new(),
            leftovers: Vec::new(),
        };
        let mut free = Vec::with_capacity(beliefs.len());
        // The latest of all looks so far, since a long belief may reach over several later ones.
        let (mut believed, mut free_from, mut token) = (0, u64::MAX, 0);
        for belief in &beliefs {
            verdict.overlaps += usize::from(belief.from < believed);
            verdict.tokens_out_of_order += usize::from(belief.token <= token);
            free.push(Duration::from_nanos(belief.from.saturating_sub(free_from)));
            believed = believed.max(belief.last);
            token = token.max(belief.token);
            free_from = belief.free_from();
        }
        free.sort();
        verdict.longest_gap = free.last().copied().unwrap_or_default();
        verdict.median_gap = free.get(free.len() / 2).copied().unwrap_or_default();
        verdict
    }

    /// Whether nothing was found.
    pub fn is_clean(&self) -> bool {
        self.grants > 0 && self.overlaps == 0 && self.tokens_out_of_order == 0 && self.leftovers.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "grants                      {}", self.grants)?;
        writeln!(f, "  not released (killed)     {}", self.unreleased)?;
        writeln!(f, "overlaps                    {}", self.overlaps)?;
        writeln!(f, "tokens out of order         {}", self.tokens_out_of_order)?;
        writeln!(f, "longest free while waited   {:?}", self.longest_free)?;
        writeln!(f, "longest gap between holds   {:?}", self.longest_gap)?;
        writeln!(f, "median gap between holds    {:?}", self.median_gap)?;
        for (fault, count) in &self.faults {
            writeln!(f, "  {fault:<25} {count}")?;
        }
        write!(f, "leftovers                   {:?}", self.leftovers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn belief(from: u64, last: u64, token: u64) -> Belief {
        Belief { from, last, valid_until: last + 10, token, released: 1 }
    }

    #[test]
    fn a_record_survives_its_bytes() {
        let belief = Belief { from: 1, last: 2, valid_until: 3, token: u64::MAX, released: 1 };
        assert_eq!(Belief::from_bytes(&belief.to_bytes()), belief);
    }

    #[test]
    fn an_overlap_and_a_fallen_token_are_found() {
        let clean = vec![belief(1, 5, 1), belief(6, 9, 2), belief(20, 30, 3)];
        let verdict = Verdict::judge(clean);
        assert!(verdict.is_clean(), "{verdict}");
        assert_eq!(verdict.longest_gap, Duration::from_nanos(11));
        // The first belief reaches over the second into the third.
        let both = vec![belief(1, 25, 1), belief(6, 9, 2), belief(20, 30, 2)];
        let verdict = Verdict::judge(both);
        assert_eq!((verdict.overlaps, verdict.tokens_out_of_order), (2, 1));
        assert!(!verdict.is_clean());
    }
}
