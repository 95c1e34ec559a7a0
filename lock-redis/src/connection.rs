//! The commands: scripts and plain ones, to wherever they go.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Effect, ErrorKind, LockError, bounded};
use redis::aio::PubSub;
use redis::{Cmd, RedisError, Value};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::BACKEND;
use crate::cluster::Cluster;
use crate::config::{RedisConfig, Topology};
use crate::errors::from_driver;
use crate::node::{ASK_LIMIT, Failure, Node, Place, Request, Server};
pub(crate) use crate::node::{Answer, Live, Resend, lock};
use crate::sentinel::Sentinels;
use crate::slot;

/// The time for replicas to confirm.
const CONFIRM_LIMIT: Duration = Duration::from_millis(500);

/// A Lua script with its name in the server's cache.
pub(crate) struct Script {
    text: &'static str,
    hash: String,
    counts: bool,
}

impl Script {
    pub(crate) fn new(text: &'static str) -> Self {
        Self { text, hash: redis::Script::new(text).get_hash().to_owned(), counts: false }
    }

    /// One that counts tokens, and gets their floor as its last argument.
    pub(crate) fn counting(text: &'static str) -> Self {
        Self { counts: true, ..Self::new(text) }
    }

    fn request(&self, how: &'static str, keys: &[&[u8]], args: &[&[u8]]) -> Request {
        Request { cmd: self.command(how, keys, args), counts: self.counts }
    }

    /// `EVALSHA`, or `EVAL` with the whole text.
    pub(crate) fn command(&self, how: &'static str, keys: &[&[u8]], args: &[&[u8]]) -> Cmd {
        let mut cmd = Cmd::with_capacity(4 + keys.len() + args.len(), 256);
        cmd.arg(how).arg(if how == "EVAL" { self.text } else { &self.hash }).arg(keys.len());
        for part in keys.iter().chain(args) {
            cmd.arg(*part);
        }
        cmd
    }
}

/// Where commands go.
enum Route {
    /// The server of the URL, or the primary that sentinels name.
    One(Arc<Node>),
    /// The node that serves the lock's slot.
    BySlot(Box<Cluster>),
}

pub(crate) struct Link {
    route: Route,
    /// Host and port, or several, as the URL names them.
    server: String,
    min_replicas: u32,
    closed: CancellationToken,
    /// The primary is another one now.
    pub(crate) moved: Notify,
}

impl Link {
    pub(crate) fn new(config: &RedisConfig, closed: CancellationToken) -> Result<Self, LockError> {
        let one = |place, limit| Route::One(Arc::new(Node::new(place, true, limit, closed.clone())));
        let limit = config.connect_limit();
        let route = match config.topology() {
            Topology::Single => {
                let address = config.server();
                one(Place::At(Server { client: config.client(&address)?, address }), limit)
            }
            // While a primary does not answer, the next may be known already.
            Topology::Sentinel(service) => {
                one(Place::Primary(Sentinels::new(config, service, &closed)?), limit.min(ASK_LIMIT))
            }
            Topology::Cluster => Route::BySlot(Box::new(Cluster::new(config, closed.clone())?)),
        };
        let (server, min_replicas) = (config.server(), config.replicas());
        Ok(Self { route, server, min_replicas, closed, moved: Notify::new() })
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    pub(crate) fn replicas(&self) -> u32 {
        self.min_replicas
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.route, Route::BySlot(_))
    }

    pub(crate) fn sentinels(&self) -> Option<&Sentinels> {
        match &self.route {
            Route::One(node) => match &node.place {
                Place::Primary(sentinels) => Some(sentinels),
                Place::At(_) => None,
            },
            Route::BySlot(_) => None,
        }
    }

    /// A connection that listens: in a cluster to any node, for each passes on what is published.
    pub(crate) async fn listen(&self) -> Result<PubSub, RedisError> {
        let node = match &self.route {
            Route::One(node) => node.clone(),
            Route::BySlot(cluster) => cluster.any().await?,
        };
        match &node.place {
            Place::At(server) => server.listen().await,
            Place::Primary(_) => node.live().await?.server.listen().await,
        }
    }

