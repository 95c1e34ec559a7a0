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
//! Each case cites the rules of the contract that it proves. Filters and flags are those of `cargo test`; beside them,
//! `--report FILE` (or `CONFORMANCE_REPORT`) writes a table of rules and backends in Markdown.

pub mod bench;
pub mod case;
mod cases;
pub mod child;
mod harness;
pub mod harnesses;
#[cfg(feature = "redis")]
pub mod last_act;
#[cfg(feature = "mutants")]
pub mod mutants;
pub mod process;
pub mod proxy;
pub mod report;
pub mod rules;
mod runner;
pub mod servers;
#[cfg(feature = "redis")]
pub mod siege;
mod stop;

pub use bench::{Bench, Client, eventually};
pub use harness::{Entry, Harness, Instance, Need, Server};
pub use runner::{run, run_case, run_with};
pub use stop::{Outcome, Stop};
