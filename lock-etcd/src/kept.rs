//! Leases of the server, shared by the locks of one client or a lock's own: granting, the one heart-beat, the fence.

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use etcd_client::{Client, Compare, CompareOp, PutOptions, Txn, TxnOp, TxnOpResponse};
use lock_core::{Clock, Deadline, LockError, Owner, bounded};

use crate::connection::{Link, Resend, lock};
use crate::errors::{is_lease_gone, unexpected};
use crate::keys;

/// A lease of the server and what is known of it.
pub(crate) struct Kept {
    pub(crate) id: i64,
    /// As the server granted it.
    pub(crate) ttl: Duration,
    /// Of one lock that is not renewed by a keeper.
    pub(crate) own: bool,
    clock: Clock,
    state: Mutex<Known>,
    /// Held while a heart-beat is on its way, so that others join it.
    beating: tokio::sync::Mutex<()>,
    /// The revision at which the sentinel was written, once it was.
    sentinel: tokio::sync::Mutex<Option<i64>>,
}

struct Known {
    /// When the last confirmed request that prolonged it was sent.
    sent: Deadline,
    gone: bool,
    /// When the last heart-beat failed, and why, unless another has succeeded since.
    failed: Option<(Deadline, LockError)>,
    /// Entries of which nobody takes care at the moment, and since when.
    orphans: HashMap<Owner, Deadline>,
}

/// What a heart-beat was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beat {
    Alive,
    Gone,
}

impl Kept {
    /// Asks the server for a lease of so many seconds.
    pub(crate) async fn grant(link: &Link, clock: Clock, seconds: i64, own: bool) -> Result<Self, LockError> {
        let sent = clock.now();
        let request = |client: &Client| {
            let mut leases = client.lease_client();
            async move { leases.grant(seconds, None).await }
        };
        // A grant that nobody hears of ends by itself, with nothing on it.
        let granted = link.send(Resend::Once, request).await.map_err(|failure| link.error(failure))?;
        let ttl = u64::try_from(granted.ttl()).map_err(|_| unexpected("a lease without a TTL"))?;
        Ok(Self {
            id: granted.id(),
            ttl: Duration::from_secs(ttl),
            own,
            clock,
            state: Mutex::new(Known { sent, gone: false, failed: None, orphans: HashMap::new() }),
            beating: tokio::sync::Mutex::default(),
            sentinel: tokio::sync::Mutex::default(),
        })
    }

    /// Prolongs the lease; joins a heart-beat that is on its way or has just been answered. It is never sent for a lease on which an orphan has
    /// hung for a whole TTL: only so does that end. `limit` bounds the request, and not the time until those before have had their answer:
    /// a request that is cut short puts the connection in doubt.
    pub(crate) async fn beat(&self, link: &Link, limit: Duration) -> Result<Beat, LockError> {
        let asked = self.clock.now();
        let _one = self.beating.lock().await;
        if !self.is_usable() {
            return Ok(Beat::Gone);
        }
        if !self.own && lock(&self.state).sent >= asked.before(self.ttl / 20) {
            return Ok(Beat::Alive);
        }
        // Of the one that was on its way its failure is shared, too: else all who wait here would find out one after the other.
        if let Some((_, error)) = lock(&self.state).failed.as_ref().filter(|(at, _)| *at > asked) {
            return Err(error.clone());
        }
        let sent = self.clock.now();
        let request = |client: &Client| {
            let (mut leases, id) = (client.lease_client(), self.id);
            // A stream for one answer: it cannot stall unnoticed.
            async move { leases.keep_alive(id).await.map(drop) }
        };
        let beat = bounded(limit, async {
            match link.send(Resend::Once, request).await {
                Ok(()) => {
                    lock(&self.state).sent = sent;
                    Ok(Beat::Alive)
                }
                Err(failure) if is_lease_gone(&failure.error) => {
                    self.is_gone();
                    Ok(Beat::Gone)
                }
                Err(failure) => Err(link.error(failure)),
            }
        });
        let answer = beat.await;
        lock(&self.state).failed = answer.as_ref().err().map(|error| (self.clock.now(), error.clone()));
        answer
    }

