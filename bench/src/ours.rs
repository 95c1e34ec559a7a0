//! Ours, as a user has it: a guard with a keeper, a fencing token and a label.

use std::sync::Arc;

use lock_core::{DistributedLock, LockManager, Released};
use lock_redis::{RedisConfig, RedisLock};

use crate::Failure;

pub async fn manager(url: &str, runtime: Option<tokio::runtime::Handle>) -> Result<LockManager, Failure> {
    let config = RedisConfig::from_url(&url.parse()?)?;
    let mut builder = LockManager::builder();
    if let Some(handle) = runtime {
        builder = builder.runtime(handle);
    }
    let connection = async { Ok(Arc::new(RedisLock::connect(config).await?) as Arc<dyn DistributedLock>) };
    Ok(builder.connect(connection).await?)
}

pub async fn cycle(locks: &LockManager, n: usize) -> Result<(), Failure> {
    let guard = locks.lock(format!("ours-{n}")).acquire().await?;
    match guard.release().await? {
        Released::Released => Ok(()),
        Released::NotHeld => Err("the lock was lost on the way".into()),
    }
}
