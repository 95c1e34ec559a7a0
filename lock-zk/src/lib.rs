//! The ZooKeeper backend of distlock.
//!
//! A lock is a folder named after it; each contender is an ephemeral sequential node in it, and the lowest holds the name. The nodes are
//! named as Curator names its own (`_c_<uuid>-lock-<number>`), so that its `InterProcessMutex` excludes with this library.
//!
//! ```no_run
//! # async fn example() -> Result<(), lock_core::LockError> {
//! use lock_core::DistributedLock;
//! use lock_zk::{ZkConfig, ZkLock};
//!
//! let backend = ZkLock::connect(ZkConfig::from_url("zk://127.0.0.1:2181/locks")?).await?;
//! assert_eq!(backend.capabilities().backend, "zk");
//! # Ok(())
//! # }
//! ```

mod anew;
mod attempt;
mod backend;
mod config;
mod diagnose;
mod errors;
pub mod fence;
mod lease;
mod line;
mod node;
mod path;
mod pool;
mod pulse;
mod session;
#[doc(hidden)]
pub mod untrusted;
mod view;
mod wait;

pub use backend::ZkLock;
pub use config::ZkConfig;

/// The name of this backend in errors and capabilities.
const BACKEND: &str = "zk";
