//! Redis: the floor is `SET NX PX` and a script that compares and deletes.

use std::time::Duration;

use conformance_tests::Stop;
use distributed_lock_core::{DistributedLock as _, LockError, LockHandle as _, LockProvider as _};
use distributed_lock_redis::{RedisLockHandle, RedisLockProvider};
use redis::aio::MultiplexedConnection;

use crate::workers::Client;

const DELETE_OWN: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";
/// What a user of a lock that does not wait may choose.
const ASK_AGAIN: Duration = Duration::from_millis(10);
const TTL: Duration = Duration::from_secs(30);
/// As long as the library's own.
const OWNER: &str = "0123456789abcdef0123456789abcdef";

pub struct Floor {
    connection: MultiplexedConnection,
    release: redis::Script,
}

impl Floor {
    pub async fn connect(url: &str) -> Result<Self, Stop> {
        let connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        Ok(Self { connection, release: redis::Script::new(DELETE_OWN) })
    }
}

impl Client for Floor {
    type Held = String;

    async fn acquire(&self, name: &str) -> Result<String, Stop> {
        let mut set = redis::cmd("SET");
        set.arg(name).arg(OWNER).arg("NX").arg("PX").arg(TTL.as_millis() as u64);
        let granted: bool = set.query_async(&mut self.connection.clone()).await?;
        if granted { Ok(name.to_owned()) } else { Err("somebody else is on the floor".into()) }
    }

    async fn release(&self, held: String) -> Result<(), Stop> {
        let deleted: bool = self.release.key(held).arg(OWNER).invoke_async(&mut self.connection.clone()).await?;
        if deleted { Ok(()) } else { Err("somebody else was on the floor".into()) }
    }
}

/// rslock with what it does by default.
pub struct Rslock(rslock::LockManager);

impl Rslock {
    pub fn connect(url: &str) -> Self {
        Self(rslock::LockManager::new(vec![url.to_owned()]))
    }
}

impl Client for Rslock {
    type Held = rslock::LockGuard;

    async fn acquire(&self, name: &str) -> Result<Self::Held, Stop> {
        Ok(self.0.acquire(name, TTL).await?)
    }

    async fn release(&self, held: Self::Held) -> Result<(), Stop> {
        held.release().await;
        Ok(())
    }
}

/// distributed-lock with what it does by default.
pub struct DistributedLock(RedisLockProvider);

impl DistributedLock {
    pub async fn connect(url: &str) -> Result<Self, Stop> {
        Ok(Self(RedisLockProvider::new(url).await?))
    }
}

impl Client for DistributedLock {
    type Held = RedisLockHandle;

    async fn acquire(&self, name: &str) -> Result<Self::Held, Stop> {
        let lock = self.0.create_lock(name);
        // It does not wait: a name that is taken is an error at once, and the user asks again.
        loop {
            match lock.acquire(None).await {
                Err(LockError::Timeout(_)) => tokio::time::sleep(ASK_AGAIN).await,
                held => return Ok(held?),
            }
        }
    }

    async fn release(&self, held: Self::Held) -> Result<(), Stop> {
        Ok(held.release().await?)
    }
}

/// The round trip of a ping.
pub async fn ping(connection: &mut MultiplexedConnection) -> Result<(), Stop> {
    Ok(redis::cmd("PING").query_async::<String>(connection).await.map(drop)?)
}
