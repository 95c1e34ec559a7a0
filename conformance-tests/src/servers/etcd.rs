//! An etcd server of one's own.

use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::Client;
use tempfile::TempDir;

use crate::process::{Process, free_port};
use crate::{Server, Stop, eventually};

/// An `etcd` of one member on free ports, with its data in a temporary folder, so that a restart keeps them. Its elections are quick, so
/// that leases of 1 s are granted.
#[derive(Debug)]
pub struct EtcdServer {
    port: u16,
    peer_port: u16,
    folder: TempDir,
    extra: Vec<String>,
    process: Mutex<Process>,
}

impl EtcdServer {
    /// Starts one, with further arguments such as `--auth-token-ttl 2`, and waits until it answers.
    ///
    /// # Errors
    /// When it is not installed, which says how to install it, or does not answer in time.
    ///
    /// # Cancel safety
    /// Dropping it ends the server.
    pub async fn start(extra: &[&str]) -> Result<Self, Stop> {
        let extra: Vec<_> = extra.iter().map(|&arg| arg.to_owned()).collect();
        let mut tries = 3;
        loop {
            // The ports may be taken between the look and the start.
            let (port, peer_port, folder) = (free_port()?, free_port()?, tempfile::tempdir()?);
            let process = spawn(port, peer_port, &folder, &extra)?;
            let ready = answers(port).await;
            tries -= 1;
            if ready.is_ok() && process.exit_code().is_none() {
                return Ok(Self { port, peer_port, folder, extra, process: Mutex::new(process) });
            }
            if tries == 0 {
                return Err(format!("etcd did not start: {ready:?}").into());
            }
        }
    }

    /// Its port for clients on the loopback interface.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Starts it again without its data.
    ///
    /// # Errors
    /// When it does not answer in time.
    ///
    /// # Cancel safety
    /// Dropping it leaves the server stopped or starting.
    pub async fn wipe(&self) -> Result<(), Stop> {
        self.kill()?;
        std::fs::remove_dir_all(self.folder.path().join("data"))?;
        self.restart().await
    }

    fn with<T>(&self, f: impl FnOnce(&mut Process) -> T) -> T {
        f(&mut self.process.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Server for EtcdServer {
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
        // The old server must have left the ports before the new one takes them.
        let _ = self.kill();
        let process = spawn(self.port, self.peer_port, &self.folder, &self.extra)?;
        self.with(|old| *old = process);
        answers(self.port).await
    }
}

fn spawn(port: u16, peer_port: u16, folder: &TempDir, extra: &[String]) -> Result<Process, Stop> {
    let (client, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer_port}"));
    let mut command = Command::new("etcd");
    command
        .args(["--name", "one", "--initial-cluster", &format!("one={peer}"), "--logger", "zap", "--log-level", "error"])
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--heartbeat-interval", "50", "--election-timeout", "250", "--data-dir"])
        .arg(folder.path().join("data"))
        .args(extra)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Process::spawn(command).map_err(|e| format!("cannot start etcd: {e}; apt-get install etcd-server").into())
}

/// Waits until the server serves a read, for which it must have elected itself.
async fn answers(port: u16) -> Result<(), Stop> {
    let served = || async {
        let asked = async { Client::connect([format!("127.0.0.1:{port}")], None).await?.get("x", None).await };
        // A login is asked for where there are users: that is an answer, too.
        match tokio::time::timeout(Duration::from_secs(1), asked).await {
            Ok(Ok(_)) => true,
            Ok(Err(e)) => e.to_string().contains("user name is empty"),
            Err(_) => false,
        }
    };
    let open = eventually(super::START_LIMIT, served).await;
    if open { Ok(()) } else { Err(format!("no etcd answers on port {port} within {:?}", super::START_LIMIT).into()) }
}
