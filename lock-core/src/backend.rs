//! The contract that a backend keeps.

use std::fmt::Debug;

use async_trait::async_trait;

use crate::{
    AcquireRequest, Capabilities, Diagnosis, FencingToken, Holder, Lease, LockError, LockName, Owner, Page, Released,
    Revoke,
};

/// A backend: what a store must do to carry locks. Users meet it as a [`LockManager`](crate::LockManager).
///
/// # Contract
/// The numbered rules are in [`contract`](crate::contract). In short, for whoever writes one:
/// - every call that changes an entry is one atomic step that compares the owner (O1);
/// - nothing is created but by `acquire`, nothing is revived (T4);
/// - a backend has no timer for renewal, no retry and no back-off: the keeper has them. While it waits it bounds each request to its
///   server with [`bounded`](crate::bounded);
/// - there are no default methods, so that a wrapper cannot forget one.
#[async_trait]
pub trait DistributedLock: Debug + Send + Sync + 'static {
    /// What this backend declares. Constant over its life.
    fn capabilities(&self) -> &Capabilities;

    /// Acquires, waiting as long as [`AcquireRequest::wait`] allows and until [`AcquireRequest::cancel`] is set.
    ///
    /// `Busy` means that the name was seen held by another and that this request has left nothing behind: no entry and no place in a queue.
    /// After an error the keeper either makes the same request again, which then recognises what its forerunner left (U2) and keeps
    /// its place in the queue, or calls [`abandon`](Self::abandon).
    ///
    /// # Errors
    /// Any kind but `Timeout`, `Lost`, `NotHeld` and `Closed`. [`LockError::effect`] tells whether an entry may have been left.
    ///
    /// # Cancel safety
    /// Dropping it may leave an entry or a place in a queue; [`abandon`](Self::abandon) removes both.
    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition, LockError>;

    /// Removes whatever an acquisition of this owner left or may still leave: its entry, its place in the queue, and a request that is
    /// still on its way (U1). The owner is dead from here on.
    ///
    /// # Errors
    /// `Unavailable`, `Denied`, `Internal`; it may be called again.
    ///
    /// # Cancel safety
    /// Dropping it loses the answer only; call it again.
    async fn abandon(&self, name: &LockName, owner: &Owner) -> Result<Released, LockError>;

    /// Who holds the name now; `None` when it is free.
    ///
    /// # Errors
    /// `Unavailable`, `Denied`, `Foreign`, `Internal`.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    async fn inspect(&self, name: &LockName) -> Result<Option<Holder>, LockError>;

    /// The held names that start with `prefix`, sorted by their bytes, a page at a time. A page shorter than its limit is the last.
    ///
    /// # Errors
    /// `Unavailable`, `Denied`, `Unsupported`, `Internal`.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    async fn list(&self, prefix: &str, page: Page) -> Result<Vec<Holder>, LockError>;

    /// Breaks a lock (O3), if `expect` is `None` or is the token of the present lease.
    ///
    /// # Errors
    /// `Unavailable`, `Denied`, `Foreign`, `Unsupported`, `Internal`. A name that is free, or whose token is another, is `NotHeld` and no error.
    ///
    /// # Cancel safety
    /// Dropping it loses the answer only; the lock may or may not be revoked.
    async fn revoke(&self, name: &LockName, expect: Option<FencingToken>, how: Revoke) -> Result<Released, LockError>;

    /// Looks at the server's state and settings.
    ///
    /// # Errors
    /// `Unavailable`, `Denied`, `Internal`.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    async fn diagnose(&self) -> Result<Diagnosis, LockError>;

    /// Ends connections and heart-beats. The keeper has ended all leases before.
    ///
    /// # Errors
    /// `Unavailable`, `Internal`; the backend is closed all the same.
    ///
    /// # Cancel safety
    /// Dropping it may leave connections to be closed by the operating system.
    async fn close(&self) -> Result<(), LockError>;
}

/// What became of a request.
#[derive(Debug)]
pub enum Acquisition {
    /// The name is this owner's.
    Granted(Box<dyn Lease>),
    /// Another holds it, or a waiter stands before this request; who, where that is known.
    Busy(Option<Holder>),
}
