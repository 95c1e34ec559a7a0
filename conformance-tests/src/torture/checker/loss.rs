//! What is lost stays lost, and its holder is told.

use std::time::Duration;

use super::weather::{seconds, slack};
use super::{Finding, Weather};
use crate::torture::record::{Attempt, Record};

/// After a look that said "not held", or a reason, no look says "held".
pub(super) fn revivals(record: &Record, _: &Weather<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (number, attempt) in record.attempts.iter().enumerate() {
        let told = attempt.lost.as_ref().map_or(u64::MAX, |lost| lost.0);
        let mut ended = None;
        for (at, held, _, after) in &attempt.looks {
            match ended {
                Some(ended) if *held => {
                    let text =
                        format!("token {} of worker {} was lost and is held again", attempt.token, attempt.worker);
                    found.push(Finding::new("revival", &attempt.name, (ended, *after), vec![number], text));
                    break;
                }
                None if !held || *at > told => ended = Some(*at),
                _ => {}
            }
            if *held && *at > told {
                let text = format!("token {} of worker {} told a loss and is held", attempt.token, attempt.worker);
                found.push(Finding::new("revival", &attempt.name, (told, *after), vec![number], text));
                break;
            }
        }
    }
    found
}

/// Whose entry was removed or replaced by hand knows it in time.
pub(super) fn told(record: &Record, weather: &Weather<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for fault in record.faults.iter().filter(|fault| fault.missed.is_none()) {
        let Some(owner) = fault.owner.as_ref() else { continue };
        // What went before the answer came may have been granted to the same owner again.
        let hit = |attempt: &Attempt| attempt.owner == *owner && attempt.answered.is_some_and(|at| at <= fault.from);
        for (number, attempt) in record.attempts.iter().enumerate().filter(|(_, attempt)| hit(attempt)) {
            let by = weather.told_by(attempt, fault.to);
            if let Some(until) = attempt.held_until.filter(|until| *until > by) {
                let text = format!(
                    "{}: worker {} believed in token {} for another {:?}",
                    fault.fault,
                    attempt.worker,
                    attempt.token,
                    Duration::from_nanos(until - fault.to)
                );
                found.push(Finding::new("untold", &attempt.name, (fault.from, until), vec![number], text));
            }
        }
    }
    found
}

/// A mark tells the holder, with its reason, and keeps others out until the lease ends.
pub(super) fn marks(record: &Record, weather: &Weather<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (number, attempt) in record.attempts.iter().enumerate() {
        let Some((asked, marked)) = attempt.marked else { continue };
        let (by, name) = (weather.told_by(attempt, marked), &attempt.name);
        if let Some(until) = attempt.held_until.filter(|until| *until > by) {
            let text = format!(
                "token {} was revoked and worker {} believed in it for another {:?}",
                attempt.token,
                attempt.worker,
                Duration::from_nanos(until - marked)
            );
            found.push(Finding::new("untold", name, (asked, until), vec![number], text));
        }
        // The last validity that was known before the mark: no renewal came after it.
        let before = attempt.looks.iter().take_while(|look| look.0 <= asked).filter_map(|look| look.2).max();
        let Some(end) = before else { continue };
        // Once the holder itself has let go, the next one may enter.
        let closed = attempt.gave_up.map_or(end, |at| at.min(end));
        let reason = attempt
            .lost
            .as_ref()
            .filter(|(at, _)| *at + slack() / 10 < end && !weather.touched(attempt.worker, asked, *at));
        if let Some((at, reason)) = reason.filter(|(_, reason)| reason != "force_released")
            && weather.forgets(name, asked, *at).next().is_none()
        {
            let text = format!("token {} was revoked, and its loss gives the reason '{reason}'", attempt.token);
            found.push(Finding::new("untold", name, (asked, *at), vec![number], text));
        }
        for (other_number, other) in record.attempts.iter().enumerate() {
            let beside = other.name == *name
                && other_number != number
                && other.answered.is_some_and(|at| at > marked && at < closed);
            if beside && other.granted().is_some() && other.held_until.is_some() {
                let excuse = weather.forgets(name, attempt.asked, end).next().map(|fault| fault.fault.clone());
                let text = format!(
                    "token {} was granted {:?} before the end of the revoked token {}",
                    other.token,
                    Duration::from_nanos(end - other.answered.unwrap_or(end)),
                    attempt.token
                );
                found.push(Finding::new("mark", name, (asked, end), vec![number, other_number], text).excused(excuse));
            }
        }
    }
    found
}

