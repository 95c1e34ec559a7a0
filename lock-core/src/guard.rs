//! What the user holds.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::hold::{Hold, Lost};
use crate::keeper::Grant;
use crate::mailbox::Command;
use crate::{Deadline, ErrorKind, FencingToken, LockError, LockName, LostReason, Owner, Released};

/// A held lock. It renews itself, tells at once when it is lost, and releases when dropped.
///
/// Dropping it anywhere, in or outside a runtime, in a panic or as the last act of `main`, neither blocks nor panics; the release
/// follows within a second while the process lives. [`release`](Self::release) waits for it, and so does
/// [`LockManager::close`](crate::LockManager::close) for all of them. A guard that is leaked with `std::mem::forget` is renewed
/// until the process ends; [`max_hold`](crate::LockRequest::max_hold) bounds that.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
/// # let locks = lock_core::LockManager::new(std::sync::Arc::new(lock_core::memory::MemoryLock::new()))?;
/// let guard = locks.lock("order:42").acquire().await?;
/// assert!(guard.is_held());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "dropping a guard releases the lock"]
#[clippy::has_significant_drop]
pub struct LockGuard {
    // Releases when it goes.
    grant: Grant,
}

impl LockGuard {
    pub(crate) fn new(grant: Grant) -> Self {
        Self { grant }
    }

    /// The name, without the namespace.
    pub fn name(&self) -> &LockName {
        self.grant.held.name()
    }

    /// The identity of this acquisition.
    pub fn owner(&self) -> Owner {
        self.grant.held.owner()
    }

    /// The number by which a resource refuses a late writer.
    pub fn fencing_token(&self) -> FencingToken {
        self.grant.held.fencing_token()
    }

    /// The TTL that the backend really granted.
    pub fn ttl(&self) -> Duration {
        self.grant.held.ttl()
    }

    /// Whether the lock is held now. Answered from the clock, without I/O; once `false` it stays so.
    pub fn is_held(&self) -> bool {
        self.grant.held.is_held()
    }

    /// How long the lock is held even if no renewal comes through; zero once it is not held.
    pub fn remaining(&self) -> Duration {
        self.grant.held.remaining()
    }

    /// Until when the lock is held even if no renewal comes through; `None` once it is not held.
    pub fn valid_until(&self) -> Option<Deadline> {
        self.grant.held.valid_until()
    }

    /// Ready once the lock is lost, with the reason; at once when it is lost already; never after a clean release.
    ///
    /// The future borrows nothing, and any number of them may wait.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        self.grant.held.lost()
    }

    /// Why the lock was lost, if it was.
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.grant.held.lost_reason()
    }

    /// A cheap, cloneable view for work that runs under this lock.
    pub fn held(&self) -> Held {
        self.grant.held.clone()
    }

    /// Renews now, besides what the keeper does by itself: the remaining time becomes the whole TTL.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] with the reason when the lock is lost, for good; `Unavailable` or `Denied` when the backend did not
    /// confirm: the lock is then held until [`valid_until`](Self::valid_until) all the same.
    ///
    /// # Cancel safety
    /// Dropping it loses the answer only; the renewal may still take effect.
    pub async fn renew(&self) -> Result<(), LockError> {
        let (reply, answer) = oneshot::channel();
        if self.grant.held.0.mailbox.post(Command::Renew(reply))
            && let Ok(answer) = answer.await
        {
            return answer;
        }
        // The keeper has ended: it does so after a loss alone.
        let reason = self.lost_reason().unwrap_or(LostReason::KeeperDied);
        Err(LockError::new(ErrorKind::Lost, format!("the lock was lost: {reason}"))
            .with_lost_reason(reason)
            .operation("renew")
            .name(self.name())
            .advice("stop what it guarded and acquire anew"))
    }

    /// Releases and waits until the backend has confirmed it, and until [`min_hold`](crate::LockRequest::min_hold) is over.
    ///
    /// `NotHeld` says that the lock was not held any more: something that it should have guarded may have run beside another holder.
    ///
    /// # Errors
    /// `Unavailable` or `Denied` when the backend does not confirm within about two operation time-outs. The keeper goes on trying in
    /// the background until the TTL has run out.
    ///
    /// # Cancel safety
    /// Dropping it loses the answer only; the release goes on.
    pub async fn release(self) -> Result<Released, LockError> {
        let (reply, answer) = oneshot::channel();
        self.grant.held.0.release();
        if !self.grant.held.0.mailbox.post(Command::Release(reply)) {
            // The keeper has ended after a loss, and removed what was left.
            return Ok(Released::NotHeld);
        }
        answer.await.unwrap_or_else(|_| {
            Err(LockError::new(ErrorKind::Internal, "the task that keeps the lock died before it was released")
                .operation("release")
                .name(self.name())
                .advice("the TTL takes the entry; was the runtime shut down?"))
        })
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard").field("held", &self.grant.held).finish_non_exhaustive()
    }
}

/// A view of a held lock that work may carry around: it tells, but does not keep the lock held.
#[derive(Clone)]
pub struct Held(pub(crate) Arc<Hold>);

impl Held {
    /// The name, without the namespace.
    pub fn name(&self) -> &LockName {
        &self.0.name
    }

    /// The identity of the acquisition.
    pub fn owner(&self) -> Owner {
        self.0.owner
    }

    /// The number by which a resource refuses a late writer.
    pub fn fencing_token(&self) -> FencingToken {
        self.0.token
    }

    /// The TTL that the backend really granted.
    pub fn ttl(&self) -> Duration {
        self.0.ttl
    }

    /// Whether the lock is held now; `false` after a loss and after the release.
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// How long the lock is held even if no renewal comes through; zero once it is not held.
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// Until when the lock is held even if no renewal comes through; `None` once it is not held.
    pub fn valid_until(&self) -> Option<Deadline> {
        self.0.valid_until()
    }

    /// Ready once the lock is lost, with the reason; never after a clean release.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        Lost::of(&self.0)
    }

    /// Why the lock was lost, if it was.
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.0.lost_reason()
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("name", &self.0.name)
            .field("token", &self.0.token)
            .field("remaining", &self.remaining())
            .field("lost", &self.lost_reason())
            .finish_non_exhaustive()
    }
}
