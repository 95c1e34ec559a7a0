//! The backend: acquiring, giving up, and the rest of the contract's calls.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{
    AcquireRequest, Acquisition, Batch, Capabilities, Deadline, Diagnosis, DistributedLock, Durability, Effect,
    ErrorKind, FencingToken, Holder, Lease, LockError, LockName, Owner, Page, Reach, Released, Revoke, Wait, bounded,
};
use redis::Value;
use tokio_util::sync::CancellationToken;

use crate::BACKEND;
use crate::config::{RedisConfig, Topology};
use crate::connection::{Answer, Link, Live, Resend, Script};
use crate::errors::unexpected;
use crate::lease::RedisLease;
use crate::renew::{MOST, Renew, Renewed};
use crate::scripts::{ACQUIRE, PROBE, RELEASE, TAKE, number, parts, text};
use crate::slot::{self, Keys, Kind};
use crate::view::{PROCESS_DIGITS, holder, meta_ttl, note};
use crate::wait::{Registry, follow, listen};

/// How long an owner that was given up stays marked, in milliseconds: as long as a request may be held up on its way.
const TOMB_TTL: &[u8] = b"600000";

/// Locks in a Redis or Valkey server, in the one that sentinels call the primary, or in a Redis Cluster.
#[derive(Clone)]
pub struct RedisLock(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) link: Arc<Link>,
    pub(crate) registry: Registry,
    pub(crate) renewals: Batch<Renew, Result<Renewed, LockError>>,
    /// Names this process in the server's queues and is its channel.
    pub(crate) process: String,
    pub(crate) limit: Duration,
    pub(crate) closed: CancellationToken,
    capabilities: Capabilities,
}

impl RedisLock {
    /// Connects, and starts to listen for wake-ups. Must run inside a tokio runtime, on which the connections then live.
    ///
    /// # Errors
    /// `Unavailable` when the server cannot be reached, `Denied` for a wrong password or a missing right, `Config` for a
    /// database that does not exist.
    ///
    /// # Cancel safety
    /// Dropping it leaves nothing.
    pub async fn connect(config: RedisConfig) -> Result<Self, LockError> {
        let closed = CancellationToken::new();
        let limit = config.connect_limit();
        let inner = Arc::new(Inner {
            link: Arc::new(Link::new(&config, closed.clone())?),
            registry: Registry::default(),
            renewals: Batch::new(MOST),
            process: Owner::random()?.to_string()[..PROCESS_DIGITS].to_owned(),
            limit: config.operation_limit(),
            closed,
            capabilities: capabilities(config.topology()),
        });
        // Its first use takes milliseconds, which no acquisition shall wait for.
        slot::prepare();
        let opened = bounded(limit, async {
            inner.link.open().await?;
            // A user who may not run scripts learns it here, before any lock is left.
            inner.link.run(&PROBE, &[], &[], Resend::Once).await
        });
        opened.await.map_err(|e| e.backend(BACKEND).operation("connect"))?;
        let channel = format!("distlock:{}", inner.process);
        tokio::spawn(listen(Arc::downgrade(&inner), inner.link.clone(), channel, limit));
        if inner.link.sentinels().is_some() {
            tokio::spawn(follow(inner.link.clone(), inner.closed.clone()));
        }
        Ok(Self(inner))
    }
}

fn capabilities(topology: &Topology) -> Capabilities {
    let mut capabilities = Capabilities::new(BACKEND);
    capabilities.durability = match topology {
        Topology::Single => Durability::Volatile,
        Topology::Sentinel(_) | Topology::Cluster => Durability::AsyncReplica,
    };
    capabilities.reach = Reach::Network;
    capabilities.fifo = true;
    capabilities.fencing_survives_data_loss = true;
    capabilities
}

#[async_trait]
impl DistributedLock for RedisLock {
    fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition, LockError> {
        let acquired = Attempt::new(&self.0, request).run().await;
        acquired.map_err(|e| self.0.context(e, "acquire", &request.name))
    }

    async fn abandon(&self, name: &LockName, owner: &Owner) -> Result<Released, LockError> {
        let given_up = self.0.give_up(&Keys::new(name), owner, true, self.0.limit).await;
        given_up.map_err(|e| self.0.context(e, "abandon", name))
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<Holder>, LockError> {
        self.0.look(name).await.map_err(|e| self.0.context(e, "inspect", name))
    }

    async fn list(&self, prefix: &str, page: Page) -> Result<Vec<Holder>, LockError> {
        self.0.scan(prefix, &page).await.map_err(|e| e.backend(BACKEND).operation("list"))
    }

    async fn revoke(&self, name: &LockName, expect: Option<FencingToken>, how: Revoke) -> Result<Released, LockError> {
        self.0.break_lock(name, expect, how).await.map_err(|e| self.0.context(e, "revoke", name))
    }

    async fn diagnose(&self) -> Result<Diagnosis, LockError> {
        self.0.diagnosis().await.map_err(|e| e.backend(BACKEND).operation("diagnose"))
    }

    async fn close(&self) -> Result<(), LockError> {
        self.0.closed.cancel();
        self.0.link.close();
        Ok(())
    }
}

/// One acquisition from its first request to its answer.
struct Attempt<'a> {
    inner: &'a Arc<Inner>,
    request: &'a AcquireRequest,
    keys: Keys,
    owner: String,
    ttl: String,
    note: String,
}

