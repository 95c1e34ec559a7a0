//! Ours, as a user has it: a guard with a keeper, a fencing token and a label.

use std::sync::Arc;

use lock_core::{DistributedLock, LockManager, Released};
use lock_redis::{RedisConfig, RedisLock};

use crate::{Cycle, Failure};

pub struct Ours(LockManager);

impl Ours {
    pub async fn connect(url: &str, runtime: Option<tokio::runtime::Handle>) -> Result<Self, Failure> {
        let config = RedisConfig::from_url(url)?;
        let mut builder = LockManager::builder();
        if let Some(handle) = runtime {
            builder = builder.runtime(handle);
        }
        let connection = async { Ok(Arc::new(RedisLock::connect(config).await?) as Arc<dyn DistributedLock>) };
        Ok(Self(builder.connect(connection).await?))
    }
}

impl Cycle for Ours {
    async fn run(&self, n: usize) -> Result<(), Failure> {
        let guard = self.0.lock(format!("ours-{n}")).acquire().await?;
        match guard.release().await? {
            Released::Released => Ok(()),
            Released::NotHeld => Err("the lock was lost on the way".into()),
        }
    }
}
