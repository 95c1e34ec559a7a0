//! SQLite, over files in temporary folders.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{Clock, DistributedLock, ErrorKind, LockError, LockName, Owner};
use lock_sqlite::{SqliteConfig, SqliteLock};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, SqliteConnection};
use tempfile::TempDir;

use super::sqlite_freezer::Freezer;
use crate::{Entry, Harness, Instance, Need, Server, Stop};

/// SQLite: an instance is a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct SqliteHarness;

#[async_trait]
impl Harness for SqliteHarness {
    fn name(&self) -> &str {
        "sqlite"
    }

    fn lacks(&self, need: Need) -> Option<&'static str> {
        match need {
            Need::Network => Some("the store is a file, with no line to it that could fail"),
            Need::Server => Some("the store is a file, with no server that could be killed or restarted"),
            Need::Freeze | Need::Wipe | Need::Processes => None,
            Need::Foreign => Some("the file holds nothing but locks; one of another program is refused as a whole"),
            Need::Refusal => Some("a file that may not be written any more stays open for those who have it open"),
        }
    }

    async fn start(&self) -> Result<Arc<dyn Instance>, Stop> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("locks.db");
        Ok(Arc::new(SqliteInstance { store: SqliteStore(path.clone()), freezer: Freezer::new(path), _folder: folder }))
    }

    async fn connect(&self, url: &str) -> Result<Arc<dyn DistributedLock>, LockError> {
        let path = url.strip_prefix("sqlite://").ok_or_else(|| LockError::new(ErrorKind::Config, "not a path"))?;
        Ok(Arc::new(SqliteLock::connect(SqliteConfig::from_path(path)?).await?))
    }
}

#[derive(Debug)]
struct SqliteInstance {
    store: SqliteStore,
    freezer: Freezer,
    /// Removed at the end.
    _folder: TempDir,
}

#[async_trait]
impl Instance for SqliteInstance {
    fn url(&self) -> String {
        format!("sqlite://{}", self.store.0.display())
    }

    async fn peek(&self, name: &LockName) -> Result<Option<Entry>, Stop> {
        self.store.peek(name).await
    }

    async fn remove(&self, name: &LockName) -> Result<(), Stop> {
        self.store.remove(name).await
    }

    async fn replace_owner(&self, name: &LockName, ttl: Duration) -> Result<String, Stop> {
        self.store.replace_owner(name, ttl).await
    }

    async fn residue(&self, name: &LockName) -> Result<Vec<String>, Stop> {
        self.store.residue(name).await
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(&self.freezer)
    }

    async fn wipe(&self) -> Result<(), Stop> {
        for end in ["", "-wal", "-shm"] {
            let mut path = self.store.0.clone().into_os_string();
            path.push(end);
            match std::fs::remove_file(path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The suite's own way into a file.
#[derive(Clone, Debug)]
pub(crate) struct SqliteStore(pub(crate) PathBuf);

impl SqliteStore {
    async fn open(&self) -> Result<SqliteConnection, Stop> {
        Ok(connect(&self.0).await?)
    }

    /// As [`Instance::peek`].
    pub(crate) async fn peek(&self, name: &LockName) -> Result<Option<Entry>, Stop> {
        let row: Option<(String, i64)> = sqlx::query_as("SELECT owner, expires FROM locks WHERE name = ?")
            .bind(name.as_str().as_bytes())
            .fetch_optional(&mut self.open().await?)
            .await?;
        let now = now()?;
        Ok(row.filter(|(_, expires)| *expires > now).map(|(owner, expires)| Entry {
            owner,
            remaining: Some(Duration::from_micros((expires - now).unsigned_abs())),
        }))
    }

    /// As [`Instance::remove`].
    pub(crate) async fn remove(&self, name: &LockName) -> Result<(), Stop> {
        sqlx::query("DELETE FROM locks WHERE name = ?")
            .bind(name.as_str().as_bytes())
            .execute(&mut self.open().await?)
            .await?;
        Ok(())
    }

    /// As [`Instance::replace_owner`].
    pub(crate) async fn replace_owner(&self, name: &LockName, ttl: Duration) -> Result<String, Stop> {
        let owner = Owner::random()?.to_string();
        let changed = sqlx::query("UPDATE locks SET owner = ?, expires = ? WHERE name = ?")
            .bind(&owner)
            .bind(now()? + i64::try_from(ttl.as_micros())?)
            .bind(name.as_str().as_bytes())
            .execute(&mut self.open().await?)
            .await?;
        crate::ensure!(changed.rows_affected() == 1, "there is no entry to replace");
        Ok(owner)
    }

    /// Rows of leases that live, and of waiters. A row whose time is over is overwritten or swept by the next writer.
    pub(crate) async fn residue(&self, name: &LockName) -> Result<Vec<String>, Stop> {
        let mut connection = self.open().await?;
        let mut left = Vec::new();
        for (table, end) in [("locks", "expires"), ("next", "until")] {
            let query = format!("SELECT owner, {end} FROM {table} WHERE name = ?");
            let rows: Vec<(String, i64)> = sqlx::query_as(sqlx::AssertSqlSafe(query))
                .bind(name.as_str().as_bytes())
                .fetch_all(&mut connection)
                .await?;
            let now = now()?;
            left.extend(
                rows.iter().filter(|(_, end)| *end > now).map(|(owner, _)| format!("{table}: owner '{owner}'")),
            );
        }
        Ok(left)
    }
}

async fn connect(path: &Path) -> sqlx::Result<SqliteConnection> {
    SqliteConnectOptions::new().filename(path).busy_timeout(Duration::from_secs(5)).connect().await
}

/// Microseconds of the clock that the store goes by.
fn now() -> Result<i64, Stop> {
    let now = Clock::system().now();
    Ok(i64::try_from(now.saturating_since(now.before(Duration::MAX)).as_micros())?)
}
