//! The one connection that carries all commands, dialled anew when it fails or is in doubt.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::{Effect, ErrorKind, LockError};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError, Value};
use tokio_util::sync::CancellationToken;

use crate::BACKEND;
use crate::config::RedisConfig;
use crate::errors::{from_driver, meaning_of};

/// A Lua script with its name in the server's cache.
pub(crate) struct Script {
    text: &'static str,
    hash: String,
}

impl Script {
    pub(crate) fn new(text: &'static str) -> Self {
        Self { text, hash: redis::Script::new(text).get_hash().to_owned() }
    }

    fn command(&self, how: &'static str, keys: &[&[u8]], args: &[&[u8]]) -> Cmd {
        let mut cmd = Cmd::with_capacity(3 + keys.len() + args.len(), 256);
        cmd.arg(how).arg(if how == "EVAL" { self.text } else { &self.hash }).arg(keys.len());
        for part in keys.iter().chain(args) {
            cmd.arg(*part);
        }
        cmd
    }
}

/// What a request was answered, and whether an earlier copy of it may still be on its way.
pub(crate) struct Answer {
    pub(crate) value: Value,
    pub(crate) repeated: bool,
}

/// Whether a request may be sent a second time when the connection breaks under it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resend {
    Once,
    Never,
}

pub(crate) struct Link {
    client: Client,
    server: String,
    dial_limit: Duration,
    live: Mutex<Option<Live>>,
    /// Held while dialling, so that many callers that miss the connection open one.
    dialling: tokio::sync::Mutex<()>,
    closed: CancellationToken,
}

#[derive(Clone)]
struct Live {
    connection: MultiplexedConnection,
    doubtful: Arc<AtomicBool>,
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

impl Link {
    pub(crate) fn new(config: &RedisConfig, closed: CancellationToken) -> Result<Self, LockError> {
        Ok(Self {
            client: config.client()?,
            server: config.server(),
            dial_limit: config.connect_limit(),
            live: Mutex::new(None),
            dialling: tokio::sync::Mutex::new(()),
            closed,
        })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Runs a script; sends its text where the server does not know it yet.
    pub(crate) async fn run(
        &self,
        script: &Script,
        keys: &[&[u8]],
        args: &[&[u8]],
        resend: Resend,
    ) -> Result<Answer, LockError> {
        match self.send(&script.command("EVALSHA", keys, args), resend).await {
            Err((e, repeated)) if e.code() == Some("NOSCRIPT") => {
                let answer = self.send(&script.command("EVAL", keys, args), resend).await;
                answer.map(|answer| Answer { repeated: answer.repeated || repeated, ..answer })
            }
            answer => answer,
        }
        .map_err(|(e, repeated)| self.error(e, repeated))
    }

    /// Sends a plain command.
    pub(crate) async fn command(&self, cmd: &Cmd) -> Result<Value, LockError> {
        let answer = self.send(cmd, Resend::Once).await;
        answer.map(|answer| answer.value).map_err(|(e, repeated)| self.error(e, repeated))
    }

    /// Opens the connection, if it is not open.
    pub(crate) async fn open(&self) -> Result<(), LockError> {
        self.live().await.map(|_| ()).map_err(|e| self.error(e, false))
    }

    /// Drops the connection.
    pub(crate) fn close(&self) {
        lock(&self.live).take();
    }

    async fn send(&self, cmd: &Cmd, resend: Resend) -> Result<Answer, (RedisError, bool)> {
        let mut repeated = false;
        loop {
            let mut live = self.live().await.map_err(|e| (e, repeated))?;
            let mut in_flight = InFlight(Some(&live.doubtful));
            let answer = live.connection.send_packed_command(cmd).await.and_then(Value::extract_error);
            in_flight.0 = None;
            let error = match answer {
                Ok(value) => return Ok(Answer { value, repeated }),
                Err(error) => error,
            };
            if meaning_of(&error).redial {
                live.doubtful.store(true, Ordering::Release);
                if resend == Resend::Once && !repeated && error.is_connection_dropped() {
                    repeated = true;
                    continue;
                }
            }
            return Err((error, repeated));
        }
    }

    async fn live(&self) -> Result<Live, RedisError> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        if self.closed.is_cancelled() {
            return Err(std::io::Error::from(std::io::ErrorKind::NotConnected).into());
        }
        let _only_one = self.dialling.lock().await;
        if let Some(live) = self.current() {
            return Ok(live);
        }
        self.close();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.dial_limit))
            // The caller bounds each request; a limit of the driver's would leave the connection in use.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(1024);
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        tracing::debug!(server = self.server, "connected");
        let live = Live { connection, doubtful: Arc::default() };
        if !self.closed.is_cancelled() {
            *lock(&self.live) = Some(live.clone());
        }
        Ok(live)
    }

    fn current(&self) -> Option<Live> {
        lock(&self.live).as_ref().filter(|live| !live.doubtful.load(Ordering::Acquire)).cloned()
    }

    fn error(&self, error: RedisError, repeated: bool) -> LockError {
        if self.closed.is_cancelled() {
            return LockError::new(ErrorKind::Closed, "the backend was closed").backend(BACKEND);
        }
        let error = from_driver(error, &self.server);
        if repeated { error.with_effect(Effect::Unknown) } else { error }
    }
}

/// Nothing panics while it holds one of these locks for longer than a few plain assignments, so the data is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
