//! MySQL: the floor is the insertion of a row and its deletion, each a commit; over as many connections as ours has for the two.

use std::time::Duration;

use conformance_tests::Stop;
use distributed_lock_core::{DistributedLock as _, LockError, LockHandle as _, LockProvider as _};
use distributed_lock_mysql::{MySqlLockHandle, MySqlLockProvider};
use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use sqlx::pool::PoolConnection;

use crate::workers::Client;

/// Ours has two for taking names and two for giving them back.
const CONNECTIONS: u32 = 4;
/// A lock of the server takes a connection for each holder and each waiter.
const ENOUGH: u32 = 200;
/// In short waits, so that one that was dropped does not take the name much later.
const LIMIT: Duration = Duration::from_secs(1);
const TABLE: &str = "CREATE TABLE IF NOT EXISTS bench_floor (name VARBINARY(255) PRIMARY KEY, owner CHAR(32) NOT NULL)";
const OWNER: &str = "0123456789abcdef0123456789abcdef";

pub struct Floor(MySqlPool);

impl Floor {
    pub async fn connect(url: &str) -> Result<Self, Stop> {
        let pool = MySqlPoolOptions::new().max_connections(CONNECTIONS).connect(url).await?;
        sqlx::query(TABLE).execute(&pool).await?;
        Ok(Self(pool))
    }
}

impl Client for Floor {
    type Held = String;

    async fn acquire(&self, name: &str) -> Result<String, Stop> {
        let insert = sqlx::query("INSERT INTO bench_floor (name, owner) VALUES (?, ?)").bind(name).bind(OWNER);
        insert.execute(&self.0).await?;
        Ok(name.to_owned())
    }

    async fn release(&self, held: String) -> Result<(), Stop> {
        let delete = sqlx::query("DELETE FROM bench_floor WHERE name = ? AND owner = ?").bind(held).bind(OWNER);
        if delete.execute(&self.0).await?.rows_affected() == 1 { Ok(()) } else { Err("no row on the floor".into()) }
    }
}

/// The server's own `GET_LOCK`, which takes a connection for each holder and each waiter and knows no time to live.
pub struct GetLock(MySqlPool);

impl GetLock {
    pub async fn connect(url: &str) -> Result<Self, Stop> {
        let pool = MySqlPoolOptions::new().max_connections(ENOUGH).acquire_timeout(Duration::from_secs(60));
        // What it does not need now, others of this run do.
        Ok(Self(pool.idle_timeout(Duration::from_secs(1)).connect(url).await?))
    }
}

impl Client for GetLock {
    type Held = (PoolConnection<sqlx::MySql>, String);

    async fn acquire(&self, name: &str) -> Result<Self::Held, Stop> {
        let mut connection = self.0.acquire().await?;
        loop {
            let ask = sqlx::query_scalar::<_, Option<i64>>("SELECT GET_LOCK(?, ?)").bind(name).bind(LIMIT.as_secs());
            if ask.fetch_one(&mut *connection).await? == Some(1) {
                return Ok((connection, name.to_owned()));
            }
        }
    }

    async fn release(&self, (mut connection, name): Self::Held) -> Result<(), Stop> {
        let given = sqlx::query_scalar::<_, Option<i64>>("SELECT RELEASE_LOCK(?)").bind(name);
        let given = given.fetch_one(&mut *connection).await?;
        if given == Some(1) { Ok(()) } else { Err("the server's lock was not held".into()) }
    }
}

/// distributed-lock with what it does by default.
pub struct DistributedLock(MySqlLockProvider);

impl DistributedLock {
    pub async fn connect(url: &str) -> Result<Self, Stop> {
        Ok(Self(MySqlLockProvider::new(url).await?))
    }
}

impl Client for DistributedLock {
    type Held = MySqlLockHandle;

    async fn acquire(&self, name: &str) -> Result<Self::Held, Stop> {
        let lock = self.0.create_lock(name);
        // Without a limit it asks for a negative one, which MariaDB refuses.
        loop {
            match lock.acquire(Some(LIMIT)).await {
                Err(LockError::Timeout(_)) => {}
                held => return Ok(held?),
            }
        }
    }

    async fn release(&self, held: Self::Held) -> Result<(), Stop> {
        Ok(held.release().await?)
    }
}
