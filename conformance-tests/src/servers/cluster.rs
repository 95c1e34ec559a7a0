//! What servers that stand alone or in a cluster have in common: members that are started, stopped, killed, and cut off.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::future::try_join_all;
use tempfile::TempDir;

use super::links::Links;
use crate::process::{Process, free_port};
use crate::{Server, Stop, eventually};

/// How one product is started and asked.
#[async_trait]
pub trait Product: Debug + Send + Sync + 'static {
    /// How many ports a member has for its peers.
    const PEER_PORTS: usize;

    /// The command that starts a member; settings may be written into its folder.
    ///
    /// # Errors
    /// When it is not installed, which says how to install it.
    fn command(&self, seat: &Seat) -> Result<Command, Stop>;

    /// Whether the member serves clients, as part of a majority.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    async fn serves(&self, port: u16) -> bool;

    /// Whether the member leads the others.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    async fn leads(&self, port: u16) -> bool;
}

/// Where one member of a cluster sits.
#[derive(Debug)]
pub struct Seat {
    /// Its number, from 0.
    pub member: usize,
    /// Its port for clients.
    pub port: u16,
    /// The ports of all members for their peers.
    pub peers: Vec<Vec<u16>>,
    /// Where it must dial its peers through (SOCKS 5); `None` for straight to them.
    pub door: Option<SocketAddr>,
    folder: TempDir,
}

impl Seat {
    /// Its own folder, in which `data` is what a wiped member loses.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Whether it has no peers.
    pub fn is_alone(&self) -> bool {
        self.peers.len() == 1
    }
}

/// One member. It keeps its data over a restart.
#[derive(Debug)]
pub struct Member {
    seat: Seat,
    process: Mutex<Process>,
}

impl Member {
    /// Its port for clients on the loopback interface.
    pub fn port(&self) -> u16 {
        self.seat.port
    }

    /// Freezes it (SIGSTOP).
    ///
    /// # Errors
    /// What the operating system says.
    pub fn stop(&self) -> Result<(), Stop> {
        self.with(|process| process.stop())
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Errors
    /// What the operating system says.
    pub fn resume(&self) -> Result<(), Stop> {
        self.with(|process| process.resume())
    }

    /// Ends it at once (SIGKILL).
    ///
    /// # Errors
    /// What the operating system says.
    pub fn kill(&self) -> Result<(), Stop> {
        self.with(|process| process.kill())
    }

    /// Starts it again, without waiting until it serves. Ends it first where it runs.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn start_again(&self, product: &impl Product) -> Result<(), Stop> {
        // The old process must have left the ports before the new one takes them.
        let _ = self.kill();
        let process = Process::spawn(product.command(&self.seat)?)?;
        self.with(|old| *old = process);
        Ok(())
    }

