//! The one connection that carries all requests, dialled anew, to the next server, when it fails or is in doubt.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use etcd_client::{Client, Error, GetOptions, KeyValue, Txn, TxnResponse};
use lock_core::{Effect, ErrorKind, LockError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::BACKEND;
use crate::config::EtcdConfig;
use crate::errors::{from_driver, meaning_of};

/// A future dropped sooner than this says nothing about its connection: requests do not wait for each other.
const DOUBT_AFTER: Duration = Duration::from_millis(100);

/// Whether a request may be sent a second time when the connection breaks under it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resend {
    Once,
    Never,
}

pub(crate) struct Link {
    config: EtcdConfig,
    live: Mutex<Option<Live>>,
    /// Held while dialling, so that many callers that miss the connection open one; counts the dials.
    dialling: tokio::sync::Mutex<usize>,
    /// Tells of each new connection.
    dialled: watch::Sender<()>,
    closed: CancellationToken,
}

#[derive(Clone)]
struct Live {
    client: Client,
    server: Arc<str>,
    doubtful: Arc<AtomicBool>,
}

/// A request whose future is dropped before its answer puts its connection in doubt: the answer took too long.
struct InFlight<'a>(Option<&'a AtomicBool>, Instant, Duration);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if let Some(doubtful) = self.0
            && self.1.elapsed() >= self.2
        {
            doubtful.store(true, Ordering::Release);
        }
    }
}

/// Why a request failed: the driver's error and who answered.
pub(crate) struct Failure {
    pub(crate) error: Error,
    server: Arc<str>,
}

impl Link {
    pub(crate) fn new(config: EtcdConfig, closed: CancellationToken) -> Self {
        let (live, dialling) = (Mutex::new(None), tokio::sync::Mutex::new(0));
        Self { config, live, dialling, dialled: watch::Sender::new(()), closed }
    }

    /// All servers, as a message names them.
    pub(crate) fn servers(&self) -> String {
        self.config.servers().join(",")
    }

    /// Ready when the connection is replaced after this call: streams on the old one may be silent for good.
    pub(crate) fn replaced(&self) -> impl Future<Output = ()> + use<> {
        let mut dialled = self.dialled.subscribe();
        async move {
            // It lives as long as this link; without one there is nothing to wait for.
            if dialled.changed().await.is_err() {
                std::future::pending().await
            }
        }
    }

    /// Drops the connection.
    pub(crate) fn close(&self) {
        lock(&self.live).take();
    }

    pub(crate) async fn txn(&self, txn: Txn, resend: Resend) -> Result<TxnResponse, Failure> {
        let request = |client: &Client| {
            let (mut kv, txn) = (client.kv_client(), txn.clone());
            async move { kv.txn(txn).await }
        };
        self.send(resend, request).await
    }

    pub(crate) async fn get(&self, key: Vec<u8>, options: GetOptions) -> Result<Vec<KeyValue>, LockError> {
        let request = |client: &Client| {
            let (mut kv, key, options) = (client.kv_client(), key.clone(), options.clone());
            async move { kv.get(key, Some(options)).await }
        };
        let answer = self.send(Resend::Once, request).await;
        answer.map(|mut answer| answer.take_kvs()).map_err(|failure| self.error(failure))
    }

    /// Sends a request; at the next server where nothing was sent, and anew where the login had run out.
    pub(crate) async fn send<T, F>(&self, resend: Resend, request: impl Fn(&Client) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.send_patiently(resend, DOUBT_AFTER, request).await
    }

    /// The same for a request that may be dropped early for other reasons: the connection is in doubt only after so long.
    pub(crate) async fn send_patiently<T, F>(
        &self,
        resend: Resend,
        patience: Duration,
        request: impl Fn(&Client) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut tries = self.config.servers().len().max(2);
        let mut resent = false;
        loop {
            let live = self.live().await?;
            let mut in_flight = InFlight(Some(&live.doubtful), Instant::now(), patience);
            let answer = request(&live.client).await;
            in_flight.0 = None;
            let error = match answer {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let meaning = meaning_of(&error);
            if !meaning.redial {
                return Err(Failure { error, server: live.server });
            }
            live.doubtful.store(true, Ordering::Release);
            tries -= 1;
            let unsent = meaning.effect == Effect::NotApplied && meaning.kind == ErrorKind::Unavailable;
            if tries == 0 || !(unsent || (resend == Resend::Once && !resent)) {
                return Err(Failure { error, server: live.server });
            }
            resent |= !unsent;
        }
    }

    async fn live(&self) -> Result<Live, Failure> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let mut dials = self.dialling.lock().await;
        if let Some(live) = self.current() {
            return Ok(live);
        }
        self.close();
        let servers = self.config.servers();
        // Never empty: a URL has a host.
        let server: Arc<str> = servers[*dials % servers.len()].as_str().into();
        *dials += 1;
        let failed = |error| Failure { error, server: server.clone() };
        if self.closed.is_cancelled() {
            return Err(failed(Error::IoError(std::io::ErrorKind::NotConnected.into())));
        }
        let dialled = Client::connect([self.config.endpoint(&server)], Some(self.config.options()));
        let client = match tokio::time::timeout(self.config.connect_limit(), dialled).await {
            Ok(dialled) => dialled.map_err(failed)?,
            Err(_) => return Err(failed(Error::IoError(std::io::ErrorKind::TimedOut.into()))),
        };
        tracing::debug!(server = &*server, "a connection is opened");
        let live = Live { client, server, doubtful: Arc::default() };
        if !self.closed.is_cancelled() {
            *lock(&self.live) = Some(live.clone());
            self.dialled.send_replace(());
        }
        Ok(live)
    }

    fn current(&self) -> Option<Live> {
        lock(&self.live).as_ref().filter(|live| !live.doubtful.load(Ordering::Acquire)).cloned()
    }

    /// The library's error for one of an open stream, whose connection the next request will judge.
    pub(crate) fn stream_error(&self, error: Error) -> LockError {
        self.error(Failure { error, server: self.servers().as_str().into() })
    }

    pub(crate) fn error(&self, failure: Failure) -> LockError {
        if self.closed.is_cancelled() {
            return LockError::new(ErrorKind::Closed, "the backend was closed").backend(BACKEND);
        }
        from_driver(failure.error, &failure.server)
    }
}

/// Nothing panics while it holds one of these locks for longer than a few plain assignments, so the data is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
