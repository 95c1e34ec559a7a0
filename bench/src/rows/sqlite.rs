//! SQLite: the floor is the insertion of a row and its deletion over one connection, with the settings that ours has.

use std::time::Duration;

use conformance_tests::Stop;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};

use crate::workers::Client;

const TABLE: &str =
    "CREATE TABLE IF NOT EXISTS locks (name BLOB PRIMARY KEY, owner TEXT NOT NULL) STRICT, WITHOUT ROWID";
const OWNER: &str = "0123456789abcdef0123456789abcdef";

pub struct Floor(SqlitePool);

impl Floor {
    /// Beside the file of the library, in one of its own.
    pub async fn connect(url: &str) -> Result<Self, Stop> {
        let path = format!("{}.floor", url.strip_prefix("sqlite://").ok_or("not a URL of SQLite")?);
        let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
        let options = options.journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Off);
        let options = options.busy_timeout(Duration::from_secs(5));
        let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await?;
        sqlx::query(TABLE).execute(&pool).await?;
        Ok(Self(pool))
    }
}

impl Client for Floor {
    type Held = String;

    async fn acquire(&self, name: &str) -> Result<String, Stop> {
        let insert = sqlx::query("INSERT INTO locks (name, owner) VALUES (?, ?)").bind(name.as_bytes()).bind(OWNER);
        insert.execute(&self.0).await?;
        Ok(name.to_owned())
    }

    async fn release(&self, held: String) -> Result<(), Stop> {
        let delete = sqlx::query("DELETE FROM locks WHERE name = ? AND owner = ?").bind(held.as_bytes()).bind(OWNER);
        if delete.execute(&self.0).await?.rows_affected() == 1 { Ok(()) } else { Err("no row on the floor".into()) }
    }
}
