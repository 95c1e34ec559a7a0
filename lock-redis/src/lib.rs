//! The Redis and Valkey backend of distlock.
//!
//! A lock is a plain string key: its name is the lock's name, its value the owner, its time to live the lease. So clients that
//! lock with `SET key token NX PX ttl` and a compare-and-delete script exclude with this library both ways.
//! Each change is one Lua script that compares the owner.
//!
//! ```no_run
//! # async fn example() -> Result<(), lock_core::LockError> {
//! use lock_core::DistributedLock;
//! use lock_redis::{RedisConfig, RedisLock};
//!
//! let backend = RedisLock::connect(RedisConfig::from_url("redis://127.0.0.1/")?).await?;
//! assert_eq!(backend.capabilities().backend, "redis");
//! # Ok(())
//! # }
//! ```

mod backend;
mod cluster;
mod config;
mod connection;
mod diagnose;
mod errors;
pub mod fence;
mod lease;
mod node;
mod renew;
mod scripts;
mod sentinel;
mod slot;
#[doc(hidden)]
pub mod untrusted;
mod view;
mod wait;

pub use backend::RedisLock;
pub use config::RedisConfig;

/// The name of this backend in errors and capabilities.
const BACKEND: &str = "redis";
