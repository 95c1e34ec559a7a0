//! Leases of the server, shared by the locks of one client or a lock's own: granting, the one heart-beat, the fence.

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use etcd_client::{Client, Compare, CompareOp, GetOptions, PutOptions, ResponseHeader, Txn, TxnOp, TxnOpResponse};
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
    last: Claim,
    /// When the last request was sent that surely prolonged it.
    proved: Deadline,
    gone: bool,
    /// When the last heart-beat failed, and why, unless another has succeeded since.
    failed: Option<(Deadline, LockError)>,
    /// Entries of which nobody takes care at the moment, and since when.
    orphans: HashMap<Owner, Deadline>,
}

/// A heart-beat that was answered: by the leader, or by a member that has not noticed yet that it leads no longer.
#[derive(Clone, Copy)]
struct Claim {
    sent: Deadline,
    /// The term that the member had reached before.
    term: u64,
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
            // A majority took part in the grant, whatever comes after.
            state: Mutex::new(Known {
                last: Claim { sent, term: u64::MAX },
                proved: sent,
                gone: false,
                failed: None,
                orphans: HashMap::new(),
            }),
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
        if !self.own && lock(&self.state).last.sent >= asked.before(self.ttl / 20) {
            return Ok(Beat::Alive);
        }
        // Of the one that was on its way its failure is shared, too: else all who wait here would find out one after the other.
        if let Some((_, error)) = lock(&self.state).failed.as_ref().filter(|(at, _)| *at > asked) {
            return Err(error.clone());
        }
        let sent = self.clock.now();
        let request = |client: &Client| {
            let (mut kv, mut leases, id) = (client.kv_client(), client.lease_client(), self.id);
            async move {
                // The member's own answer, to learn its term.
                let options = GetOptions::new().with_serializable().with_count_only();
                let answer = kv.get(keys::sentinel(id), Some(options)).await?;
                let term = answer.header().map_or(0, ResponseHeader::raft_term);
                // A stream for one answer: it cannot stall unnoticed.
                leases.keep_alive(id).await.map(|_| term)
            }
        };
        let beat = bounded(limit, async {
            match link.send(Resend::Once, request).await {
                Ok(term) => {
                    lock(&self.state).last = Claim { sent, term };
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

    /// Now, by the clock of its heart-beats.
    pub(crate) fn now(&self) -> Deadline {
        self.clock.now()
    }

    /// A request that a majority took part in, made at that moment, was answered. If no new leader had come since the last heart-beat, that counts; whoever
    /// leads later gives the lease its whole TTL anew. Answers whether it does.
    pub(crate) fn confirm(&self, asked: Deadline, header: Option<&ResponseHeader>) -> bool {
        let mut state = lock(&self.state);
        let counts = header.is_some_and(|header| header.raft_term() <= state.last.term);
        if counts {
            state.proved = state.proved.max(state.last.sent.min(asked));
        } else {
            // The next one is not to rely on it.
            state.last.sent = state.proved.min(state.last.sent);
        }
        counts
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
        !self.clock.has_passed(Deadline::valid_until(lock(&self.state).last.sent, self.ttl))
    }

    /// How long ago it was prolonged, as far as that can be told by a heart-beat alone.
    pub(crate) fn age(&self) -> Duration {
        self.clock.now().saturating_since(lock(&self.state).last.sent)
    }

    /// Until when its holder may trust it, by the holder's clock.
    pub(crate) fn valid_until(&self, clock: &Clock) -> Deadline {
        // Their clock first, so that a pause in between shortens.
        let theirs = clock.now();
        let age = self.clock.now().saturating_since(lock(&self.state).proved);
        Deadline::valid_until(theirs.before(age), self.ttl)
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

    /// The revision of the sentinel, if it is known at the moment.
    pub(crate) fn known_fence(&self) -> Option<i64> {
        self.sentinel.try_lock().ok().and_then(|at| *at)
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
