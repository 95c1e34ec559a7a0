//! A TCP proxy that misbehaves on demand.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

/// Forwards connections to a server, or to several, and disturbs them as its rules say. Each change holds for open connections and new ones.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    rules: watch::Sender<Rules>,
    traffic: Arc<Traffic>,
    listeners: Vec<JoinHandle<()>>,
}

/// One of several servers that tell clients where the others are.
#[derive(Clone, Copy, Debug)]
pub struct Announcer {
    /// Where it listens.
    pub server: SocketAddr,
    /// Where clients are told that it does.
    pub announced: SocketAddr,
}

/// What is written in replies in the place of what.
type Translations = Vec<(Vec<u8>, Vec<u8>)>;

#[derive(Debug, Default)]
struct Traffic {
    requests: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
}

/// How the proxy disturbs its connections at present.
#[derive(Clone, Copy, Debug, Default)]
struct Rules {
    refuse: bool,
    request: Way,
    reply: Way,
    /// Connections that were opened in an earlier epoch are reset.
    epoch: u64,
    /// Connections whose next reply is swallowed, and which are reset then.
    cut_at_reply: bool,
}

/// How one direction is disturbed.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    delay: Duration,
    hold: bool,
    /// Connections with a lower number are held back as well.
    hold_below: u64,
    trickle: bool,
}

impl Way {
    fn holds(self, connection: u64) -> bool {
        self.hold || connection < self.hold_below
    }
}

impl Proxy {
    /// Starts a proxy on a free port of the loopback interface.
    ///
    /// # Errors
    /// What the operating system says.
    ///
    /// # Cancel safety
    /// Dropping it starts nothing.
    pub async fn start(server: SocketAddr) -> io::Result<Self> {
        Self::before(&[Announcer { server, announced: server }]).await
    }

    /// Starts one before several servers. In what a Redis server tells of itself and of the others, the proxy's addresses take the place of theirs, so that a client that enters at
    /// [`address`](Self::address), before the first of them, stays behind this proxy wherever it is sent.
    ///
    /// # Errors
    /// What the operating system says; when an announced address is not as long as one of the proxy's own.
    ///
    /// # Cancel safety
    /// Dropping it starts nothing.
    pub async fn before(servers: &[Announcer]) -> io::Result<Self> {
        let (mut doors, mut translations) = (Vec::new(), Translations::new());
        for server in servers {
            let door = TcpListener::bind(("127.0.0.1", 0)).await?;
            if servers.len() > 1 {
                for (theirs, ours) in forms(server.announced).into_iter().zip(forms(door.local_addr()?)) {
                    if theirs.len() != ours.len() {
                        return Err(io::Error::other("an address of another length would change the reply's"));
                    }
                    translations.push((theirs, ours));
                }
            }
            doors.push(door);
        }
        let address = doors.first().ok_or_else(|| io::Error::other("there is no server"))?.local_addr()?;
        let (rules, _) = watch::channel(Rules::default());
        let (traffic, translations) = (Arc::new(Traffic::default()), Arc::new(translations));
        let accepting = |(door, server): (_, &Announcer)| {
            let way = Route { server: server.server, translations: Arc::clone(&translations) };
            tokio::spawn(accept(door, way, rules.clone(), Arc::clone(&traffic)))
        };
        let listeners = doors.into_iter().zip(servers).map(accepting).collect();
        Ok(Self { address, rules, traffic, listeners })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many pieces of requests it has read so far: about one for each request.
    pub fn requests(&self) -> u64 {
        self.traffic.requests.load(Ordering::Relaxed)
    }

    /// How many connections it has accepted so far.
    pub fn accepted(&self) -> u64 {
        self.traffic.accepted.load(Ordering::Relaxed)
    }

    /// How many connections it has [refused](Self::refuse) so far.
    pub fn refused(&self) -> u64 {
        self.traffic.refused.load(Ordering::Relaxed)
    }

    /// How many connections are open now.
    pub fn open(&self) -> usize {
        // Each connection holds one share, and so do the proxy and the tasks that accept.
        Arc::strong_count(&self.traffic) - 1 - self.listeners.len()
    }

    /// Resets all open connections.
    pub fn cut(&self) {
        self.rules.send_modify(|rules| rules.epoch += 1);
    }

    /// Resets new connections right after they were accepted, or accepts them again.
    pub fn refuse(&self, refuse: bool) {
        self.rules.send_modify(|rules| rules.refuse = refuse);
    }

    /// Delays each piece of a request by so much.
    pub fn delay_requests(&self, delay: Duration) {
        self.rules.send_modify(|rules| rules.request.delay = delay);
    }

    /// Delays each piece of a reply by so much.
    pub fn delay_replies(&self, delay: Duration) {
        self.rules.send_modify(|rules| rules.reply.delay = delay);
    }

    /// Keeps requests back, or delivers all that were kept, even those of clients that are gone.
    pub fn hold_requests(&self, hold: bool) {
        self.rules.send_modify(|rules| (rules.request.hold, rules.request.hold_below) = (hold, 0));
    }

    /// Keeps requests of the connections that are open now back, until [`hold_requests(false)`](Self::hold_requests); new ones work.
    pub fn hold_requests_of_open(&self) {
        let next = self.accepted();
        self.rules.send_modify(|rules| rules.request.hold_below = next);
    }

    /// Forwards nothing any more on the connections that are open now, and resets nothing; new ones work.
    pub fn forget_open(&self) {
        let next = self.accepted();
        self.rules.send_modify(|rules| (rules.request.hold_below, rules.reply.hold_below) = (next, next));
    }

    /// Keeps replies back, or delivers them.
    pub fn hold_replies(&self, hold: bool) {
        self.rules.send_modify(|rules| rules.reply.hold = hold);
    }

    /// Forwards nothing in either direction and resets nothing, as a cut cable does, or goes on.
    pub fn black_hole(&self, dark: bool) {
        self.rules.send_modify(|rules| (rules.request.hold, rules.reply.hold) = (dark, dark));
    }

    /// Forwards replies byte by byte, a millisecond apart.
    pub fn trickle(&self, slow: bool) {
        self.rules.send_modify(|rules| rules.reply.trickle = slow);
    }

    /// On each connection the next request goes through, its reply is swallowed and the connection reset; until switched off.
    pub fn cut_after_request(&self, on: bool) {
        self.rules.send_modify(|rules| rules.cut_at_reply = on);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
        self.listeners.iter().for_each(JoinHandle::abort);
    }
}

/// Where a connection leads, and what is put right on its way back.
#[derive(Clone)]
struct Route {
    server: SocketAddr,
    translations: Arc<Translations>,
}

/// An address as a Redis server writes it: in a redirection, among the slots of a cluster, and as a sentinel does.
fn forms(address: SocketAddr) -> [Vec<u8>; 3] {
    let (ip, port) = (address.ip(), address.port().to_string());
    [format!("{ip}:{port}"), format!("{ip}\r\n:{port}"), format!("{ip}\r\n${}\r\n{port}", port.len())].map(Into::into)
}

/// Carries connections until the proxy is dropped.
async fn accept(listener: TcpListener, route: Route, rules: watch::Sender<Rules>, traffic: Arc<Traffic>) {
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        if rules.borrow().refuse {
            traffic.refused.fetch_add(1, Ordering::Relaxed);
            reset(&client);
            continue;
        }
        let number = traffic.accepted.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(forward(number, client, route.clone(), rules.subscribe(), Arc::clone(&traffic)));
    }
}

