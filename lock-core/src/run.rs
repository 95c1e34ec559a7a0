//! Work that runs under a lock and is dropped when the lock is lost.

use crate::{Held, LockError, LockName, LockRequest, LostReason, Released};

/// Why [`LockRequest::run`] has no result of the work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The lock was not acquired; the work was never started.
    #[error(transparent)]
    NotAcquired(#[from] LockError),
    /// The lock was lost while the work ran; the work was dropped where it stood.
    #[error("lock '{name}' was lost while the work ran: {reason}")]
    Lost {
        /// The name.
        name: LockName,
        /// Why it was lost.
        reason: LostReason,
    },
}

/// What [`LockRequest::run_released`] answers: the work's result, and beside it what became of the release.
#[derive(Debug)]
#[non_exhaustive]
pub struct Ran<T> {
    /// What the work answered.
    pub value: T,
    /// What became of the release. `NotHeld` says that the lock was lost just when the work ended.
    pub release: Result<Released, LockError>,
}

impl LockRequest {
    /// Acquires, runs the work while the lock is held, releases, and answers what the work answered.
    ///
    /// A problem at the release is logged and does not take the place of the result; [`run_released`](Self::run_released) returns it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = lock_core::LockManager::new(std::sync::Arc::new(lock_core::memory::MemoryLock::new()))?;
    /// let order = String::from("42");
    /// let shipped = locks
    ///     .lock("order:42")
    ///     .run(|held| {
    ///         let order = &order;
    ///         async move { format!("order {order} with token {}", held.fencing_token()) }
    ///     })
    ///     .await?;
    /// assert!(shipped.starts_with("order 42"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`RunError::NotAcquired`] with the errors of [`acquire`](Self::acquire); [`RunError::Lost`] when the lock was lost first.
    ///
    /// # Cancel safety
    /// Dropping it drops the work and releases the lock in the background.
    pub async fn run<F, Fut>(self, work: F) -> Result<Fut::Output, RunError>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future,
    {
        let ran = self.run_released(work).await?;
        if let Err(error) = ran.release {
            tracing::warn!(%error, "the work is done, but its lock was not released in order");
        }
        Ok(ran.value)
    }

    /// As [`run`](Self::run), and tells what became of the release.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub async fn run_released<F, Fut>(self, work: F) -> Result<Ran<Fut::Output>, RunError>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future,
    {
        let guard = self.acquire().await?;
        let value = {
            let mut work = std::pin::pin!(work(guard.held()));
            let mut lost = std::pin::pin!(guard.lost());
            // The loss is looked at first: a result that came after it was not guarded.
            std::future::poll_fn(|cx| {
                if let std::task::Poll::Ready(reason) = lost.as_mut().poll(cx) {
                    return std::task::Poll::Ready(Err(reason));
                }
                work.as_mut().poll(cx).map(Ok)
            })
            .await
        };
        match value {
            Ok(value) => Ok(Ran { value, release: guard.release().await }),
            Err(reason) => Err(RunError::Lost { name: guard.name().clone(), reason }),
        }
    }
}
