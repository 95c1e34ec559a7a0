//! The queue of a name: joining it, waiting in it, and taking the name when nobody stands before.

use std::sync::Arc;

use etcd_client::{Compare, CompareOp, GetOptions, KeyValue, SortOrder, SortTarget, Txn, TxnOp};
use etcd_client::{TxnOpResponse, TxnResponse};
use lock_core::{Acquisition, Effect, ErrorKind, LockError, Wait, bounded};

use crate::acquire::{Attempt, FEW, Pending, Put, ROUNDS, restless, revision};
use crate::backend::LEAST;
use crate::errors::unexpected;
use crate::kept::Kept;
use crate::keys::{self, State};
use crate::wait::{Woken, until_gone};

/// An entry of this request, held or waiting.
pub(crate) struct Place {
    pub(crate) revision: i64,
    /// The revision at which it was last written.
    pub(crate) written: i64,
    lease: i64,
    /// The contender that was seen right before it. Where none was, the name may be free.
    before: Option<KeyValue>,
}

/// What became of a step towards the name.
enum Step {
    /// Something has changed, and the next step is due.
    Again,
    Taken(Arc<Kept>),
    /// The place is gone.
    Lost,
    Over,
}

impl Place {
    pub(crate) fn new(revision: i64, lease: i64) -> Self {
        Self { revision, written: revision, lease, before: None }
    }

    pub(crate) fn of(kv: &KeyValue) -> Self {
        Self { written: kv.mod_revision(), ..Self::new(kv.create_revision(), kv.lease()) }
    }

    fn is(&self, kv: &KeyValue) -> bool {
        kv.create_revision() == self.revision && kv.lease() == self.lease
    }
}

