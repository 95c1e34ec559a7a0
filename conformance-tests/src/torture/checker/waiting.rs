//! Limits are kept, the order too, and errors have a reason.

use std::collections::HashMap;
use std::time::Duration;

use lock_core::AcquireRequest;

use super::weather::{seconds, slack};
use super::{Finding, Weather};
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
                if old.asked + earlier > new.asked || !waits_on {
                    continue;
                }
                let (from, to) = (old.asked.saturating_sub(seconds(1)), granted + earlier);
                let calm = |worker| !weather.touched(worker, from, to);
                let disturbed = weather.disturbed(name, from, to);
                if calm(old.worker) && calm(new.worker) && !disturbed {
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

/// An error has a fault that explains it; and its kind is one that a fault can explain.
pub(super) fn errors(record: &Record, weather: &Weather<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (number, attempt) in record.attempts.iter().enumerate() {
        let Some(Answer::Failed { kind, text }) = &attempt.answer else { continue };
        let explained = match &**kind {
            "Timeout" => true,
            // A limit that one answer of a busy server takes.
            "Unavailable" if attempt.limit.is_some_and(|limit| limit < seconds(1)) && !record.promises.local => true,
            "Unavailable" | "Denied" => weather.touched(
                attempt.worker,
                attempt.asked.saturating_sub(seconds(2)),
                attempt.answered.unwrap_or(attempt.asked),
            ),
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
    fn who_overtakes_is_found_where_order_is_declared() {
        let mut story = Story::new(2);
        story.fail(0, "x", 100, 5_100, failed("Timeout"));
        let number = story.hold(1, "x", 1, 2_001, 2_010);
        story.record.attempts[number].asked = story.ms(1_000);
        assert!(findings(&story, "order").is_empty());
        story.record.promises.fifo = true;
        assert_eq!(findings(&story, "order").len(), 1);
        story.fault("line cut", Scope::Worker(0), 1_500, 1_500);
        assert!(findings(&story, "order").is_empty());
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
