//! The scripts, and what they answer.

use std::sync::LazyLock;

use redis::Value;

use crate::connection::Script;

macro_rules! script {
    ($name:ident, $($file:literal),+) => {
        script!($name, Script::new, $($file),+);
    };
    ($name:ident, $make:path, $($file:literal),+) => {
        pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| $make(concat!($(include_str!(concat!("lua/", $file, ".lua"))),+)));
    };
}

/// Whether this user may run scripts at all.
pub(crate) static PROBE: LazyLock<Script> = LazyLock::new(|| Script::new("return 1"));
script!(TAKE, Script::counting, "take");
script!(ACQUIRE, Script::counting, "common", "acquire");
script!(POLL, "common", "poll");
// The short way first: what is not run is not paid for.
script!(RELEASE, "release", "common", "release_queued");
script!(DECLINE, "common", "decline");
script!(RENEW, "renew");
script!(INSPECT, "inspect");
script!(REVOKE, "common", "revoke");

/// An answer's text; empty where it is none.
pub(crate) fn text(value: Option<&Value>) -> &str {
    match value {
        Some(Value::BulkString(bytes)) => std::str::from_utf8(bytes).unwrap_or("\u{fffd}"),
        Some(Value::SimpleString(text)) => text,
        _ => "",
    }
}

/// An answer's number.
pub(crate) fn number(value: Option<&Value>) -> Option<i64> {
    match value {
        Some(Value::Int(number)) => Some(*number),
        other => text(other).parse().ok(),
    }
}

/// An answer's parts; none where it has none.
pub(crate) fn parts(value: &Value) -> &[Value] {
    match value {
        Value::Array(parts) => parts,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_in_each_form_that_the_protocol_has() {
        let answer =
            Value::Array(vec![Value::BulkString(b"granted".to_vec()), Value::Int(7), Value::BulkString(b"8".to_vec())]);
        let parts = parts(&answer);
        assert_eq!(text(parts.first()), "granted");
        assert_eq!((number(parts.get(1)), number(parts.get(2)), number(parts.get(3))), (Some(7), Some(8), None));
        assert_eq!(text(Some(&Value::Nil)), "");
    }
}
