//! A door for fuzzing: what this crate reads from a file, from any bytes. No part of the public interface.

use lock_core::LockName;

use crate::store::{LeaseRow, NameState, NextRow};

/// Reads bytes as the columns of a row: 32 bytes for its numbers, and its texts from the rest.
///
/// # Panics
/// Only by a defect: on a row that is not read.
pub fn read(bytes: &[u8]) {
    let Some((numbers, texts)) = bytes.split_at_checked(32) else { return };
    let number = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&numbers[at * 8..(at + 1) * 8]);
        i64::from_le_bytes(bytes)
    };
    let text = String::from_utf8_lossy(texts);
    let (owner, label) = text.split_once('\n').unwrap_or((&text, ""));
    let lease =
        LeaseRow { owner: owner.into(), token: number(0), remaining: number(1), label: label.into(), since: number(2) };
    let next = NextRow { owner: owner.into(), since: number(2), remaining: number(3) };
    let Ok(name) = LockName::new("n") else { return };
    for state in [NameState { lease: Some(lease), next: None }, NameState { lease: None, next: Some(next) }] {
        let _ = state.into_holder(&name);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::read;
    use crate::SqliteConfig;

    proptest! {
        #[test]
        fn any_row(
            numbers in prop::array::uniform4(prop_oneof![any::<i64>(), Just(i64::MIN), Just(i64::MAX), -9..9i64]),
            texts in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            bytes.extend(texts);
            read(&bytes);
        }

        #[test]
        fn any_url(text in "(sqlite:/{0,3})?\\PC{0,60}") {
            if let Ok(url) = text.parse()
                && let Ok(config) = SqliteConfig::from_url(&url)
            {
                prop_assert!(config.path().is_absolute());
            }
        }
    }
}
