//! The lines between servers that announce their addresses to each other and to clients, so that each can be cut.
//!
//! Every server has a loopback address of its own, from which it also dials. What it announces is a gate in front of it: whoever comes is
//! known by the address that he comes from, and carried by a [`Proxy`] of that line.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use crate::Stop;
use crate::proxy::Proxy;

/// The user by whom one client is told from all others: a connection that logs in as this is his.
pub const HOLDER: &str = "holder";

/// Whose end of a line it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The server with this number.
    Server(usize),
    /// The client that logs in as [`HOLDER`].
    Holder,
    /// All other clients.
    Client,
}

/// Gates in front of servers.
#[derive(Debug)]
pub(crate) struct Gates {
    /// For each server the gates of its ports, in their order.
    ports: Vec<Vec<u16>>,
    lines: HashMap<(End, usize), Vec<Proxy>>,
    cut: Mutex<HashSet<(End, End)>>,
    /// The lines outlive the case that started the servers.
    runtime: Option<Runtime>,
}

impl Drop for Gates {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The address of a server.
pub(crate) fn address_of(server: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 1, u8::try_from(server + 1).unwrap_or(u8::MAX))
}

impl Gates {
    /// Opens them. `ports` are those of each server.
    pub(crate) async fn open(ports: Vec<Vec<u16>>) -> Result<Self, Stop> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let opened = runtime.spawn(async move {
            let ends = || (0..ports.len()).map(End::Server).chain([End::Holder, End::Client]);
            let (mut gates, mut lines) = (Vec::new(), HashMap::<_, Vec<Proxy>>::new());
            for (to, ports) in ports.iter().enumerate() {
                let mut own = Vec::new();
                for &port in ports {
                    let mut ways = HashMap::new();
                    for from in ends() {
                        let proxy = Proxy::start((address_of(to), port).into()).await?;
                        ways.insert(from, proxy.address());
                        lines.entry((from, to)).or_default().push(proxy);
                    }
                    let gate = TcpListener::bind((address_of(to), 0)).await?;
                    own.push(gate.local_addr()?.port());
                    tokio::spawn(keep_gate(gate, Arc::new(ways)));
                }
                gates.push(own);
            }
            Ok::<_, io::Error>((gates, lines))
        });
        let (ports, lines) = opened.await??;
        Ok(Self { ports, lines, cut: Mutex::default(), runtime: Some(runtime) })
    }

    /// The gate before one of a server's ports.
    pub(crate) fn port(&self, server: usize, number: usize) -> u16 {
        self.ports[server][number]
    }

    /// Cuts the lines between two ends in both directions, as a pulled cable does, or joins them again.
    pub(crate) fn cut(&self, one: End, other: End, off: bool) {
        let mut cut = self.cut.lock().unwrap_or_else(PoisonError::into_inner);
        for (from, to) in [(one, other), (other, one)] {
            let changed = if off { cut.insert((from, to)) } else { cut.remove(&(from, to)) };
            if let (true, End::Server(to)) = (changed, to) {
                self.lines.get(&(from, to)).into_iter().flatten().for_each(|line| line.black_hole(off));
            }
        }
    }
}

async fn keep_gate(gate: TcpListener, ways: Arc<HashMap<End, SocketAddr>>) {
    loop {
        let Ok((client, from)) = gate.accept().await else { continue };
        let ways = Arc::clone(&ways);
        // A connection that fails is the dialler's to dial again.
        tokio::spawn(async move { pass(client, from, &ways).await });
    }
}

async fn pass(mut client: TcpStream, from: SocketAddr, ways: &HashMap<End, SocketAddr>) -> io::Result<()> {
    let server = (0..ways.len() - 2).find(|server| from.ip() == address_of(*server)).map(End::Server);
    let end = match server {
        Some(server) => server,
        None => whose(&client).await?,
    };
    let way = ways.get(&end).ok_or(io::ErrorKind::AddrNotAvailable)?;
    let mut line = TcpStream::connect(way).await?;
    client.set_nodelay(true)?;
    line.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut line).await.map(drop)
}

/// A client logs in with the first that it says.
async fn whose(client: &TcpStream) -> io::Result<End> {
    let mut first = [0; 256];
    let read = client.peek(&mut first).await?;
    let named = first[..read].windows(HOLDER.len()).any(|word| word == HOLDER.as_bytes());
    Ok(if named { End::Holder } else { End::Client })
}
