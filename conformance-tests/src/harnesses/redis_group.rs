//! Redis behind sentinels, or Redis Cluster, on servers that the harness starts itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{DistributedLock, LockError, LockName};
use lock_redis::{RedisConfig, RedisLock};

use super::redis::RedisStore;
use crate::proxy::Proxy;
use crate::servers::redis_group::{Form, RedisGroup};
use crate::{Entry, Harness, Instance, Need, Server, Stop};

/// Redis in a group: an instance is a group of its own, without persistence, in which nothing takes over; `tests/clusters` is for that.
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

    fn lacks(&self, _need: Need) -> Option<&'static str> {
        None
    }

    async fn start(&self) -> Result<Arc<dyn Instance>, Stop> {
        let group = RedisGroup::start(self.form).await?;
        group.without_files_and_takeovers().await?;
        Ok(Arc::new(GroupInstance(group)))
    }

    async fn connect(&self, url: &str) -> Result<Arc<dyn DistributedLock>, LockError> {
        Ok(Arc::new(RedisLock::connect(RedisConfig::from_url(url)?).await?))
    }
}

#[derive(Debug)]
struct GroupInstance(RedisGroup);

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

    async fn proxy(&self) -> Result<Proxy, Stop> {
        self.0.proxy().await
    }

    fn url_via(&self, address: SocketAddr) -> Option<String> {
        Some(self.0.url_via(address))
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }

    async fn put_foreign(&self, name: &LockName, kind: usize) -> Result<bool, Stop> {
        self.store(name).await?.put_foreign(name, kind).await
    }

    async fn refuse_writes(&self, refuse: bool) -> Result<(), Stop> {
        // As a primary does whose replicas are gone.
        let replicas = if refuse { "9" } else { "0" };
        for server in 0..self.0.servers() {
            let () = self.0.ask(server, &["CONFIG", "SET", "min-replicas-to-write", replicas]).await?;
        }
        Ok(())
    }

    async fn wipe(&self) -> Result<(), Stop> {
        for server in 0..self.0.servers() {
            match self.0.ask(server, &["FLUSHALL"]).await {
                // A replica follows.
                Err(error) if error.code() == Some("READONLY") => {}
                answer => answer?,
            }
        }
        Ok(())
    }
}

/// What is done, is done to all members.
#[async_trait]
impl Server for GroupInstance {
    fn stop(&self) -> Result<(), Stop> {
        self.0.members().try_for_each(|member| self.0.freeze(member, true))
    }

    fn resume(&self) -> Result<(), Stop> {
        self.0.members().try_for_each(|member| self.0.freeze(member, false))
    }

    fn kill(&self) -> Result<(), Stop> {
        self.0.members().try_for_each(|member| self.0.kill(member))
    }

    async fn restart(&self) -> Result<(), Stop> {
        self.0.members().try_for_each(|member| self.0.start_again(member))?;
        self.0.ready().await
    }
}
