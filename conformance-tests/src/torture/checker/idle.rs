//! No name stands free while somebody waits.

use std::collections::HashMap;
use std::time::Duration;

use super::weather::{merged, seconds, slack};
use super::{Finding, Judged, Weather};
use crate::torture::history::{Answer, Nanos};
use crate::torture::record::{Attempt, Record, Scope};

type Stretches = Vec<(Nanos, Nanos)>;

/// How much earlier than its answer a grant may have been made, when all is well.
const QUICK: Nanos = 300_000_000;

/// How long a cancelled request may hold the name unseen, when all is well.
const CLEAN: Nanos = 100_000_000;

/// When a name was, or may have been, somebody's; or when a fault explains that it was nobody's.
fn taken(record: &Record, weather: &Weather<'_>, name: &str, attempts: &[usize]) -> Stretches {
    let expiry = record.promises.expiry();
    let mut taken = Vec::new();
    for attempt in attempts.iter().map(|number| &record.attempts[*number]) {
        let life = &record.workers[attempt.worker];
        let end = attempt.answered.unwrap_or(life.span.1);
        // What a disturbed worker asked for may be granted unseen, and costs others its place in the queue, and its TTL.
        for storm in weather.storms(attempt.worker, attempt.asked, end) {
            taken.push((storm.0.saturating_sub(QUICK), end.min(storm.1) + attempt.ttl + expiry));
        }
        match (attempt.granted(), &attempt.answer) {
            (Some(granted), _) => {
                let lease_end = weather.lease_end(attempt);
                let by_ttl = attempt.released.as_ref().is_none_or(|(_, answer)| answer != "released");
                let extra = if by_ttl { expiry } else { 0 };
                taken.push((granted.saturating_sub(QUICK).max(attempt.asked), lease_end + extra));
            }
            (None, Some(Answer::Cancelled)) => taken.push((end.saturating_sub(CLEAN).max(attempt.asked), end + CLEAN)),
            (None, None) => taken.push((end.saturating_sub(QUICK), end + attempt.ttl + expiry)),
            _ => {}
        }
    }
    let of_name = |scope: &Scope| *scope == Scope::Name(name.to_owned());
    for fault in record.faults.iter().filter(|fault| of_name(&fault.scope)) {
        let put = fault.put.as_ref().map_or(0, |put| put.1 + expiry);
        taken.push((fault.from.saturating_sub(QUICK), put.max(fault.to + seconds(1))));
    }
    taken.extend(weather.global().iter().map(|storm| (storm.0, weather.long_after(*storm))));
    merged(taken)
}

/// Whether a waiter was left in peace until its answer.
fn is_at_peace(weather: &Weather<'_>, waiter: &Attempt) -> bool {
    waiter.answered.is_some_and(|end| !weather.touched(waiter.worker, waiter.asked, end))
}

/// How many waits could show an idle name, of all: nobody touched the waiter, and no fault that hit all explains that the name was free.
pub(super) fn watched(record: &Record, weather: &Weather<'_>) -> Judged {
    let explained = merged(weather.global().iter().map(|storm| (storm.0, weather.long_after(*storm))).collect());
    let is_explained = |waiter: &Attempt| {
        let end = waiter.answered.unwrap_or(waiter.asked);
        explained.iter().any(|stretch| stretch.0 <= waiter.asked && end <= stretch.1)
    };
    let waits = record.attempts.iter().filter(|attempt| attempt.limit.is_some());
    Judged::count(waits, |waiter| is_at_peace(weather, waiter) && !is_explained(waiter))
}

/// A waiter whose worker is left in peace gets a free name within a second.
pub(super) fn idle(record: &Record, weather: &Weather<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut names: HashMap<&str, Vec<usize>> = HashMap::new();
    for (number, attempt) in record.attempts.iter().enumerate() {
        names.entry(&attempt.name).or_default().push(number);
    }
    let bound = seconds(1) + slack();
    for (name, attempts) in names {
        let taken = taken(record, weather, name, &attempts);
        for &number in attempts.iter().filter(|number| record.attempts[**number].limit.is_some()) {
            let waiter = &record.attempts[number];
            let Some(end) = waiter.answered else { continue };
            if end - waiter.asked <= bound || !is_at_peace(weather, waiter) {
                continue;
            }
            let from = taken.partition_point(|stretch| stretch.1 < waiter.asked);
            let mut free_from = waiter.asked;
            for stretch in taken[from..].iter().copied().chain([(end, end)]) {
                let free = (free_from, stretch.0.min(end));
                if free.0 < free.1 && free.1 - free.0 > bound {
                    let text = format!(
                        "nobody held the name for {:?} while worker {} waited",
                        Duration::from_nanos(free.1 - free.0),
                        waiter.worker
                    );
                    found.push(Finding::new("idle", name, free, vec![number], text));
                    break;
                }
                free_from = free_from.max(stretch.1);
                if stretch.0 >= end {
                    break;
                }
            }
        }
    }
    found
}

