//! Which faults touched whom, and what that excuses.

use std::time::Duration;

use crate::torture::history::{Nanos, span};
use crate::torture::record::{Attempt, Record, Scope, Struck};
use crate::torture::{LONGEST_TTL, SLACK};

/// How long after a fault connections may need to be made anew.
const AFTERMATH: Duration = Duration::from_secs(3);

/// A server that takes so long for one look has other things to do.
const SLOW: Duration = Duration::from_millis(200);

/// The faults of a run, by whom they touched.
#[derive(Debug)]
pub(in crate::torture) struct Weather<'a> {
    record: &'a Record,
    /// For each life, from when to when it was not left in peace, the time after it included.
    storms: Vec<Vec<(Nanos, Nanos)>>,
    /// When nobody was.
    global: Vec<(Nanos, Nanos)>,
}

pub(super) fn seconds(number: u64) -> Nanos {
    number * 1_000_000_000
}

pub(super) fn slack() -> Nanos {
    span(SLACK)
}

fn touches(one: (Nanos, Nanos), other: (Nanos, Nanos)) -> bool {
    one.0 <= other.1 && other.0 <= one.1
}

impl<'a> Weather<'a> {
    pub(in crate::torture) fn of(record: &'a Record) -> Self {
        let after = |to: Nanos| to.saturating_add(span(AFTERMATH));
        let all = record.faults.iter().filter(|fault| fault.hits_all());
        let mut global: Vec<_> = all.map(|fault| (fault.from, after(fault.to))).collect();
        // One that was slow once had its reason before.
        let slow = record.slow.iter().filter(|slow| slow.1 - slow.0 > span(SLOW));
        global.extend(slow.map(|slow| (slow.0.saturating_sub(seconds(1)), slow.1 + slack())));
        global.extend(record.stalls.iter().map(|stall| (stall.0, stall.1 + slack())));
        let storms = record.workers.iter().map(|life| {
            let own = record.faults.iter().filter(|fault| fault.scope == Scope::Worker(life.slot));
            // What came before it was born did not touch it.
            let own = own.filter(|fault| fault.to >= life.span.0 && fault.from <= life.span.1 + slack());
            own.map(|fault| (fault.from, after(fault.to))).chain(global.iter().copied()).collect()
        });
        Self { record, storms: storms.collect(), global }
    }

    /// Whether a worker was touched in this stretch, or shortly before.
    pub(super) fn touched(&self, worker: usize, from: Nanos, to: Nanos) -> bool {
        self.storms[worker].iter().any(|storm| touches(*storm, (from, to)))
    }

    /// Whether an answer was late about this moment, though not so late that it would count as a fault: who has three to wait for has no time for that.
    pub(super) fn lagged(&self, at: Nanos) -> bool {
        let around = (at.saturating_sub(seconds(1)), at + slack());
        self.record.slow.iter().any(|slow| touches(*slow, around))
    }

