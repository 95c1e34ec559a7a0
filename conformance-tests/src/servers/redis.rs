//! A Redis server of one's own.

use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tempfile::TempDir;

use super::system::System;
use super::{accepts, comes_up};
use crate::process::{Process, free_port};
use crate::{Server, Stop};

/// A `redis-server`, or a `valkey-server` where the system named by `CONFORMANCE_ROOT` has that, on a free port, without persistence, so that a restart loses all data.
#[derive(Debug)]
pub struct RedisServer {
    system: System,
    port: u16,
    folder: TempDir,
    environment: Vec<(String, String)>,
    extra: Vec<String>,
    process: Mutex<Process>,
}

impl RedisServer {
    /// Starts one, with further arguments such as `--appendonly yes`, and waits until it answers.
    ///
    /// # Errors
    /// When it is not installed, which says how to install it, or does not answer in time.
    ///
    /// # Cancel safety
    /// Dropping it ends the server.
    pub async fn start(extra: &[&str]) -> Result<Self, Stop> {
        Self::start_in(&[], extra).await
    }

    /// As [`start`](Self::start), with variables of its own in its environment.
    ///
    /// # Errors
    /// As `start` says.
    ///
    /// # Cancel safety
    /// Dropping it ends the server.
    pub async fn start_in(environment: &[(&str, &str)], extra: &[&str]) -> Result<Self, Stop> {
        let environment: Vec<_> =
            environment.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let extra: Vec<_> = extra.iter().map(|&arg| arg.to_owned()).collect();
        let (system, mut tries) = (System::chosen(), 3);
        loop {
            // The port may be taken between the look and the start.
            let (port, folder) = (free_port()?, system.folder()?);
            let process = spawn(&system, port, &folder, &environment, &extra)?;
            let ready = comes_up(&process, port).await;
            tries -= 1;
            if ready.is_ok() {
                return Ok(Self { system, port, folder, environment, extra, process: Mutex::new(process) });
            }
            if tries == 0 {
                return Err(format!("redis-server did not start: {ready:?}").into());
            }
        }
    }

    /// Its port on the loopback interface.
    pub fn port(&self) -> u16 {
        self.port
    }

    fn with<T>(&self, f: impl FnOnce(&mut Process) -> T) -> T {
        f(&mut self.process.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Server for RedisServer {
    fn stop(&self) -> Result<(), Stop> {
        self.with(|process| process.stop())
    }

    fn resume(&self) -> Result<(), Stop> {
        self.with(|process| process.resume())
    }

    fn kill(&self) -> Result<(), Stop> {
        self.with(|process| process.kill())
    }

    async fn restart(&self) -> Result<(), Stop> {
        // The old server must have left the port before the new one takes it.
        let _ = self.kill();
        let process = spawn(&self.system, self.port, &self.folder, &self.environment, &self.extra)?;
        self.with(|old| *old = process);
        accepts(self.port).await
    }
}

/// A connection of the suite's own. The driver's own limits are for a server that is near and idle; a busy machine is no failure of the backend.
pub(crate) async fn patient_connection(url: &str) -> redis::RedisResult<redis::aio::MultiplexedConnection> {
    let limit = Some(Duration::from_secs(10));
    let config = redis::AsyncConnectionConfig::new().set_connection_timeout(limit).set_response_timeout(limit);
    redis::Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await
}

fn spawn(
    system: &System,
    port: u16,
    folder: &TempDir,
    environment: &[(String, String)],
    extra: &[String],
) -> Result<Process, Stop> {
    let other = system.has("valkey-server") && !system.has("redis-server");
    let mut command = system.command(if other { "valkey-server" } else { "redis-server" });
    command
        .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"])
        .args(["--daemonize", "no", "--loglevel", "warning", "--dir"])
        .arg(system.seen(folder.path()))
        .args(extra)
        .envs(environment.iter().cloned())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Process::spawn(command).map_err(|e| format!("cannot start redis-server: {e}; apt-get install redis-server").into())
}
