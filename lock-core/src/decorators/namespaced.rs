use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    AcquireRequest, Acquisition, Capabilities, Diagnosis, DistributedLock, FencingToken, Holder, LockError, LockName,
    Namespace, Owner, Page, Released, Revoke,
};

/// Puts a prefix before each name, and takes it off again in what is shown.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
/// use std::sync::Arc;
/// use lock_core::{DistributedLock, LockName, Namespace, decorators::Namespaced, memory::MemoryLock};
/// let shared = Arc::new(MemoryLock::new());
/// let prod = Namespaced::new(shared.clone(), Namespace::new("prod/")?);
/// assert_eq!(prod.inspect(&LockName::new("x")?).await?, None);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Namespaced {
    inner: Arc<dyn DistributedLock>,
    namespace: Namespace,
}

impl Namespaced {
    /// Wraps a backend.
    pub fn new(inner: Arc<dyn DistributedLock>, namespace: Namespace) -> Self {
        Self { inner, namespace }
    }

    fn shown(&self, mut holder: Holder) -> Option<Holder> {
        holder.name = self.namespace.strip(&holder.name)?;
        Some(holder)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl DistributedLock for Namespaced {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition, LockError> {
        let request = AcquireRequest { name: self.namespace.apply(&request.name), ..request.clone() };
        Ok(match self.inner.acquire(&request).await? {
            Acquisition::Busy(Some(holder)) => Acquisition::Busy(self.shown(holder)),
            other => other,
        })
    }

    async fn abandon(&self, name: &LockName, owner: &Owner) -> Result<Released, LockError> {
        self.inner.abandon(&self.namespace.apply(name), owner).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<Holder>, LockError> {
        Ok(self.inner.inspect(&self.namespace.apply(name)).await?.and_then(|holder| self.shown(holder)))
    }

    async fn list(&self, prefix: &str, page: Page) -> Result<Vec<Holder>, LockError> {
        let prefix = format!("{}{prefix}", self.namespace.as_str());
        let page = Page { after: page.after.map(|name| self.namespace.apply(&name)), limit: page.limit };
        let holders = self.inner.list(&prefix, page).await?;
        Ok(holders.into_iter().filter_map(|holder| self.shown(holder)).collect())
    }

    async fn revoke(&self, name: &LockName, expect: Option<FencingToken>, how: Revoke) -> Result<Released, LockError> {
        self.inner.revoke(&self.namespace.apply(name), expect, how).await
    }

    async fn diagnose(&self) -> Result<Diagnosis, LockError> {
        self.inner.diagnose().await
    }

    async fn close(&self) -> Result<(), LockError> {
        self.inner.close().await
    }
}
