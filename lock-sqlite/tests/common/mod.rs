//! A lock file in a folder of its own, and short words for the requests.
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]
#![allow(unreachable_pub, reason = "a module of several test binaries")]

use std::path::PathBuf;
use std::time::Duration;

use lock_core::{AcquireRequest, Acquisition, DistributedLock, Lease, LockName, Owner, Ttl};
use lock_sqlite::{SqliteConfig, SqliteLock};
use sqlx::{Connection, SqliteConnection};

pub struct Bench {
    pub folder: tempfile::TempDir,
    pub path: PathBuf,
    pub lock: SqliteLock,
}

impl Bench {
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks.db");
        let lock = open(&path).await;
        Self { folder, path, lock }
    }

    /// A connection for looking into the file past the library.
    pub async fn raw(&self) -> SqliteConnection {
        raw(&self.path).await
    }

    /// How many rows the file holds besides its counter.
    pub async fn rows(&self) -> i64 {
        let mut raw = self.raw().await;
        let sql = "SELECT (SELECT count(*) FROM locks) + (SELECT count(*) FROM next)";
        let rows = sqlx::query_scalar(sql).fetch_one(&mut raw).await.unwrap();
        raw.close().await.unwrap();
        rows
    }
}

pub async fn open(path: &std::path::Path) -> SqliteLock {
    SqliteLock::connect(SqliteConfig::from_path(path).unwrap()).await.unwrap()
}

pub async fn raw(path: &std::path::Path) -> SqliteConnection {
    SqliteConnection::connect_with(&sqlx::sqlite::SqliteConnectOptions::new().filename(path))
        .await
        .unwrap()
}

pub fn request(name: &str) -> AcquireRequest {
    AcquireRequest::new(LockName::new(name).unwrap(), Owner::random().unwrap())
}

pub fn with_ttl(mut request: AcquireRequest, ttl: Duration) -> AcquireRequest {
    request.ttl = Ttl::new(ttl).unwrap();
    request
}

/// The lease, or `None` when the answer is busy.
pub async fn acquire(
    lock: &impl DistributedLock,
    request: &AcquireRequest,
) -> Option<Box<dyn Lease>> {
    match lock.acquire(request).await.unwrap() {
        Acquisition::Granted(lease) => Some(lease),
        Acquisition::Busy(_) => None,
    }
}