    /// The storms over a worker in this stretch.
    pub(super) fn storms(&self, worker: usize, from: Nanos, to: Nanos) -> impl Iterator<Item = (Nanos, Nanos)> + '_ {
        self.storms[worker].iter().copied().filter(move |storm| touches(*storm, (from, to)))
    }

    /// When the server, or the whole machine, did not serve as it should.
    pub(super) fn global(&self) -> &[(Nanos, Nanos)] {
        &self.global
    }

    /// How much of this stretch the worker could not do anything in.
    pub(super) fn halted(&self, worker: usize, from: Nanos, to: Nanos) -> Nanos {
        let slot = self.record.workers[worker].slot;
        let halts = self.record.faults.iter().filter(|f| f.halts && f.scope == Scope::Worker(slot));
        let halts = halts.map(|f| (f.from, f.to + slack())).chain(self.record.stalls.iter().copied());
        let cut = halts.map(|halt| (halt.0.max(from), halt.1.min(to))).filter(|halt| halt.0 < halt.1).collect();
        merged(cut).iter().map(|halt| halt.1 - halt.0).sum()
    }

    /// The faults by which entries of a name went behind the library's back in this stretch.
    pub(super) fn forgets<'b>(
        &'b self,
        name: &'b str,
        from: Nanos,
        to: Nanos,
    ) -> impl Iterator<Item = &'b Struck> + 'b {
        let of_name = move |fault: &&Struck| fault.scope == Scope::All || fault.scope == Scope::Name(name.to_owned());
        let faults = self.record.faults.iter().filter(|fault| fault.forgets).filter(of_name);
        faults.filter(move |fault| touches((fault.from, fault.to), (from, to)))
    }

    /// Whether a hand was laid on what stands under a name in this stretch.
    pub(super) fn disturbed(&self, name: &str, from: Nanos, to: Nanos) -> bool {
        let faults = &self.record.faults;
        faults.iter().any(|f| f.scope == Scope::Name(name.to_owned()) && touches((f.from, f.to), (from, to)))
    }

    /// Until when a holder may believe after its entry went (rule L5).
    pub(super) fn told_by(&self, attempt: &Attempt, gone: Nanos) -> Nanos {
        let promises = &self.record.promises;
        let soon = if promises.pushes_loss { seconds(1) } else { attempt.ttl / 3 + attempt.ttl / 10 };
        let notices = promises.pushes_loss || attempt.renewed;
        let calm = !self.touched(attempt.worker, gone, gone + soon);
        let within = if notices && calm { soon } else { attempt.ttl };
        gone + within + slack() + self.halted(attempt.worker, gone, gone + within)
    }

    /// Why an overlap or an older token is outside the contract: an entry went, and the holder was told in time.
    pub(super) fn excuse(&self, old: &Attempt, new: &Attempt) -> Option<String> {
        let (believed, granted) = (old.held_until?, new.answered?);
        let known = self.forgets(&old.name, old.asked, granted);
        known.filter(|fault| believed <= self.told_by(old, fault.to)).map(|fault| fault.fault.clone()).next()
    }

    /// Until when the store may keep what an attempt was granted, or may have been.
    pub(super) fn lease_end(&self, attempt: &Attempt) -> Nanos {
        let life = &self.record.workers[attempt.worker];
        let by_ttl = attempt.until.max(attempt.answered.unwrap_or(0)) + attempt.ttl / 50 + slack() / 10;
        let dropped = attempt.gave_up.map(|at| {
            let calm = !self.touched(attempt.worker, at, at + seconds(1));
            if calm && at + seconds(1) < life.span.1 { at + seconds(1) } else { at.max(life.span.1) + attempt.ttl }
        });
        match &attempt.released {
            Some((at, answer)) if answer == "released" || answer == "not held" && attempt.marked.is_none() => *at,
            Some(_) => by_ttl,
            None if attempt.lost.is_some() => by_ttl,
            None => dropped.unwrap_or(life.span.1 + attempt.ttl).max(by_ttl.min(attempt.gave_up.unwrap_or(u64::MAX))),
        }
    }

    /// After a fault of the server, until when it may keep leases longer than they should live.
    pub(super) fn long_after(&self, storm: (Nanos, Nanos)) -> Nanos {
        let twice = if self.record.promises.restart_adds_ttl { 2 } else { 1 };
        storm.1 + span(LONGEST_TTL) * twice + self.record.promises.expiry()
    }
}

/// Stretches in order, those that touch made one.
pub(super) fn merged(mut stretches: Vec<(Nanos, Nanos)>) -> Vec<(Nanos, Nanos)> {
    stretches.sort_unstable();
    let mut merged: Vec<(Nanos, Nanos)> = Vec::with_capacity(stretches.len());
    for stretch in stretches {
        match merged.last_mut() {
            Some(last) if stretch.0 <= last.1 => last.1 = last.1.max(stretch.1),
            _ => merged.push(stretch),
        }
    }
    merged
}
