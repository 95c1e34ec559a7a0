//! How a request contends for a name, among the processes that reach the server.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{AcquireRequest, Attempt, Contender, ErrorKind, LockError, Pace, Wait, bounded};

use crate::lease::MysqlLease;
use crate::row::NameState;
use crate::store::{PLACE_KEPT, Store};
use crate::waiters::Watch;

/// Together with the jitter of a look: a poll every 50 ms, a fifth more or less. While one waits without a change, its place is looked
/// after every 250 ms.
pub(crate) const PACE: Pace =
    Pace { least: Duration::from_millis(40), most: Duration::from_millis(40), beat: Duration::from_millis(250) };
/// Added to the pause at random, so that processes do not poll in step.
const JITTER: Duration = Duration::from_millis(20);

/// The [`Contender`] of one request.
///
/// Of the processes that wait for a name, the one whose request has waited longest stands in the row as the next one, and only it may take
/// the name when that is free. It renews its place when half of the time for which that is kept has passed; all others merely read.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    store: &'a Arc<Store>,
    _watch: Option<Watch<'a>>,
}

impl<'a> Line<'a> {
    pub(crate) fn new(store: &'a Arc<Store>, request: &AcquireRequest) -> Self {
        let watch = (request.wait != Wait::Never).then(|| store.waiters.join(&request.name));
        Self { store, _watch: watch }
    }

    async fn take(&self, request: &AcquireRequest) -> Result<Option<Attempt>, LockError> {
        let taken = self.store.take(request).await?;
        self.store.waiters.changed(&request.name);
        Ok(taken.map(|taken| Attempt::Granted(Box::new(MysqlLease::new(self.store.clone(), request, &taken)))))
    }

    async fn state(&self, request: &AcquireRequest) -> Result<NameState, LockError> {
        match self.store.waiters.seen(&request.name) {
            Some(state) => Ok(state),
            None => self.store.state_to_take(&request.name).await,
        }
    }
}

#[async_trait]
impl Contender for Line<'_> {
    async fn attempt(&self, request: &AcquireRequest, waited: Duration) -> Result<Attempt, LockError> {
        let store = self.store;
        // The first try hopes for a free name; later ones read before they write, to leave the writing to the one whose turn it is.
        if waited.is_zero() {
            store.sweep_sometimes(&request.owner).await;
            if let Some(granted) = self.take(request).await? {
                return Ok(granted);
            }
        }
        let owner = request.owner.to_string();
        let waits = request.wait != Wait::Never;
        let mut state = self.state(request).await?;
        let own_place = |state: &NameState| state.next.as_ref().is_some_and(|next| next.owner == owner);
        let own_lease = state.lease.as_ref().is_some_and(|lease| lease.owner == owner);
        let free = own_lease || state.lease.is_none() && (state.next.is_none() || own_place(&state));
        if free && waits {
            if let Some(granted) = self.take(request).await? {
                return Ok(granted);
            }
            // Another was faster.
            state = self.state(request).await?;
        }
        let own_place = own_place(&state);
        let may_stand = match &state.next {
            None => true,
            Some(next) if own_place => next.remaining < PLACE_KEPT / 2,
            Some(next) => next.waited < waited,
        };
        if waits && may_stand {
            store.line_up(request, waited).await?;
        }
        let until = state.lease.as_ref().map(|lease| lease.remaining);
        let until = until.or(state.next.as_ref().filter(|_| !own_place).map(|next| next.remaining));
        Ok(Attempt::Busy { holder: state.into_holder(&request.name), free_in: until })
    }

    /// The poll itself is a task of its own for the moment that it takes: who leaves in the midst of it leaves its connection whole.
    async fn look(&self) -> Result<u64, LockError> {
        let dice = getrandom::u32().unwrap_or(0);
        tokio::time::sleep(JITTER.mul_f64(f64::from(dice) / f64::from(u32::MAX))).await;
        let mut polling = self.store.polling.lock().await;
        let store = self.store.clone();
        let poll = polling.get_or_insert_with(|| tokio::spawn(async move { bounded(store.limit, store.poll()).await }));
        let answer = poll.await;
        *polling = None;
        answer.unwrap_or_else(|e| Err(LockError::new(ErrorKind::Unavailable, "the poll was ended").source(e)))
    }

    async fn leave(&self, request: &AcquireRequest) -> Result<(), LockError> {
        let mut link = self.store.keeping().await?;
        let left = self.store.leave(&mut link, &request.name, &request.owner).await;
        self.store.waiters.changed(&request.name);
        left
    }
}
