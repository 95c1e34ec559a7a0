//! One server, and the one connection to it that carries all commands, dialled anew when it fails or is in doubt.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError, Value};
use tokio_util::sync::CancellationToken;

use crate::errors::{meaning_of, problem};
use crate::scripts::{number, parts, text};
use crate::sentinel::Sentinels;

/// How long one of several servers is asked for what they all know.
pub(crate) const ASK_LIMIT: Duration = Duration::from_secs(1);

/// What a request was answered, and whether an earlier copy of it may still be on its way.
pub(crate) struct Answer {
    pub(crate) value: Value,
    pub(crate) repeated: bool,
    /// Over which connection, so that what was written can be confirmed.
    pub(crate) over: Live,
}

/// A command.
pub(crate) struct Request {
    pub(crate) cmd: Cmd,
    /// Whether it counts tokens: then the floor of the connection that it goes over is its last argument.
    pub(crate) counts: bool,
}

impl From<&Cmd> for Request {
    fn from(cmd: &Cmd) -> Self {
        Self { cmd: cmd.clone(), counts: false }
    }
}

/// Why a request failed, at which server where that is known, and whether an earlier copy of it may still be on its way.
pub(crate) struct Failure {
    pub(crate) error: RedisError,
    pub(crate) server: Option<String>,
    pub(crate) repeated: bool,
}

/// Whether a request may be sent a second time when the connection breaks under it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resend {
    Once,
    Never,
}

/// A server at an address.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// Host and port.
    pub(crate) address: String,
    pub(crate) client: Client,
}

impl Server {
    /// A connection that listens.
    pub(crate) async fn listen(&self) -> Result<PubSub, RedisError> {
        self.client.get_async_pubsub().await
    }
}

/// Where a node is.
pub(crate) enum Place {
    At(Server),
    /// Wherever the sentinels say that the primary is.
    Primary(Sentinels),
}

pub(crate) struct Node {
    pub(crate) place: Place,
    /// Whether it keeps locks, and not only knows who does.
    keeps_locks: bool,
    dial_limit: Duration,
    live: Mutex<Option<Live>>,
    /// Held while dialling, so that many callers that miss the connection open one.
    dialling: tokio::sync::Mutex<()>,
    closed: CancellationToken,
}

/// An open connection.
#[derive(Clone)]
pub(crate) struct Live {
    connection: MultiplexedConnection,
    doubtful: Arc<AtomicBool>,
    pub(crate) server: Arc<Server>,
    /// The server's time at which it was opened, in microseconds. All tokens that were granted before, also those of a primary that is gone, lie
    /// below, and none that is granted from now on may.
    floor: u64,
    confirmed: Arc<Confirmed>,
}

/// A request whose future is dropped before its answer puts its connection in doubt: the answer took too long.
struct InFlight<'a>(Option<&'a AtomicBool>);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if let Some(doubtful) = self.0 {
            doubtful.store(true, Ordering::Release);
        }
    }
}

impl Node {
    pub(crate) fn new(place: Place, keeps_locks: bool, dial_limit: Duration, closed: CancellationToken) -> Self {
        Self { place, keeps_locks, dial_limit, live: Mutex::new(None), dialling: tokio::sync::Mutex::new(()), closed }
    }

    /// Sends a command; behind `ASKING`, which lets a node serve a slot that it is still taking over.
    pub(crate) async fn send(&self, request: &Request, asking: bool, resend: Resend) -> Result<Answer, Failure> {
        let mut repeated = false;
        loop {
            let live = self.live().await.map_err(|error| Failure { error, server: self.address(), repeated })?;
            let mut in_flight = InFlight(Some(&live.doubtful));
            let answer = if request.counts {
                live.request(request.cmd.clone().arg(live.floor), asking).await
            } else {
                live.request(&request.cmd, asking).await
            };
            in_flight.0 = None;
            drop(in_flight);
            let error = match answer {
                Ok(value) => return Ok(Answer { value, repeated, over: live }),
                Err(error) => error,
            };
            if meaning_of(&error).redial {
                live.doubtful.store(true, Ordering::Release);
                if resend == Resend::Once && !repeated && error.is_connection_dropped() {
                    repeated = true;
                    continue;
                }
            }
            return Err(Failure { error, server: Some(live.server.address.clone()), repeated });
        }
    }

    /// Asks for what several servers know. Dropped early it harms nobody; without an answer in time the connection is in doubt.
    pub(crate) async fn ask(&self, cmd: &Cmd) -> Result<Value, RedisError> {
        let asked = async {
            let live = self.live().await?;
            let answer =
                tokio::time::timeout(ASK_LIMIT, live.request(cmd, false)).await.unwrap_or_else(|_| timed_out());
            if answer.as_ref().is_err_and(|error| meaning_of(error).redial) {
                live.doubtful.store(true, Ordering::Release);
            }
            answer
        };
        tokio::time::timeout(ASK_LIMIT * 2, asked).await.unwrap_or_else(|_| timed_out())
    }