/// What a script answered to an acquisition.
enum Seen {
    Granted(i64, Live),
    Busy { holder: Option<Holder>, place: Option<u64> },
}

impl<'a> Attempt<'a> {
    fn new(inner: &'a Arc<Inner>, request: &'a AcquireRequest) -> Self {
        let owner = request.owner.to_string();
        Self {
            keys: Keys::new(&request.name),
            ttl: request.ttl.as_millis().to_string(),
            note: note(&owner, &inner.process, &request.label),
            owner,
            inner,
            request,
        }
    }

    async fn run(self) -> Result<Acquisition, LockError> {
        let sent = self.request.clock.now();
        let first = match self.take().await? {
            Some(seen) => seen,
            // Boxed, so that the usual way does not carry the room for the others.
            None => Box::pin(self.long_way(None)).await?,
        };
        match first {
            Seen::Granted(token, written) => self.grant(token, &written, sent).await,
            Seen::Busy { holder, .. } if self.request.wait == Wait::Never => Ok(Acquisition::Busy(holder)),
            Seen::Busy { .. } => Box::pin(self.wait()).await,
        }
    }

    /// Joins the queue and stays until the name is granted or waiting is over.
    async fn wait(&self) -> Result<Acquisition, LockError> {
        let inner = self.inner;
        let here = inner.registry.enter(&self.request.name, self.request.owner);
        let mut place = None;
        loop {
            let sent = self.request.clock.now();
            match self.long_way(Some(place)).await? {
                Seen::Granted(token, written) => return self.grant(token, &written, sent).await,
                Seen::Busy { holder, place: Some(now_at) } => {
                    place = Some(now_at);
                    let busy_for = holder.and_then(|holder| holder.remaining);
                    inner.queued(&self.request.name, &self.request.owner, now_at, busy_for);
                }
                Seen::Busy { .. } => {}
            }
            tokio::select! {
                biased;
                () = here.woken() => {}
                () = self.request.over() => break,
            }
        }
        let doubt = inner.registry.is_in_doubt(&self.request.owner);
        let leaving = inner.give_up(&self.keys, &self.request.owner, doubt, self.request.operation_timeout);
        // Who was in the way is worth one request, and no failure; right behind the other on the same line, since the limit is over: an answer that comes
        // too late is taken for none.
        let looking = async {
            let cancelled = self.request.cancel.is_cancelled();
            if cancelled { None } else { inner.look(&self.request.name).await.unwrap_or_default() }
        };
        let (left, holder) = tokio::join!(leaving, looking);
        left?;
        Ok(Acquisition::Busy(holder))
    }

    /// One script for the usual case; `None` when the name is free but may not be taken so.
    async fn take(&self) -> Result<Option<Seen>, LockError> {
        let (meta, queue) = (self.keys.helper(Kind::Meta), self.keys.helper(Kind::Queue));
        let keys: [&[u8]; 3] = [self.keys.lock(), &meta, &queue];
        // Below a day the counter's own week is enough.
        let long = self.request.ttl.get() > Duration::from_secs(86_400);
        let meta_ttl = if long { meta_ttl(self.request.ttl.get()).to_string() } else { String::new() };
        let args: [&[u8]; 4] = [self.owner.as_bytes(), self.ttl.as_bytes(), self.note.as_bytes(), meta_ttl.as_bytes()];
        let args = if long { &args[..] } else { &args[..3] };
        let Answer { value, over, .. } = self.ask(&TAKE, &keys, args).await?;
        Ok(match &value {
            Value::Int(token) => Some(Seen::Granted(*token, over)),
            Value::Array(parts) if parts.is_empty() => None,
            Value::Array(parts) if text(parts.first()) == self.owner => None,
            Value::Array(parts) => {
                let holder = holder(&self.request.name, text(parts.first()), number(parts.get(1)), parts.get(2), "");
                Some(Seen::Busy { holder: Some(holder), place: None })
            }
            _ => return Err(unexpected(&value)),
        })
    }

