//! Where the examples find their locks: where the command `distlock` finds its own, by the tool's own code.
//!
//! A program of yours has a configuration of its own, and needs no more than [`distlock::connect`] with a URL.

#![allow(dead_code, unused_imports, reason = "each example uses a part of it")]

#[path = "../../src/cli/args.rs"]
mod args;
#[path = "../../src/cli/config.rs"]
mod config;
#[path = "../../src/cli/exit.rs"]
mod exit;
#[path = "../../src/cli/file.rs"]
mod file;
#[path = "../../src/cli/paths.rs"]
mod paths;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use distlock::{LockManager, Options, Ttl};

pub(crate) use args::duration;

/// A backend, and the TTL that is configured for it.
pub(crate) struct Locks {
    pub(crate) manager: LockManager,
    pub(crate) ttl: Duration,
    /// Without its password.
    pub(crate) url: String,
}

/// Connects to `url`, else as `DISTLOCK_URL` says, else as the configuration file says, else to a SQLite file of this user.
pub(crate) async fn connect(url: Option<String>, ttl: Option<&str>) -> Result<Locks, Box<dyn Error>> {
    let url = url.map(Into::into);
    let globals = args::Globals { url, namespace: None, config: None, verbose: 0, quiet: false };
    let config = config::Config::load(&globals, ttl, None).map_err(|failure| failure.message)?;
    if config.url.origin == config::Origin::Default {
        paths::prepare_default().map_err(|failure| failure.message)?;
    }
    let (url, ttl): (_, Ttl) = (&config.url.value, config.ttl.value);
    let options = Options::new().namespace(config.namespace.value.clone()).ttl(ttl);
    let manager = options.connect(url).await.map_err(|error| config.explain(error).message)?;
    Ok(Locks { manager, ttl: ttl.get(), url: distlock::redact(url) })
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
