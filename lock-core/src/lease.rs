//! One granted hold of a name, as a backend gives it to the keeper.

use std::fmt::Debug;

use async_trait::async_trait;
use futures_util::future::BoxFuture;

use crate::{Deadline, FencingToken, LockError};

/// One granted hold of a name. The keeper alone uses it; users hold a [`LockGuard`](crate::LockGuard).
///
/// # Contract
/// - The keeper bounds every call and drops a future whose answer took too long. A dropped `renew` or `release` may or may not
///   have taken effect; the next call must work all the same.
/// - Dropping a lease does nothing. The keeper releases it, or calls [`DistributedLock::abandon`](crate::DistributedLock::abandon).
/// - An implementation has no timer and does not retry: the keeper does.
#[async_trait]
pub trait Lease: Debug + Send + 'static {
    /// The token of this grant; it never changes.
    fn fencing_token(&self) -> FencingToken;

    /// The TTL that the backend really granted, which is never less than what was asked.
    fn effective_ttl(&self) -> std::time::Duration;

    /// Until when the holder may trust the lease: [`Deadline::valid_until`] of the moment *before* the last confirmed request was sent.
    fn valid_until(&self) -> Deadline;

    /// Ready when the backend learns by push that the lease is gone; for ever pending where nothing is pushed.
    ///
    /// It is asked for once, right after the grant, and stands beside `renew` in one `select`.
    fn loss(&self) -> BoxFuture<'static, LostReason>;

    /// Sets the remaining time to the TTL, if the lease is still this owner's: one atomic step that never creates (rules O1, T4).
    ///
    /// # Errors
    /// Any kind that speaks of the way to the backend; "not ours" is [`Renewal::Lost`] and no error.
    ///
    /// # Cancel safety
    /// Dropping it loses the answer only; the request may still take effect.
    async fn renew(&mut self) -> Result<Renewal, LockError>;

    /// Removes the entry, if it is still this owner's: one atomic step, one round trip, idempotent (rule O2).
    ///
    /// # Errors
    /// Any kind that speaks of the way to the backend; it may be called again after one.
    ///
    /// # Cancel safety
    /// Dropping it loses the answer only; the request may still take effect.
    async fn release(&mut self) -> Result<Released, LockError>;
}

/// What a backend answered to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// The remaining time is the whole TTL again; [`Lease::valid_until`] has moved.
    Renewed,
    /// The lease is not this owner's any more.
    Lost(LostReason),
}

/// What a backend answered to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The entry was this owner's and is gone.
    Released,
    /// This owner does not hold the name now: it was released before, has expired, was taken over or removed.
    NotHeld,
}

/// Why a guard was lost, as good as can be known (rule L1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// The time ran out: no renewal was confirmed within the TTL, by the holder's own clock or by the backend's answer.
    Expired,
    /// Another owner holds the name.
    TakenOver,
    /// The entry is gone though its time had not run out: removed by hand, evicted, or its data was lost.
    Removed,
    /// Somebody revoked the lock.
    ForceReleased,
    /// The session or shared lease that carried the entry ended.
    SessionLost,
    /// The upper bound that the request set on the whole hold was reached.
    MaxHold,
    /// The manager was closed.
    Closed,
    /// The task that keeps the lock died, with its runtime or by a panic.
    KeeperDied,
}

impl LostReason {
    /// All reasons, in the order of the contract.
    pub const ALL: [Self; 8] = [
        Self::Expired,
        Self::TakenOver,
        Self::Removed,
        Self::ForceReleased,
        Self::SessionLost,
        Self::MaxHold,
        Self::Closed,
        Self::KeeperDied,
    ];

    /// A fixed word for logs, metrics and scripts, such as `taken_over`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::TakenOver => "taken_over",
            Self::Removed => "removed",
            Self::ForceReleased => "force_released",
            Self::SessionLost => "session_lost",
            Self::MaxHold => "max_hold",
            Self::Closed => "closed",
            Self::KeeperDied => "keeper_died",
        }
    }
}

impl std::fmt::Display for LostReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Expired => "its time ran out before a renewal was confirmed",
            Self::TakenOver => "another owner holds it",
            Self::Removed => "its entry was removed",
            Self::ForceReleased => "it was revoked",
            Self::SessionLost => "the session that carried it ended",
            Self::MaxHold => "the greatest time for holding it was reached",
            Self::Closed => "the lock manager was closed",
            Self::KeeperDied => "the task that kept it died",
        })
    }
}
