use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;

use crate::{
    AcquireRequest, Acquisition, Capabilities, Deadline, Diagnosis, DistributedLock, FencingToken, Holder, Lease,
    LockError, LockName, LostReason, Owner, Page, Released, Renewal, Revoke,
};

/// Adds a number to each fencing token, so that tokens go on rising when one backend takes another's place (rule F3).
///
/// ```
/// use std::sync::Arc;
/// use lock_core::{decorators::FenceBase, memory::MemoryLock};
/// let moved = FenceBase::new(Arc::new(MemoryLock::new()), 1_000_000);
/// # let _ = moved;
/// ```
#[derive(Debug)]
pub struct FenceBase {
    inner: Arc<dyn DistributedLock>,
    base: u64,
}

impl FenceBase {
    /// Wraps a backend.
    pub fn new(inner: Arc<dyn DistributedLock>, base: u64) -> Self {
        Self { inner, base }
    }

    fn shown(&self, mut holder: Holder) -> Holder {
        holder.token = holder.token.map(|token| raised(token, self.base));
        holder
    }
}

fn raised(token: FencingToken, base: u64) -> FencingToken {
    FencingToken::new(token.get().saturating_add(base))
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl DistributedLock for FenceBase {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition, LockError> {
        Ok(match self.inner.acquire(request).await? {
            Acquisition::Granted(inner) => Acquisition::Granted(Box::new(Raised { inner, base: self.base })),
            Acquisition::Busy(holder) => Acquisition::Busy(holder.map(|holder| self.shown(holder))),
        })
    }

    async fn abandon(&self, name: &LockName, owner: &Owner) -> Result<Released, LockError> {
        self.inner.abandon(name, owner).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<Holder>, LockError> {
        Ok(self.inner.inspect(name).await?.map(|holder| self.shown(holder)))
    }

    async fn list(&self, prefix: &str, page: Page) -> Result<Vec<Holder>, LockError> {
        Ok(self.inner.list(prefix, page).await?.into_iter().map(|holder| self.shown(holder)).collect())
    }

    async fn revoke(&self, name: &LockName, expect: Option<FencingToken>, how: Revoke) -> Result<Released, LockError> {
        let expect = match expect.map(|token| token.get().checked_sub(self.base)) {
            // A token below the base was never granted through here.
            Some(None) => return Ok(Released::NotHeld),
            Some(Some(token)) => Some(FencingToken::new(token)),
            None => None,
        };
        self.inner.revoke(name, expect, how).await
    }

    async fn diagnose(&self) -> Result<Diagnosis, LockError> {
        let mut found = self.inner.diagnose().await?;
        found.newest_token = found.newest_token.map(|token| raised(token, self.base));
        Ok(found)
    }

    async fn close(&self) -> Result<(), LockError> {
        self.inner.close().await
    }
}

#[derive(Debug)]
struct Raised {
    inner: Box<dyn Lease>,
    base: u64,
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Lease for Raised {
    fn fencing_token(&self) -> FencingToken {
        raised(self.inner.fencing_token(), self.base)
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
        self.inner.renew().await
    }

    async fn release(&mut self) -> Result<Released, LockError> {
        self.inner.release().await
    }
}
