//! Limits are kept, the order too, and errors have a reason.

use std::collections::HashMap;
use std::time::Duration;

use lock_core::AcquireRequest;

use super::weather::{seconds, slack};
use super::{Finding, Judged, Weather};
use crate::torture::history::{Answer, Nanos, span};
use crate::torture::record::{Attempt, Record};

/// How long past its limit the user may wait for the answer.
const GRACE: Duration = Duration::from_millis(200);

fn bound(attempt: &Attempt) -> Nanos {
    attempt.limit.unwrap_or(span(AcquireRequest::OPERATION_TIMEOUT)) + span(GRACE) + slack()
}

/// Everyone is answered within the limit, less the time in which it could do nothing; and nobody is told that another held it before that.
pub(super) fn limits(record: &Record, weather: &Weather<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (number, attempt) in record.attempts.iter().enumerate() {
        let end = attempt.answered.unwrap_or(record.workers[attempt.worker].span.1);
        let took = end.saturating_sub(attempt.asked);
        if took > bound(attempt) {
            let lived = took - weather.halted(attempt.worker, attempt.asked, end);
            if lived > bound(attempt) {
                let text = format!(
                    "worker {} waited {:?} of at most {:?}",
                    attempt.worker,
                    Duration::from_nanos(lived),
                    Duration::from_nanos(bound(attempt))
                );
                found.push(Finding::new("limit", &attempt.name, (attempt.asked, end), vec![number], text));
            }
        }
        let early = matches!(&attempt.answer, Some(Answer::Failed { kind, .. }) if kind == "Timeout");
        if let Some(limit) = attempt.limit.filter(|limit| early && took < *limit) {
            let text = format!(
                "worker {} was told after {:?} that the limit of {:?} was over",
                attempt.worker,
                Duration::from_nanos(took),
                Duration::from_nanos(limit)
            );
            found.push(Finding::new("limit", &attempt.name, (attempt.asked, end), vec![number], text));
        }
    }
    found
}

/// By how much somebody must have come earlier, so that it is certain that its request came earlier, too.
const EARLIER: Duration = Duration::from_millis(700);

/// Whether it is certain that one of two who wait for a name at the same time came first, and both were left in peace: what becomes of them can be judged.
fn are_in_order(record: &Record, weather: &Weather<'_>, old: &Attempt, new: &Attempt) -> bool {
    let end = new.answered.unwrap_or(record.span.1);
    let (from, to) = (old.asked.saturating_sub(seconds(1)), end + span(EARLIER));
    let both_wait = old.answered.is_some_and(|at| at > new.asked);
    let calm = |worker| !weather.touched(worker, from, to);
    old.asked + span(EARLIER) <= new.asked
        && both_wait
        && calm(old.worker)
        && calm(new.worker)
        && !weather.disturbed(&new.name, from, to)
}

/// How many grants could show that somebody was overtaken, of all to those who waited.
pub(super) fn ordered(record: &Record, weather: &Weather<'_>) -> Judged {
    let waiters = record.attempts.iter().filter(|attempt| record.promises.fifo && attempt.limit.is_some());
    let waiters: Vec<_> = waiters.collect();
    let mut judged = Judged::default();
    for (at, new) in waiters.iter().enumerate().filter(|(_, attempt)| attempt.granted().is_some()) {
        judged.of += 1;
        let mut olds = waiters[..at].iter().rev().filter(|old| old.name == new.name).take(200);
        judged.judged += usize::from(olds.any(|old| are_in_order(record, weather, old, new)));
    }
    judged
}

/// Where the order of arrival is declared: nobody is granted the name while somebody who came well before waits for it, and goes on waiting.
pub(super) fn order(record: &Record, weather: &Weather<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    if !record.promises.fifo {
        return found;
    }
    let earlier = span(EARLIER);
    let mut names: HashMap<&str, Vec<usize>> = HashMap::new();
    for (number, attempt) in record.attempts.iter().enumerate().filter(|(_, attempt)| attempt.limit.is_some()) {
        names.entry(&attempt.name).or_default().push(number);
    }
    for (name, waiters) in names {
        for (at, &new_number) in waiters.iter().enumerate() {
            let new = &record.attempts[new_number];
            let Some(granted) = new.granted() else { continue };
            for &old_number in waiters[..at].iter().rev().take(200) {
                let old = &record.attempts[old_number];
                let waits_on = old.answered.is_some_and(|at| at > granted + earlier);
                if waits_on && are_in_order(record, weather, old, new) {
                    let text = format!(
                        "worker {} came {:?} after worker {}, and was granted the name before it",
                        new.worker,
                        Duration::from_nanos(new.asked - old.asked),
                        old.worker
                    );
                    found.push(Finding::new("order", name, (old.asked, granted), vec![old_number, new_number], text));
                }
            }
        }
    }
    found
}

/// Whether nothing explains that the server did not answer.
fn needs_no_error(record: &Record, weather: &Weather<'_>, attempt: &Attempt) -> bool {
    let end = attempt.answered.unwrap_or(attempt.asked);
    // A limit that one answer of a busy server takes; or one at whose end the last word was a little late.
    let tight = attempt.limit.is_some_and(|limit| {
        limit < seconds(1) && !record.promises.local || end >= attempt.asked + limit && weather.lagged(end)
    });
    !tight && !weather.touched(attempt.worker, attempt.asked.saturating_sub(seconds(2)), end)
}

