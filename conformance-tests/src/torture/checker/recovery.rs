//! Work goes on after each fault, and ends in order.

use std::time::Duration;

use super::weather::{merged, seconds};
use super::{Finding, Weather};
use crate::torture::LONGEST_TTL;
use crate::torture::history::{Nanos, span};
use crate::torture::record::{Promises, Record, Scope};

/// How long after a fault the next grant may take, beside the leases that it may have left.
const RECOVERY: Duration = Duration::from_secs(5);

/// How long after a fault, at the latest, somebody is granted something.
pub(in crate::torture) fn bound(promises: Promises) -> Nanos {
    let leases = if promises.restart_adds_ttl { 2 } else { 1 };
    span(LONGEST_TTL) * leases + promises.expiry() + span(RECOVERY)
}

/// After the end of each fault somebody is granted something; the time of other faults that hit all does not count.
pub(super) fn recovery(record: &Record, _: &Weather<'_>) -> Vec<Finding> {
    let mut grants: Vec<_> = record.attempts.iter().filter_map(|attempt| attempt.granted()).collect();
    grants.sort_unstable();
    let away = record.faults.iter().filter(|fault| fault.hits_all()).map(|fault| (fault.from, fault.to + seconds(1)));
    let away = merged(away.chain(record.stalls.iter().copied()).collect());
    let mut found = Vec::new();
    for fault in &record.faults {
        let next = grants.get(grants.partition_point(|grant| *grant < fault.to)).copied();
        let end = next.unwrap_or(record.span.1).max(fault.to);
        let lost: Nanos = away.iter().map(|away| away.1.min(end).saturating_sub(away.0.max(fault.to))).sum();
        let took = (end - fault.to).saturating_sub(lost);
        if took > bound(record.promises) {
            let text =
                format!("after '{}' nobody was granted anything for {:?}", fault.fault, Duration::from_nanos(took));
            found.push(Finding::new("recovery", "", (fault.to, end), Vec::new(), text));
        }
    }
    if grants.is_empty() {
        found.push(Finding::new("recovery", "", record.span, Vec::new(), "nobody was ever granted anything".into()));
    }
    found
}

/// Workers end when they are told to, and see no promise broken; the store is empty then.
pub(super) fn ends(record: &Record, _: &Weather<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (worker, at, rule, text) in &record.odd {
        found.push(Finding::new("worker", "", (*at, *at), Vec::new(), format!("worker {worker}: {rule}: {text}")));
    }
    for fault in &record.faults {
        for (rule, text) in &fault.saw {
            found.push(Finding::new("stray", "", (fault.from, fault.to), Vec::new(), format!("{rule}: {text}")));
        }
    }
    for left in &record.left {
        found.push(Finding::new("residue", "", (record.span.1, record.span.1), Vec::new(), left.clone()));
    }
    for (number, life) in record.workers.iter().enumerate() {
        // Whoever was killed has another in its place, or was killed at the very end.
        let killed = record.faults.iter().any(|fault| {
            fault.fault == "worker killed"
                && fault.scope == Scope::Worker(life.slot)
                && fault.to >= life.span.1
                && fault.to <= life.span.1 + seconds(20)
        });
        if !life.ended && !killed && life.span.1 > 0 {
            let text = format!("worker {number} ended without being told to");
            found.push(Finding::new("worker", "", (life.span.1, life.span.1), Vec::new(), text));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::stories::{Story, findings};
    use crate::torture::Scope;

    #[test]
    fn a_fault_after_which_nothing_moves_is_found() {
        let mut story = Story::new(1);
        story.hold(0, "x", 1, 1_000, 1_010);
        story.fault("line cut", Scope::Worker(0), 2_000, 2_000);
        assert_eq!(findings(&story, "recovery").len(), 1);
        story.hold(0, "x", 2, 9_000, 9_010);
        assert!(findings(&story, "recovery").is_empty());
    }

    #[test]
    fn what_is_left_and_who_ends_by_itself_is_found() {
        let mut story = Story::new(1);
        story.hold(0, "x", 1, 1_000, 1_010);
        assert!(findings(&story, "worker").is_empty());
        story.record.odd.push((0, 5, "N1".into(), "odd".into()));
        story.record.workers[0].ended = false;
        assert_eq!(findings(&story, "worker").len(), 2);
        story.record.left.push("a key".into());
        assert_eq!(findings(&story, "residue").len(), 1);
    }
}
