//! Judges a run: pure functions over what was recorded.

mod exclusion;
mod idle;
mod loss;
mod recovery;
#[cfg(test)]
pub(super) mod stories;
mod tokens;
mod views;
mod waiting;
mod weather;

use super::history::Nanos;
use super::record::{Attempt, Record};

pub(super) use idle::longest_free;
pub(super) use recovery::bound as recovery_bound;
pub(super) use weather::Weather;

/// What is checked, and by which rules of the contract.
pub const CHECKS: &[(&str, &str)] = &[
    ("overlap", "no two beliefs about one name overlap (M1, M2, U3)"),
    ("stale write", "the register takes no older token after a newer one, and none is refused that is held (F1, M2)"),
    ("token", "tokens rise with the grants, and none comes twice (F1)"),
    ("revival", "a lost guard never returns to held (L1)"),
    ("validity", "validity counts from before the request, with its margin (M2)"),
    ("ttl", "no TTL is cut (T2)"),
    ("untold", "who lost its entry is told in time, and why (L1, L5, O1, O3)"),
    ("mark", "a mark keeps others out until the lease ends (O3)"),
    ("release", "a release says what it did (O2)"),
    ("view", "who looks sees who holds, and nobody who does not (O3, R1, T1)"),
    ("limit", "everyone who waits is answered in time, and not before (W1)"),
    ("idle", "no name stands free while somebody waits for it (T1, W2, W3)"),
    ("order", "who came first is served first, where that is declared (W4)"),
    ("error", "no error without a fault, and none of a kind that nothing explains (E1, E2)"),
    ("recovery", "grants come back after each fault"),
    ("worker", "no worker ends by itself, or sees a promise broken"),
    ("stray", "who was frozen, or lost an answer, changes nothing that is not its own (T4, O1, U1, U2)"),
    ("residue", "nothing is left in the store (R1, U1, W3)"),
];

/// A broken promise; with an excuse, one that the contract leaves out.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Which check, of [`CHECKS`].
    pub check: &'static str,
    /// What is broken, in a line.
    pub text: String,
    /// The name of the lock.
    pub name: String,
    /// The shortest stretch that shows it.
    pub span: (Nanos, Nanos),
    /// The attempts that take part.
    pub attempts: Vec<usize>,
    /// The fault that the contract puts outside its promise.
    pub excuse: Option<String>,
}

impl Finding {
    fn new(check: &'static str, name: &str, span: (Nanos, Nanos), attempts: Vec<usize>, text: String) -> Self {
        Self { check, text, name: name.to_owned(), span, attempts, excuse: None }
    }

    fn excused(mut self, excuse: Option<String>) -> Self {
        self.excuse = excuse;
        self
    }

    /// Whether it may only be that the run is not over yet.
    pub(super) fn is_of_an_end(&self) -> bool {
        self.check == "recovery" || self.check == "worker" && self.text.ends_with("without being told to")
    }
}

/// How much of what there was a check could judge: the rest had a fault that would have explained it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Judged {
    pub judged: usize,
    pub of: usize,
}

impl Judged {
    fn count<'a>(all: impl Iterator<Item = &'a Attempt>, can: impl Fn(&Attempt) -> bool) -> Self {
        all.fold(Self::default(), |sum, attempt| Self {
            judged: sum.judged + usize::from(can(attempt)),
            of: sum.of + 1,
        })
    }
}

/// What the checks could judge that faults leave little to.
pub fn judged(record: &Record) -> [(&'static str, Judged); 3] {
    let weather = Weather::of(record);
    [
        ("idle", idle::watched(record, &weather)),
        ("order", waiting::ordered(record, &weather)),
        ("error", waiting::faultless(record, &weather)),
    ]
}

/// All that was broken, the earliest first.
pub fn check(record: &Record) -> Vec<Finding> {
    let weather = Weather::of(record);
    let mut found = Vec::new();
    for judge in [
        exclusion::overlaps,
        exclusion::validity,
        tokens::order,
        tokens::register,
        loss::revivals,
        loss::told,
        loss::marks,
        loss::releases,
        views::sights,
        waiting::limits,
        waiting::order,
        waiting::errors,
        idle::idle,
        recovery::recovery,
        recovery::ends,
    ] {
        found.extend(judge(record, &weather));
    }
    found.sort_by_key(|finding| finding.span);
    found
}
