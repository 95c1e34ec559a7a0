//! What a row says of its name.

use std::time::{Duration, UNIX_EPOCH};

use lock_core::{FencingToken, Holder, HolderState, LockName, Owner};
use sqlx::mysql::MySqlRow;
use sqlx::{FromRow, Row as _};

/// The owner's text of a lock that was revoked.
const REVOKED: &str = "revoked";

/// A row as it was read, with times counted from the moment of the reading.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: Vec<u8>,
    owner: String,
    token: u64,
    expires_in: i64,
    label: String,
    since: i64,
    next_owner: String,
    next_since: i64,
    next_until: i64,
}

impl FromRow<'_, MySqlRow> for Row {
    fn from_row(row: &MySqlRow) -> sqlx::Result<Self> {
        Ok(Self {
            name: row.try_get(0)?,
            owner: row.try_get(1)?,
            token: row.try_get(2)?,
            expires_in: row.try_get(3)?,
            label: row.try_get(4)?,
            since: row.try_get(5)?,
            next_owner: row.try_get(6)?,
            next_since: row.try_get(7)?,
            next_until: row.try_get(8)?,
        })
    }
}

/// A live lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseRow {
    pub(crate) owner: String,
    token: u64,
    pub(crate) remaining: Duration,
    label: String,
    since: Duration,
}

/// The live place of the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NextRow {
    pub(crate) owner: String,
    /// How long it has waited.
    pub(crate) waited: Duration,
    pub(crate) remaining: Duration,
}

/// What the table says about one name; no row says that it is free.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NameState {
    pub(crate) lease: Option<LeaseRow>,
    pub(crate) next: Option<NextRow>,
}

impl Row {
    /// A row of these numbers, in the order of the columns, and of the texts on the lines of `texts`.
    pub(crate) fn of(numbers: [i64; 5], texts: &[u8]) -> Self {
        let mut lines = texts.split(|b| *b == b'\n');
        let mut bytes = || lines.next().unwrap_or_default().to_vec();
        let name = bytes();
        let mut text = || String::from_utf8_lossy(&bytes()).into_owned();
        let [token, expires_in, since, next_since, next_until] = numbers;
        let token = token.cast_unsigned();
        Self {
            name,
            owner: text(),
            token,
            expires_in,
            label: text(),
            since,
            next_owner: text(),
            next_since,
            next_until,
        }
    }

    /// What is left of it so much later.
    pub(crate) fn state(&self, age: Duration) -> NameState {
        let age = micros(age);
        let lives = |until: i64| until > age;
        NameState {
            lease: (!self.owner.is_empty() && lives(self.expires_in)).then(|| LeaseRow {
                owner: self.owner.clone(),
                token: self.token,
                remaining: span(self.expires_in - age),
                label: self.label.clone(),
                since: span(self.since),
            }),
            next: (!self.next_owner.is_empty() && lives(self.next_until)).then(|| NextRow {
                owner: self.next_owner.clone(),
                waited: span(age.saturating_sub(self.next_since)),
                remaining: span(self.next_until - age),
            }),
        }
    }

    /// The live lease, with its name where that is one that this library can have written.
    pub(crate) fn into_holder(self) -> Option<Holder> {
        let name = LockName::from_store(std::str::from_utf8(&self.name).ok()?)?;
        self.state(Duration::ZERO).lease.map(|lease| lease.into_holder(name))
    }
}

impl LeaseRow {
    /// Whether the lock was revoked: nobody holds it while its time runs out.
    pub(crate) fn is_revoked(&self) -> bool {
        self.owner == REVOKED
    }

    fn into_holder(self, name: LockName) -> Holder {
        let (owner, state) = match self.owner.parse::<Owner>() {
            _ if self.is_revoked() => (String::new(), HolderState::Revoked),
            Ok(_) => (self.owner, HolderState::Held),
            Err(_) => (self.owner, HolderState::Foreign),
        };
        let mut holder = Holder::new(name, owner, state);
        holder.token = Some(FencingToken::new(self.token));
        holder.label = Some(self.label).filter(|label| !label.is_empty());
        holder.since = Some(UNIX_EPOCH + self.since);
        holder.remaining = Some(self.remaining);
        holder
    }
}

impl NameState {
    /// Who stands in the way: the holder, or the one that the free name is set aside for.
    pub(crate) fn into_holder(self, name: &LockName) -> Option<Holder> {
        if let Some(lease) = self.lease {
            return Some(lease.into_holder(name.clone()));
        }
        let next = self.next?;
        let mut holder = Holder::new(name.clone(), next.owner, HolderState::Reserved);
        holder.remaining = Some(next.remaining);
        Some(holder)
    }
}

/// A name as the table has it: its bytes, so that different bytes are different names and sort as bytes.
pub(crate) fn key(name: &LockName) -> Vec<u8> {
    name.as_str().into()
}

pub(crate) fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

fn span(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(owner: &str, expires_in: i64, next: &str, next_until: i64) -> Row {
        Row {
            name: b"x".to_vec(),
            owner: owner.into(),
            token: 7,
            expires_in,
            label: String::new(),
            since: 0,
            next_owner: next.into(),
            next_since: -1_000,
            next_until,
        }
    }

    #[test]
    fn what_has_run_out_or_was_released_is_free() {
        for (row, age, held, stood) in [
            (row("a", 100, "", 0), 0, true, false),
            (row("a", 100, "", 0), 100, false, false),
            (row("", 100, "b", 50), 0, false, true),
            (row("", 100, "b", 50), 50, false, false),
        ] {
            let state = row.state(Duration::from_micros(age));
            assert_eq!((state.lease.is_some(), state.next.is_some()), (held, stood), "{row:?} {age}");
        }
    }

    #[test]
    fn a_mark_shows_no_owner() {
        let owner = "0123456789abcdef0123456789abcdef";
        for (text, shown, state) in [
            (owner, owner, HolderState::Held),
            ("revoked", "", HolderState::Revoked),
            ("bob", "bob", HolderState::Foreign),
        ] {
            let holder = row(text, 100, "", 0).into_holder().unwrap();
            assert_eq!((holder.owner.as_str(), holder.state), (shown, state));
        }
    }
}
