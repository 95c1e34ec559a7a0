//! The harnesses of the backends that live in this repository. One file a backend.

#[cfg(all(feature = "mysql", feature = "redis", feature = "sqlite", feature = "zk"))]
pub mod attached;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod memory;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "redis")]
pub mod redis_group;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "sqlite")]
mod sqlite_freezer;
pub mod through_contract;
#[cfg(feature = "zk")]
pub mod zk;

/// How many members an instance is to have that may have several: the number in `CONFORMANCE_MEMBERS`, or one.
pub fn members() -> usize {
    std::env::var("CONFORMANCE_MEMBERS").ok().and_then(|members| members.parse().ok()).unwrap_or(1)
}
