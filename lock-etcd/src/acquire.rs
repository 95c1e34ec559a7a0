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
use crate::view::holder;
use crate::wait::{Woken, until_gone};

/// How often things may change under a request before it is made again from the start.
const ROUNDS: u32 = 16;
/// How many keys below a name are looked at in one go.
const FEW: i64 = 16;

/// One acquisition from its first request to its answer.
pub(crate) struct Attempt<'a> {
    inner: &'a Arc<Inner>,
    request: &'a AcquireRequest,
    folder: Vec<u8>,
    key: Vec<u8>,
}

/// What stands below a name.
struct Seen {
    mine: Option<KeyValue>,
    first: Option<KeyValue>,
    /// Keys that are no contenders, so that the folder is not empty though the name may be free.
    strangers: bool,
}

/// An entry of this request, held or waiting.
struct Place {
    revision: i64,
    /// The revision at which it was last written.
    written: i64,
    lease: i64,
}

impl Place {
    fn new(revision: i64, lease: i64) -> Self {
        Self { revision, written: revision, lease }
    }

    fn of(kv: &KeyValue) -> Self {
        Self { revision: kv.create_revision(), written: kv.mod_revision(), lease: kv.lease() }
    }
}

/// The limit has passed, or the request was cancelled.
struct Over;

/// What became of a transaction that puts an entry.
enum Put {
    Done(TxnResponse),
    /// Its lease had ended, so nothing was put.
    LeaseGone,
}