    /// Sees to it that the next request goes to a new primary, also while the old one still answers.
    pub(crate) async fn look_for_primary(&self) {
        let (Route::One(node), Some(sentinels)) = (&self.route, self.sentinels()) else { return };
        let Ok(primary) = sentinels.primary().await else { return };
        if node.current().is_some_and(|live| live.server.address != primary.address) {
            tracing::debug!(primary = primary.address, "the sentinels name another primary");
            node.doubt();
            self.moved.notify_one();
        }
    }

    /// Runs a script; sends its text where the server does not know it yet.
    pub(crate) async fn run(
        &self,
        script: &Script,
        keys: &[&[u8]],
        args: &[&[u8]],
        resend: Resend,
    ) -> Result<Answer, LockError> {
        let slot = keys.first().map(|key| slot::slot(key));
        match self.send(slot, &script.request("EVALSHA", keys, args), resend).await {
            Err(failed) if failed.error.code() == Some("NOSCRIPT") => {
                let mut answer = self.send(slot, &script.request("EVAL", keys, args), resend).await;
                match &mut answer {
                    Ok(answer) => answer.repeated |= failed.repeated,
                    Err(failure) => failure.repeated |= failed.repeated,
                }
                answer
            }
            answer => answer,
        }
        .map_err(|failure| self.error(failure))
    }

    /// Sends a plain command to whoever takes it.
    pub(crate) async fn command(&self, cmd: &Cmd) -> Result<Value, LockError> {
        self.send(None, &Request::from(cmd), Resend::Once)
            .await
            .map(|answer| answer.value)
            .map_err(|failure| self.error(failure))
    }

    /// All servers that have locks.
    pub(crate) async fn shards(&self) -> Result<Vec<Arc<Node>>, LockError> {
        match &self.route {
            Route::One(node) => Ok(vec![node.clone()]),
            Route::BySlot(cluster) => cluster.primaries().await.map_err(|error| self.error(unsent(error))),
        }
    }

    /// Sends a plain command to one of them.
    pub(crate) async fn command_at(&self, shard: &Node, cmd: &Cmd) -> Result<Value, LockError> {
        let answer = shard.send(&Request::from(cmd), false, Resend::Once).await;
        answer.map(|answer| answer.value).map_err(|failure| self.error(failure))
    }

    /// Waits, where the URL asks for it, until enough replicas have what was written over a connection.
    pub(crate) async fn confirm(&self, written: &Live, limit: Duration) -> Result<(), LockError> {
        if self.min_replicas == 0 {
            return Ok(());
        }
        let server = Some(written.server.address.clone());
        let confirmed = async {
            let confirmed = written.confirm(self.min_replicas, CONFIRM_LIMIT.min(limit / 2)).await;
            confirmed.map_err(|error| self.error(Failure { error, server, repeated: false }))
        };
        bounded(limit, confirmed).await
    }

    /// Opens the connection, if it is not open.
    pub(crate) async fn open(&self) -> Result<(), LockError> {
        let opened = match &self.route {
            Route::One(node) => node.live().await.map(drop),
            Route::BySlot(cluster) => cluster.primaries().await.map(drop),
        };
        opened.map_err(|error| self.error(unsent(error)))
    }

    /// Drops the connections.
    pub(crate) fn close(&self) {
        match &self.route {
            Route::One(node) => node.close(),
            Route::BySlot(cluster) => cluster.close(),
        }
        if let Some(sentinels) = self.sentinels() {
            sentinels.close();
        }
    }

    async fn send(&self, slot: Option<usize>, request: &Request, resend: Resend) -> Result<Answer, Failure> {
        match (&self.route, slot) {
            (Route::One(node), _) => node.send(request, false, resend).await,
            (Route::BySlot(cluster), Some(slot)) => cluster.send(slot as u16, request, resend).await,
            (Route::BySlot(cluster), None) => cluster.any().await.map_err(unsent)?.send(request, false, resend).await,
        }
    }

    fn error(&self, failure: Failure) -> LockError {
        if self.closed.is_cancelled() {
            return LockError::new(ErrorKind::Closed, "the backend was closed").backend(BACKEND);
        }
        let server = match failure.server {
            Some(address) if address != self.server => format!("{address} (of {})", self.server),
            _ => self.server.clone(),
        };
        let error = from_driver(failure.error, &server);
        if failure.repeated { error.with_effect(Effect::Unknown) } else { error }
    }
}

/// A failure before there was a server to send to.
fn unsent(error: RedisError) -> Failure {
    Failure { error, server: None, repeated: false }
}
