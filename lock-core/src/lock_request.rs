//! The builder of one acquisition.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::keeper::{Grant, HoldPlan, Keeper};
use crate::manager::Defaults;
use crate::shared::Shared;
use crate::{AcquireRequest, Cancellation, Effect, ErrorKind, LockError, LockGuard, LockName, Owner, Ttl, Wait};

/// A request for one lock: how long it lives, how long to wait, how to keep it. Awaiting one of its ends sends it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
/// # let locks = lock_core::LockManager::new(std::sync::Arc::new(lock_core::memory::MemoryLock::new()))?;
/// use std::time::Duration;
/// let guard = locks
///     .lock("order:42")
///     .ttl(Duration::from_secs(10))
///     .wait(Duration::from_secs(5))
///     .label("shipping, host 7")
///     .acquire()
///     .await?;
/// # drop(guard); Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a request does nothing until it is acquired"]
pub struct LockRequest {
    shared: Arc<Shared>,
    name: String,
    ttl: Duration,
    wait: Option<Duration>,
    plan: HoldPlan,
    label: Option<String>,
}

impl LockRequest {
    pub(crate) fn new(shared: Arc<Shared>, defaults: Defaults, name: String) -> Self {
        let plan = HoldPlan { auto_renew: true, max_hold: None, min_hold: Duration::ZERO };
        Self { shared, name, ttl: defaults.ttl.get(), wait: defaults.wait, plan, label: None }
    }

    /// How long the lock lives when it is not renewed: 10 ms to 365 days, or what the backend allows. Rounded up to milliseconds.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long [`acquire`](Self::acquire) and [`run`](Self::run) wait, connecting included. More than the clock can count is no limit.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = Some(limit);
        self
    }

    /// Waits without limit.
    pub fn wait_forever(mut self) -> Self {
        self.wait = None;
        self
    }

    /// Whether the lock is renewed at each third of its TTL; it is by default. Without, it is lost when its TTL is over, unless
    /// [`LockGuard::renew`] is called.
    pub fn auto_renew(mut self, renew: bool) -> Self {
        self.plan.auto_renew = renew;
        self
    }

    /// The greatest time for holding the lock: after that it is lost with [`LostReason::MaxHold`](crate::LostReason::MaxHold). No bound by default.
    pub fn max_hold(mut self, span: Duration) -> Self {
        self.plan.max_hold = Some(span);
        self
    }

    /// The least time from the grant until the name is free again, however early the guard goes. For short jobs on machines whose clocks
    /// differ. A process that ends before leaves the rest to the TTL.
    pub fn min_hold(mut self, span: Duration) -> Self {
        self.plan.min_hold = span;
        self
    }

    /// What `inspect` shows of this holder; host and process id by default. Cut after 255 bytes.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Acquires, waiting as long as the limit allows.
    ///
    /// # Errors
    /// `InvalidName`, `InvalidTtl`: nothing was sent. `Timeout`: another held it, and [`LockError::holder`] may say who.
    /// `Unavailable`, `Denied`, `Foreign`, `Config`, `Closed`, `Internal`. After any of them nothing is held; what an unclear request may
    /// have left is removed in the background.
    ///
    /// # Cancel safety
    /// Dropping it gives up the place in the queue and leaves nothing behind.
    pub async fn acquire(self) -> Result<LockGuard, LockError> {
        let wait = match self.wait {
            None => Wait::Forever,
            Some(limit) => match self.shared.clock.now().after(limit) {
                crate::Deadline::NEVER => Wait::Forever,
                deadline => Wait::Until(deadline),
            },
        };
        match self.send(wait)?.await {
            Ok(Ok(Some(grant))) => Ok(LockGuard::new(grant)),
            Ok(Err(error)) => Err(error),
            // `None` answers a request that does not wait; to this one it would be a defect.
            Ok(Ok(None)) => Err(keeper_died()),
            Err(_) => Err(keeper_died()),
        }
    }

    /// Acquires if the name is free; `None` when another holds it or waits for it. Answers within the operation time-out.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), without `Timeout`.
    ///
    /// # Cancel safety
    /// Dropping it leaves nothing behind.
    pub async fn try_acquire(self) -> Result<Option<LockGuard>, LockError> {
        match self.send(Wait::Never)?.await {
            Ok(answer) => Ok(answer?.map(LockGuard::new)),
            Err(_) => Err(keeper_died()),
        }
    }

    /// Checks everything before any I/O, then hands the request to a keeper.
    fn send(self, wait: Wait) -> Result<oneshot::Receiver<Result<Option<Grant>, LockError>>, LockError> {
        let shared = self.shared;
        let capabilities = shared.backend.capabilities();
        let backend = capabilities.backend;
        let name = LockName::new(&self.name).map_err(|e| e.backend(backend).operation("acquire"))?;
        let in_context = |e: LockError| e.backend(backend).operation("acquire").name(&name);
        let ttl = Ttl::new(self.ttl)
            .and_then(|ttl| Ttl::within(ttl.get(), Ttl::MIN, capabilities.max_ttl))
            .map_err(in_context)?;
        if shared.closing.is_cancelled() {
            let error = LockError::new(ErrorKind::Closed, "the lock manager was closed").advice("connect anew");
            return Err(in_context(error));
        }
        if wait == Wait::Forever && shared.holds(&name) {
            tracing::warn!(lock = %name, "waiting without limit for a lock that this process holds itself");
        }
        let request = AcquireRequest {
            owner: Owner::random().map_err(in_context)?,
            name: name.clone(),
            ttl,
            wait,
            label: self.label.map_or_else(default_label, |label| cut(label).into()),
            renewed: self.plan.auto_renew,
            operation_timeout: shared.operation_timeout,
            clock: shared.clock.clone(),
            cancel: Cancellation::new(),
        };
        let (reply, answer) = oneshot::channel();
        let keeper = Keeper { shared: shared.clone(), request, plan: self.plan };
        shared.keepers.spawn_on(keeper.live(reply), &shared.runtime.handle);
        Ok(answer)
    }
}

fn keeper_died() -> LockError {
    LockError::new(ErrorKind::Internal, "the task that keeps the lock died")
        .operation("acquire")
        .with_effect(Effect::Unknown)
        .advice("was the runtime shut down? Whatever was acquired ends with its TTL")
}

fn cut(mut label: String) -> String {
    let mut end = AcquireRequest::MAX_LABEL_BYTES.min(label.len());
    while !label.is_char_boundary(end) {
        end -= 1;
    }
    label.truncate(end);
    label
}

/// Host and process id: the same text for all locks of a process. The id is asked for each time, since a process may have forked.
fn default_label() -> Arc<str> {
    static LABEL: Mutex<Option<(u32, Arc<str>)>> = Mutex::new(None);
    let id = std::process::id();
    let mut label = LABEL.lock().unwrap_or_else(PoisonError::into_inner);
    match &*label {
        Some((of, label)) if *of == id => label.clone(),
        _ => {
            let new: Arc<str> = cut(format!("{}:{id}", hostname())).into();
            *label = Some((id, new.clone()));
            new
        }
    }
}

#[cfg(unix)]
fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn hostname() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "host".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_label_is_cut_between_characters() {
        assert_eq!(cut("é".repeat(200)).len(), 254);
        assert_eq!(cut("short".into()), "short");
    }
}