/// A connection ends by a reset.
struct Cut;

/// Carries one connection until both sides have ended it, or it is cut.
async fn forward(
    number: u64,
    mut client: TcpStream,
    route: Route,
    rules: watch::Receiver<Rules>,
    traffic: Arc<Traffic>,
) {
    let Ok(mut server) = TcpStream::connect(route.server).await else { return reset(&client) };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let epoch = rules.borrow().epoch;
    let mut epochs = rules.clone();
    let cut = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let (up, down) = (Direction::Requests(traffic), Direction::Replies(route.translations));
        let up = Pipe { number, rules: rules.clone(), direction: up }.carry(from_client, to_server);
        let down = Pipe { number, rules, direction: down }.carry(from_server, to_client);
        tokio::select! {
            ended = async { tokio::try_join!(up, down) } => ended.is_err(),
            _ = epochs.wait_for(|rules| rules.epoch != epoch) => true,
        }
    };
    if cut {
        reset(&client);
        reset(&server);
    }
}

/// One direction of a connection.
struct Pipe {
    /// The connection's.
    number: u64,
    rules: watch::Receiver<Rules>,
    direction: Direction,
}

enum Direction {
    /// Where they are counted.
    Requests(Arc<Traffic>),
    Replies(Arc<Translations>),
}

impl Direction {
    /// Counts a piece that was read, or translates it: an answer that tells of addresses has some hundred bytes, and comes in one piece.
    fn read(&self, piece: &mut [u8]) {
        match self {
            Self::Requests(traffic) => drop(traffic.requests.fetch_add(1, Ordering::Relaxed)),
            Self::Replies(translations) => {
                for (theirs, ours) in translations.iter() {
                    let found = |piece: &[u8]| piece.windows(theirs.len()).position(|window| window == theirs);
                    while let Some(at) = found(piece) {
                        piece[at..at + ours.len()].copy_from_slice(ours);
                    }
                }
            }
        }
    }
}

impl Pipe {
    /// Reading goes on while writing is held back, so that a request outlives its client.
    async fn carry(self, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> Result<(), Cut> {
        let Self { number, mut rules, direction } = self;
        let is_reply = matches!(direction, Direction::Replies(_));
        let way = |rules: &Rules| if is_reply { rules.reply } else { rules.request };
        let (pieces, mut queue) = mpsc::channel::<(Instant, Vec<u8>)>(4096);
        let read = async move {
            let mut buffer = vec![0; 16 * 1024];
            while let Ok(n @ 1..) = from.read(&mut buffer).await {
                direction.read(&mut buffer[..n]);
                if pieces.send((Instant::now(), buffer[..n].to_vec())).await.is_err() {
                    break;
                }
            }
            Ok(())
        };
        let write = async move {
            while let Some((read_at, piece)) = queue.recv().await {
                let delay = way(&rules.borrow()).delay;
                sleep_until(read_at + delay).await;
                rules.wait_for(|rules| !way(rules).holds(number)).await.map_err(drop).map_err(|()| Cut)?;
                let now = *rules.borrow();
                if is_reply && now.cut_at_reply {
                    return Err(Cut);
                }
                match way(&now).trickle {
                    false => to.write_all(&piece).await,
                    true => slowly(&mut to, &piece).await,
                }
                .map_err(|_| Cut)?;
            }
            rules.wait_for(|rules| !way(rules).holds(number)).await.map_err(drop).map_err(|()| Cut)?;
            let _ = to.shutdown().await;
            Ok(())
        };
        tokio::try_join!(read, write).map(|((), ())| ())
    }
}

async fn slowly(to: &mut WriteHalf<'_>, piece: &[u8]) -> io::Result<()> {
    for byte in piece.chunks(1) {
        to.write_all(byte).await?;
        sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Makes the close of a connection a reset.
fn reset(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
