//! What one kind of server does to locks and no other, on servers that the tests start. What all have in common is the suite's.
#![cfg(all(feature = "etcd", feature = "mysql", feature = "redis", feature = "zk"))]

mod clock;
mod etcd;
mod ipv6;
mod mysql;
mod redis;
mod slow;
mod starved;
mod zk;

use std::sync::Arc;
use std::time::Duration;

use conformance_tests::{Harness, Stop};
use lock_core::LockManager;

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A manager at a URL, as a program would have it.
async fn manager(harness: impl Harness, url: impl Into<String>) -> Result<LockManager, Stop> {
    let (harness, url) = (Arc::new(harness), url.into());
    Ok(LockManager::builder().connect(async move { harness.connect(&url).await }).await?)
}
