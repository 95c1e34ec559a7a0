//! How long the lock stood free, as the store shows it.

use std::time::{Duration, Instant};

use lock_core::{DistributedLock, HolderState, LockName};
use lock_redis::{RedisConfig, RedisLock};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::NAME;
use crate::Stop;

/// Looks at the store every few milliseconds for as long as everybody fights.
pub(super) struct StoreWatch {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Duration>,
}

impl StoreWatch {
    pub(super) async fn begin(url: &str) -> Result<Self, Stop> {
        let lock = RedisLock::connect(RedisConfig::from_url(url)?).await?;
        let name = LockName::new(NAME)?;
        let (stop, mut stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            // Nobody has come yet: free time counts from the first grant on.
            let (mut longest, mut free_since) = (Duration::ZERO, None::<Instant>);
            let mut begun = false;
            loop {
                let asked = Instant::now();
                match lock.inspect(&name).await {
                    Ok(Some(holder)) if holder.state == HolderState::Held => {
                        begun = true;
                        if let Some(since) = free_since.take() {
                            longest = longest.max(since.elapsed());
                        }
                    }
                    // Set aside for a waiter is not held: a dead waiter costs that time.
                    Ok(_) if begun => {
                        free_since.get_or_insert(asked);
                    }
                    // No answer: what was free may still be.
                    Ok(_) | Err(_) => {}
                }
                if tokio::time::timeout(Duration::from_millis(2), &mut stopped).await.is_ok() {
                    return longest;
                }
            }
        });
        Ok(Self { stop, task })
    }

    /// The longest time that the lock was free or set aside.
    pub(super) async fn end(self) -> Result<Duration, Stop> {
        // It has ended by itself only by a panic, which the next line tells.
        let _ = self.stop.send(());
        Ok(self.task.await?)
    }
}
