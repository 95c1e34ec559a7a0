//! Redis behind sentinels, or Redis Cluster: one group for all cases.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{DistributedLock, LockError, LockName};
use lock_redis::{RedisConfig, RedisLock};
use tokio::sync::OnceCell;

use super::redis::RedisStore;
use crate::servers::redis_group::{Form, RedisGroup};
use crate::{Entry, Harness, Instance, Need, Stop};

/// Redis in a group. It takes seconds to come to rest, so all cases share it, and none does anything to its servers.
#[derive(Clone, Copy, Debug)]
pub struct RedisGroupHarness {
    /// Which group.
    pub form: Form,
}

#[async_trait]
impl Harness for RedisGroupHarness {
    fn name(&self) -> &str {
        "redis"
    }

    fn lacks(&self, need: Need) -> Option<&'static str> {
        match need {
            Need::Network => Some(
                "the servers announce their own addresses, which lead past a proxy; tests/clusters cuts their lines",
            ),
            Need::Freeze | Need::Server | Need::Wipe | Need::Refusal => {
                Some("the group is shared by all cases; tests/clusters is for its servers")
            }
            _ => None,
        }
    }

    async fn start(&self) -> Result<Arc<dyn Instance>, Stop> {
        static GROUP: OnceCell<Arc<RedisGroup>> = OnceCell::const_new();
        let start = || async { Ok::<_, Stop>(Arc::new(RedisGroup::start(self.form).await?)) };
        Ok(Arc::new(GroupInstance(Arc::clone(GROUP.get_or_try_init(start).await?))))
    }

    async fn connect(&self, url: &str) -> Result<Arc<dyn DistributedLock>, LockError> {
        Ok(Arc::new(RedisLock::connect(RedisConfig::from_url(url)?).await?))
    }
}

#[derive(Debug)]
struct GroupInstance(Arc<RedisGroup>);

impl GroupInstance {
    async fn store(&self, name: &LockName) -> Result<RedisStore, Stop> {
        let primary = self.0.primary(name.as_str()).await?;
        Ok(RedisStore(format!("redis://{}/", self.0.address(primary))))
    }
}

#[async_trait]
impl Instance for GroupInstance {
    fn url(&self) -> String {
        self.0.url(None, false)
    }

    async fn peek(&self, name: &LockName) -> Result<Option<Entry>, Stop> {
        self.store(name).await?.peek(name).await
    }

    async fn remove(&self, name: &LockName) -> Result<(), Stop> {
        self.store(name).await?.remove(name).await
    }

    async fn replace_owner(&self, name: &LockName, ttl: Duration) -> Result<String, Stop> {
        self.store(name).await?.replace_owner(name, ttl).await
    }

    async fn residue(&self, name: &LockName) -> Result<Vec<String>, Stop> {
        self.store(name).await?.residue(name).await
    }

    async fn put_foreign(&self, name: &LockName, kind: usize) -> Result<bool, Stop> {
        self.store(name).await?.put_foreign(name, kind).await
    }
}
