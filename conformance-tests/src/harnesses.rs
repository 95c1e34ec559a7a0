//! The harnesses of the backends that live in this repository. One file a backend.

#[cfg(all(feature = "redis", feature = "sqlite"))]
pub mod attached;
pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod through_contract;
#[cfg(feature = "zk")]
pub mod zk;
