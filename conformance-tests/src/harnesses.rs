//! The harnesses of the backends that live in this repository. One file a backend.

pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod through_contract;
