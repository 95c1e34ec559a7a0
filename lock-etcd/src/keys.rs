//! Where things stand in the store, and what an entry says.

use std::time::{SystemTime, UNIX_EPOCH};

use etcd_client::KeyValue;
use lock_core::{LockName, Owner};

/// What all contenders of a name start with.
pub(crate) fn folder(name: &LockName) -> Vec<u8> {
    format!("{}/", name.as_str()).into_bytes()
}

/// The key of one contender. The lease is not part of it: a waiter's key moves to another lease when it wins.
pub(crate) fn entry(name: &LockName, owner: &Owner) -> Vec<u8> {
    format!("{}/{owner}", name.as_str()).into_bytes()
}

/// What all keys beside the entries start with. 0xFF never occurs in UTF-8, so no name reaches them.
pub(crate) const HELPERS: &[u8] = b"\xffdistlock/";

/// The key whose loss makes late requests on this lease fail.
pub(crate) fn sentinel(lease: i64) -> Vec<u8> {
    let mut key = HELPERS.to_vec();
    key.extend(format!("{lease:016x}").bytes());
    key
}

/// The contender's own part of its key, if this is one: a key right below the folder that a lease will end.
pub(crate) fn contender<'a>(folder: &[u8], kv: &'a KeyValue) -> Option<&'a str> {
    contender_at(folder, kv.key(), kv.lease())
}

pub(crate) fn contender_at<'a>(folder: &[u8], key: &'a [u8], lease: i64) -> Option<&'a str> {
    let part = std::str::from_utf8(key.strip_prefix(folder)?).ok()?;
    (lease != 0 && !part.is_empty() && !part.contains('/')).then_some(part)
}

/// The name of which a key is a contender, and its own part. Other programs keep keys on leases too: only this library's form, and the
/// one of etcd's own locks (the lease in hexadecimal), are taken for locks.
pub(crate) fn lock_of(kv: &KeyValue) -> Option<(LockName, &str)> {
    lock_at(kv.key(), kv.lease())
}

pub(crate) fn lock_at(key: &[u8], lease: i64) -> Option<(LockName, &str)> {
    let (name, part) = std::str::from_utf8(key).ok()?.rsplit_once('/')?;
    let ours = part.parse::<Owner>().is_ok();
    (lease != 0 && (ours || part == format!("{lease:x}"))).then(|| Some((LockName::from_store(name)?, part))).flatten()
}

/// What an entry of this library says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Waiting,
    Held,
    Revoked,
}

impl State {
    const ALL: [(Self, &str); 3] = [(Self::Waiting, "waiting"), (Self::Held, "held"), (Self::Revoked, "revoked")];

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(state, _)| *state == self).map_or("", |(_, word)| word)
    }
}

/// An entry's value: its state, the time of writing in milliseconds for showing, and the label.
pub(crate) fn value(state: State, label: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    format!("{} {now} {label}", state.word())
}

/// Puts the mark of a revocation into a value, and keeps the rest.
pub(crate) fn marked(old: &[u8]) -> Vec<u8> {
    let rest = old.iter().position(|b| *b == b' ').map_or(&b" 0 "[..], |at| &old[at..]);
    [State::Revoked.word().as_bytes(), rest].concat()
}

/// State, time and label of a value; `None` when it is not of this library's form.
pub(crate) fn parsed(value: &[u8]) -> Option<(State, u64, &str)> {
    let text = std::str::from_utf8(value).ok()?;
    let mut parts = text.splitn(3, ' ');
    let word = parts.next()?;
    let (state, _) = State::ALL.into_iter().find(|(_, known)| *known == word)?;
    Some((state, parts.next()?.parse().ok()?, parts.next().unwrap_or("")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_says_what_it_was_told() {
        let text = value(State::Held, "host 7 é");
        let (state, since, label) = parsed(text.as_bytes()).unwrap();
        assert_eq!((state, label), (State::Held, "host 7 é"));
        assert!(since > 1_700_000_000_000);
        let mark = marked(text.as_bytes());
        assert_eq!(parsed(&mark), Some((State::Revoked, since, "host 7 é")));
        assert_eq!(parsed(&marked(b"")).map(|(state, ..)| state), Some(State::Revoked));
        assert_eq!(parsed(b"data"), None);
    }

    #[test]
    fn keys_of_different_names_differ() {
        let owner = "00112233445566778899aabbccddeeff".parse::<Owner>().unwrap();
        let names = ["a", "a/", "a/b", "a//b", "/a", "a\0", "\u{10ffff}"].map(|name| LockName::new(name).unwrap());
        let keys: std::collections::HashSet<_> = names.iter().map(|name| entry(name, &owner)).collect();
        assert_eq!(keys.len(), names.len());
        assert!(names.iter().all(|name| entry(name, &owner).starts_with(&folder(name))));
        assert!(std::str::from_utf8(&sentinel(7)).is_err());
    }
}