impl Attempt<'_> {
    /// Takes a place in the queue, keeps it, and takes the name when nobody is before it.
    pub(crate) async fn stand(
        &self,
        pending: &mut Pending<'_>,
        place: Option<Place>,
    ) -> Result<Acquisition, LockError> {
        let mut place = match place {
            Some(place) => place,
            None => match Box::pin(self.join(pending)).await? {
                Some(place) => place,
                None => return self.leave(pending).await,
            },
        };
        // Each step has a future of its own on the heap: nested in one another they would be too much for a small stack.
        let mut rounds = 0;
        while rounds < ROUNDS {
            let step = match place.before.clone() {
                Some(_) if self.request.wait == Wait::Never => Step::Over,
                Some(first) => Box::pin(self.wait(pending, &mut place, &first)).await?,
                None => {
                    rounds += 1;
                    Box::pin(self.take(pending, &mut place)).await?
                }
            };
            match step {
                Step::Again => {}
                Step::Taken(hold) => return self.grant(pending, &hold, &place),
                Step::Over => return self.leave(pending).await,
                Step::Lost => match Box::pin(self.join(pending)).await? {
                    Some(anew) => place = anew,
                    None => return self.leave(pending).await,
                },
            }
        }
        Err(restless())
    }

    /// Waits until the one before has gone, as far as can be known.
    async fn wait(&self, pending: &mut Pending<'_>, place: &mut Place, first: &KeyValue) -> Result<Step, LockError> {
        let Some(kept) = self.on_known_lease(pending, place).await? else { return Ok(Step::Lost) };
        pending.waits();
        let woken = until_gone(self.inner, self.request, first, &kept, self.permit(&self.inner.turns)).await?;
        pending.acts();
        Ok(match woken {
            Woken::Gone => {
                place.before = None;
                Step::Again
            }
            // Over a new connection it is still the same.
            Woken::Redialled => Step::Again,
            Woken::PlaceLost => Step::Lost,
            Woken::Over => Step::Over,
        })
    }

    /// Takes the name if nobody stands before; the transaction itself looks, and tells who does.
    async fn take(&self, pending: &mut Pending<'_>, place: &mut Place) -> Result<Step, LockError> {
        if !self.request.renewed {
            // A lease of its own is not made in vain.
            place.before = self.before(place.revision).await?;
            if place.before.is_some() {
                return Ok(Step::Again);
            }
        }
        let hold = self.hold().await?;
        let alone = Compare::create_revision(self.folder.clone(), CompareOp::Greater, place.revision - 1).with_prefix();
        let mut when = self.stands(place);
        when.push(alone);
        let txn = Txn::new().when(when).and_then([self.put(State::Held, &hold)]).or_else([
            TxnOp::get(self.key.clone(), None),
            TxnOp::get(self.folder.clone(), Some(older_than(place.revision))),
        ]);
        let Put::Done(answer) = self.write(pending, [&hold], txn).await? else { return Ok(Step::Lost) };
        if answer.succeeded() {
            (place.lease, place.written) = (hold.id, revision(&answer)?);
            return Ok(Step::Taken(hold));
        }
        let [TxnOpResponse::Get(mine), TxnOpResponse::Get(older)] = &answer.op_responses()[..] else {
            return Err(unexpected("a look that is none"));
        };
        if !mine.kvs().first().is_some_and(|kv| place.is(kv)) {
            return Ok(Step::Lost);
        }
        place.before = self.nearest(older.kvs());
        if place.before.is_none() {
            // What stands before is no contender, as far as was looked.
            place.before = self.before(place.revision).await?;
        }
        if place.before.is_some() {
            return Ok(Step::Again);
        }
        // No comparison tells them from contenders; but after that look nobody comes before any more.
        Ok(if self.move_to(pending, place, State::Held, &hold).await? { Step::Taken(hold) } else { Step::Lost })
    }

    /// Puts a waiting entry, on the lease that ends soonest when this process does. One that is there already is taken as it is.
    /// `None` when the time is over.
    async fn join(&self, pending: &mut Pending<'_>) -> Result<Option<Place>, LockError> {
        // Whose turn it is to hold comes before those who line up; what wakes all of them lets them in one by one.
        let Ok(_turn) = self.permit(&self.inner.turns).await else { return Ok(None) };
        let mut stale = None;
        for _ in 0..ROUNDS {
            let limit = self.request.operation_timeout;
            let kept = bounded(limit, self.inner.shared(LEAST)).await?;
            let fence = match bounded(limit, kept.fence(&self.inner.link, stale)).await {
                // It had ended before, which is found out only now.
                Err(_) if !kept.is_usable() => continue,
                fence => fence?,
            };
            let txn = self.joining(&kept, kept.compare(fence)).or_else([TxnOp::get(self.key.clone(), None)]);
            let Put::Done(answer) = self.write(pending, [&kept], txn).await? else { continue };
            if answer.succeeded() {
                pending.placed = true;
                return self.joined(&answer, revision(&answer)?, &kept).map(Some);
            }
            if let Some(TxnOpResponse::Get(found)) = answer.op_responses().first()
                && let Some(kv) = found.kvs().first()
            {
                if kv.lease() == 0 {
                    return Err(overwritten());
                }
                pending.placed = true;
                return Ok(Some(Place::of(kv)));
            }
            stale = fence;
        }
        Err(restless())
    }

    /// A transaction that looks at who stands there and puts a waiting entry behind them, unless this request has one.
    pub(crate) fn joining(&self, least: &Kept, fences: impl IntoIterator<Item = Compare>) -> Txn {
        let mut when = vec![Compare::create_revision(self.key.clone(), CompareOp::Equal, 0)];
        when.extend(fences);
        let look = TxnOp::get(self.folder.clone(), Some(older_than(i64::MAX)));
        Txn::new().when(when).and_then([look, self.put(State::Waiting, least)])
    }

    /// The place that such a transaction has put at a revision.
    pub(crate) fn joined(&self, answer: &TxnResponse, revision: i64, least: &Kept) -> Result<Place, LockError> {
        let Some(TxnOpResponse::Get(older)) = answer.op_responses().into_iter().next() else {
            return Err(unexpected("a place without a look"));
        };
        Ok(Place { before: self.nearest(older.kvs()), ..Place::new(revision, least.id) })
    }

    /// The contender right before a revision: the one whose end makes this one the next.
    async fn before(&self, revision: i64) -> Result<Option<KeyValue>, LockError> {
        let mut below = revision;
        loop {
            let found = self.inner.link.get(self.folder.clone(), older_than(below));
            let found = bounded(self.request.operation_timeout, found).await?;
            if let Some(kv) = self.nearest(&found) {
                return Ok(Some(kv));
            }
            match found.last() {
                Some(last) if found.len() >= FEW as usize && last.create_revision() > 1 => {
                    below = last.create_revision()
                }
                _ => return Ok(None),
            }
        }
    }

    /// The first contender of those that were found, the youngest first.
    fn nearest(&self, found: &[KeyValue]) -> Option<KeyValue> {
        found.iter().find(|kv| keys::contender(&self.folder, kv).is_some()).cloned()
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
        let txn = Txn::new().when(self.stands(place)).and_then([self.put(state, kept)]);
        let Put::Done(answer) = self.write(pending, [kept], txn).await? else { return Ok(false) };
        if answer.succeeded() {
            (place.lease, place.written) = (kept.id, revision(&answer)?);
        }
        Ok(answer.succeeded())
    }

    /// That the entry is the one it was.
    fn stands(&self, place: &Place) -> Vec<Compare> {
        vec![
            Compare::create_revision(self.key.clone(), CompareOp::Equal, place.revision),
            Compare::lease(self.key.clone(), CompareOp::Equal, place.lease),
        ]
    }
}

/// A few of the keys that are older than a revision, the youngest first.
fn older_than(revision: i64) -> GetOptions {
    let options = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Descend).with_limit(FEW);
    options.with_max_create_revision(revision - 1)
}

fn overwritten() -> LockError {
    LockError::new(ErrorKind::Foreign, "data without a lease stands under the key of this request")
        .with_effect(Effect::NotApplied)
        .advice("remove it with etcdctl if nothing needs it")
}