/// A release of what is not held any more does not say "released", and the other way round.
pub(super) fn releases(record: &Record, weather: &Weather<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (number, attempt) in record.attempts.iter().enumerate() {
        let (Some((at, answer)), Some(gave_up)) = (&attempt.released, attempt.gave_up) else { continue };
        let gone = record
            .faults
            .iter()
            .filter(|f| f.missed.is_none() && f.owner.as_ref() == Some(&attempt.owner))
            .find(|f| f.to < gave_up && attempt.answered.is_some_and(|at| at <= f.from));
        let marked = attempt.marked.filter(|marked| marked.1 < gave_up);
        if answer == "released" && (gone.is_some() || marked.is_some()) {
            let what = gone.map_or("revoked", |fault| &*fault.fault);
            let text =
                format!("the entry of token {} was gone ({what}), and its release says 'released'", attempt.token);
            found.push(Finding::new("release", &attempt.name, (gave_up, *at), vec![number], text));
        }
        // Long enough before its end that the release cannot have come after it.
        let held = attempt.held_until.is_some() && attempt.lost.is_none() && attempt.until > at + slack();
        let calm = !weather.touched(attempt.worker, gave_up.saturating_sub(seconds(2)), *at);
        if answer == "not held" && held && calm && weather.forgets(&attempt.name, attempt.asked, *at).next().is_none() {
            let text =
                format!("worker {} held token {}, and its release says 'not held'", attempt.worker, attempt.token);
            found.push(Finding::new("release", &attempt.name, (gave_up, *at), vec![number], text));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::stories::{Story, findings};
    use crate::torture::Scope;

    #[test]
    fn a_guard_that_comes_back_is_found() {
        let mut story = Story::new(1);
        let number = story.hold(0, "x", 1, 100, 200);
        let (lost, back) = (story.ms(300), story.ms(301));
        story.record.attempts[number].looks.push((lost, false, None, lost));
        assert!(findings(&story, "revival").is_empty());
        story.record.attempts[number].looks.push((back, true, None, back));
        assert_eq!(findings(&story, "revival").len(), 1);
        let mut story = Story::new(1);
        let number = story.hold(0, "x", 1, 100, 200);
        story.record.attempts[number].lost = Some((story.ms(150), "expired".into()));
        assert_eq!(findings(&story, "revival").len(), 1);
    }

    #[test]
    fn who_is_not_told_of_a_removal_is_found() {
        for (last, count) in [(900, 0), (2_500, 1)] {
            let mut story = Story::new(1);
            let number = story.hold(0, "x", 1, 100, last);
            let owner = story.record.attempts[number].owner.clone();
            story.removed("x", 150).owner = Some(owner);
            assert_eq!(findings(&story, "untold").len(), count, "{last}");
        }
    }

    #[test]
    fn a_line_that_is_cut_gives_the_holder_his_whole_ttl() {
        let mut story = Story::new(1);
        let number = story.hold(0, "x", 1, 100, 1_900);
        let owner = story.record.attempts[number].owner.clone();
        story.removed("x", 150).owner = Some(owner);
        assert_eq!(findings(&story, "untold").len(), 1);
        story.fault("line dark", Scope::Worker(0), 200, 2_000);
        assert!(findings(&story, "untold").is_empty());
    }

    #[test]
    fn a_mark_that_lets_another_in_or_gives_a_wrong_reason_is_found() {
        let mut story = Story::new(2);
        let number = story.hold(0, "x", 1, 100, 200);
        story.record.attempts[number].marked = Some((story.ms(200), story.ms(201)));
        (story.record.attempts[number].released, story.record.attempts[number].gave_up) = (None, None);
        story.record.attempts[number].lost = Some((story.ms(202), "force_released".into()));
        story.hold(1, "x", 2, 2_500, 2_600);
        assert!(findings(&story, "mark").is_empty() && findings(&story, "untold").is_empty());
        story.hold(1, "x", 3, 500, 600);
        assert_eq!(findings(&story, "mark").len(), 1);
        story.record.attempts[number].lost = Some((story.ms(202), "expired".into()));
        assert_eq!(findings(&story, "untold").len(), 1);
    }

    #[test]
    fn a_release_that_lies_is_found() {
        let mut story = Story::new(1);
        let number = story.hold(0, "x", 1, 100, 200);
        let owner = story.record.attempts[number].owner.clone();
        assert!(findings(&story, "release").is_empty());
        story.removed("x", 150).owner = Some(owner);
        assert_eq!(findings(&story, "release").len(), 1);
        let mut story = Story::new(1);
        let number = story.hold(0, "x", 1, 100, 200);
        story.record.attempts[number].released = Some((story.ms(201), "not held".into()));
        assert_eq!(findings(&story, "release").len(), 1);
    }
}
