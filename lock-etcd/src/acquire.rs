//! Acquiring: from the first request to the grant or the last word that it is busy.

use std::sync::Arc;

use etcd_client::{Compare, CompareOp, GetOptions, KeyValue, PutOptions, SortOrder, SortTarget, Txn, TxnOp};
use etcd_client::{TxnOpResponse, TxnResponse};
use lock_core::{
    AcquireRequest, Acquisition, Effect, ErrorKind, FencingToken, Holder, Lease, LockError, Owner, Wait, bounded,
};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::backend::{Inner, LEAST};
use crate::connection::Resend;
use crate::errors::{is_lease_gone, meaning_of, unexpected};
use crate::kept::Kept;
use crate::keys::{self, State};
use crate::lease::EtcdLease;
use crate::neighbours::Here;
use crate::queue::Place;
use crate::view::holder;

/// How often things may change under a request before it is made again from the start.
pub(crate) const ROUNDS: u32 = 16;
/// How many keys below a name are looked at in one go.
pub(crate) const FEW: i64 = 16;

/// One acquisition from its first request to its answer.
pub(crate) struct Attempt<'a> {
    pub(crate) inner: &'a Arc<Inner>,
    pub(crate) request: &'a AcquireRequest,
    pub(crate) folder: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

/// What stands below a name.
struct Seen {
    mine: Option<KeyValue>,
    first: Option<KeyValue>,
    /// Keys that are no contenders, so that the folder is not empty though the name may be free.
    strangers: bool,
}

/// The limit has passed, or the request was cancelled.
pub(crate) struct Over;

/// What became of a transaction that puts an entry.
pub(crate) enum Put {
    Done(TxnResponse),
    /// Its lease had ended, so nothing was put.
    LeaseGone,
}

/// What this request may leave behind, noted when it ends without a clear answer, also when its future is dropped.
pub(crate) struct Pending<'a> {
    inner: &'a Inner,
    owner: Owner,
    unclear: Vec<Arc<Kept>>,
    pub(crate) placed: bool,
    /// Granted, or known to have left nothing.
    settled: bool,
    /// Until it is granted or has left; its end wakes the one behind.
    here: Option<Here>,
}

