//! Resources that refuse an older fencing token: see `docs/fencing.md`.
//!
//! [`Register`] guards a value within one process; the modules guard what is in a database, a Redis key, an etcd key or a ZooKeeper node, in the user's own
//! connection and, where there is one, the user's own transaction. The resource need not be where the lock is.

pub use lock_core::fence::{FenceError, Register, StaleToken};
#[cfg(feature = "etcd")]
pub use lock_etcd::fence as etcd;
#[cfg(feature = "mysql")]
pub use lock_mysql::fence as mysql;
#[cfg(feature = "redis")]
pub use lock_redis::fence as redis;
#[cfg(feature = "sqlite")]
pub use lock_sqlite::fence as sqlite;
#[cfg(feature = "zk")]
pub use lock_zk::fence as zk;
