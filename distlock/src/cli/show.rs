//! What `inspect` and `list` print.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use distlock::{Holder, HolderState, LockName, escaped};
use humantime::{format_duration, format_rfc3339_millis, format_rfc3339_seconds};
use serde_json::{Value, json};

/// A holder in half a sentence, for messages.
pub(crate) fn brief(holder: &Holder) -> String {
    let mut text = match (holder.label.as_deref(), &*holder.owner) {
        (Some(label), _) if !label.is_empty() => escaped(label).to_string(),
        (_, "") => "another".to_owned(),
        (_, owner) => format!("owner {}", escaped(owner)),
    };
    match holder.state {
        HolderState::Foreign => text.push_str(", an entry that another program made"),
        HolderState::Revoked => text.push_str(", revoked"),
        HolderState::Reserved => text.push_str(", a waiter that is about to take it"),
        _ => {}
    }
    if let Some(token) = holder.token {
        // Writing into a text cannot fail.
        let _ = write!(text, ", fencing token {token}");
    }
    match holder.remaining {
        Some(left) => {
            let _ = write!(text, ", for another {} unless renewed", span(left));
        }
        None => text.push_str(", without a time limit"),
    }
    text
}

/// A holder in several lines.
pub(crate) fn full(holder: &Holder, now: SystemTime) -> String {
    let mut text = format!("{}: {}\n", holder.name, holder.state.as_str());
    let mut row = |key: &str, value: String| {
        let _ = writeln!(text, "  {key:<9} {value}");
    };
    if let Some(label) = &holder.label {
        row("label", escaped(label).to_string());
    }
    if !holder.owner.is_empty() {
        row("owner", escaped(&holder.owner).to_string());
    }
    if let Some(token) = holder.token {
        row("token", token.to_string());
    }
    if let Some(since) = holder.since {
        let ago = now.duration_since(since).unwrap_or_default();
        row("since", format!("{} ({} ago)", date(Some(since)).as_deref().unwrap_or("?"), span(ago)));
    }
    match holder.remaining {
        Some(left) => {
            row("until", format!("{} (in {})", date(now.checked_add(left)).as_deref().unwrap_or("?"), span(left)))
        }
        None => row("until", "never: it has no time to live".to_owned()),
    }
    if let Some(waiters) = holder.waiters {
        row("waiters", waiters.to_string());
    }
    text
}

/// A holder in one line of a table.
pub(crate) fn line(holder: &Holder) -> String {
    let token = holder.token.map_or_else(|| "-".to_owned(), |token| token.to_string());
    let left = holder.remaining.map_or_else(|| "-".to_owned(), span);
    let label = holder.label.as_deref().unwrap_or("-");
    format!("{}\t{}\t{token}\t{left}\t{}", holder.name, holder.state.as_str(), escaped(label))
}

/// A holder for scripts. The keys are always the same; what is not known is null.
pub(crate) fn json(holder: &Holder, now: SystemTime) -> Value {
    json!({
        "name": holder.name.as_str(),
        "state": holder.state.as_str(),
        "owner": (!holder.owner.is_empty()).then_some(&holder.owner),
        "label": holder.label,
        "token": holder.token.map(|token| token.get()),
        "since": millis(holder.since),
        "until": millis(holder.remaining.and_then(|left| now.checked_add(left))),
        "remaining_ms": holder.remaining.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
        "waiters": holder.waiters,
    })
}

/// A free name for scripts, with the same keys.
pub(crate) fn json_free(name: &LockName) -> Value {
    json!({
        "name": name.as_str(), "state": "free", "owner": null, "label": null, "token": null,
        "since": null, "until": null, "remaining_ms": null, "waiters": null,
    })
}

/// JSON on one line, in which what a terminal obeys or hides is escaped, as JSON allows: it is read by people, too.
pub(crate) fn json_line(value: &Value) -> String {
    let mut line = String::new();
    for c in value.to_string().chars() {
        // Outside of texts there is nothing but visible ASCII.
        if matches!(c, ' '..='~') || c.escape_debug().len() == 1 {
            line.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing into a text cannot fail.
                let _ = write!(line, "\\u{unit:04x}");
            }
        }
    }
    line.push('\n');
    line
}

/// A store may say anything: a moment that no date can be written for is none.
fn date(time: Option<SystemTime>) -> Option<String> {
    writable(time).map(|time| format_rfc3339_seconds(time).to_string())
}

fn millis(time: Option<SystemTime>) -> Option<String> {
    writable(time).map(|time| format_rfc3339_millis(time).to_string())
}

fn writable(time: Option<SystemTime>) -> Option<SystemTime> {
    /// The end of the year 9999.
    const END: Duration = Duration::from_secs(253_402_300_799);
    time.filter(|time| time.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|since| since < END))
}

/// Milliseconds count below ten seconds; beyond, they are noise.
fn span(span: Duration) -> String {
    let fine = span < Duration::from_secs(10);
    let shown = if fine { Duration::from_millis(span.as_millis() as u64) } else { Duration::from_secs(span.as_secs()) };
    format_duration(shown).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use distlock::FencingToken;

    fn holder() -> Holder {
        let mut holder = Holder::new(LockName::new("a\nb").unwrap(), "0f", HolderState::Held);
        holder.label = Some("web\x1b[2J:7".into());
        holder.token = Some(FencingToken::new(42));
        holder.remaining = Some(Duration::from_millis(12_345));
        holder
    }

    #[test]
    fn foreign_text_is_escaped_and_stays_on_its_line() {
        assert_eq!(brief(&holder()), r"web\u{1b}[2J:7, fencing token 42, for another 12s unless renewed");
        assert_eq!(line(&holder()), "a\\nb\theld\t42\t12s\tweb\\u{1b}[2J:7");
        assert!(full(&holder(), SystemTime::now()).starts_with("a\\nb: held\n"));
    }

    #[test]
    fn whatever_a_store_says_can_be_shown() {
        let ends =
            [Duration::ZERO, Duration::from_secs(253_402_300_799), Duration::from_millis(u64::MAX), Duration::MAX];
        for end in ends {
            let mut holder = holder();
            holder.remaining = Some(end);
            holder.since = SystemTime::UNIX_EPOCH.checked_add(end).or(SystemTime::UNIX_EPOCH.checked_sub(end));
            let now = SystemTime::now();
            let shown = full(&holder, now) + &brief(&holder) + &line(&holder) + &json_line(&json(&holder, now));
            assert!(shown.contains("42"), "{shown}");
        }
    }

    #[test]
    fn json_has_nothing_that_a_terminal_obeys_and_says_the_same() {
        let text: String =
            (0..0x3000).chain(0xfff0..0x10200).chain(0xe0000..0xe0080).filter_map(char::from_u32).collect();
        let value = json!({ "name": text });
        let line = json_line(&value);
        let (line, end) = line.split_at(line.len() - 1);
        assert!(
            end == "\n" && line.chars().all(|c| c.escape_debug().len() == 1 || matches!(c, '"' | '\\' | '\'')),
            "{line}"
        );
        assert_eq!(serde_json::from_str::<Value>(line).unwrap(), value);
    }

    #[test]
    fn free_and_held_have_the_same_keys() {
        let keys = |value: Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(json(&holder(), SystemTime::now())), keys(json_free(&LockName::new("x").unwrap())));
    }
}
