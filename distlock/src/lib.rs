//! A lock that several machines share: over SQLite, Redis and more, with fencing tokens and a holder that knows when it has lost.
//!
//! ```
//! # async fn work(_token: distlock::FencingToken) {}
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), distlock::LockError> {
//! use std::time::Duration;
//!
//! let locks = distlock::connect("memory:").await?; // or sqlite:///path/locks.db, redis://host/
//! let guard = locks.lock("order:42").ttl(Duration::from_secs(30)).wait(Duration::from_secs(5)).acquire().await?;
//! work(guard.fencing_token()).await; // the resource refuses a token older than one that it has seen
//! guard.release().await?; // dropping the guard releases too
//!
//! if let Some(guard) = locks.lock("nightly").try_acquire().await? {
//!     assert!(guard.is_held()); // answered from the clock, without I/O
//! } // None: another holds it
//! locks.close().await?; // waits for releases that are still on their way
//! # Ok(())
//! # }
//! ```
//!
//! # Backends
//! The URL names the backend, and a feature builds it in; changing it changes nothing else in the program.
//!
//! | feature | URL |
//! |---|---|
//! | (always) | `memory:`, one process, for tests |
//! | `sqlite` (default) | `sqlite:///path/locks.db`, one machine |
//! | `redis` | `redis://host/`, `redis+sentinel://host,host/service`, `redis+cluster://host,host`, each with `rediss` for TLS |
//! | `mysql` | `mysql://user:password@host/database`, also with several hosts |
//! | `zk` | `zk://host,host/folder` |
//! | `etcd` | `etcd://host,host`, or `etcds` for TLS |
//!
//! Each URL also takes `fence_base=N`, which is added to every fencing token, for a move from one store to another.
//!
//! # Features
//! `cli` (default) builds the command `distlock`; a library user may turn it off with `default-features = false`.
//! `metrics` counts through the [`metrics`](https://docs.rs/metrics) facade.

pub mod fence;
mod options;
mod registry;
mod url;

pub use lock_core::{
    Capabilities, Clock, Deadline, Diagnosis, Durability, Effect, ErrorKind, FencingToken, Finding, Held, Holder,
    HolderState, LockError, LockGuard, LockManager, LockName, LockRequest, LostReason, Namespace, Owner, Page, Promise,
    Reach, Released, Revoke, RunError, Ttl, Verdict, escaped,
};

pub use options::Options;
pub use registry::{Open, Opening, Registry};
pub use url::redact;

/// Connects to the backend that `url` names, with the default [`Options`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::LockError> {
/// let locks = distlock::connect("memory:").await?;
/// assert_eq!(locks.capabilities().backend, "memory");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`Options::connect`] says.
///
/// # Cancel safety
/// Dropping it drops the connection; nothing is left behind.
pub async fn connect(url: &str) -> Result<LockManager, LockError> {
    Options::new().connect(url).await
}
