//! Redis, on servers that the harness starts itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{DistributedLock, LockError, LockName, Owner};
use lock_redis::{RedisConfig, RedisLock};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use crate::servers::redis::{RedisServer, patient_connection};
use crate::{Entry, Harness, Instance, Need, Server, Stop};

/// Redis: an instance is a server of its own, without persistence.
#[derive(Clone, Copy, Debug, Default)]
pub struct RedisHarness;

#[async_trait]
impl Harness for RedisHarness {
    fn name(&self) -> &str {
        "redis"
    }

    fn lacks(&self, _need: Need) -> Option<&'static str> {
        None
    }

    async fn start(&self) -> Result<Arc<dyn Instance>, Stop> {
        Ok(Arc::new(RedisInstance { server: RedisServer::start(&[]).await? }))
    }

    async fn connect(&self, url: &str) -> Result<Arc<dyn DistributedLock>, LockError> {
        Ok(Arc::new(RedisLock::connect(RedisConfig::from_url(url)?).await?))
    }
}

#[derive(Debug)]
struct RedisInstance {
    server: RedisServer,
}

#[async_trait]
impl Instance for RedisInstance {
    fn url(&self) -> String {
        self.at(self.server.port())
    }

    async fn peek(&self, name: &LockName) -> Result<Option<Entry>, Stop> {
        RedisStore(self.url()).peek(name).await
    }

    async fn remove(&self, name: &LockName) -> Result<(), Stop> {
        RedisStore(self.url()).remove(name).await
    }

    async fn replace_owner(&self, name: &LockName, ttl: Duration) -> Result<String, Stop> {
        RedisStore(self.url()).replace_owner(name, ttl).await
    }

    async fn residue(&self, name: &LockName) -> Result<Vec<String>, Stop> {
        RedisStore(self.url()).residue(name).await
    }

    fn address(&self) -> Option<SocketAddr> {
        Some(([127, 0, 0, 1], self.server.port()).into())
    }

    fn url_via(&self, address: SocketAddr) -> Option<String> {
        Some(self.at(address.port()))
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(&self.server)
    }

    async fn put_foreign(&self, name: &LockName, kind: usize) -> Result<bool, Stop> {
        RedisStore(self.url()).put_foreign(name, kind).await
    }

    async fn refuse_writes(&self, refuse: bool) -> Result<(), Stop> {
        // A replica of a primary that nobody can reach.
        let (host, port) = if refuse { ("127.0.0.1", "1") } else { ("NO", "ONE") };
        let mut connection = RedisStore(self.url()).connection().await?;
        Ok(redis::cmd("REPLICAOF").arg(host).arg(port).query_async(&mut connection).await?)
    }

    async fn wipe(&self) -> Result<(), Stop> {
        let mut connection = RedisStore(self.url()).connection().await?;
        Ok(redis::cmd("FLUSHALL").query_async(&mut connection).await?)
    }
}

impl RedisInstance {
    fn at(&self, port: u16) -> String {
        format!("redis://127.0.0.1:{port}/")
    }
}

/// The suite's own way into the store of the server at a URL.
#[derive(Clone, Debug)]
pub(crate) struct RedisStore(pub(crate) String);

impl RedisStore {
    /// A connection for one look: it must not outlive the runtime of its case.
    async fn connection(&self) -> Result<MultiplexedConnection, Stop> {
        Ok(patient_connection(&self.0).await?)
    }

    /// As [`Instance::peek`].
    pub(crate) async fn peek(&self, name: &LockName) -> Result<Option<Entry>, Stop> {
        let mut connection = self.connection().await?;
        let (owner, left): (Option<String>, i64) =
            redis::pipe().get(name.as_str()).pttl(name.as_str()).query_async(&mut connection).await?;
        Ok(owner.filter(|_| left != -2).map(|owner| Entry { owner, remaining: milliseconds(left) }))
    }

    /// As [`Instance::remove`].
    pub(crate) async fn remove(&self, name: &LockName) -> Result<(), Stop> {
        Ok(self.connection().await?.del(name.as_str()).await?)
    }

    /// As [`Instance::replace_owner`].
    pub(crate) async fn replace_owner(&self, name: &LockName, ttl: Duration) -> Result<String, Stop> {
        let owner = Owner::random()?.to_string();
        let milliseconds = u64::try_from(ttl.as_millis())?;
        let () = self.connection().await?.pset_ex(name.as_str(), &owner, milliseconds).await?;
        Ok(owner)
    }

    /// As [`Instance::put_foreign`].
    pub(crate) async fn put_foreign(&self, name: &LockName, kind: usize) -> Result<bool, Stop> {
        let mut connection = self.connection().await?;
        self.remove(name).await?;
        match kind {
            0 => connection.set::<_, _, ()>(name.as_str(), "an application's data").await?,
            1 => connection.hset::<_, _, _, ()>(name.as_str(), "field", 1).await?,
            2 => connection.rpush::<_, _, ()>(name.as_str(), "element").await?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The lock's own key; waiters in the queue and on the board; and any key that will not vanish by itself.
    ///
    /// Helper keys are the name, the byte 0xFF, and what they are.
    pub(crate) async fn residue(&self, name: &LockName) -> Result<Vec<String>, Stop> {
        let mut connection = self.connection().await?;
        let mut left = Vec::new();
        let kind: String = redis::cmd("TYPE").arg(name.as_str()).query_async(&mut connection).await?;
        if kind != "none" {
            left.push(format!("the lock's own key, a {kind}"));
        }
        for key in self.helper_keys(&mut connection, name).await? {
            let kind: String = redis::cmd("TYPE").arg(&key).query_async(&mut connection).await?;
            let shown = String::from_utf8_lossy(&key).into_owned();
            if kind != "none" && connection.pttl::<_, i64>(&key).await? == -1 {
                left.push(format!("{shown} without a time to live"));
            }
            match kind.as_str() {
                "zset" => {
                    let members: Vec<String> = connection.zrange(&key, 0, -1).await?;
                    // An owner that was given up is remembered as dead for a while, so that no late request of its takes anything.
                    let waiters = members.iter().filter(|member| !member.starts_with("dead"));
                    left.extend(waiters.map(|owner| format!("{shown}: the waiter {owner}")));
                }
                "hash" => {
                    let fields: Vec<String> = connection.hkeys(&key).await?;
                    let waiters = fields.iter().filter(|field| field.len() == 32);
                    left.extend(waiters.map(|owner| format!("{shown}: the waiter {owner}")));
                }
                _ => {}
            }
        }
        Ok(left)
    }

    async fn helper_keys(&self, connection: &mut MultiplexedConnection, name: &LockName) -> Result<Vec<Vec<u8>>, Stop> {
        let mut pattern = Vec::new();
        for byte in name.as_str().bytes() {
            if b"*?[]\\^-".contains(&byte) {
                pattern.push(b'\\');
            }
            pattern.push(byte);
        }
        pattern.extend(b"\xff*");
        let (mut cursor, mut found) = (0_u64, Vec::new());
        loop {
            let (next, keys): (u64, Vec<Vec<u8>>) = redis::cmd("SCAN")
                .arg(cursor)
                .arg("MATCH")
                .arg(&pattern)
                .arg("COUNT")
                .arg(10_000)
                .query_async(connection)
                .await?;
            found.extend(keys);
            cursor = next;
            if cursor == 0 {
                return Ok(found);
            }
        }
    }
}

/// What PTTL says; a negative number means that there is no time to live.
fn milliseconds(pttl: i64) -> Option<Duration> {
    u64::try_from(pttl).ok().map(Duration::from_millis)
}
