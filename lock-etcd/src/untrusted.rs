//! A door for fuzzing: what this crate reads from a server, from any bytes. No part of the public interface.

use crate::{fence, keys};

/// Reads bytes as a key and as a value.
///
/// # Panics
/// Only by a defect: on bytes that are not read, or on what is read and does not come back.
pub fn read(bytes: &[u8]) {
    if let Some((_, since, label)) = keys::parsed(bytes) {
        let mark = keys::marked(bytes);
        assert_eq!(keys::parsed(&mark), Some((keys::State::Revoked, since, label)));
    }
    let _ = keys::parsed(&keys::marked(bytes));
    for lease in [0, 1, i64::MAX, i64::MIN] {
        if let Some((name, part)) = keys::lock_at(bytes, lease) {
            assert_eq!(keys::contender_at(&keys::folder(&name), bytes, lease), Some(part));
        }
    }
    let _ = fence::parsed(bytes);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::read;
    use crate::EtcdConfig;

    proptest! {
        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            read(&bytes);
        }

        #[test]
        fn what_looks_like_an_entry(word in "(waiting|held|revoked|[a-z]{0,5}) ?", since in "[-+0-9]{0,25}", label in "( \\PC{0,40})?") {
            read(format!("{word}{since}{label}").as_bytes());
        }

        #[test]
        fn what_looks_like_a_key(name in "\\PC{0,700}", part in "(/[0-9a-f]{0,33})?") {
            read(format!("{name}{part}").as_bytes());
        }

        #[test]
        fn any_url(text in "(etcds?://)?\\PC{0,60}") {
            let _ = EtcdConfig::from_url(text);
        }
    }
}
