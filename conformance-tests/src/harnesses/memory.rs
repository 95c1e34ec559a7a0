//! The memory backend.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::memory::MemoryLock;
use lock_core::{DistributedLock, LockError, LockName, Owner};

use super::through_contract;
use crate::{Entry, Harness, Instance, Need, Stop};

/// How a memory backend is made.
type Make = fn() -> MemoryLock;

/// The memory backend: an instance is one `MemoryLock`, and all its clients are that.
#[derive(Clone, Debug)]
pub struct MemoryHarness {
    make: Maker,
    /// The instances by the number in their URL.
    instances: Arc<Mutex<Vec<Arc<MemoryLock>>>>,
}

#[derive(Clone, Copy, Debug)]
enum Maker {
    Sound(Make),
    #[cfg(feature = "mutants")]
    Broken(lock_core::memory::Fault),
}

impl Default for MemoryHarness {
    fn default() -> Self {
        Self { make: Maker::Sound(MemoryLock::new), instances: Arc::default() }
    }
}

impl MemoryHarness {
    /// A harness of a broken backend.
    #[cfg(feature = "mutants")]
    pub fn with_fault(fault: lock_core::memory::Fault) -> Self {
        Self { make: Maker::Broken(fault), instances: Arc::default() }
    }
}

#[async_trait]
impl Harness for MemoryHarness {
    fn name(&self) -> &str {
        "memory"
    }

    fn lacks(&self, need: Need) -> Option<&'static str> {
        match need {
            Need::Network | Need::Freeze | Need::Server => {
                Some("the store is memory of the process, with no line or server that could fail")
            }
            Need::Wipe => None,
            Need::Foreign => Some("the store holds nothing but locks"),
            Need::Refusal => Some("memory never refuses"),
            Need::Processes => Some("the reach is one process"),
        }
    }

    async fn start(&self) -> Result<Arc<dyn Instance>, Stop> {
        let lock = Arc::new(match self.make {
            Maker::Sound(make) => make(),
            #[cfg(feature = "mutants")]
            Maker::Broken(fault) => MemoryLock::with_fault(fault),
        });
        let mut instances = self.instances.lock().unwrap_or_else(PoisonError::into_inner);
        instances.push(Arc::clone(&lock));
        Ok(Arc::new(MemoryInstance { lock, number: instances.len() - 1 }))
    }

    async fn connect(&self, url: &str) -> Result<Arc<dyn DistributedLock>, LockError> {
        let instances = self.instances.lock().unwrap_or_else(PoisonError::into_inner);
        let number: Option<usize> = url.strip_prefix("memory:").and_then(|number| number.parse().ok());
        match number.and_then(|number| instances.get(number)) {
            Some(lock) => Ok(Arc::new(lock.client()) as _),
            None => Err(LockError::new(lock_core::ErrorKind::Config, "no such memory backend in this process")),
        }
    }
}

#[derive(Debug)]
struct MemoryInstance {
    lock: Arc<MemoryLock>,
    number: usize,
}

#[async_trait]
impl Instance for MemoryInstance {
    fn url(&self) -> String {
        format!("memory:{}", self.number)
    }

    async fn peek(&self, name: &LockName) -> Result<Option<Entry>, Stop> {
        through_contract::peek(&*self.lock, name).await
    }

    async fn remove(&self, name: &LockName) -> Result<(), Stop> {
        self.lock.remove_by_hand(name);
        Ok(())
    }

    async fn replace_owner(&self, name: &LockName, ttl: Duration) -> Result<String, Stop> {
        let owner = Owner::random()?;
        self.lock.replace_by_hand(name, owner, ttl);
        Ok(owner.to_string())
    }

    async fn residue(&self, name: &LockName) -> Result<Vec<String>, Stop> {
        let mut left = through_contract::residue(&*self.lock, name).await?;
        if self.lock.waiters(name) > 0 {
            left.push(format!("{} wait", self.lock.waiters(name)));
        }
        Ok(left)
    }

    async fn wipe(&self) -> Result<(), Stop> {
        self.lock.wipe();
        Ok(())
    }
}
