//! Servers that stand together, and lose the one that leads, or each other.
//!
//! `CLUSTER_ROUNDS=20 cargo test -p conformance-tests --all-features --test clusters -- --nocapture` makes 20 rounds of each fault and prints what it took.
#![cfg(all(feature = "etcd", feature = "mysql", feature = "redis", feature = "zk"))]

mod failover;
mod mysql;
mod quorum;
mod redis;
