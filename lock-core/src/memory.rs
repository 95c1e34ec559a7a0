//! The reference backend: locks of one process, in memory.

#[cfg(feature = "mutants")]
mod fault;
mod lease;
#[cfg(feature = "mutants")]
mod mutant;
mod store;

use std::sync::Arc;

use async_trait::async_trait;

#[cfg(feature = "mutants")]
pub use fault::Fault;
#[cfg(feature = "mutants")]
use mutant::Mutant;

use self::lease::MemoryLease;
use self::store::{Place, Store, Turn};
use crate::{
    AcquireRequest, Acquisition, Capabilities, Clock, Diagnosis, DistributedLock, FencingToken, Holder, LockError,
    LockName, Owner, Page, Promise, Reach, Released, Revoke, Wait,
};

/// Locks among the tasks and threads of one process. The reference for all other backends, and good for tests of one's own.
///
/// Two clients of the same locks share one value, as `Arc` clones or as [`MemoryLock::client`]s.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
/// use std::sync::Arc;
/// use lock_core::{LockManager, memory::MemoryLock};
/// let locks = LockManager::new(Arc::new(MemoryLock::new()))?;
/// let first = locks.lock("x").acquire().await?;
/// assert!(locks.lock("x").try_acquire().await?.is_none());
/// # drop(first); Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct MemoryLock {
    store: Arc<Store>,
    capabilities: Capabilities,
    #[cfg(feature = "mutants")]
    mutant: Option<Arc<Mutant>>,
}

/// Hands a call over to the mutant, in a lock that has a fault.
macro_rules! unless_broken {
    ($lock:expr, $method:ident($($argument:expr),*)) => {
        #[cfg(feature = "mutants")]
        if let Some(mutant) = &$lock.mutant {
            return mutant.$method($($argument),*).await;
        }
    };
}

impl MemoryLock {
    /// An empty store that goes by the system's clock.
    pub fn new() -> Self {
        Self::with_clock(Clock::system())
    }

    /// An empty store that goes by `clock`, which must be the one of the managers that use it.
    pub fn with_clock(clock: Clock) -> Self {
        let mut capabilities = Capabilities::new("memory");
        capabilities.reach = Reach::Process;
        capabilities.fifo = true;
        capabilities.pushes_loss = true;
        Self {
            store: Arc::new(Store::new(clock)),
            capabilities,
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }

    /// A store that breaks one promise, for proving that a test would notice.
    #[cfg(feature = "mutants")]
    pub fn with_fault(fault: Fault) -> Self {
        let sound = Self::new();
        Self { mutant: Some(Arc::new(Mutant::new(sound.clone(), fault))), ..sound }
    }

    /// Another client of the same locks.
    #[must_use]
    pub fn client(&self) -> Self {
        self.clone()
    }

    /// Removes an entry behind the holder's back, as a person with a client of the store would. Answers whether there was one.
    #[cfg(feature = "test-util")]
    pub fn remove_by_hand(&self, name: &LockName) -> bool {
        #[cfg(feature = "mutants")]
        if self.mutant.as_ref().is_some_and(|mutant| mutant.fault == Fault::TokenRestartsAfterRemoval) {
            self.store.inner().last_token = 0;
        }
        self.store.remove(name, crate::LostReason::Removed)
    }

    /// Puts another owner's entry in the place of what is there, behind the holder's back.
    #[cfg(feature = "test-util")]
    pub fn replace_by_hand(&self, name: &LockName, owner: Owner, ttl: std::time::Duration) {
        self.store.replace(name, owner, ttl);
    }

    /// Forgets everything, tokens included, as a server that lost its memory does.
    #[cfg(feature = "test-util")]
    pub fn wipe(&self) {
        self.store.wipe();
    }

    /// How many requests wait for a name.
    pub fn waiters(&self, name: &LockName) -> usize {
        self.store.waiters(name)
    }
}

impl Default for MemoryLock {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl DistributedLock for MemoryLock {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition, LockError> {
        unless_broken!(self, acquire(request));
        // Leaves the queue when dropped, so that a future that is given up leaves no place behind.
        let mut place = Place::new(&self.store, request);
        loop {
            let seen = match self.store.take(request, &mut place) {
                Turn::Granted(entry) => {
                    return Ok(Acquisition::Granted(Box::new(MemoryLease::new(&self.store, entry))));
                }
                Turn::Busy(holder) => holder,
            };
            if request.wait == Wait::Never || request.is_over() {
                return Ok(Acquisition::Busy(Some(seen)));
            }
            let expiry = self.store.until_free(&request.name);
            tokio::select! {
                () = place.woken() => {}
                () = tokio::time::sleep(expiry) => {}
                () = request.over() => return Ok(Acquisition::Busy(Some(seen))),
            }
        }
    }

    async fn abandon(&self, name: &LockName, owner: &Owner) -> Result<Released, LockError> {
        unless_broken!(self, abandon(name, owner));
        Ok(self.store.release(name, owner))
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<Holder>, LockError> {
        unless_broken!(self, inspect(name));
        Ok(self.store.holder(name))
    }

    async fn list(&self, prefix: &str, page: Page) -> Result<Vec<Holder>, LockError> {
        unless_broken!(self, list(prefix, page));
        Ok(self.store.list(prefix, &page))
    }

    async fn revoke(&self, name: &LockName, expect: Option<FencingToken>, how: Revoke) -> Result<Released, LockError> {
        unless_broken!(self, revoke(name, expect, how));
        Ok(self.store.revoke(name, expect, how))
    }

    async fn diagnose(&self) -> Result<Diagnosis, LockError> {
        let mut it = Diagnosis::new("memory of this process");
        it.kept(Promise::Service, "memory", "nothing can be out of reach");
        it.broken(Promise::Survival, "restart", "all is gone with the process", "use sqlite: or a server");
        Ok(it)
    }

    async fn close(&self) -> Result<(), LockError> {
        Ok(())
    }
}