    /// The script that knows of queues; it joins at `place` where that is given.
    async fn long_way(&self, join: Option<Option<u64>>) -> Result<Seen, LockError> {
        let [meta, queue, board] = [Kind::Meta, Kind::Queue, Kind::Board].map(|kind| self.keys.helper(kind));
        let keys: [&[u8]; 4] = [self.keys.lock(), &meta, &queue, &board];
        let meta_ttl = meta_ttl(self.request.ttl.get()).to_string();
        let place = join.flatten().map(|place| place.to_string()).unwrap_or_default();
        let args: [&[u8]; 7] = [
            self.owner.as_bytes(),
            self.ttl.as_bytes(),
            self.note.as_bytes(),
            meta_ttl.as_bytes(),
            self.inner.process.as_bytes(),
            if join.is_some() { b"1" } else { b"0" },
            place.as_bytes(),
        ];
        let Answer { value, over, .. } = self.ask(&ACQUIRE, &keys, &args).await?;
        let answer = parts(&value);
        match text(answer.first()) {
            "granted" => {
                number(answer.get(1)).map(|token| Seen::Granted(token, over)).ok_or_else(|| unexpected(&value))
            }
            "busy" => {
                let shown = text(answer.get(1));
                let (remaining, meta, last) = (number(answer.get(2)), answer.get(4), text(answer.get(5)));
                let holder = (!shown.is_empty()).then(|| holder(&self.request.name, shown, remaining, meta, last));
                let place = number(answer.get(3)).and_then(|place| u64::try_from(place).ok());
                Ok(Seen::Busy { holder, place })
            }
            "dead" => Err(LockError::new(ErrorKind::Internal, "this owner was given up before")
                .with_effect(Effect::NotApplied)
                .advice("acquire with a new owner")),
            _ => Err(unexpected(&value)),
        }
    }

    /// Runs a script of this acquisition; while its outcome is unclear, the owner is in doubt.
    async fn ask(&self, script: &Script, keys: &[&[u8]], args: &[&[u8]]) -> Result<Answer, LockError> {
        let mut doubt = Doubt { registry: &self.inner.registry, owner: self.request.owner, unclear: true };
        let answer = self.inner.link.run(script, keys, args, Resend::Once);
        let answer = bounded(self.request.operation_timeout, answer).await;
        doubt.unclear = match &answer {
            Ok(answer) => answer.repeated,
            Err(e) => e.effect() != Effect::NotApplied,
        };
        answer
    }

    async fn grant(&self, token: i64, written: &Live, sent: Deadline) -> Result<Acquisition, LockError> {
        let request = self.request;
        if let Err(unconfirmed) = self.inner.link.confirm(written, request.operation_timeout).await {
            return Err(self.give_back(unconfirmed).await);
        }
        let valid_until = Deadline::valid_until(sent, request.ttl.get());
        if request.clock.has_passed(valid_until) {
            return Err(LockError::new(ErrorKind::Unavailable, "the grant came after its TTL had passed")
                .with_effect(Effect::Applied)
                .advice("give a TTL that is longer than a round trip to the server"));
        }
        let token = u64::try_from(token).map_err(|_| unexpected(&Value::Int(token)))?;
        let lease = RedisLease {
            inner: self.inner.clone(),
            keys: self.keys.clone(),
            owner: request.owner,
            note: self.note.clone(),
            token: FencingToken::new(token),
            ttl: request.ttl,
            valid_until,
            clock: request.clock.clone(),
            limit: request.operation_timeout,
        };
        Ok(Acquisition::Granted(Box::new(lease) as Box<dyn Lease>))
    }

    /// Removes a grant that too few replicas have. There is no tomb, so the same owner may try again.
    async fn give_back(&self, unconfirmed: LockError) -> LockError {
        let back = self.inner.give_up(&self.keys, &self.request.owner, false, self.request.operation_timeout).await;
        let sure = back.is_ok() && !self.inner.registry.is_in_doubt(&self.request.owner);
        unconfirmed.with_effect(if sure { Effect::NotApplied } else { Effect::Unknown })
    }
}

/// Notes an owner of whom a request may still be on its way, also when the future that asked is dropped.
struct Doubt<'a> {
    registry: &'a Registry,
    owner: Owner,
    unclear: bool,
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if self.unclear {
            self.registry.doubt(self.owner);
        }
    }
}

impl Inner {
    /// Removes the owner's entry and its place in the queue, and hands the name on. With a tomb, late requests take nothing either.
    pub(crate) async fn give_up(
        &self,
        keys: &Keys,
        owner: &Owner,
        tomb: bool,
        limit: Duration,
    ) -> Result<Released, LockError> {
        let text = owner.to_string();
        let (queue, board) = (keys.helper(Kind::Queue), keys.helper(Kind::Board));
        let all: [&[u8]; 3] = [keys.lock(), &queue, &board];
        let args: [&[u8]; 2] = [text.as_bytes(), TOMB_TTL];
        let args = if tomb { &args[..] } else { &args[..1] };
        let answer = bounded(limit, self.link.run(&RELEASE, &all, args, Resend::Never)).await?.value;
        if tomb {
            self.registry.settle(owner);
        }
        Ok(if answer == Value::Int(1) { Released::Released } else { Released::NotHeld })
    }

    pub(crate) fn context(&self, e: LockError, operation: &'static str, name: &LockName) -> LockError {
        e.backend(BACKEND).operation(operation).name(name)
    }
}

impl Drop for Inner {
    /// Ends the listener; the connections close with their last user.
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

impl fmt::Debug for RedisLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLock").field("server", &self.0.link.server()).finish_non_exhaustive()
    }
}
