//! Keys: the lock's own, and helper keys in the same cluster slot that no lock name can reach.

use std::sync::LazyLock;

use lock_core::LockName;

/// A cluster has so many slots.
const SLOTS: usize = 16_384;

/// The keys of one lock.
///
/// A helper key is the name, the byte 0xFF, which no UTF-8 text holds, and a kind; and where the name has no working hash tag,
/// something that brings it into the name's slot.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    name: LockName,
    way: Way,
}

/// What brings a helper key into the slot of its name.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// The name has a hash tag, which serves its helper keys too.
    Same,
    /// The name has no brace: a tag of that slot.
    Tag([u8; 5]),
    /// There is a brace but no tag, so that the whole key counts and no tag of ours would: letters, chosen for this slot.
    Search(usize),
}

/// The kinds of helper keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A hash: the counter `t`, the note of the last grant `h`, the owner that was last revoked `x`.
    Meta = b'm' as isize,
    /// A sorted set: waiters by the time at which they joined, then owners that were given up.
    Queue = b'q' as isize,
    /// A hash: which process each waiter is in, when each process was last alive, and for whom the name was last set aside.
    Board = b'b' as isize,
}

impl Keys {
    pub(crate) fn new(name: &LockName) -> Self {
        let bytes = name.as_str().as_bytes();
        let way = if !bytes.contains(&b'{') {
            Way::Tag(TAGS[slot(bytes)])
        } else if hash_tag(bytes).is_some() {
            Way::Same
        } else {
            Way::Search(slot(bytes))
        };
        Self { name: name.clone(), way }
    }

    pub(crate) fn name(&self) -> &LockName {
        &self.name
    }

    /// The lock itself: the name as it is.
    pub(crate) fn lock(&self) -> &[u8] {
        self.name.as_str().as_bytes()
    }

    /// A helper key.
    pub(crate) fn helper(&self, kind: Kind) -> Vec<u8> {
        let name = self.lock();
        let mut key = Vec::with_capacity(name.len() + 7);
        key.extend_from_slice(name);
        key.extend_from_slice(&[0xFF, kind as u8]);
        match self.way {
            Way::Same => {}
            Way::Tag(tag) => key.extend_from_slice(&tag),
            Way::Search(slot) => {
                let before = crc16(0, &key);
                let fitting = (0..DIGITS.len().pow(4))
                    .map(|n| [36 * 36 * 36, 36 * 36, 36, 1].map(|place| DIGITS[n / place % 36]));
                key.extend(
                    fitting.into_iter().find(|text| crc16(before, text) as usize % SLOTS == slot).unwrap_or_default(),
                );
            }
        }
        key
    }
}

const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// Makes the table of tags, if it is not there yet.
pub(crate) fn prepare() {
    LazyLock::force(&TAGS);
}

/// For each slot a tag that lies in it, such as `{1zp}`.
static TAGS: LazyLock<Vec<[u8; 5]>> = LazyLock::new(|| {
    let digits = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
    let mut tags = vec![[0; 5]; SLOTS];
    for n in 0..64 * 64 * 64 {
        let text = [n / 4096, n / 64 % 64, n % 64].map(|d| digits[d]);
        tags[crc16(0, &text) as usize % SLOTS] = [b'{', text[0], text[1], text[2], b'}'];
    }
    tags
});

/// The slot of a key, by the cluster specification.
pub(crate) fn slot(key: &[u8]) -> usize {
    crc16(0, hash_tag(key).unwrap_or(key)) as usize % SLOTS
}

/// What stands between the first `{` and the first `}` after it, unless that is nothing.
fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|b| *b == b'{')? + 1;
    let length = key[open..].iter().position(|b| *b == b'}')?;
    (length > 0).then(|| &key[open..open + length])
}

/// CRC-16/XMODEM, continued from `crc`.
fn crc16(crc: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(crc, |crc, byte| (crc << 8) ^ CRC_TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

const CRC_TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = (i as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(0, b"123456789"), 0x31C3);
        assert_eq!(slot(b"foo{hash_tag}"), slot(b"hash_tag"));
        assert_eq!(hash_tag(b"foo{}{bar}"), None);
        assert_eq!(hash_tag(b"foo{{bar}}zap"), Some(&b"{bar"[..]));
        assert_eq!(hash_tag(b"foo{bar}{zap}"), Some(&b"bar"[..]));
    }

    #[test]
    fn there_is_a_tag_for_each_slot() {
        for (slot_number, tag) in TAGS.iter().enumerate() {
            assert_eq!(slot(tag), slot_number);
        }
    }

    fn check(name: &str) {
        let keys = Keys::new(&LockName::new(name).unwrap());
        let all = [Kind::Meta, Kind::Queue, Kind::Board].map(|kind| keys.helper(kind));
        for (i, key) in all.iter().enumerate() {
            assert_eq!(slot(key), slot(name.as_bytes()), "{name:?} {key:?}");
            assert!(key.starts_with(name.as_bytes()), "under the same prefix");
            assert!(std::str::from_utf8(key).is_err(), "no name reaches it");
            assert!(all[..i].iter().all(|other| other != key));
        }
    }

    #[test]
    fn odd_braces_stay_in_their_slot() {
        for name in ["plain", "{a}b", "a{b", "}{", "{}x", "a{b}{c}", "{", "}", "{}", "{{}", "{}}", "a{}{b}", "{{a}}"] {
            check(name);
        }
    }

    proptest! {
        #[test]
        fn helper_keys_stand_in_the_slot_of_any_name(name in "[a-c{}é]{1,24}") {
            check(&name);
        }

        #[test]
        fn helper_keys_of_different_names_differ(a in "[ab{}q]{1,6}", b in "[ab{}q]{1,6}") {
            prop_assume!(a != b);
            let meta = |name| Keys::new(&LockName::new(name).unwrap()).helper(Kind::Meta);
            prop_assert_ne!(meta(&a), meta(&b));
        }
    }
}
