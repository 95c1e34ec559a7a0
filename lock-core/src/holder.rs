//! What the operator's view shows: holders, pages, revocation.

use std::time::{Duration, SystemTime};

use crate::{FencingToken, LockName};

/// Who holds a name, as far as the backend knows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The name.
    pub name: LockName,
    /// The owner's text as stored: 32 hexadecimal digits for ours, anything for another library's entry; empty where none is shown.
    pub owner: String,
    /// What kind of entry it is.
    pub state: HolderState,
    /// The token of the grant, where the entry bears one.
    pub token: Option<FencingToken>,
    /// What the holder said of itself.
    pub label: Option<String>,
    /// When the lease was granted, for showing only.
    pub since: Option<SystemTime>,
    /// How long the lease lives if it is not renewed; `None` when the entry has no time to live.
    pub remaining: Option<Duration>,
    /// How many wait for the name, where that is known.
    pub waiters: Option<u64>,
}

impl Holder {
    /// A holder of whom only name, owner and state are known.
    pub fn new(name: LockName, owner: impl Into<String>, state: HolderState) -> Self {
        Self { name, owner: owner.into(), state, token: None, label: None, since: None, remaining: None, waiters: None }
    }
}

/// What kind of entry stands under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HolderState {
    /// A live lease of this library.
    Held,
    /// Free, but set aside for a waiter that has been woken.
    Reserved,
    /// The lease was revoked; its time runs out without an owner.
    Revoked,
    /// An entry that another library or a person made.
    Foreign,
}

impl HolderState {
    /// A fixed word for scripts, such as `held`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Reserved => "reserved",
            Self::Revoked => "revoked",
            Self::Foreign => "foreign",
        }
    }
}

/// Which part of a list to answer. Lists are sorted by the bytes of the name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    /// Only names after this one; `None` starts at the beginning.
    pub after: Option<LockName>,
    /// At most so many.
    pub limit: usize,
}

impl Page {
    /// The first page of at most `limit` names.
    pub fn first(limit: usize) -> Self {
        Self { after: None, limit }
    }

    /// The page that follows `last`.
    pub fn after(last: LockName, limit: usize) -> Self {
        Self { after: Some(last), limit }
    }
}

/// How to break a lock (rule O3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Revoke {
    /// Replace the owner by a mark and keep the remaining time: the holder learns of it, and nobody enters beside it.
    Mark,
    /// Remove the entry at once: somebody else may enter while the old holder still believes itself held.
    Now,
}
