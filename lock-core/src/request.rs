//! What the keeper asks of a backend.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::{Clock, Deadline, LockName, Owner, Ttl};

/// One request for a name. The same request is made again after an error, with the same owner, so that a backend recognises
/// an entry of its own (rule U2).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AcquireRequest {
    /// What to lock, namespace included.
    pub name: LockName,
    /// Who asks. New for each acquisition.
    pub owner: Owner,
    /// How long the lease shall live when it is not renewed.
    pub ttl: Ttl,
    /// How long to wait for it.
    pub wait: Wait,
    /// Shown by `inspect`; at most [`AcquireRequest::MAX_LABEL_BYTES`] bytes.
    pub label: Arc<str>,
    /// Whether the keeper will renew the lease. A backend whose leases are kept alive together gives one of its own where not.
    pub renewed: bool,
    /// The bound on each single request to the server, connecting included.
    pub operation_timeout: Duration,
    /// The clock by which the lease's validity is dated.
    pub clock: Clock,
    /// Tells a waiting backend to give up.
    pub cancel: Cancellation,
}

impl AcquireRequest {
    /// The greatest length of a label, in bytes; a longer one is cut by the request builder.
    pub const MAX_LABEL_BYTES: usize = 255;
    /// The default bound on a single request to the server: 2 s.
    pub const OPERATION_TIMEOUT: Duration = Duration::from_secs(2);

    /// A request that does not wait, with the default TTL and bounds, no label and the system's clock.
    pub fn new(name: LockName, owner: Owner) -> Self {
        Self {
            name,
            owner,
            ttl: Ttl::DEFAULT,
            wait: Wait::Never,
            label: "".into(),
            renewed: true,
            operation_timeout: Self::OPERATION_TIMEOUT,
            clock: Clock::system(),
            cancel: Cancellation::new(),
        }
    }

    /// Whether waiting is over: the limit has passed, or the request was cancelled.
    pub fn is_over(&self) -> bool {
        self.cancel.is_cancelled()
            || match self.wait {
                Wait::Never => false,
                Wait::Until(deadline) => self.clock.has_passed(deadline),
                Wait::Forever => false,
            }
    }

    /// Ready when waiting is over: the limit has passed, or the request was cancelled. For [`Wait::Never`] at once.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub async fn over(&self) {
        match self.wait {
            Wait::Never => {}
            Wait::Until(deadline) => {
                let _ = tokio::time::timeout(self.clock.until(deadline), self.cancel.cancelled()).await;
            }
            Wait::Forever => self.cancel.cancelled().await,
        }
    }
}

/// How long an acquisition waits for a name that another holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all: one look, and the answer.
    Never,
    /// Until this moment on the request's clock.
    Until(Deadline),
    /// Without limit.
    Forever,
}

/// Tells a backend that nobody waits for its answer any more. Once set it stays set.
#[derive(Clone, Debug, Default)]
pub struct Cancellation(CancellationToken);

impl Cancellation {
    /// One that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets it, for all clones.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// Whether it is set.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Ready when it is set.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub async fn cancelled(&self) {
        self.0.cancelled().await;
    }
}
