//! etcd servers of one's own.

use std::process::{Command, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::Client;

use super::cluster::{Cluster, Product, Seat};
use crate::Stop;

/// etcd. Its elections are quick, so that leases of 1 s are granted.
#[derive(Debug)]
pub struct Etcd {
    /// Further arguments, such as `--auth-token-ttl`.
    pub extra: Vec<String>,
}

/// etcd servers, one or a cluster.
pub type EtcdServer = Cluster<Etcd>;

impl EtcdServer {
    /// Starts a cluster of one member, with further arguments such as `--auth-token-ttl 2`, and waits until it answers.
    ///
    /// # Errors
    /// When it is not installed, which says how to install it, or does not answer in time.
    ///
    /// # Cancel safety
    /// Dropping it ends the server.
    pub async fn start(extra: &[&str]) -> Result<Self, Stop> {
        Self::of(Etcd::with(extra), 1).await
    }
}

impl Etcd {
    /// With further arguments, such as `--auth-token-ttl 2`.
    pub fn with(extra: &[&str]) -> Self {
        Self { extra: extra.iter().map(|&arg| arg.to_owned()).collect() }
    }
}

#[async_trait]
impl Product for Etcd {
    const PEER_PORTS: usize = 1;

    fn command(&self, seat: &Seat) -> Result<Command, Stop> {
        // A proxy is never asked for an address of the loopback interface; this one leads there, too.
        let host = if seat.door.is_some() { "0.0.0.0" } else { "127.0.0.1" };
        let peer = |member: usize| format!("http://{host}:{}", seat.peers[member][0]);
        let all: Vec<_> = (0..seat.peers.len()).map(|member| format!("m{member}={}", peer(member))).collect();
        let client = format!("http://127.0.0.1:{}", seat.port);
        let mut command = Command::new("etcd");
        command
            .args(["--name", &format!("m{}", seat.member), "--initial-cluster", &all.join(",")])
            .args(["--logger", "zap", "--log-level", "error"])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer(seat.member), "--initial-advertise-peer-urls", &peer(seat.member)])
            .args(["--heartbeat-interval", "50", "--election-timeout", "250", "--data-dir"])
            .arg(seat.folder().join("data"))
            .args(&self.extra)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(door) = seat.door {
            command.env("HTTP_PROXY", format!("socks5://{door}"));
        }
        Ok(command)
    }

    /// It serves a read, for which there must be a leader.
    async fn serves(&self, port: u16) -> bool {
        let asked = async { Client::connect([format!("127.0.0.1:{port}")], None).await?.get("x", None).await };
        // A login is asked for where there are users: that is an answer, too.
        match tokio::time::timeout(Duration::from_secs(1), asked).await {
            Ok(Ok(_)) => true,
            Ok(Err(e)) => e.to_string().contains("user name is empty"),
            Err(_) => false,
        }
    }

    async fn leads(&self, port: u16) -> bool {
        let asked = async { Client::connect([format!("127.0.0.1:{port}")], None).await?.status().await };
        match tokio::time::timeout(Duration::from_secs(1), asked).await {
            Ok(Ok(status)) => status.header().is_some_and(|header| header.member_id() == status.leader()),
            _ => false,
        }
    }
}
