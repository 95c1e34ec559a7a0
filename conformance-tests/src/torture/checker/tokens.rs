//! Tokens rise, and the register heeds them.

use std::collections::HashMap;

use super::exclusion::beliefs;
use super::{Finding, Weather};
use crate::torture::record::Record;

/// Whoever asks after another's grant gets a greater token; so does whoever holds after another held; and no token comes twice.
pub(super) fn order(record: &Record, weather: &Weather<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut names: HashMap<&str, Vec<usize>> = HashMap::new();
    for (number, attempt) in record.attempts.iter().enumerate().filter(|(_, attempt)| attempt.granted().is_some()) {
        names.entry(&attempt.name).or_default().push(number);
    }
    let at = |number: usize| &record.attempts[number];
    let mut report = |old: usize, new: usize| {
        let (a, b) = (at(old), at(new));
        let span = (a.answered.unwrap_or(a.asked), b.answered.unwrap_or(b.asked));
        let text = format!("token {} of worker {} came after {} of worker {}", b.token, b.worker, a.token, a.worker);
        let lost = weather.forgets(&a.name, span.0, span.1).find(|_| !record.promises.tokens_survive_loss);
        // One more instant of doubt: who was granted behind the other's back may have been answered late, either of the two.
        let at_once = a.asked > b.answered.unwrap_or(0) || b.asked < span.0;
        let both = at_once.then(|| weather.excuse(a, b).or_else(|| weather.excuse(b, a))).flatten();
        let excuse =
            lost.filter(|fault| fault.scope == crate::torture::Scope::All).map(|fault| fault.fault.clone()).or(both);
        found.push(Finding::new("token", &a.name, span, vec![old, new], text).excused(excuse));
    };
    for grants in names.values() {
        let mut by_grant = grants.clone();
        by_grant.sort_by_key(|grant| at(*grant).answered);
        let mut greatest: Option<usize> = None;
        let mut granted = by_grant.iter().copied().peekable();
        let mut seen: HashMap<u64, usize> = HashMap::new();
        for &new in grants {
            // `grants` is in the order of asking.
            while let Some(old) = granted.next_if(|old| at(*old).answered < Some(at(new).asked)) {
                if greatest.is_none_or(|greatest| at(old).token > at(greatest).token) {
                    greatest = Some(old);
                }
            }
            if let Some(old) = greatest.filter(|old| at(*old).token >= at(new).token) {
                report(old, new);
            } else if let Some(old) = seen.insert(at(new).token, new) {
                report(old, new);
            }
        }
    }
    for grants in beliefs(record).values() {
        for pair in grants.windows(2) {
            // Those that asked one after the other were compared above.
            if at(pair[0]).token > at(pair[1]).token && at(pair[0]).answered >= Some(at(pair[1]).asked) {
                report(pair[0], pair[1]);
            }
        }
    }
    found
}

/// What the register took never falls; and it refused nobody who held the name before and after.
pub(super) fn register(record: &Record, weather: &Weather<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut newest: HashMap<&str, (u64, u64)> = HashMap::new();
    for write in record.writes.iter().filter(|write| write.taken) {
        if let Some((at, token)) = newest.get(&*write.name).filter(|(_, token)| *token > write.token) {
            let text = format!("the register took token {} after {token}", write.token);
            found.push(Finding::new("stale write", &write.name, (*at, write.at), Vec::new(), text));
        }
        let best = newest.entry(&write.name).or_insert((write.at, write.token));
        *best = (write.at, best.1.max(write.token));
    }
    for (number, attempt) in record.attempts.iter().enumerate() {
        for (sent, _, answered) in attempt.writes.iter().filter(|write| !write.1) {
            if attempt.held_until.is_some_and(|until| until > *answered) {
                let excuse = weather.forgets(&attempt.name, attempt.asked, *answered).next();
                let text = format!("token {} was refused while worker {} held the name", attempt.token, attempt.worker);
                let finding = Finding::new("stale write", &attempt.name, (*sent, *answered), vec![number], text);
                found.push(finding.excused(excuse.map(|fault| fault.fault.clone())));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::stories::{Story, findings};
    use crate::torture::record::Guarded;

    #[test]
    fn a_token_that_falls_or_repeats_is_found() {
        let mut story = Story::new(2);
        story.hold(0, "x", 5, 100, 200);
        story.hold(1, "x", 4, 300, 400);
        story.hold(1, "y", 9, 300, 400);
        story.hold(1, "y", 9, 500, 600);
        assert_eq!(findings(&story, "token").len(), 2);
    }

    #[test]
    fn lost_data_excuses_where_that_is_declared() {
        let mut story = Story::new(1);
        story.hold(0, "x", 5, 100, 200);
        story.wiped(250);
        story.hold(0, "x", 1, 300, 400);
        assert_eq!(findings(&story, "token")[0].excuse.as_deref(), Some("server killed"));
        story.record.promises.tokens_survive_loss = true;
        assert!(findings(&story, "token")[0].excuse.is_none());
    }

    #[test]
    fn grants_that_were_asked_for_at_once_may_bear_any_order_until_they_are_held() {
        let mut story = Story::new(2);
        let one = story.hold(0, "x", 5, 100, 200);
        let two = story.hold(1, "x", 4, 300, 400);
        story.record.attempts[two].asked = story.ms(50);
        assert_eq!(findings(&story, "token").len(), 1);
        // The second never saw itself hold it: it may have been granted first.
        story.record.attempts[two].held_until = None;
        assert!(findings(&story, "token").is_empty());
        assert_eq!(story.record.attempts[one].token, 5);
    }

    #[test]
    fn a_register_that_takes_an_older_token_and_one_that_refuses_a_holder_are_found() {
        let mut story = Story::new(1);
        let write = |at, token, taken| Guarded { at, name: "x".into(), token, taken };
        story.record.writes = vec![write(1, 5, true), write(2, 4, false), write(3, 4, true), write(4, 6, true)];
        assert_eq!(findings(&story, "stale write").len(), 1);
        story.record.writes.clear();
        let number = story.hold(0, "x", 5, 100, 200);
        let (sent, answered) = (story.ms(150), story.ms(151));
        story.record.attempts[number].writes.push((sent, false, answered));
        assert_eq!(findings(&story, "stale write").len(), 1);
    }
}
