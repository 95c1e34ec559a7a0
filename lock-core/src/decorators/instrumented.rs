use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use tracing::Instrument;

use crate::{
    AcquireRequest, Acquisition, Capabilities, Clock, Deadline, Diagnosis, DistributedLock, FencingToken, Holder,
    Lease, LockError, LockName, LostReason, Owner, Page, Released, Renewal, Revoke, telemetry,
};

/// Puts each call into a tracing span (`acquire`, `renew`, `release`, .., at level debug) and counts it; see [`telemetry`](crate::telemetry).
///
/// A [`LockManager`](crate::LockManager) wraps its backend in one by itself.
///
/// ```
/// use std::sync::Arc;
/// use lock_core::{Clock, decorators::Instrumented, memory::MemoryLock};
/// let seen = Instrumented::new(Arc::new(MemoryLock::new()), Clock::system());
/// # let _ = seen;
/// ```
#[derive(Debug)]
pub struct Instrumented {
    inner: Arc<dyn DistributedLock>,
    clock: Clock,
}

impl Instrumented {
    /// Wraps a backend; waits and holds are measured by `clock`.
    pub fn new(inner: Arc<dyn DistributedLock>, clock: Clock) -> Self {
        Self { inner, clock }
    }

    fn backend(&self) -> &'static str {
        self.inner.capabilities().backend
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl DistributedLock for Instrumented {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition, LockError> {
        let backend = self.backend();
        let span = tracing::debug_span!("acquire", backend, lock = %request.name);
        let asked = self.clock.now();
        let answer = self.inner.acquire(request).instrument(span.clone()).await;
        let now = self.clock.now();
        let outcome = match &answer {
            Ok(Acquisition::Granted(_)) => "granted",
            Ok(Acquisition::Busy(_)) => "busy",
            Err(_) => "error",
        };
        telemetry::acquired(backend, outcome, now.saturating_since(asked));
        tracing::debug!(parent: &span, outcome, "answered");
        Ok(match answer? {
            Acquisition::Granted(inner) => {
                let name = request.name.clone();
                let clock = self.clock.clone();
                Acquisition::Granted(Box::new(Seen { inner, backend, name, granted: now, clock }))
            }
            busy => busy,
        })
    }

    async fn abandon(&self, name: &LockName, owner: &Owner) -> Result<Released, LockError> {
        let span = tracing::debug_span!("abandon", backend = self.backend(), lock = %name);
        self.inner.abandon(name, owner).instrument(span).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<Holder>, LockError> {
        let span = tracing::debug_span!("inspect", backend = self.backend(), lock = %name);
        self.inner.inspect(name).instrument(span).await
    }

    async fn list(&self, prefix: &str, page: Page) -> Result<Vec<Holder>, LockError> {
        let span = tracing::debug_span!("list", backend = self.backend(), prefix);
        self.inner.list(prefix, page).instrument(span).await
    }

    async fn revoke(&self, name: &LockName, expect: Option<FencingToken>, how: Revoke) -> Result<Released, LockError> {
        let span = tracing::info_span!("revoke", backend = self.backend(), lock = %name, ?expect, ?how);
        self.inner.revoke(name, expect, how).instrument(span).await
    }

    async fn diagnose(&self) -> Result<Diagnosis, LockError> {
        let span = tracing::debug_span!("diagnose", backend = self.backend());
        self.inner.diagnose().instrument(span).await
    }

    async fn close(&self) -> Result<(), LockError> {
        let span = tracing::debug_span!("close", backend = self.backend());
        self.inner.close().instrument(span).await
    }
}

#[derive(Debug)]
struct Seen {
    inner: Box<dyn Lease>,
    backend: &'static str,
    name: LockName,
    granted: Deadline,
    clock: Clock,
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Lease for Seen {
    fn fencing_token(&self) -> FencingToken {
        self.inner.fencing_token()
    }

    fn effective_ttl(&self) -> Duration {
        self.inner.effective_ttl()
    }

    fn valid_until(&self) -> Deadline {
        self.inner.valid_until()
    }

    fn loss(&self) -> BoxFuture<'static, LostReason> {
        self.inner.loss()
    }

    async fn renew(&mut self) -> Result<Renewal, LockError> {
        let span = tracing::debug_span!("renew", backend = self.backend, lock = %self.name);
        let answer = self.inner.renew().instrument(span).await;
        let outcome = match &answer {
            Ok(Renewal::Renewed) => "renewed",
            Ok(Renewal::Lost(_)) => "lost",
            Err(_) => "error",
        };
        telemetry::renewed(self.backend, outcome);
        answer
    }

    async fn release(&mut self) -> Result<Released, LockError> {
        let span = tracing::debug_span!("release", backend = self.backend, lock = %self.name);
        let answer = self.inner.release().instrument(span).await;
        let outcome = match &answer {
            Ok(Released::Released) => "released",
            Ok(Released::NotHeld) => "not_held",
            Err(_) => "error",
        };
        telemetry::released(self.backend, outcome, self.clock.now().saturating_since(self.granted));
        answer
    }
}
