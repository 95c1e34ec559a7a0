//! The etcd backend of distlock.
//!
//! A lock is a directory of keys: each contender has one below `name/`, bound to a lease, and the oldest of them holds. So Go's
//! `concurrency.Mutex` and `etcdctl lock` on the same name exclude with this library both ways. The key's create revision is the
//! fencing token.
//!
//! ```no_run
//! # async fn example() -> Result<(), lock_core::LockError> {
//! use lock_core::DistributedLock;
//! use lock_etcd::{EtcdConfig, EtcdLock};
//!
//! let backend = EtcdLock::connect(EtcdConfig::from_url("etcd://127.0.0.1:2379,127.0.0.1:22379")?).await?;
//! assert_eq!(backend.capabilities().backend, "etcd");
//! # Ok(())
//! # }
//! ```

mod acquire;
mod backend;
mod config;
mod connection;
mod diagnose;
mod errors;
pub mod fence;
mod kept;
mod keys;
mod lease;
mod neighbours;
mod queue;
mod standing;
#[doc(hidden)]
pub mod untrusted;
mod view;
mod wait;

pub use backend::EtcdLock;
pub use config::EtcdConfig;

/// The name of this backend in errors and capabilities.
const BACKEND: &str = "etcd";
