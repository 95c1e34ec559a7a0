//! What `inspect` shows.

use super::weather::slack;
use super::{Finding, Weather};
use crate::torture::record::{Record, Scope};

/// Who holds is shown, with its token; who has released, or whose lease is over, is not.
pub(super) fn sights(record: &Record, weather: &Weather<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    let owners: std::collections::HashMap<&str, usize> =
        record.attempts.iter().enumerate().map(|(number, attempt)| (&*attempt.owner, number)).collect();
    let expiry = record.promises.expiry() + slack();
    for sight in &record.sights {
        let mut report = |attempts: Vec<usize>, text: String| {
            found.push(Finding::new("view", &sight.name, (sight.asked, sight.answered), attempts, text));
        };
        if let Some(number) = sight.own {
            let own = &record.attempts[number];
            let right = sight.owner.as_ref().is_some_and(|owner| *owner == own.owner || owner.is_empty());
            let token = sight.token.is_none_or(|token| token == own.token);
            if !(right && token && sight.state == "held")
                && weather.forgets(&sight.name, own.asked, sight.answered).next().is_none()
            {
                let shown = format!("{} {:?} {:?}", sight.state, sight.owner, sight.token);
                report(vec![number], format!("{} holds with token {}, and is shown as {shown}", own.owner, own.token));
            }
            continue;
        }
        let Some(owner) = sight.owner.as_deref().filter(|_| sight.state == "held") else { continue };
        // A server that was away may have given what had run out a whole TTL anew.
        let storm =
            weather.global().iter().any(|storm| weather.long_after(*storm) > sight.asked && storm.0 < sight.answered);
        if let Some(&number) = owners.get(owner) {
            let seen = &record.attempts[number];
            let released = seen.released.as_ref().filter(|(at, answer)| answer == "released" && *at < sight.asked);
            if released.is_some() {
                report(vec![number], format!("token {} was released before, and is shown", seen.token));
            } else if !storm && weather.lease_end(seen) + expiry < sight.asked {
                report(vec![number], format!("the lease of token {} is over, and is shown", seen.token));
            }
        }
        let put = record.faults.iter().find(|fault| fault.put.as_ref().is_some_and(|(put, _)| put == owner));
        if let Some((_, end)) =
            put.and_then(|fault| fault.put.as_ref()).filter(|(_, end)| !storm && end + expiry < sight.asked)
            && put.is_some_and(|fault| fault.scope == Scope::Name(sight.name.clone()))
        {
            report(
                Vec::new(),
                format!(
                    "the entry that was put there by hand ended {} ms before, and is shown",
                    (sight.asked - end) / 1_000_000
                ),
            );
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::stories::{Story, findings};
    use crate::torture::Scope;
    use crate::torture::record::Sight;

    fn sight(story: &Story, asked: u64, own: Option<usize>, owner: Option<&str>, token: Option<u64>) -> Sight {
        let state = if owner.is_some() { "held" } else { "free" }.to_owned();
        let (asked, answered) = (story.ms(asked), story.ms(asked + 1));
        Sight { worker: 0, name: "x".into(), asked, answered, own, owner: owner.map(str::to_owned), token, state }
    }

    #[test]
    fn a_holder_that_is_not_shown_or_with_another_token_is_found() {
        for (owner, token, count) in
            [(Some("owner-0"), Some(1), 0), (None, None, 1), (Some("owner-0"), Some(2), 1), (Some("z"), None, 1)]
        {
            let mut story = Story::new(1);
            let number = story.hold(0, "x", 1, 100, 200);
            story.record.sights.push(sight(&story, 150, Some(number), owner, token));
            assert_eq!(findings(&story, "view").len(), count, "{owner:?} {token:?}");
        }
    }

    #[test]
    fn who_has_released_or_run_out_is_not_shown() {
        let mut story = Story::new(1);
        let number = story.hold(0, "x", 1, 100, 200);
        story.record.sights.push(sight(&story, 300, None, Some("owner-0"), Some(1)));
        assert_eq!(findings(&story, "view").len(), 1);
        let attempt = &mut story.record.attempts[number];
        (attempt.released, attempt.gave_up, attempt.lost) = (None, None, Some((2_100_000_000, "expired".into())));
        assert!(findings(&story, "view").is_empty());
        story.record.sights.push(sight(&story, 4_000, None, Some("owner-0"), Some(1)));
        assert_eq!(findings(&story, "view").len(), 1);
    }

    #[test]
    fn an_entry_put_by_hand_is_shown_until_its_end() {
        let mut story = Story::new(1);
        let end = story.ms(2_000);
        story.fault("owner replaced by hand", Scope::Name("x".into()), 100, 100).put = Some(("put".into(), end));
        story.record.sights.push(sight(&story, 1_900, None, Some("put"), None));
        assert!(findings(&story, "view").is_empty());
        story.record.sights.push(sight(&story, 4_000, None, Some("put"), None));
        assert_eq!(findings(&story, "view").len(), 1);
        story.fault("server killed", Scope::All, 2_100, 2_900);
        assert!(findings(&story, "view").is_empty());
        // Not for ever.
        story.record.sights.push(sight(&story, 20_000, None, Some("put"), None));
        assert_eq!(findings(&story, "view").len(), 1);
    }
}