    /// The open connection, or a new one.
    pub(crate) async fn live(&self) -> Result<Live, RedisError> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let closed = || RedisError::from(std::io::Error::from(std::io::ErrorKind::NotConnected));
        if self.closed.is_cancelled() {
            return Err(closed());
        }
        let _only_one = self.dialling.lock().await;
        if let Some(live) = self.current() {
            return Ok(live);
        }
        self.close();
        let server = match &self.place {
            Place::At(server) => server.clone(),
            Place::Primary(sentinels) => sentinels.primary().await?,
        };
        let live = self.dial(server).await?;
        // Looked at under the lock: what is kept after this was closed would stay open.
        let mut kept = lock(&self.live);
        if !self.closed.is_cancelled() {
            *kept = Some(live.clone());
        }
        drop(kept);
        Ok(live)
    }

    async fn dial(&self, server: Server) -> Result<Live, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.dial_limit))
            // The caller bounds each request; a limit of the driver's would leave the connection in use.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(1024);
        let connection = server.client.get_multiplexed_async_connection_with_config(&config).await?;
        tracing::debug!(server = server.address, "connected");
        let server = Arc::new(server);
        let mut live = Live { connection, doubtful: Arc::default(), server, floor: 0, confirmed: Arc::default() };
        if let Place::Primary(_) = self.place {
            live.is_primary().await?;
        }
        if self.keeps_locks {
            let time = live.request(&redis::cmd("TIME"), false).await?;
            let part = |at| number(parts(&time).get(at)).and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
            live.floor = part(0) * 1_000_000 + part(1);
        }
        Ok(live)
    }

    pub(crate) fn current(&self) -> Option<Live> {
        lock(&self.live).as_ref().filter(|live| !live.doubtful.load(Ordering::Acquire)).cloned()
    }

    /// The address of a server that has none but this, or is spoken to now.
    fn address(&self) -> Option<String> {
        match &self.place {
            Place::At(server) => Some(server.address.clone()),
            Place::Primary(_) => self.current().map(|live| live.server.address.clone()),
        }
    }

    /// The next request dials anew.
    pub(crate) fn doubt(&self) {
        if let Some(live) = &*lock(&self.live) {
            live.doubtful.store(true, Ordering::Release);
        }
    }

    /// Drops the connection.
    pub(crate) fn close(&self) {
        lock(&self.live).take();
    }
}

impl Live {
    async fn request(&self, cmd: &Cmd, asking: bool) -> Result<Value, RedisError> {
        let mut connection = self.connection.clone();
        if !asking {
            return connection.send_packed_command(cmd).await.and_then(Value::extract_error);
        }
        let mut both = redis::pipe();
        both.cmd("ASKING").add_command(cmd.clone());
        let answers = connection.send_packed_commands(&both, 1, 1).await?;
        answers.into_iter().next().unwrap_or(Value::Nil).extract_error()
    }

    /// A replica that takes over calls itself a replica until it has.
    async fn is_primary(&self) -> Result<(), RedisError> {
        match self.request(&redis::cmd("ROLE"), false).await {
            Ok(answer) => match text(parts(&answer).first()) {
                "slave" => Err(problem("NOTPRIMARY", format!("{} is a replica still", self.server.address))),
                _ => Ok(()),
            },
            // Who may not ask learns it from the first write.
            Err(error) if error.code() == Some("NOPERM") => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Waits until so many replicas have what was written before over this connection.
    ///
    /// The server holds back all other answers meanwhile, so callers share: one WAIT confirms whatever was written before it.
    pub(crate) async fn confirm(&self, replicas: u32, limit: Duration) -> Result<(), RedisError> {
        let ticket = self.confirmed.tickets.fetch_add(1, Ordering::Relaxed) + 1;
        let mut turn = self.confirmed.turn.lock().await;
        if turn.0 < ticket {
            let tickets = self.confirmed.tickets.load(Ordering::Relaxed);
            let mut in_flight = InFlight(Some(&self.doubtful));
            let answer =
                self.request(redis::cmd("WAIT").arg(replicas).arg(limit.as_millis().max(1) as u64), false).await;
            in_flight.0 = None;
            *turn = (tickets, number(Some(&answer?)).and_then(|n| u32::try_from(n).ok()).unwrap_or(0));
        }
        if turn.1 >= replicas {
            return Ok(());
        }
        let detail = format!("{} of {replicas} replicas confirmed it within {limit:?}", turn.1);
        Err(problem("UNCONFIRMED", detail))
    }
}

/// Who drew the last number before the last WAIT, and how many replicas that found.
#[derive(Default)]
struct Confirmed {
    tickets: AtomicU64,
    turn: tokio::sync::Mutex<(u64, u32)>,
}

pub(crate) fn timed_out<T>() -> Result<T, RedisError> {
    Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into())
}

/// Nothing panics while it holds one of these locks for longer than a few plain assignments, so the data is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
