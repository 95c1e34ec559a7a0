//! From a lock's name to a path, and back.

use std::fmt::Write;

use lock_core::{LockName, Owner};

/// The folder of a lock: one segment below the root, whatever the name holds.
///
/// Visible ASCII stands for itself but for `/` and `%`; every other byte is `%XX`. So is the first byte of the names that ZooKeeper
/// keeps for itself: `.`, `..` and `zookeeper`.
pub(crate) fn folder(root: &str, name: &LockName) -> String {
    let name = name.as_str();
    let reserved = matches!(name, "." | ".." | "zookeeper");
    let mut path = String::with_capacity(root.len() + 1 + name.len());
    path.push_str(root);
    path.push('/');
    for (i, byte) in name.bytes().enumerate() {
        if byte.is_ascii_graphic() && !matches!(byte, b'/' | b'%') && !(reserved && i == 0) {
            path.push(char::from(byte));
        } else {
            // Writing into a String does not fail.
            let _ = write!(path, "%{byte:02X}");
        }
    }
    path
}

/// The name whose folder this segment is; `None` for one that is nobody's.
pub(crate) fn name(segment: &str) -> Option<LockName> {
    let bytes: Vec<u8> = percent_encoding::percent_decode_str(segment).collect();
    let name = LockName::from_store(std::str::from_utf8(&bytes).ok()?)?;
    (folder("", &name).strip_prefix('/') == Some(segment)).then_some(name)
}

/// What the nodes of an owner start with: the form of Curator's protected nodes.
pub(crate) fn prefix(owner: &Owner) -> String {
    let owner = owner.to_string();
    let (a, b, c, d, e) = (&owner[..8], &owner[8..12], &owner[12..16], &owner[16..20], &owner[20..]);
    format!("_c_{a}-{b}-{c}-{d}-{e}-lock-")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn awkward_names_become_one_plain_segment() {
        for (text, path) in [
            ("order:42", "/r/order:42"),
            ("a/b", "/r/a%2Fb"),
            (".", "/r/%2E"),
            ("..", "/r/%2E."),
            ("...", "/r/..."),
            ("zookeeper", "/r/%7Aookeeper"),
            ("100%", "/r/100%25"),
            ("a b\0🔒", "/r/a%20b%00%F0%9F%94%92"),
        ] {
            assert_eq!(folder("/r", &LockName::new(text).unwrap()), path);
        }
    }

    #[test]
    fn segments_of_others_are_nobodys() {
        for foreign in ["a%2fb", "%41", "%FF", "%zz", "zookeeper", "é"] {
            assert_eq!(name(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn an_owner_is_written_as_a_uuid() {
        let owner: Owner = "00112233445566778899aabbccddeeff".parse().unwrap();
        assert_eq!(prefix(&owner), "_c_00112233-4455-6677-8899-aabbccddeeff-lock-");
    }

    proptest! {
        #[test]
        fn every_name_comes_back(text in ".{1,200}") {
            let lock = LockName::new(&text).unwrap();
            let path = folder("", &lock);
            prop_assert!(path[1..].bytes().all(|b| b.is_ascii_graphic() && b != b'/'));
            prop_assert_eq!(name(&path[1..]), Some(lock));
        }
    }
}