/// The longest time that the store showed nobody as the holder of the first name while somebody waited for it.
pub(in crate::torture) fn longest_free(record: &Record, name: &str) -> Duration {
    let waits: Stretches = record
        .attempts
        .iter()
        .filter(|attempt| attempt.name == name && attempt.limit.is_some())
        .filter_map(|attempt| Some((attempt.asked, attempt.answered?)))
        .collect();
    let waits = merged(waits);
    let overlap = |free: &(Nanos, Nanos)| {
        let cut = waits.iter().map(|wait| wait.1.min(free.1).saturating_sub(wait.0.max(free.0)));
        cut.max().unwrap_or(0)
    };
    Duration::from_nanos(record.free.iter().map(overlap).max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::super::stories::{Story, findings};
    use crate::torture::Scope;
    use crate::torture::history::Answer;

    fn waits(story: &mut Story, worker: usize, from: u64, to: u64) {
        story.fail(worker, "x", from, to, Answer::Failed { kind: "Timeout".into(), text: String::new() });
    }

    #[test]
    fn a_name_that_stands_free_while_somebody_waits_is_found() {
        let mut story = Story::new(2);
        story.hold(0, "x", 1, 10_000, 10_100);
        waits(&mut story, 1, 10_050, 15_050);
        assert_eq!(findings(&story, "idle").len(), 1);
        // While it is held, it is not free.
        let mut story = Story::new(2);
        story.hold(0, "x", 1, 10_000, 14_900);
        waits(&mut story, 1, 10_050, 15_050);
        assert!(findings(&story, "idle").is_empty());
    }

    #[test]
    fn a_dead_holder_costs_its_ttl_and_no_more() {
        for (to, count) in [(12_900, 0), (15_050, 1)] {
            let mut story = Story::new(2);
            let number = story.hold(0, "x", 1, 10_000, 10_010);
            let attempt = &mut story.record.attempts[number];
            (attempt.released, attempt.gave_up, attempt.lost) = (None, None, Some((11_980_000_000, "expired".into())));
            waits(&mut story, 1, 10_050, to);
            assert_eq!(findings(&story, "idle").len(), count, "{to}");
        }
    }

    #[test]
    fn a_fault_of_the_server_explains_it() {
        let mut story = Story::new(2);
        waits(&mut story, 1, 10_050, 15_050);
        assert_eq!(findings(&story, "idle").len(), 1);
        story.fault("server stopped", Scope::All, 9_000, 12_000);
        assert!(findings(&story, "idle").is_empty());
    }

    #[test]
    fn who_is_stopped_within_its_write_is_a_fault_of_all_and_who_is_only_stopped_is_not() {
        let mut story = Story::new(2);
        waits(&mut story, 1, 10_050, 15_050);
        story.fault("worker stopped", Scope::Worker(0), 9_000, 12_000).halts = true;
        assert_eq!(findings(&story, "idle").len(), 1);
        story.record.faults[0].bars = true;
        assert!(findings(&story, "idle").is_empty());
        // Not for longer than that, and the leases that it may have left.
        let mut story = Story::new(2);
        waits(&mut story, 1, 40_050, 45_050);
        let fault = story.fault("worker stopped", Scope::Worker(0), 9_000, 12_000);
        (fault.halts, fault.bars) = (true, true);
        assert_eq!(findings(&story, "idle").len(), 1);
    }

    #[test]
    fn what_can_be_judged_is_what_nothing_explains() {
        let judged = |story: &Story| {
            let (record, weather) = (&story.record, super::Weather::of(&story.record));
            let judged = super::watched(record, &weather);
            (judged.judged, judged.of)
        };
        let mut story = Story::new(2);
        waits(&mut story, 0, 10_050, 10_250);
        waits(&mut story, 1, 10_050, 10_250);
        waits(&mut story, 1, 50_050, 50_250);
        assert_eq!(judged(&story), (3, 3));
        story.fault("line cut", Scope::Worker(0), 9_000, 9_000);
        assert_eq!(judged(&story), (2, 3));
        // It may have left leases until then, though nobody was touched any more.
        story.fault("server killed", Scope::All, 5_000, 5_000);
        assert_eq!(judged(&story), (1, 3));
    }

    #[test]
    fn what_stands_free_counts_while_somebody_waits() {
        let mut story = Story::new(1);
        waits(&mut story, 0, 1_000, 2_000);
        story.record.free.push((story.ms(500), story.ms(1_300)));
        assert_eq!(super::longest_free(&story.record, "x").as_millis(), 300);
        assert!(super::longest_free(&story.record, "y").is_zero());
    }
}
