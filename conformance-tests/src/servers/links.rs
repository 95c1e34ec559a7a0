//! The lines between the members of a cluster, so that each can be cut.
//!
//! A member dials its peers through a SOCKS door of its own, so that it is known who dials whom: behind the doors one [`Proxy`]
//! carries what one member sends to one port of another.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::Stop;
use crate::proxy::Proxy;

/// All lines between members whose peer ports are known.
#[derive(Debug)]
pub(crate) struct Links {
    doors: Vec<SocketAddr>,
    lines: HashMap<Line, Proxy>,
    /// Who is cut off now.
    cut: watch::Sender<Vec<usize>>,
    /// The lines outlive the case that started the cluster.
    runtime: Option<Runtime>,
}

/// Who dials whom, at which port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Line {
    from: usize,
    to: usize,
    port: u16,
}

/// Whether a line is cut, when these members are cut off.
fn is_cut(cut: &[usize], from: usize, to: usize) -> bool {
    from != to && (cut.contains(&from) || cut.contains(&to))
}

impl Drop for Links {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Links {
    /// Opens a door for each member. `ports` are the peer ports of each.
    pub(crate) async fn open(ports: Vec<Vec<u16>>) -> Result<Self, Stop> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let (cut, told) = watch::channel(Vec::new());
        let opened = runtime.spawn(async move {
            let (mut doors, mut lines) = (Vec::new(), HashMap::new());
            for from in 0..ports.len() {
                let mut ways = HashMap::new();
                for (to, own) in ports.iter().enumerate() {
                    for &port in own {
                        let proxy = Proxy::start(([127, 0, 0, 1], port).into()).await?;
                        ways.insert(port, (to, proxy.address()));
                        lines.insert(Line { from, to, port }, proxy);
                    }
                }
                let door = TcpListener::bind(("127.0.0.1", 0)).await?;
                doors.push(door.local_addr()?);
                tokio::spawn(keep_door(door, from, Arc::new(ways), told.clone()));
            }
            Ok::<_, io::Error>((doors, lines))
        });
        let (doors, lines) = opened.await??;
        Ok(Self { doors, lines, cut, runtime: Some(runtime) })
    }

    /// Where a member dials its peers through.
    pub(crate) fn door(&self, member: usize) -> SocketAddr {
        self.doors[member]
    }

    /// Cuts a member off from all others, in both directions, as a pulled cable does, or joins it again.
    pub(crate) fn cut(&self, member: usize, off: bool) {
        self.cut.send_modify(|cut| {
            cut.retain(|other| *other != member);
            if off {
                cut.push(member);
            }
        });
        let cut = self.cut.borrow();
        for (line, proxy) in &self.lines {
            proxy.black_hole(is_cut(&cut, line.from, line.to));
        }
    }
}

/// Which member listens at a port, and where the line to it begins.
type Ways = HashMap<u16, (usize, SocketAddr)>;

async fn keep_door(door: TcpListener, from: usize, ways: Arc<Ways>, cut: watch::Receiver<Vec<usize>>) {
    loop {
        let Ok((client, _)) = door.accept().await else { continue };
        let (ways, cut) = (Arc::clone(&ways), cut.clone());
        // A connection that fails is the member's to dial again.
        tokio::spawn(async move { pass(client, from, &ways, cut).await });
    }
}

/// One connection: the few bytes of SOCKS 5 by which the caller names the peer, then whatever the two have to say.
async fn pass(mut client: TcpStream, from: usize, ways: &Ways, mut cut: watch::Receiver<Vec<usize>>) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut head = [0; 2];
    client.read_exact(&mut head).await?;
    let mut methods = vec![0; head[1].into()];
    client.read_exact(&mut methods).await?;
    client.write_all(&[5, 0]).await?;
    let mut request = [0; 4];
    client.read_exact(&mut request).await?;
    let length = match request[3] {
        1 => 4,
        4 => 16,
        _ => client.read_u8().await?.into(),
    };
    let mut host = vec![0; length];
    client.read_exact(&mut host).await?;
    let port = client.read_u16().await?;
    let &(to, way) = ways.get(&port).ok_or(io::ErrorKind::AddrNotAvailable)?;
    // Over a cut line no dialling arrives. A connection that did, and then said nothing, would keep the peer busy that listens.
    cut.wait_for(|cut| !is_cut(cut, from, to)).await.map_err(io::Error::other)?;
    // A proxy takes connections whether or not the peer is up; the caller must know.
    drop(TcpStream::connect(("127.0.0.1", port)).await?);
    let mut peer = TcpStream::connect(way).await?;
    peer.set_nodelay(true)?;
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    copy_bidirectional(&mut client, &mut peer).await.map(drop)
}