    /// The server does not know it any more.
    pub(crate) fn is_gone(&self) {
        lock(&self.state).gone = true;
    }

    /// Whether new entries may hang on it, and whether it may be prolonged.
    pub(crate) fn is_usable(&self) -> bool {
        let state = lock(&self.state);
        let now = self.clock.now();
        let retired = state.orphans.values().any(|since| now.saturating_since(*since) >= self.ttl);
        !state.gone && !retired
    }

    /// Whether its time has not run out by this client's clock.
    pub(crate) fn is_running(&self) -> bool {
        !self.clock.has_passed(Deadline::valid_until(lock(&self.state).sent, self.ttl))
    }

    /// How long ago it was prolonged.
    pub(crate) fn age(&self) -> Duration {
        self.clock.now().saturating_since(lock(&self.state).sent)
    }

    /// Until when its holder may trust it, by the holder's clock.
    pub(crate) fn valid_until(&self, clock: &Clock) -> Deadline {
        // Their clock first, so that a pause in between shortens.
        let theirs = clock.now();
        Deadline::valid_until(theirs.before(self.age()), self.ttl)
    }

    pub(crate) fn orphan(&self, owner: Owner) {
        if !self.own {
            let now = self.clock.now();
            lock(&self.state).orphans.entry(owner).or_insert(now);
        }
    }

    pub(crate) fn adopt(&self, owner: &Owner) {
        lock(&self.state).orphans.remove(owner);
    }

    /// The revision of the sentinel, which a transaction that puts an entry on this lease must compare; `None` for a lease of one's own, which
    /// is revoked instead. `stale` is the revision that was found to be no longer right.
    pub(crate) async fn fence(&self, link: &Link, stale: Option<i64>) -> Result<Option<i64>, LockError> {
        if self.own {
            return Ok(None);
        }
        let mut at = self.sentinel.lock().await;
        if at.is_none() || *at == stale {
            *at = None;
            *at = Some(self.write_sentinel(link).await?);
        }
        Ok(*at)
    }

    async fn write_sentinel(&self, link: &Link) -> Result<i64, LockError> {
        let key = keys::sentinel(self.id);
        let txn = Txn::new()
            .when([Compare::create_revision(key.clone(), CompareOp::Equal, 0)])
            .and_then([TxnOp::put(key.clone(), "", Some(PutOptions::new().with_lease(self.id)))])
            .or_else([TxnOp::get(key, None)]);
        let answer = link.txn(txn, Resend::Once).await.map_err(|failure| {
            if is_lease_gone(&failure.error) {
                self.is_gone();
            }
            link.error(failure)
        })?;
        let revision = match answer.op_responses().pop() {
            Some(TxnOpResponse::Get(found)) => found.kvs().first().map(|kv| kv.mod_revision()),
            _ => answer.header().map(|header| header.revision()),
        };
        revision.ok_or_else(|| unexpected("a sentinel without a revision"))
    }

    /// The comparison that goes with the revision.
    pub(crate) fn compare(&self, fence: Option<i64>) -> Option<Compare> {
        fence.map(|revision| Compare::mod_revision(keys::sentinel(self.id), CompareOp::Equal, revision))
    }

    /// Ends it, with everything that hangs on it. One that has ended before is no error.
    pub(crate) async fn revoke(&self, link: &Link) -> Result<(), LockError> {
        let request = |client: &Client| {
            let (mut leases, id) = (client.lease_client(), self.id);
            async move { leases.revoke(id).await }
        };
        match link.send(Resend::Once, request).await {
            Err(failure) if !is_lease_gone(&failure.error) => Err(link.error(failure)),
            _ => {
                self.is_gone();
                Ok(())
            }
        }
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kept({:x}, {:?})", self.id, self.ttl)
    }
}
