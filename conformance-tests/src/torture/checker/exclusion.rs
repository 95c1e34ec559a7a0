//! No two at a time, and nobody believes longer than he may.

use std::collections::HashMap;
use std::time::Duration;

use super::{Finding, Weather};
use crate::torture::history::span;
use crate::torture::record::{Attempt, Record};

/// The grants of each name that were believed in, by the moment of the grant.
pub(super) fn beliefs(record: &Record) -> HashMap<&str, Vec<usize>> {
    let mut names: HashMap<&str, Vec<usize>> = HashMap::new();
    for (number, attempt) in record.attempts.iter().enumerate() {
        if attempt.belief().is_some() {
            names.entry(&attempt.name).or_default().push(number);
        }
    }
    for grants in names.values_mut() {
        grants.sort_by_key(|grant| record.attempts[*grant].answered);
    }
    names
}

/// A belief reaches from the moment at which the guard was in hand to the last moment before a look that said "held": being final, a loss cannot
/// have come before that look. Both ends are true moments of belief, so two that overlap are two holders at one instant.
pub(super) fn overlaps(record: &Record, weather: &Weather<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (name, grants) in beliefs(record) {
        let mut open: Vec<usize> = Vec::new();
        for number in grants {
            let new = &record.attempts[number];
            let Some((from, _)) = new.belief() else { continue };
            open.retain(|old| record.attempts[*old].held_until.is_some_and(|until| until > from));
            for &old_number in &open {
                let old = &record.attempts[old_number];
                let both = (from, old.held_until.min(new.held_until).unwrap_or(from));
                if both.0 >= both.1 {
                    continue;
                }
                let excuse = weather.excuse(old, new).or_else(|| weather.excuse(new, old));
                let long = Duration::from_nanos(both.1 - both.0);
                let text = format!(
                    "tokens {} of worker {} and {} of worker {} were both held for {long:?}",
                    old.token, old.worker, new.token, new.worker
                );
                found.push(Finding::new("overlap", name, both, vec![old_number, number], text).excused(excuse));
            }
            open.push(number);
        }
    }
    found
}

/// The validity ends at the latest so long after a moment that is after the confirmed request; and no TTL is shorter than was asked for.
pub(super) fn validity(record: &Record, _: &Weather<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (number, attempt) in record.attempts.iter().enumerate().filter(|(_, attempt)| attempt.granted().is_some()) {
        if let Some((at, until)) = too_long(attempt) {
            let text = format!(
                "a look shows a validity that ends {:?} after it, of a TTL of {:?}",
                Duration::from_nanos(until - at),
                Duration::from_nanos(attempt.ttl)
            );
            found.push(Finding::new("validity", &attempt.name, (attempt.asked, at), vec![number], text));
        }
        if attempt.ttl < attempt.wanted {
            let text = format!(
                "{:?} were asked for and {:?} granted",
                Duration::from_nanos(attempt.wanted),
                Duration::from_nanos(attempt.ttl)
            );
            let span = (attempt.asked, attempt.answered.unwrap_or(attempt.asked));
            found.push(Finding::new("ttl", &attempt.name, span, vec![number], text));
        }
    }
    found
}

fn too_long(attempt: &Attempt) -> Option<(u64, u64)> {
    let trusted = attempt.ttl.saturating_sub(attempt.ttl / 100 + span(Duration::from_millis(2)));
    let looks = attempt.looks.iter().filter_map(|(_, _, until, after)| Some((*after, (*until)?)));
    // A nanosecond for the rounding of a hundredth.
    looks.into_iter().find(|(after, until)| *until > after + trusted + 1)
}

#[cfg(test)]
mod tests {
    use super::super::stories::{Story, findings};

    #[test]
    fn two_that_hold_at_once_are_found() {
        let mut story = Story::new(2);
        story.hold(0, "x", 1, 100, 200);
        story.hold(1, "x", 2, 150, 160);
        story.hold(1, "y", 2, 150, 160);
        let found = findings(&story, "overlap");
        assert_eq!(found.len(), 1);
        assert!(found[0].excuse.is_none());
        assert_eq!(found[0].span, (story.ms(150), story.ms(160)));
    }

    #[test]
    fn one_after_the_other_is_well() {
        let mut story = Story::new(2);
        story.hold(0, "x", 1, 100, 200);
        story.hold(1, "x", 2, 201, 300);
        assert!(findings(&story, "overlap").is_empty());
    }

    #[test]
    fn a_long_belief_is_compared_with_all_that_follow() {
        let mut story = Story::new(3);
        story.hold(0, "x", 1, 100, 900);
        story.hold(1, "x", 2, 200, 210);
        story.hold(2, "x", 3, 300, 310);
        assert_eq!(findings(&story, "overlap").len(), 2);
    }

    #[test]
    fn a_removal_by_hand_excuses_until_the_holder_must_know() {
        let mut story = Story::new(2);
        story.removed("x", 150);
        story.hold(0, "x", 1, 100, 900);
        story.hold(1, "x", 2, 200, 300);
        let found = findings(&story, "overlap");
        assert_eq!(found[0].excuse.as_deref(), Some("entry removed by hand"));
        // A third of 2 s, a tenth of it, and the slack.
        let mut story = Story::new(2);
        story.removed("x", 150);
        story.hold(0, "x", 1, 100, 1_900);
        story.hold(1, "x", 2, 200, 300);
        assert!(findings(&story, "overlap")[0].excuse.is_none());
        // That of another name excuses nothing.
        let mut story = Story::new(2);
        story.removed("y", 150);
        story.hold(0, "x", 1, 100, 900);
        story.hold(1, "x", 2, 200, 300);
        assert!(findings(&story, "overlap")[0].excuse.is_none());
        // One after both grants neither.
        let mut story = Story::new(2);
        story.removed("x", 250);
        story.hold(0, "x", 1, 100, 900);
        story.hold(1, "x", 2, 200, 300);
        assert!(findings(&story, "overlap")[0].excuse.is_none());
    }

    #[test]
    fn a_validity_beyond_the_margin_and_a_ttl_cut_short_are_found() {
        let mut story = Story::new(1);
        let number = story.hold(0, "x", 1, 100, 200);
        assert!(findings(&story, "validity").is_empty());
        let (after, until) = (story.ms(101), story.ms(101 + 1_990));
        story.record.attempts[number].looks.push((after, true, Some(until), after));
        assert_eq!(findings(&story, "validity").len(), 1);
        story.record.attempts[number].wanted = story.ms(2_500);
        assert_eq!(findings(&story, "ttl").len(), 1);
    }
}