impl Pending<'_> {
    pub(crate) fn waits(&self) {
        self.here.iter().for_each(Here::waits);
    }

    pub(crate) fn acts(&self) {
        self.here.iter().for_each(Here::acts);
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        self.unclear.iter().for_each(|kept| self.inner.hook(self.owner, kept, true));
        if self.placed || !self.unclear.is_empty() {
            self.inner.hooks(&self.owner).iter().for_each(|hook| hook.kept.orphan(self.owner));
        } else {
            self.inner.settle(&self.owner);
        }
    }
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(inner: &'a Arc<Inner>, request: &'a AcquireRequest) -> Self {
        let (folder, key) = (keys::folder(&request.name), keys::entry(&request.name, &request.owner));
        Self { inner, request, folder, key }
    }

    pub(crate) async fn run(&self) -> Result<Acquisition, LockError> {
        let (inner, owner) = (self.inner, self.request.owner);
        let hooks = inner.hooks(&owner);
        // Whatever a forerunner has left is taken care of again, until this request ends.
        hooks.iter().for_each(|hook| hook.kept.adopt(&owner));
        let again = !hooks.is_empty();
        let here = Some(inner.neighbours.enter(self.key.clone()));
        let mut pending = Pending { inner, owner, unclear: Vec::new(), placed: again, settled: false, here };
        // A lease of its own is not made for a name that is busy; and a request made again looks for its entry first.
        let mut seen = if again || !self.request.renewed { Some(self.look().await?) } else { None };
        let mut stale = None;
        for _ in 0..ROUNDS {
            match &seen {
                Some(Seen { mine: Some(kv), .. }) => {
                    pending.placed = true;
                    let place = Place::of(kv);
                    return Box::pin(self.stand(&mut pending, Some(place))).await;
                }
                Some(Seen { first: Some(kv), .. }) if self.request.wait == Wait::Never => {
                    return self.busy(&mut pending, Some(holder(&self.request.name, &self.folder, kv))).await;
                }
                Some(Seen { first: Some(_), .. } | Seen { strangers: true, .. }) => {
                    return Box::pin(self.stand(&mut pending, None)).await;
                }
                Some(_) | None => {}
            }
            let permit = self.permit(&self.inner.tries).await.map_err(|Over| no_answer())?;
            let hold = self.hold().await?;
            let fence = bounded(self.request.operation_timeout, hold.fence(&self.inner.link, stale)).await?;
            // Who waits lines up in the same transaction, if the lease for that is at hand.
            let least = if self.request.wait == Wait::Never { None } else { self.inner.at_hand(LEAST) };
            let free = Compare::create_revision(self.folder.clone(), CompareOp::Equal, 0).with_prefix();
            let when: Vec<_> = [free].into_iter().chain(hold.compare(fence)).collect();
            let or_else = match &least {
                Some((least, at)) => {
                    let fences = hold.compare(fence).into_iter().chain(least.compare(Some(*at)));
                    vec![TxnOp::txn(self.joining(least, fences).or_else(self.looks()))]
                }
                None => self.looks().into(),
            };
            let txn = Txn::new().when(when).and_then([self.put(State::Held, &hold)]).or_else(or_else);
            let leases = [&hold].into_iter().chain(least.iter().map(|(least, _)| least));
            let Put::Done(answer) = self.write(&mut pending, leases, txn).await? else {
                seen = None;
                continue;
            };
            if answer.succeeded() {
                pending.placed = true;
                return self.grant(&mut pending, &hold, &Place::new(revision(&answer)?, hold.id));
            }
            let Some((least, at)) = least else {
                (stale, seen) = (fence, Some(self.seen(&answer)?));
                continue;
            };
            let Some(TxnOpResponse::Txn(inner_answer)) = answer.op_responses().into_iter().next() else {
                return Err(unexpected("a transaction without the one within"));
            };
            if inner_answer.succeeded() {
                pending.placed = true;
                let place = self.joined(&inner_answer, revision(&answer)?, &least)?;
                drop(permit);
                return Box::pin(self.stand(&mut pending, Some(place))).await;
            }
            let now = self.seen(&inner_answer)?;
            if now.mine.is_none() {
                // A fence was not the right one. A lease that has ended is noted by this, and no failure yet.
                let renewed =
                    async { tokio::join!(hold.fence(&inner.link, fence), least.fence(&inner.link, Some(at))) };
                let _ = bounded(self.request.operation_timeout, async { Ok(renewed.await) }).await;
            }
            seen = Some(now);
        }
        Err(restless())
    }

    /// The lease on which the lock will hang.
    pub(crate) async fn hold(&self) -> Result<Arc<Kept>, LockError> {
        let seconds = i64::try_from(self.request.ttl.as_millis().div_ceil(1000)).unwrap_or(i64::MAX).max(LEAST);
        Box::pin(bounded(self.request.operation_timeout, async {
            if self.request.renewed {
                self.inner.shared(seconds).await
            } else {
                self.inner.own(&self.request.owner, seconds).await
            }
        }))
        .await
    }

    pub(crate) fn put(&self, state: State, kept: &Kept) -> TxnOp {
        let options = PutOptions::new().with_lease(kept.id);
        TxnOp::put(self.key.clone(), keys::value(state, &self.request.label), Some(options))
    }

    fn looks(&self) -> [TxnOp; 2] {
        let oldest = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend).with_limit(FEW);
        [TxnOp::get(self.key.clone(), None), TxnOp::get(self.folder.clone(), Some(oldest))]
    }

    async fn look(&self) -> Result<Seen, LockError> {
        let link = &self.inner.link;
        let answer = bounded(self.request.operation_timeout, async {
            link.txn(Txn::new().and_then(self.looks()), Resend::Once).await.map_err(|failure| link.error(failure))
        });
        self.seen(&answer.await?)
    }

    fn seen(&self, answer: &TxnResponse) -> Result<Seen, LockError> {
        let [TxnOpResponse::Get(mine), TxnOpResponse::Get(all)] = &answer.op_responses()[..] else {
            return Err(unexpected("a look that is none"));
        };
        let mine = mine.kvs().first().filter(|kv| kv.lease() != 0).cloned();
        let first = all.kvs().iter().find(|kv| keys::contender(&self.folder, kv).is_some()).cloned();
        Ok(Seen { mine, first, strangers: !all.kvs().is_empty() })
    }

    /// Sends a transaction that puts an entry on one of these leases. While its outcome is unclear, the owner is in doubt.
    pub(crate) async fn write<'k>(
        &self,
        pending: &mut Pending<'_>,
        leases: impl IntoIterator<Item = &'k Arc<Kept>>,
        txn: Txn,
    ) -> Result<Put, LockError> {
        let link = &self.inner.link;
        pending.unclear = leases.into_iter().cloned().collect();
        let leases = &pending.unclear;
        leases.iter().for_each(|kept| self.inner.hook(self.request.owner, kept, false));
        let answer = Box::pin(bounded(self.request.operation_timeout, async {
            let asked = self.inner.clock.now();
            match link.txn(txn, Resend::Never).await {
                Ok(answer) => {
                    for kept in leases {
                        kept.confirm(asked, answer.header());
                    }
                    Ok(Put::Done(answer))
                }
                Err(failure) if is_lease_gone(&failure.error) => Ok(Put::LeaseGone),
                Err(failure) if meaning_of(&failure.error).effect == Effect::NotApplied => {
                    Err(link.error(failure).with_effect(Effect::NotApplied))
                }
                Err(failure) => Err(link.error(failure)),
            }
        }))
        .await;
        match &answer {
            // The fence of a second one stands and falls with it, so it is the first that has ended.
            Ok(Put::LeaseGone) => leases.iter().take(1).for_each(|kept| kept.is_gone()),
            Err(e) if e.effect() != Effect::NotApplied => return answer,
            _ => {}
        }
        pending.unclear.clear();
        answer
    }

    /// The right to go on, where a crowd is let through little by little. A request that does not wait needs none.
    pub(crate) async fn permit(&self, crowd: &'a Semaphore) -> Result<Option<SemaphorePermit<'a>>, Over> {
        if self.request.wait == Wait::Never {
            return Ok(None);
        }
        tokio::select! {
            biased;
            permit = crowd.acquire() => permit.map(Some).map_err(|_never_closed| Over),
            () = self.request.over() => Err(Over),
        }
    }

    pub(crate) fn grant(
        &self,
        pending: &mut Pending<'_>,
        hold: &Arc<Kept>,
        place: &Place,
    ) -> Result<Acquisition, LockError> {
        let request = self.request;
        let valid_until = hold.valid_until(&request.clock);
        if request.clock.has_passed(valid_until) {
            return Err(LockError::new(ErrorKind::Unavailable, "the grant came after its TTL had passed")
                .with_effect(Effect::Applied)
                .advice("give a TTL that is longer than a few round trips to the server"));
        }
        pending.settled = true;
        pending.acts();
        let token = u64::try_from(place.revision).map_err(|_| unexpected("a negative revision"))?;
        let lease = EtcdLease {
            inner: self.inner.clone(),
            kept: hold.clone(),
            name: request.name.clone(),
            owner: request.owner,
            token: FencingToken::new(token),
            written: place.written,
            valid_until,
            clock: request.clock.clone(),
            limit: request.operation_timeout,
            released: false,
            here: pending.here.take(),
        };
        Ok(Acquisition::Granted(Box::new(lease) as Box<dyn Lease>))
    }

    pub(crate) async fn leave(&self, pending: &mut Pending<'_>) -> Result<Acquisition, LockError> {
        let (inner, request) = (self.inner, self.request);
        let leaving = bounded(request.operation_timeout, inner.give_up(&request.name, &request.owner));
        // Who was in the way is worth one look, and no failure; at the same time, since the limit is over: an answer that comes too late is taken for none.
        let looking = async {
            let cancelled = request.cancel.is_cancelled();
            let look = bounded(request.operation_timeout, inner.in_the_way(&request.name, &request.owner));
            if cancelled { None } else { look.await.unwrap_or_default() }
        };
        let (left, holder) = tokio::join!(leaving, looking);
        left?;
        pending.settled = true;
        pending.here = None;
        Ok(Acquisition::Busy(holder))
    }

    /// Busy, without an entry or a place.
    async fn busy(&self, pending: &mut Pending<'_>, holder: Option<Holder>) -> Result<Acquisition, LockError> {
        let hooks = self.inner.hooks(&self.request.owner);
        if hooks.iter().any(|hook| hook.doubt || hook.kept.own) {
            let (inner, request) = (self.inner, self.request);
            bounded(request.operation_timeout, inner.give_up(&request.name, &request.owner)).await?;
        } else {
            self.inner.settle(&self.request.owner);
        }
        pending.settled = true;
        Ok(Acquisition::Busy(holder))
    }
}

pub(crate) fn revision(answer: &TxnResponse) -> Result<i64, LockError> {
    answer.header().map(|header| header.revision()).ok_or_else(|| unexpected("a transaction without a revision"))
}

pub(crate) fn restless() -> LockError {
    LockError::new(ErrorKind::Unavailable, "leases and fences changed faster than the name could be taken")
        .with_effect(Effect::Unknown)
        .with_retryable(true)
}

fn no_answer() -> LockError {
    LockError::new(ErrorKind::Unavailable, "the request did not get through the crowd within the wait limit")
        .with_effect(Effect::NotApplied)
        .advice("wait longer, or let fewer tasks of one process ask at a time")
}
