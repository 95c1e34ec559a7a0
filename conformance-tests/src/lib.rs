//! The conformance suite of distlock.
//!
//! Whoever writes a backend implements [`Harness`] and [`Instance`] for it and calls [`run`] from a test without libtest's own
//! harness (`harness = false`):
//!
//! ```no_run
//! fn main() -> std::process::ExitCode {
//!     conformance_tests::run(conformance_tests::harnesses::memory::MemoryHarness::default())
//! }
//! ```
//!
//! A harness says how to start an instance of the backend, how a client connects to it, and how the suite looks into its store
//! past the backend's own code. What a backend cannot offer is a [`Need`] that it lacks, with a reason that stands in the report;
//! what its declared reach makes possible must be offered. [`proxy`], [`process`] and [`servers`] help with servers.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//! use std::time::Duration;
//! use conformance_tests::harnesses::through_contract;
//! use conformance_tests::{Entry, Harness, Instance, Need, Stop};
//! use lock_core::{DistributedLock, LockError, LockName, memory::MemoryLock};
//!
//! #[derive(Debug, Default)]
//! struct Mine(Mutex<Vec<MemoryLock>>);
//! #[derive(Debug)]
//! struct Running { url: String, lock: MemoryLock }
//!
//! #[async_trait::async_trait]
//! impl Harness for Mine {
//!     fn name(&self) -> &str { "mine" }
//!     fn lacks(&self, _: Need) -> Option<&'static str> { Some("all of it lives in this process") }
//!     async fn start(&self) -> Result<Arc<dyn Instance>, Stop> {
//!         let mut all = self.0.lock().map_err(|_| "poisoned")?;
//!         all.push(MemoryLock::new());
//!         Ok(Arc::new(Running { url: (all.len() - 1).to_string(), lock: all[all.len() - 1].clone() }))
//!     }
//!     async fn connect(&self, url: &str) -> Result<Arc<dyn DistributedLock>, LockError> {
//!         let all = self.0.lock().expect("no case panics while it connects");
//!         Ok(Arc::new(all[url.parse::<usize>().expect("one of ours")].client()))
//!     }
//! }
//! #[async_trait::async_trait]
//! impl Instance for Running {
//!     fn url(&self) -> String { self.url.clone() }
//!     async fn peek(&self, name: &LockName) -> Result<Option<Entry>, Stop> {
//!         through_contract::peek(&self.lock, name).await
//!     }
//!     async fn remove(&self, name: &LockName) -> Result<(), Stop> {
//!         through_contract::remove(&self.lock, name).await
//!     }
//!     async fn replace_owner(&self, name: &LockName, ttl: Duration) -> Result<String, Stop> {
//!         through_contract::replace_owner(&self.lock, name, ttl).await
//!     }
//!     async fn residue(&self, name: &LockName) -> Result<Vec<String>, Stop> {
//!         through_contract::residue(&self.lock, name).await
//!     }
//! }
//!
//! let case = conformance_tests::case::all().find(|case| case.name == "release_is_idempotent").expect("a case of the suite");
//! conformance_tests::run_case(Arc::new(Mine::default()), case).expect("the memory backend keeps the contract");
//! ```
//!
//! Each case cites the rules of the contract that it proves. Filters and flags are those of `cargo test`; beside them,
//! `--report FILE` (or `CONFORMANCE_REPORT`) writes a table of rules and backends in Markdown.

mod bench;
pub mod case;
mod cases;
mod child;
pub mod counters;
mod harness;
pub mod harnesses;
#[cfg(feature = "redis")]
pub mod last_act;
#[cfg(all(feature = "mysql", feature = "redis", feature = "sqlite", feature = "zk"))]
pub mod load;
#[cfg(feature = "mutants")]
pub mod mutants;
pub mod process;
pub mod proxy;
pub mod report;
pub mod rules;
mod runner;
pub mod servers;
mod stop;
#[cfg(all(feature = "mysql", feature = "redis", feature = "sqlite", feature = "zk"))]
pub mod torture;

pub use bench::eventually;
pub use child::is_child;
pub use harness::{Entry, Harness, Instance, Need, Server};
pub use runner::{run, run_case, run_with};
pub use stop::{Outcome, Stop};

pub(crate) use bench::{Bench, Client};
