//! What the operator sees: holders, lists, revocation.

use std::collections::BTreeSet;
use std::time::{Duration, UNIX_EPOCH};

use lock_core::{ErrorKind, FencingToken, Holder, HolderState, LockError, LockName, Page, Released, Revoke, bounded};
use redis::{Cmd, Value};

use crate::BACKEND;
use crate::backend::Inner;
use crate::connection::Resend;
use crate::errors::unexpected;
use crate::scripts::{INSPECT, REVOKE, number, parts, text};
use crate::slot::{Keys, Kind};

/// The value that takes the owner's place when a lease is revoked.
const MARK: &str = "revoked:";
/// So many of the owner's digits are in the note: 64 bits tell two holders of one name apart.
const OWNER_NOTED: usize = 16;
/// A process is named by 48 random bits.
pub(crate) const PROCESS_DIGITS: usize = 12;
/// Names looked at in one go while listing.
const SCAN_COUNT: u32 = 1000;

impl Inner {
    pub(crate) async fn look(&self, name: &LockName) -> Result<Option<Holder>, LockError> {
        let keys = Keys::new(name);
        let [meta, queue, board] = [Kind::Meta, Kind::Queue, Kind::Board].map(|kind| keys.helper(kind));
        let all: [&[u8]; 4] = [keys.lock(), &meta, &queue, &board];
        let answer = bounded(self.limit, self.link.run(&INSPECT, &all, &[], Resend::Once)).await?;
        let answer = parts(&answer.value);
        if answer.is_empty() {
            return Ok(None);
        }
        let mut holder = holder(name, text(answer.first()), number(answer.get(1)), answer.get(2), text(answer.get(3)));
        holder.waiters = number(answer.get(4)).and_then(|n| u64::try_from(n).ok());
        Ok(Some(holder))
    }

    pub(crate) async fn scan(&self, prefix: &str, page: &Page) -> Result<Vec<Holder>, LockError> {
        let mut names = BTreeSet::new();
        let (mut shards, mut cursor) = (self.link.shards().await?, "0".to_owned());
        while let Some(shard) = shards.last() {
            let mut cmd = Cmd::new();
            cmd.arg("SCAN").arg(&cursor).arg("MATCH").arg(format!("{}*", glob_escaped(prefix)));
            cmd.arg("COUNT").arg(SCAN_COUNT).arg("TYPE").arg("string");
            let answer = bounded(self.limit, self.link.command_at(shard, &cmd)).await?;
            let [next, keys] = parts(&answer) else { return Err(unexpected(&answer)) };
            for key in parts(keys) {
                // A helper key is no UTF-8 and so no name.
                let Value::BulkString(key) = key else { continue };
                if let Some(name) = std::str::from_utf8(key).ok().and_then(LockName::from_store) {
                    names.insert(name);
                }
            }
            cursor = text(Some(next)).to_owned();
            if cursor == "0" {
                shards.pop();
            }
        }
        let mut holders = Vec::new();
        for name in names.into_iter().filter(|name| page.after.as_ref().is_none_or(|after| name > after)) {
            if holders.len() >= page.limit {
                break;
            }
            // A string without a time to live is data, not a lock.
            if let Some(holder) = self.look(&name).await?.filter(|holder| holder.remaining.is_some()) {
                holders.push(holder);
            }
        }
        Ok(holders)
    }

    pub(crate) async fn break_lock(
        &self,
        name: &LockName,
        expect: Option<FencingToken>,
        how: Revoke,
    ) -> Result<Released, LockError> {
        let keys = Keys::new(name);
        let [meta, queue, board] = [Kind::Meta, Kind::Queue, Kind::Board].map(|kind| keys.helper(kind));
        let all: [&[u8]; 4] = [keys.lock(), &meta, &queue, &board];
        let expect = expect.map(|token| token.get().to_string()).unwrap_or_default();
        let how: &[u8] = if how == Revoke::Now { b"now" } else { b"mark" };
        // The lease that is looked at is the one that is broken; another that comes in between is looked at in its turn.
        for _ in 0..3 {
            let answer = bounded(self.limit, self.link.run(&INSPECT, &all, &[], Resend::Once)).await?.value;
            let answer = parts(&answer);
            if answer.is_empty() {
                return Ok(Released::NotHeld);
            }
            let remaining = number(answer.get(1)).unwrap_or(-1);
            if text(answer.get(5)) != "string" || remaining == -1 {
                return Err(LockError::new(
                    ErrorKind::Foreign,
                    "the entry is not a lock's: it has no time to live or is no string",
                )
                .backend(BACKEND)
                .advice("remove it with the server's own tools if nothing needs it"));
            }
            let Some(Value::BulkString(value)) = answer.first() else { return Ok(Released::NotHeld) };
            let meta_ttl = meta_ttl(Duration::from_millis(remaining.unsigned_abs())).to_string();
            let args: [&[u8]; 4] = [value, how, expect.as_bytes(), meta_ttl.as_bytes()];
            let answer = bounded(self.limit, self.link.run(&REVOKE, &all, &args, Resend::Never)).await?.value;
            match text(Some(&answer)) {
                "revoked" => return Ok(Released::Released),
                "other" => return Ok(Released::NotHeld),
                _ => {}
            }
        }
        Ok(Released::NotHeld)
    }
}

