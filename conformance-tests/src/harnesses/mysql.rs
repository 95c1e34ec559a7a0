//! MySQL's protocol and dialect, on MariaDB servers that the harness starts itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{DistributedLock, LockError, LockName, Owner};
use lock_mysql::{MysqlConfig, MysqlLock};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{ConnectOptions, MySqlConnection};

use crate::servers::mysql::MysqlServer;
use crate::{Entry, Harness, Instance, Need, Server, Stop};

/// MySQL: an instance is a server of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct MysqlHarness;

#[async_trait]
impl Harness for MysqlHarness {
    fn name(&self) -> &str {
        "mysql"
    }

    fn lacks(&self, need: Need) -> Option<&'static str> {
        match need {
            Need::Foreign => Some("the table holds nothing but locks; one of another program is refused as a whole"),
            _ => None,
        }
    }

    async fn start(&self) -> Result<Arc<dyn Instance>, Stop> {
        Ok(Arc::new(MysqlInstance { server: MysqlServer::start(&[]).await? }))
    }

    async fn connect(&self, url: &str) -> Result<Arc<dyn DistributedLock>, LockError> {
        Ok(Arc::new(MysqlLock::connect(MysqlConfig::from_url(url)?).await?))
    }
}

#[derive(Debug)]
struct MysqlInstance {
    server: MysqlServer,
}

#[async_trait]
impl Instance for MysqlInstance {
    fn url(&self) -> String {
        at(self.server.port())
    }

    async fn peek(&self, name: &LockName) -> Result<Option<Entry>, Stop> {
        self.store().peek(name).await
    }

    async fn remove(&self, name: &LockName) -> Result<(), Stop> {
        self.store().remove(name).await
    }

    async fn replace_owner(&self, name: &LockName, ttl: Duration) -> Result<String, Stop> {
        self.store().replace_owner(name, ttl).await
    }

    async fn residue(&self, name: &LockName) -> Result<Vec<String>, Stop> {
        self.store().residue(name).await
    }

    fn address(&self) -> Option<SocketAddr> {
        Some(([127, 0, 0, 1], self.server.port()).into())
    }

    fn url_via(&self, address: SocketAddr) -> Option<String> {
        Some(at(address.port()))
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(&self.server)
    }

    async fn refuse_writes(&self, refuse: bool) -> Result<(), Stop> {
        let statement = if refuse { "SET GLOBAL read_only = 1" } else { "SET GLOBAL read_only = 0" };
        sqlx::query(statement).execute(&mut self.store().open().await?).await?;
        Ok(())
    }

    async fn wipe(&self) -> Result<(), Stop> {
        sqlx::query("DROP TABLE IF EXISTS distributed_lock").execute(&mut self.store().open().await?).await?;
        Ok(())
    }
}

impl MysqlInstance {
    fn store(&self) -> MysqlStore {
        let options = MySqlConnectOptions::new().host("127.0.0.1").port(self.server.port());
        MysqlStore(options.username("admin").password("admin").database("locks"))
    }
}

fn at(port: u16) -> String {
    format!("mysql://app:se%3Acret%2F1@127.0.0.1:{port}/locks?ssl-mode=disabled")
}

/// The suite's own way into the table, on its own servers past the rights of the library's user.
#[derive(Clone, Debug)]
pub(crate) struct MysqlStore(pub(crate) MySqlConnectOptions);

/// Microseconds of the server's clock.
const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

impl MysqlStore {
    /// A connection for one look: it must not outlive the runtime of its case.
    async fn open(&self) -> Result<MySqlConnection, Stop> {
        Ok(self.0.connect().await?)
    }

    async fn rows(&self, name: &LockName) -> Result<Option<(String, i64, String, i64)>, Stop> {
        let query = format!(
            "SELECT owner, expires - {NOW}, next_owner, next_until - {NOW} FROM distributed_lock WHERE name = ?"
        );
        let row = sqlx::query_as(sqlx::AssertSqlSafe(query))
            .bind(name.as_str().as_bytes())
            .fetch_optional(&mut self.open().await?)
            .await;
        match row {
            // There is no table before the first acquire.
            Err(sqlx::Error::Database(e)) if e.code().as_deref() == Some("42S02") => Ok(None),
            row => Ok(row?),
        }
    }

    /// As [`Instance::peek`].
    pub(crate) async fn peek(&self, name: &LockName) -> Result<Option<Entry>, Stop> {
        let row = self.rows(name).await?.filter(|(owner, left, ..)| !owner.is_empty() && *left > 0);
        Ok(row.map(|(owner, left, ..)| Entry { owner, remaining: Some(Duration::from_micros(left.unsigned_abs())) }))
    }

    /// As [`Instance::remove`].
    pub(crate) async fn remove(&self, name: &LockName) -> Result<(), Stop> {
        sqlx::query("DELETE FROM distributed_lock WHERE name = ?")
            .bind(name.as_str().as_bytes())
            .execute(&mut self.open().await?)
            .await?;
        Ok(())
    }

    /// As [`Instance::replace_owner`].
    pub(crate) async fn replace_owner(&self, name: &LockName, ttl: Duration) -> Result<String, Stop> {
        let owner = Owner::random()?.to_string();
        let query = format!("UPDATE distributed_lock SET owner = ?, expires = {NOW} + ? WHERE name = ?");
        let changed = sqlx::query(sqlx::AssertSqlSafe(query))
            .bind(&owner)
            .bind(i64::try_from(ttl.as_micros())?)
            .bind(name.as_str().as_bytes())
            .execute(&mut self.open().await?)
            .await?;
        crate::ensure!(changed.rows_affected() == 1, "there is no entry to replace");
        Ok(owner)
    }

    /// A lease that lives, and the place of a waiter. A row without either carries the token on for ten minutes.
    pub(crate) async fn residue(&self, name: &LockName) -> Result<Vec<String>, Stop> {
        let Some((owner, left, next, kept)) = self.rows(name).await? else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        if !owner.is_empty() && left > 0 {
            found.push(format!("owner '{owner}'"));
        }
        if !next.is_empty() && kept > 0 {
            found.push(format!("the waiter '{next}'"));
        }
        Ok(found)
    }
}
