//! What the examples have in common: one connection, by a URL that is given or configured.

#![allow(dead_code, reason = "each example uses a part of it")]

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use distlock::{LockManager, Options, Ttl};

/// A backend, and the TTL of its locks.
pub(crate) struct Locks {
    pub(crate) manager: LockManager,
    pub(crate) ttl: Duration,
    /// Without its password.
    pub(crate) url: String,
}

/// Connects to `url`, else as `DISTLOCK_URL` says, else to a SQLite file in the folder for temporary files.
pub(crate) async fn connect(url: Option<String>, ttl: Option<Duration>) -> Result<Locks, Box<dyn Error>> {
    let url = url.or_else(|| std::env::var("DISTLOCK_URL").ok()).unwrap_or_else(default_url);
    let ttl = ttl.map_or(Ok(Ttl::DEFAULT), Ttl::new)?;
    let manager = Options::new().ttl(ttl).connect(&url).await?;
    Ok(Locks { manager, ttl: ttl.get(), url: distlock::redact(&url) })
}

fn default_url() -> String {
    format!("sqlite://{}", std::env::temp_dir().join("distlock-examples").join("locks.db").display())
}

/// A length of time as people write it, such as `30s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|e| format!("{e}; write it as 500ms, 30s or 5m"))
}

/// The exit code of an example. An error is one line on stderr.
pub(crate) fn ended(example: &str, result: Result<bool, Box<dyn Error>>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{example}: {error}");
            ExitCode::FAILURE
        }
    }
}
