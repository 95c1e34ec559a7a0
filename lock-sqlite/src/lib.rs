//! The SQLite backend of distlock: locks among the processes of one machine, in one file, without a server.
//!
//! Guarantees, limits and figures are in `docs/sqlite.md`.

mod backend;
mod clock;
mod config;
mod diagnose;
mod errors;
mod file;
mod lease;
mod schema;
mod store;
mod wait;

pub use backend::SqliteLock;
pub use config::SqliteConfig;

/// The backend's name in capabilities, errors and URLs.
const BACKEND: &str = "sqlite";
