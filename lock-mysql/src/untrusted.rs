//! A door for fuzzing: what this crate reads from a server, from any bytes. No part of the public interface.

use std::time::Duration;

use lock_core::LockName;

use crate::row::Row;

/// Reads bytes as the columns of a row: 40 bytes for its numbers, and its texts from the rest.
///
/// # Panics
/// Only by a defect: on a row that is not read.
pub fn read(bytes: &[u8]) {
    let Some((numbers, texts)) = bytes.split_at_checked(40) else { return };
    let number = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&numbers[at * 8..(at + 1) * 8]);
        i64::from_le_bytes(bytes)
    };
    let row = Row::of(std::array::from_fn(number), texts);
    let Ok(name) = LockName::new("n") else { return };
    for age in [Duration::ZERO, Duration::from_secs(1), Duration::MAX] {
        let state = row.state(age);
        let waited = state.next.as_ref().map_or(Duration::ZERO, |next| next.waited + next.remaining);
        let holder = state.into_holder(&name);
        let _ = (waited, holder);
    }
    let _ = row.into_holder();
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::read;
    use crate::MysqlConfig;

    proptest! {
        #[test]
        fn any_row(
            numbers in prop::array::uniform5(prop_oneof![any::<i64>(), Just(i64::MIN), Just(i64::MAX), -9..9i64]),
            texts in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            bytes.extend(texts);
            read(&bytes);
        }

        #[test]
        fn any_url(text in "(mysql://)?\\PC{0,60}") {
            let _ = MysqlConfig::from_url(text);
        }
    }
}