/// How many answers could have been an error that nothing explains, of all.
pub(super) fn faultless(record: &Record, weather: &Weather<'_>) -> Judged {
    let answered = record.attempts.iter().filter(|attempt| attempt.answered.is_some());
    Judged::count(answered, |attempt| needs_no_error(record, weather, attempt))
}

/// An error has a fault that explains it; and its kind is one that a fault can explain.
pub(super) fn errors(record: &Record, weather: &Weather<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (number, attempt) in record.attempts.iter().enumerate() {
        let Some(Answer::Failed { kind, text }) = &attempt.answer else { continue };
        let explained = match &**kind {
            "Timeout" => true,
            "Unavailable" | "Denied" => !needs_no_error(record, weather, attempt),
            _ => false,
        };
        if !explained {
            let end = attempt.answered.unwrap_or(attempt.asked);
            let text = format!("{kind} without a fault that explains it: {text}");
            found.push(Finding::new("error", &attempt.name, (attempt.asked, end), vec![number], text));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::stories::{Story, findings};
    use crate::torture::Scope;
    use crate::torture::history::Answer;

    fn failed(kind: &str) -> Answer {
        Answer::Failed { kind: kind.into(), text: String::new() }
    }

    #[test]
    fn who_waits_too_long_or_is_sent_away_too_early_is_found() {
        for (took, answer, count) in [
            (5_100, failed("Timeout"), 0),
            (5_800, failed("Timeout"), 1),
            (4_000, failed("Timeout"), 1),
            (4_000, Answer::Cancelled, 0),
        ] {
            let mut story = Story::new(1);
            story.fail(0, "x", 100, 100 + took, answer);
            assert_eq!(findings(&story, "limit").len(), count, "{took}");
        }
    }

    #[test]
    fn the_time_of_a_stopped_worker_does_not_count() {
        let mut story = Story::new(1);
        story.fail(0, "x", 100, 8_100, failed("Timeout"));
        story.fault("worker stopped", Scope::Worker(0), 1_000, 4_000);
        assert_eq!(findings(&story, "limit").len(), 1);
        story.record.faults[0].halts = true;
        assert!(findings(&story, "limit").is_empty());
    }

    #[test]
    fn nobody_is_answered_who_is_never_answered() {
        let mut story = Story::new(1);
        let number = story.fail(0, "x", 100, 200, Answer::Busy);
        (story.record.attempts[number].answered, story.record.attempts[number].answer) = (None, None);
        assert_eq!(findings(&story, "limit").len(), 1);
        story.record.workers[0].span.1 = story.ms(3_000);
        assert!(findings(&story, "limit").is_empty());
    }

    #[test]
    fn who_is_stopped_within_its_write_explains_the_errors_of_all_and_prolongs_nobodys_limit() {
        let mut story = Story::new(2);
        story.fail(1, "x", 20_000, 20_100, failed("Unavailable"));
        story.fail(1, "x", 20_000, 25_800, failed("Timeout"));
        story.fault("worker stopped", Scope::Worker(0), 19_000, 25_000).halts = true;
        assert_eq!((findings(&story, "error").len(), findings(&story, "limit").len()), (1, 1));
        story.record.faults[0].bars = true;
        assert_eq!((findings(&story, "error").len(), findings(&story, "limit").len()), (0, 1));
    }

    #[test]
    fn a_late_word_at_the_limit_is_explained_by_a_server_that_lags_and_an_early_one_is_not() {
        for (answered, lagged, count) in
            [(25_200, None, 1), (25_200, Some(25_050), 0), (25_200, Some(21_000), 1), (24_000, Some(23_900), 1)]
        {
            let mut story = Story::new(1);
            story.fail(0, "x", 20_000, answered, failed("Unavailable"));
            let slow = lagged.map(|at| (story.ms(at), story.ms(at + 100)));
            story.record.slow.extend(slow);
            assert_eq!(findings(&story, "error").len(), count, "{answered} {lagged:?}");
        }
        // One look that takes longer than that is as a fault.
        let mut story = Story::new(1);
        story.fail(0, "x", 20_000, 24_000, failed("Unavailable"));
        story.record.slow.push((story.ms(23_700), story.ms(23_950)));
        assert!(findings(&story, "error").is_empty());
    }

    #[test]
    fn who_overtakes_is_found_where_order_is_declared() {
        let mut story = Story::new(2);
        story.fail(0, "x", 100, 5_100, failed("Timeout"));
        let number = story.hold(1, "x", 1, 2_001, 2_010);
        story.record.attempts[number].asked = story.ms(1_000);
        assert!(findings(&story, "order").is_empty());
        let judged = |story: &Story| super::ordered(&story.record, &super::Weather::of(&story.record)).judged;
        assert_eq!(judged(&story), 0);
        story.record.promises.fifo = true;
        assert_eq!((findings(&story, "order").len(), judged(&story)), (1, 1));
        story.fault("line cut", Scope::Worker(0), 1_500, 1_500);
        assert_eq!((findings(&story, "order").len(), judged(&story)), (0, 0));
    }

    #[test]
    fn an_error_without_a_fault_is_found() {
        let mut story = Story::new(1);
        story.fail(0, "x", 20_000, 20_100, failed("Unavailable"));
        assert_eq!(findings(&story, "error").len(), 1);
        story.fault("line cut", Scope::Worker(0), 19_000, 19_000);
        assert!(findings(&story, "error").is_empty());
        story.fail(0, "x", 20_000, 20_100, failed("Internal"));
        assert_eq!(findings(&story, "error").len(), 1);
    }
}