    /// Whether it was killed, or has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.with(|process| process.exit_code().is_some())
    }

    fn with<T>(&self, f: impl FnOnce(&mut Process) -> T) -> T {
        f(&mut self.process.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One member or several on free ports, with their data in temporary folders. What is done to it as a [`Server`] is done to all members.
#[derive(Debug)]
pub struct Cluster<P> {
    product: P,
    members: Vec<Member>,
    links: Option<Links>,
}

impl<P: Product> Cluster<P> {
    /// Starts so many members, and waits until all serve. The lines between several can be cut.
    ///
    /// # Errors
    /// When the product is not installed, which says how to install it, or does not serve in time.
    ///
    /// # Cancel safety
    /// Dropping it ends the servers.
    pub async fn of(mut product: P, members: usize) -> Result<Self, Stop> {
        let mut tries = 3;
        loop {
            // The ports may be taken between the look and the start.
            let cluster = Self::spawn(product, members).await?;
            let ready = cluster.ready().await;
            tries -= 1;
            if ready.is_ok() {
                return Ok(cluster);
            }
            if tries == 0 {
                return Err(format!("{:?} did not start: {ready:?}", cluster.product).into());
            }
            product = cluster.product;
        }
    }

    async fn spawn(product: P, count: usize) -> Result<Self, Stop> {
        let port = |_| free_port();
        let peers = (0..count).map(|_| (0..P::PEER_PORTS).map(port).collect()).collect::<Result<Vec<Vec<_>>, _>>()?;
        let links = if count > 1 { Some(Links::open(peers.clone()).await?) } else { None };
        let mut members = Vec::new();
        for member in 0..count {
            let door = links.as_ref().map(|links| links.door(member));
            let seat = Seat { member, port: free_port()?, peers: peers.clone(), door, folder: tempfile::tempdir()? };
            let process = Process::spawn(product.command(&seat)?)?;
            members.push(Member { seat, process: Mutex::new(process) });
        }
        Ok(Self { product, members, links })
    }

    /// What its members are.
    pub fn product(&self) -> &P {
        &self.product
    }

    /// All members.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The port of the first member for clients, on the loopback interface.
    pub fn port(&self) -> u16 {
        self.members[0].port()
    }

    /// Where the members take clients, as a list for a URL.
    pub fn hosts(&self) -> String {
        let hosts: Vec<_> = self.members.iter().map(|member| format!("127.0.0.1:{}", member.port())).collect();
        hosts.join(",")
    }

    /// The number of the member that leads.
    ///
    /// # Errors
    /// When nobody does within the time of a start.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub async fn leader(&self) -> Result<usize, Stop> {
        let found = Mutex::new(None);
        let led = || async {
            for (number, member) in self.members.iter().enumerate() {
                if self.product.leads(member.port()).await {
                    *found.lock().unwrap_or_else(PoisonError::into_inner) = Some(number);
                    return true;
                }
            }
            false
        };
        eventually(super::START_LIMIT, led).await;
        let found = *found.lock().unwrap_or_else(PoisonError::into_inner);
        found.ok_or_else(|| "no member leads".into())
    }

    /// Cuts a member off from the others, in both directions and without a reset, or joins it again. Clients still reach it.
    pub fn cut(&self, member: usize, off: bool) {
        if let Some(links) = &self.links {
            links.cut(member, off);
        }
    }

    /// Waits until all members serve.
    ///
    /// # Errors
    /// When one does not in time, or has ended.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub async fn ready(&self) -> Result<(), Stop> {
        let limit = super::START_LIMIT * 2;
        try_join_all(self.members.iter().map(|member| async move {
            let up =
                eventually(limit, || async { member.has_ended() || self.product.serves(member.port()).await }).await;
            crate::ensure!(!member.has_ended(), "the member on port {} has ended", member.port());
            if up { Ok(()) } else { Err(format!("nothing serves on port {} within {limit:?}", member.port()).into()) }
        }))
        .await
        .map(drop)
    }

    /// Starts all again without their data.
    ///
    /// # Errors
    /// What the operating system says; when one does not serve in time.
    ///
    /// # Cancel safety
    /// Dropping it may leave servers ended.
    pub async fn wipe(&self) -> Result<(), Stop> {
        for member in &self.members {
            let _ = member.kill();
            std::fs::remove_dir_all(member.seat.folder().join("data"))?;
        }
        self.restart().await
    }
}

#[async_trait]
impl<P: Product> Server for Cluster<P> {
    fn stop(&self) -> Result<(), Stop> {
        self.members.iter().try_for_each(Member::stop)
    }

    fn resume(&self) -> Result<(), Stop> {
        self.members.iter().try_for_each(Member::resume)
    }

    fn kill(&self) -> Result<(), Stop> {
        self.members.iter().try_for_each(Member::kill)
    }

    async fn restart(&self) -> Result<(), Stop> {
        self.members.iter().try_for_each(|member| member.start_again(&self.product))?;
        self.ready().await
    }

    async fn strike_leader(&self, kill: bool) -> Result<(), Stop> {
        let leader = &self.members[self.leader().await?];
        if kill { leader.kill() } else { leader.stop() }
    }

    async fn mend(&self) -> Result<(), Stop> {
        for member in &self.members {
            if member.has_ended() { member.start_again(&self.product)? } else { member.resume()? }
        }
        self.ready().await
    }
}
