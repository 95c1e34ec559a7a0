//! A door for fuzzing: what this crate reads from a server, from any bytes. No part of the public interface.

use lock_core::LockName;
use redis::Value;

use crate::scripts::{number, parts, text};
use crate::slot::{Keys, Kind, slot};
use crate::view::{holder, meta_ttl};
use crate::{errors, fence};

/// Reads bytes as answers of the server, and as a name.
///
/// # Panics
/// Only by a defect: on bytes that are not read, or on what is read and is wrong.
pub fn read(bytes: &[u8]) {
    let raw = Value::BulkString(bytes.to_vec());
    read_answer(&Value::Array(vec![raw.clone(), raw.clone(), Value::Array(vec![raw.clone(), raw])]));
    if let Ok(answer) = redis::parse_redis_value(bytes) {
        read_answer(&answer);
        if let Err(error) = answer.extract_error() {
            let shown = errors::from_driver(error, "h:1").to_string();
            assert!(!shown.contains(char::is_control), "{shown:?}");
        }
    }
    let _ = fence::parsed(bytes);
    if let Some(name) = std::str::from_utf8(bytes).ok().and_then(LockName::from_store) {
        let keys = Keys::new(&name);
        for kind in [Kind::Meta, Kind::Queue, Kind::Board] {
            let helper = keys.helper(kind);
            assert!(helper != keys.lock() && slot(&helper) == slot(keys.lock()), "{name}");
        }
    }
}

fn read_answer(answer: &Value) {
    let Ok(name) = LockName::new("n") else { return };
    let all = parts(answer);
    for reserved in ["", text(all.first())] {
        let holder = holder(&name, text(all.first()), number(all.get(1)), all.get(2), reserved);
        let _ = holder.since.map(|since| since.elapsed());
        let _ = holder.remaining.map(meta_ttl);
    }
    let shown = errors::unexpected(answer).to_string();
    assert!(shown.len() < 4096 && !shown.contains(char::is_control), "{shown:?}");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::read;
    use crate::RedisConfig;

    proptest! {
        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            read(&bytes);
        }

        #[test]
        fn what_looks_like_an_answer(
            state in "(revoked:)?[0-9a-f]{31,33}", remaining in any::<i64>(), note in "[0-9a-f]{20,60} ?\\PC{0,20}", token in any::<i64>(),
        ) {
            let note = format!("{}{note}", &state[..16]);
            let parts = [&*state, &*remaining.to_string()].map(|part| format!("${}\r\n{part}\r\n", part.len())).concat();
            read(format!("*3\r\n{parts}*2\r\n${}\r\n{note}\r\n:{token}\r\n", note.len()).as_bytes());
        }

        #[test]
        fn what_looks_like_an_error(code in "[A-Z]{0,12}", rest in ".{0,60}") {
            read(format!("-{code} {rest}\r\n").as_bytes());
        }

        #[test]
        fn any_url(text in "(rediss?://)?\\PC{0,60}") {
            let _ = RedisConfig::from_url(text);
        }
    }
}
