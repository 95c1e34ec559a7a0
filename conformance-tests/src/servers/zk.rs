//! ZooKeeper servers of one's own.

use std::process::{Command, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::cluster::{Cluster, Product, Seat};
use crate::Stop;

/// Where Debian keeps the server. It names what else it needs; a longer class path makes the start ten times as long.
const JAR: &str = "/usr/share/java/zookeeper.jar";

/// The user who may do all, `super` with the password `suite`, as the server is told of him.
const SUPERUSER: &str = "-Dzookeeper.DigestAuthenticationProvider.superDigest=super:byqk9J+vIAxISordpK5TdXrJG2w=";

/// ZooKeeper, with session time-outs up to 60 s.
#[derive(Debug)]
pub struct Zk {
    /// A tick, in milliseconds.
    pub tick: u32,
    /// How many ticks an ensemble's servers may be silent to each other.
    pub sync_limit: u32,
}

/// With a tick of 100 ms, and two seconds of patience on a busy machine.
impl Default for Zk {
    fn default() -> Self {
        Self { tick: 100, sync_limit: 20 }
    }
}

/// ZooKeeper servers, one or an ensemble.
pub type ZkServer = Cluster<Zk>;

impl ZkServer {
    /// Starts one without an ensemble and with a tick of 100 ms, and waits until it serves.
    ///
    /// # Errors
    /// When it is not installed, which says how to install it, or does not serve in time.
    ///
    /// # Cancel safety
    /// Dropping it ends the server.
    pub async fn start() -> Result<Self, Stop> {
        Self::of(Zk::default(), 1).await
    }
}

#[async_trait]
impl Product for Zk {
    /// For what the leader says, and for its election.
    const PEER_PORTS: usize = 2;

    fn command(&self, seat: &Seat) -> Result<Command, Stop> {
        if !std::path::Path::new(JAR).is_file() {
            return Err(format!("{JAR} is missing; apt-get install zookeeper default-jre-headless").into());
        }
        let (data, config) = (seat.folder().join("data"), seat.folder().join("zoo.cfg"));
        std::fs::create_dir_all(&data)?;
        let mut settings = format!(
            "tickTime={}\ndataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\nmaxSessionTimeout=60000\n\
             admin.enableServer=false\n4lw.commands.whitelist=*\n",
            self.tick,
            data.display(),
            seat.port
        );
        if !seat.is_alone() {
            std::fs::write(data.join("myid"), seat.member.to_string())?;
            settings.push_str(&format!("initLimit=50\nsyncLimit={}\n", self.sync_limit));
            for (member, ports) in seat.peers.iter().enumerate() {
                settings.push_str(&format!("server.{member}=127.0.0.1:{}:{}\n", ports[0], ports[1]));
            }
        }
        std::fs::write(&config, settings)?;
        let mut command = Command::new("java");
        command
            .args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", SUPERUSER])
            // The suite kills servers, not machines: what the kernel has is kept.
            .args(["-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=1024"])
            // Empty folders are looked for twice a second, so that the suite can see them vanish.
            .arg("-Dznode.container.checkIntervalMs=500")
            .arg("-Dzookeeper.jmx.log4j.disable=true")
            // A vote that was lost is cast again soon; by default it takes up to a minute.
            .arg("-Dzookeeper.fastleader.maxNotificationInterval=400");
        if let Some(door) = seat.door {
            command
                .arg(format!("-DsocksProxyHost={}", door.ip()))
                .arg(format!("-DsocksProxyPort={}", door.port()))
                // Left empty, for else hosts of the loopback interface are added.
                .arg("-DsocksNonProxyHosts=");
        }
        command
            .args(["-cp", JAR, "org.apache.zookeeper.server.quorum.QuorumPeerMain"])
            .arg(&config)
            .current_dir(seat.folder())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(command)
    }

    /// A server takes connections a little before it serves.
    async fn serves(&self, port: u16) -> bool {
        says(port, "srvr").await.is_ok_and(|answer| answer.contains("Mode:"))
    }

    async fn leads(&self, port: u16) -> bool {
        says(port, "srvr").await.is_ok_and(|answer| answer.contains("Mode: leader"))
    }
}

/// What a server answers to a word of four letters, such as `mntr`.
///
/// # Errors
/// What the operating system says; after half a second `TimedOut`.
///
/// # Cancel safety
/// Dropping it loses nothing.
pub async fn says(port: u16, word: &str) -> std::io::Result<String> {
    let asking = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(word.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    };
    tokio::time::timeout(Duration::from_millis(500), asking).await?
}
