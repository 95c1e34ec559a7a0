//! A ZooKeeper server of one's own.

use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::process::{Process, free_port};
use crate::{Server, Stop, eventually};

/// Where Debian keeps the server. It names what else it needs; a longer class path makes the start ten times as long.
const JAR: &str = "/usr/share/java/zookeeper.jar";

/// The user who may do all, `super` with the password `suite`, as the server is told of him.
const SUPERUSER: &str = "-Dzookeeper.DigestAuthenticationProvider.superDigest=super:byqk9J+vIAxISordpK5TdXrJG2w=";

/// A server without an ensemble on a free port, with a tick of 100 ms and session time-outs up to 60 s. It keeps its data over a restart.
#[derive(Debug)]
pub struct ZkServer {
    port: u16,
    folder: TempDir,
    process: Mutex<Process>,
}

impl ZkServer {
    /// Starts one, and waits until it serves.
    ///
    /// # Errors
    /// When it is not installed, which says how to install it, or does not serve in time.
    ///
    /// # Cancel safety
    /// Dropping it ends the server.
    pub async fn start() -> Result<Self, Stop> {
        let mut tries = 3;
        loop {
            // The port may be taken between the look and the start.
            let (port, folder) = (free_port()?, tempfile::tempdir()?);
            let process = spawn(port, &folder)?;
            let ready = serves(port).await;
            tries -= 1;
            if ready.is_ok() && process.exit_code().is_none() {
                return Ok(Self { port, folder, process: Mutex::new(process) });
            }
            if tries == 0 {
                return Err(format!("ZooKeeper did not start: {ready:?}").into());
            }
        }
    }

    /// Its port on the loopback interface.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Starts it again without its data.
    ///
    /// # Errors
    /// What the operating system says; when it does not serve in time.
    ///
    /// # Cancel safety
    /// Dropping it may leave the server ended.
    pub async fn wipe(&self) -> Result<(), Stop> {
        let _ = self.kill();
        std::fs::remove_dir_all(self.folder.path().join("data"))?;
        self.restart().await
    }

    fn with<T>(&self, f: impl FnOnce(&mut Process) -> T) -> T {
        f(&mut self.process.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Server for ZkServer {
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
        let process = spawn(self.port, &self.folder)?;
        self.with(|old| *old = process);
        serves(self.port).await
    }
}

fn spawn(port: u16, folder: &TempDir) -> Result<Process, Stop> {
    if !std::path::Path::new(JAR).is_file() {
        return Err(format!("{JAR} is missing; apt-get install zookeeper default-jre-headless").into());
    }
    let (data, config) = (folder.path().join("data"), folder.path().join("zoo.cfg"));
    let settings = format!(
        "tickTime=100\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\nmaxSessionTimeout=60000\n\
         admin.enableServer=false\n4lw.commands.whitelist=*\n",
        data.display()
    );
    std::fs::write(&config, settings)?;
    let mut command = Command::new("java");
    command
        .args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", SUPERUSER])
        // The suite kills servers, not machines: what the kernel has is kept.
        .args(["-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=1024"])
        // Empty folders are looked for twice a second, so that the suite can see them vanish.
        .arg("-Dznode.container.checkIntervalMs=500")
        .args(["-Dzookeeper.jmx.log4j.disable=true", "-cp", JAR])
        .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
        .arg(&config)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Process::spawn(command)
        .map_err(|e| format!("cannot start java: {e}; apt-get install zookeeper default-jre-headless").into())
}

/// Waits until the server says that it serves: it takes connections a little before.
async fn serves(port: u16) -> Result<(), Stop> {
    let limit = super::START_LIMIT * 2;
    let up = eventually(limit, || async { says_mode(port).await.unwrap_or(false) }).await;
    if up { Ok(()) } else { Err(format!("no ZooKeeper serves on port {port} within {limit:?}").into()) }
}

async fn says_mode(port: u16) -> std::io::Result<bool> {
    let asking = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"srvr").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer.contains("Mode:"))
    };
    tokio::time::timeout(Duration::from_millis(500), asking).await?
}