/// What this request may leave behind, noted when it ends without a clear answer, also when its future is dropped.
struct Pending<'a> {
    inner: &'a Inner,
    owner: Owner,
    unclear: Option<Arc<Kept>>,
    placed: bool,
    /// Granted, or known to have left nothing.
    settled: bool,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        if let Some(kept) = &self.unclear {
            self.inner.hook(self.owner, kept, true);
        }
        if self.placed || self.unclear.is_some() {
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
        let mut pending = Pending { inner, owner, unclear: None, placed: again, settled: false };
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
            let _try = self.permit(&self.inner.tries).await.map_err(|Over| no_answer())?;
            let hold = self.hold().await?;
            let fence = bounded(self.request.operation_timeout, hold.fence(&self.inner.link, stale)).await?;
            let mut when = vec![Compare::create_revision(self.folder.clone(), CompareOp::Equal, 0).with_prefix()];
            when.extend(hold.compare(fence));
            let txn = Txn::new().when(when).and_then([self.put(State::Held, &hold)]).or_else(self.looks());
            match self.write(&mut pending, &hold, txn).await? {
                Put::Done(answer) if answer.succeeded() => {
                    pending.placed = true;
                    return self.grant(&mut pending, &hold, &Place::new(revision(&answer)?, hold.id));
                }
                Put::Done(answer) => {
                    stale = fence;
                    seen = Some(self.seen(&answer)?);
                }
                Put::LeaseGone => seen = None,
            }
        }
        Err(restless())
    }

    /// The lease on which the lock will hang.
    async fn hold(&self) -> Result<Arc<Kept>, LockError> {
        let seconds = i64::try_from(self.request.ttl.as_millis().div_ceil(1000)).unwrap_or(i64::MAX).max(LEAST);
        bounded(self.request.operation_timeout, async {
            if self.request.renewed {
                self.inner.shared(seconds).await
            } else {
                self.inner.own(&self.request.owner, seconds).await
            }
        })
        .await
    }

    fn put(&self, state: State, kept: &Kept) -> TxnOp {
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

    /// Sends a transaction that puts an entry. While its outcome is unclear, the owner is in doubt.
    async fn write(&self, pending: &mut Pending<'_>, kept: &Arc<Kept>, txn: Txn) -> Result<Put, LockError> {
        let link = &self.inner.link;
        self.inner.hook(self.request.owner, kept, false);
        pending.unclear = Some(kept.clone());
        let answer = bounded(self.request.operation_timeout, async {
            let asked = kept.now();
            match link.txn(txn, Resend::Never).await {
                Ok(answer) => {
                    kept.confirm(asked, answer.header());
                    Ok(Put::Done(answer))
                }
                Err(failure) if is_lease_gone(&failure.error) => Ok(Put::LeaseGone),
                Err(failure) if meaning_of(&failure.error).effect == Effect::NotApplied => {
                    Err(link.error(failure).with_effect(Effect::NotApplied))
                }
                Err(failure) => Err(link.error(failure)),
            }
        })
        .await;
        match &answer {
            Ok(Put::LeaseGone) => kept.is_gone(),
            Err(e) if e.effect() != Effect::NotApplied => return answer,
            _ => {}
        }
        pending.unclear = None;
        answer
    }

    /// Takes a place in the queue, keeps it, and takes the name when nobody is before it.
    async fn stand(&self, pending: &mut Pending<'_>, place: Option<Place>) -> Result<Acquisition, LockError> {
        let Ok(mut turn) = self.permit(&self.inner.turns).await else { return self.leave(pending).await };
        let mut place = match place {
            Some(place) => place,
            None => self.join(pending).await?,
        };
        for _ in 0..ROUNDS {
            let mut before = self.before(place.revision).await?;
            while let Some(first) = &before {
                if self.request.wait == Wait::Never {
                    return self.leave(pending).await;
                }
                let Some(kept) = self.on_known_lease(pending, &mut place).await? else {
                    place = self.join(pending).await?;
                    before = self.before(place.revision).await?;
                    continue;
                };
                let woken = until_gone(self.inner, self.request, first, &kept, turn.take()).await?;
                // Whose turn it is to hold comes before those who still line up; what wakes all of them lets them in one by one.
                match woken {
                    Woken::Gone => {}
                    Woken::Over => return self.leave(pending).await,
                    Woken::Redialled | Woken::PlaceLost => match self.permit(&self.inner.turns).await {
                        Ok(permit) => turn = permit,
                        Err(Over) => return self.leave(pending).await,
                    },
                }
                if let Woken::PlaceLost = woken {
                    place = self.join(pending).await?;
                }
                // To look for the one before costs the server a look at all of them; over a new connection it is still the same.
                if !matches!(woken, Woken::Redialled) {
                    before = self.before(place.revision).await?;
                }
            }
            let hold = self.hold().await?;
            if self.move_to(pending, &mut place, State::Held, &hold).await? {
                return self.grant(pending, &hold, &place);
            }
            place = self.join(pending).await?;
        }
        Err(restless())
    }

    /// The right to go on, where a crowd is let through little by little. A request that does not wait needs none.
    async fn permit(&self, crowd: &'a Semaphore) -> Result<Option<SemaphorePermit<'a>>, Over> {
        if self.request.wait == Wait::Never {
            return Ok(None);
        }
        tokio::select! {
            biased;
            permit = crowd.acquire() => permit.map(Some).map_err(|_never_closed| Over),
            () = self.request.over() => Err(Over),
        }
    }

    /// Puts a waiting entry, on the lease that ends soonest when this process does. One that is there already is taken as it is.
    async fn join(&self, pending: &mut Pending<'_>) -> Result<Place, LockError> {
        let mut stale = None;
        for _ in 0..ROUNDS {
            let (fence, kept) = bounded(self.request.operation_timeout, async {
                let kept = self.inner.shared(LEAST).await?;
                Ok((kept.fence(&self.inner.link, stale).await?, kept))
            })
            .await?;
            let mut when = vec![Compare::create_revision(self.key.clone(), CompareOp::Equal, 0)];
            when.extend(kept.compare(fence));
            let mine = TxnOp::get(self.key.clone(), None);
            let txn = Txn::new().when(when).and_then([self.put(State::Waiting, &kept)]).or_else([mine]);
            let Put::Done(answer) = self.write(pending, &kept, txn).await? else { continue };
            if answer.succeeded() {
                pending.placed = true;
                return Ok(Place::new(revision(&answer)?, kept.id));
            }
            if let Some(kv) = first_key(&answer) {
                if kv.lease() == 0 {
                    return Err(overwritten());
                }
                pending.placed = true;
                return Ok(Place::of(&kv));
            }
            stale = fence;
        }
        Err(restless())
    }

    /// The contender right before a revision: the one whose end makes this one the next.
    async fn before(&self, revision: i64) -> Result<Option<KeyValue>, LockError> {
        let mut below = revision;
        loop {
            let options = GetOptions::new()
                .with_prefix()
                .with_max_create_revision(below - 1)
                .with_sort(SortTarget::Create, SortOrder::Descend)
                .with_limit(FEW);
            let found = self.inner.link.get(self.folder.clone(), options);
            let found = bounded(self.request.operation_timeout, found).await?;
            if let Some(kv) = found.iter().find(|kv| keys::contender(&self.folder, kv).is_some()) {
                return Ok(Some(kv.clone()));
            }
            match found.last() {
                Some(last) if found.len() >= FEW as usize && last.create_revision() > 1 => {
                    below = last.create_revision()
                }
                _ => return Ok(None),
            }
        }
    }

    /// The lease that carries the place, if this client keeps it; else the place moves to one. `None` when the place is lost.
    async fn on_known_lease(
        &self,
        pending: &mut Pending<'_>,
        place: &mut Place,
    ) -> Result<Option<Arc<Kept>>, LockError> {
        let known = self.inner.hooks(&self.request.owner).into_iter().map(|hook| hook.kept);
        if let Some(kept) = known.into_iter().find(|kept| kept.id == place.lease && !kept.own && kept.is_usable()) {
            return Ok(Some(kept));
        }
        let kept = bounded(self.request.operation_timeout, self.inner.shared(LEAST)).await?;
        Ok(self.move_to(pending, place, State::Waiting, &kept).await?.then_some(kept))
    }

    /// Writes the entry anew, on another lease, if it still stands as it did. Key and create revision, and so the place, stay.
    async fn move_to(
        &self,
        pending: &mut Pending<'_>,
        place: &mut Place,
        state: State,
        kept: &Arc<Kept>,
    ) -> Result<bool, LockError> {
        let txn = Txn::new()
            .when([
                Compare::create_revision(self.key.clone(), CompareOp::Equal, place.revision),
                Compare::lease(self.key.clone(), CompareOp::Equal, place.lease),
            ])
            .and_then([self.put(state, kept)])
            .or_else([TxnOp::get(self.key.clone(), None)]);
        let Put::Done(answer) = self.write(pending, kept, txn).await? else { return Ok(false) };
        if answer.succeeded() {
            (place.lease, place.written) = (kept.id, revision(&answer)?);
        }
        Ok(answer.succeeded())
    }

    fn grant(&self, pending: &mut Pending<'_>, hold: &Arc<Kept>, place: &Place) -> Result<Acquisition, LockError> {
        let request = self.request;
        let valid_until = hold.valid_until(&request.clock);
        if request.clock.has_passed(valid_until) {
            return Err(LockError::new(ErrorKind::Unavailable, "the grant came after its TTL had passed")
                .with_effect(Effect::Applied)
                .advice("give a TTL that is longer than a few round trips to the server"));
        }
        pending.settled = true;
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
        };
        Ok(Acquisition::Granted(Box::new(lease) as Box<dyn Lease>))
    }

    async fn leave(&self, pending: &mut Pending<'_>) -> Result<Acquisition, LockError> {
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

fn revision(answer: &TxnResponse) -> Result<i64, LockError> {
    answer.header().map(|header| header.revision()).ok_or_else(|| unexpected("a transaction without a revision"))
}

fn first_key(answer: &TxnResponse) -> Option<KeyValue> {
    match answer.op_responses().first() {
        Some(TxnOpResponse::Get(found)) => found.kvs().first().cloned(),
        _ => None,
    }
}

fn restless() -> LockError {
    LockError::new(ErrorKind::Unavailable, "leases and fences changed faster than the name could be taken")
        .with_effect(Effect::Unknown)
        .with_retryable(true)
}

fn no_answer() -> LockError {
    LockError::new(ErrorKind::Unavailable, "the request did not get through the crowd within the wait limit")
        .with_effect(Effect::NotApplied)
        .advice("wait longer, or let fewer tasks of one process ask at a time")
}

fn overwritten() -> LockError {
    LockError::new(ErrorKind::Foreign, "data without a lease stands under the key of this request")
        .with_effect(Effect::NotApplied)
        .advice("remove it with etcdctl if nothing needs it")
}
