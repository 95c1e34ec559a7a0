//! The SQLite backend of distlock: locks among the processes of one machine, in one file, without a server.
//!
//! Most programs reach it through `distlock::connect("sqlite:///path/locks.db")`; this crate is for those that put a manager together
//! themselves. Guarantees, limits and figures are in `docs/sqlite.md`.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("locks.db");
//! use lock_core::{AcquireRequest, Acquisition, DistributedLock, LockName, Owner};
//! use lock_sqlite::{SqliteConfig, SqliteLock};
//!
//! let lock = SqliteLock::connect(SqliteConfig::from_path(path)?).await?;
//! let request = AcquireRequest::new(LockName::new("nightly")?, Owner::random()?);
//! let Acquisition::Granted(mut lease) = lock.acquire(&request).await? else { panic!("held by another") };
//! lease.release().await?;
//! lock.close().await?;
//! # Ok(()) }
//! ```

mod backend;
mod clock;
mod config;
mod diagnose;
mod errors;
pub mod fence;
mod file;
mod lease;
mod schema;
mod store;
#[doc(hidden)]
pub mod untrusted;
mod wait;

pub use backend::SqliteLock;
pub use config::SqliteConfig;

/// The backend's name in capabilities, errors and URLs.
const BACKEND: &str = "sqlite";