/// How long the counter and the holder's note outlive the lock: a week.
pub(crate) fn meta_ttl(ttl: Duration) -> u128 {
    (ttl + Duration::from_secs(7 * 24 * 60 * 60)).as_millis()
}

/// What is noted of a holder: half the owner's digits, the process, the time in milliseconds, the label.
///
/// Short, because the server copies texts of more than 64 bytes once more.
pub(crate) fn note(owner: &str, process: &str, label: &str) -> String {
    let since = UNIX_EPOCH.elapsed().unwrap_or_default().as_millis();
    format!("{}{process}{since:x} {label}", &owner[..OWNER_NOTED])
}

/// The holder, from the lock's value and remaining milliseconds, the note and token of the last grant, and the owner for
/// whom the name was last set aside.
pub(crate) fn holder(
    name: &LockName,
    value: &str,
    remaining: Option<i64>,
    meta: Option<&Value>,
    reserved: &str,
) -> Holder {
    let meta = meta.map(parts).unwrap_or_default();
    let (note, token) = (text(meta.first()), number(meta.get(1)));
    let owner = value.strip_prefix(MARK).unwrap_or(value);
    let noted = note
        .split_at_checked(OWNER_NOTED + PROCESS_DIGITS)
        .filter(|(who, _)| owner.len() == 32 && owner.get(..OWNER_NOTED).is_some_and(|half| who.starts_with(half)));
    let state = if value != owner {
        HolderState::Revoked
    } else if noted.is_some() {
        HolderState::Held
    } else if reserved == owner && !owner.is_empty() {
        HolderState::Reserved
    } else {
        HolderState::Foreign
    };
    let mut holder = Holder::new(name.clone(), owner, state);
    holder.remaining = remaining.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
    if let Some((since, label)) = noted.and_then(|(_, rest)| rest.split_once(' ')) {
        holder.token = token.and_then(|token| u64::try_from(token).ok()).map(FencingToken::new);
        holder.since =
            u64::from_str_radix(since, 16).ok().and_then(|ms| UNIX_EPOCH.checked_add(Duration::from_millis(ms)));
        holder.label = (!label.is_empty()).then(|| label.to_owned());
    }
    holder
}

/// Takes the meaning from the characters that `MATCH` knows.
fn glob_escaped(prefix: &str) -> String {
    let mut pattern = String::with_capacity(prefix.len());
    for c in prefix.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_told_from_a_reservation_a_mark_and_a_stranger() {
        let name = LockName::new("n").unwrap();
        let owner = "00112233445566778899aabbccddeeff";
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let meta = Value::Array(vec![bulk(&note(owner, "0123456789ab", "host 7")), bulk("42")]);
        let held = holder(&name, owner, Some(5), Some(&meta), owner);
        assert_eq!(held.state, HolderState::Held);
        assert_eq!(held.token, Some(FencingToken::new(42)));
        assert_eq!(held.label.as_deref(), Some("host 7"));
        assert!(held.since.is_some_and(|since| since.elapsed().unwrap() < Duration::from_secs(60)));
        let revoked = holder(&name, &format!("revoked:{owner}"), Some(5), Some(&meta), "");
        assert_eq!((revoked.state, revoked.owner.as_str()), (HolderState::Revoked, owner));
        let other = "f".repeat(32);
        assert_eq!(holder(&name, &other, Some(5), Some(&meta), &other).state, HolderState::Reserved);
        let foreign = holder(&name, "data", Some(-1), Some(&meta), "");
        assert_eq!((foreign.state, foreign.token, foreign.remaining), (HolderState::Foreign, None, None));
        assert_eq!(holder(&name, "", Some(-1), Some(&meta), "").state, HolderState::Foreign);
    }

    #[test]
    fn a_prefix_is_taken_by_the_letter() {
        assert_eq!(glob_escaped(r"a*b?[c]\^"), r"a\*b\?\[c\]\\\^");
    }
}
