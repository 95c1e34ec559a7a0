//! The MySQL and MariaDB backend of distlock: one row a lock, in one table of a database that is there anyway.
//!
//! Most programs reach it through `distlock::connect("mysql://user:password@host/database")`; this crate is for those that put a manager
//! together themselves. Guarantees, limits and figures are in `docs/mysql.md`.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use lock_core::{AcquireRequest, Acquisition, DistributedLock, LockName, Owner};
//! use lock_mysql::{MysqlConfig, MysqlLock};
//!
//! let config = MysqlConfig::from_url("mysql://app:secret@db.example/app")?;
//! let lock = MysqlLock::connect(config).await?;
//! let request = AcquireRequest::new(LockName::new("nightly")?, Owner::random()?);
//! let Acquisition::Granted(mut lease) = lock.acquire(&request).await? else { panic!("held by another") };
//! lease.release().await?;
//! lock.close().await?;
//! # Ok(()) }
//! ```

mod backend;
mod config;
mod diagnose;
mod errors;
pub mod fence;
mod lease;
mod link;
mod renew;
mod row;
mod statement;
mod store;
#[doc(hidden)]
pub mod untrusted;
mod wait;
mod waiters;

pub use backend::MysqlLock;
pub use config::MysqlConfig;

/// The backend's name in capabilities, errors and URLs.
const BACKEND: &str = "mysql";
