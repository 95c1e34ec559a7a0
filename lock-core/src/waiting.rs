//! Waiting by polling, for backends whose store cannot call back.

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::{AcquireRequest, Acquisition, Effect, ErrorKind, Holder, Lease, LockError, LockName, Wait, bounded};

/// The store's side of a [`WaitingRoom`]: three small requests, none of which waits for a lock.
#[async_trait]
pub trait Contender: Debug + Send + Sync {
    /// Tries once to take the name. `waited` is how long the request has stood in line; zero on the very first attempt of a request
    /// that found no line. A store that keeps an order across processes notes the request's place here.
    ///
    /// # Errors
    /// As [`DistributedLock::acquire`](crate::DistributedLock::acquire).
    ///
    /// # Cancel safety
    /// Dropping it may leave an entry or a place in the store, which `abandon` removes.
    async fn attempt(&self, request: &AcquireRequest, waited: Duration) -> Result<Attempt, LockError>;

    /// A number that differs from the last one when anything may have changed since.
    ///
    /// # Errors
    /// Any kind that speaks of the way to the store.
    ///
    /// # Cancel safety
    /// Dropping it must lose nothing.
    async fn look(&self) -> Result<u64, LockError>;

    /// Removes the place that the attempts of this request left in the store.
    ///
    /// # Errors
    /// Any kind that speaks of the way to the store; the keeper then calls `abandon`.
    ///
    /// # Cancel safety
    /// Dropping it may leave the place, which `abandon` removes.
    async fn leave(&self, request: &AcquireRequest) -> Result<(), LockError>;
}

/// What became of one attempt.
#[derive(Debug)]
pub enum Attempt {
    /// The name is this request's.
    Granted(Box<dyn Lease>),
    /// It is not.
    Busy {
        /// Who holds it, where that is known.
        holder: Option<Holder>,
        /// When it becomes free if nobody does anything, where that is known.
        free_in: Option<Duration>,
    },
}

/// How often a [`WaitingRoom`] asks the store.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Between two looks, right after a request has come to the front of its line.
    pub least: Duration,
    /// Between two looks, when nobody has come for a while. In between the pause is a thirty-second of that while.
    pub most: Duration,
    /// Between two attempts when no look tells of a change.
    pub beat: Duration,
}

/// Where the requests of one process wait, for a backend that polls (rules W1 to W5).
///
/// The requests for one name stand in one line, in order of arrival, and only the first of the line contends with the store. All those at
/// the front share one look at the store; it tells that *something* changed, and then each makes an attempt. So the store is asked per
/// process and name, never per waiter. Nothing is spawned: whoever waits does the looking, and when it leaves another goes on.
#[derive(Debug)]
pub struct WaitingRoom {
    lines: Mutex<HashMap<LockName, Line>>,
    pace: Pace,
    /// Counts the changes that looks have told of.
    changes: watch::Sender<u64>,
    /// What the last look saw. Whoever holds this lock is the one that looks.
    last_look: tokio::sync::Mutex<Option<u64>>,
    /// When a request last came to the front.
    last_arrival: Mutex<Instant>,
}

#[derive(Debug, Default)]
struct Line {
    /// Rung when its owner comes to the front, and then when an attempt may succeed.
    bells: VecDeque<Arc<Notify>>,
    /// Whether the store's last answer about this name said that it is taken, and by whom.
    taken: Option<Option<Holder>>,
}

impl WaitingRoom {
    /// An attempt in flight is not cut shorter than this, however near the wait limit is.
    const LEAST_ATTEMPT: Duration = Duration::from_millis(100);

    /// An empty room.
    pub fn new(pace: Pace) -> Self {
        Self {
            lines: Mutex::default(),
            pace,
            changes: watch::Sender::new(0),
            last_look: tokio::sync::Mutex::new(None),
            last_arrival: Mutex::new(Instant::now()),
        }
    }

    /// Acquires as [`DistributedLock::acquire`](crate::DistributedLock::acquire) asks, by attempts.
    ///
    /// # Errors
    /// What an attempt, a look or the leaving failed with; the keeper may make the request again. `Unavailable` when the limit passed and
    /// no answer said that the name is taken.
    ///
    /// # Cancel safety
    /// Dropping it gives up the place in the line at once, and may leave one in the store, which `abandon` removes.
    pub async fn acquire(&self, store: &dyn Contender, request: &AcquireRequest) -> Result<Acquisition, LockError> {
        if request.wait == Wait::Never {
            return match self.attempt(store, request, Duration::ZERO).await? {
                Attempt::Granted(lease) => Ok(Acquisition::Granted(lease)),
                Attempt::Busy { holder, .. } => Ok(Acquisition::Busy(holder)),
            };
        }
        let arrived = Instant::now();
        let place = self.join(&request.name);
        let mut waited = Duration::ZERO;
        while !place.is_first() {
            tokio::select! {
                biased;
                () = request.over() => return place.give_up(request),
                () = place.bell.notified() => {}
            }
            waited = arrived.elapsed();
        }
        *locked(&self.last_arrival) = Instant::now();
        self.contend(store, request, &place, arrived, waited).await
    }

    /// Tells the first in line that an attempt may succeed now: this process has released the name.
    pub fn poke(&self, name: &LockName) {
        if let Some(bell) = locked(&self.lines).get(name).and_then(|line| line.bells.front()) {
            bell.notify_one();
        }
    }

    async fn contend(
        &self,
        store: &dyn Contender,
        request: &AcquireRequest,
        place: &Place<'_>,
        arrived: Instant,
        mut waited: Duration,
    ) -> Result<Acquisition, LockError> {
        let mut changes = self.changes.subscribe();
        let mut stands = false;
        // Once it was told "busy" it may have a place in the store, whatever became of a later request.
        let placed = |e: LockError, stands| if stands { e.with_effect(Effect::Unknown) } else { e };
        loop {
            // Before the attempt, so that a change during it is not overlooked.
            changes.mark_unchanged();
            let pause = match self.attempt(store, request, waited).await {
                Ok(Attempt::Granted(lease)) => {
                    place.answer(Some(None));
                    return Ok(Acquisition::Granted(lease));
                }
                Ok(Attempt::Busy { holder, free_in }) => {
                    place.answer(Some(holder));
                    stands = true;
                    // A millisecond later, since clocks that are cut to milliseconds round either way.
                    free_in.map_or(self.pace.beat, |t| (t + Duration::from_millis(1)).min(self.pace.beat))
                }
                Err(e) => {
                    place.answer(None);
                    return Err(placed(e, stands));
                }
            };
            tokio::select! {
                biased;
                () = request.over() => break,
                () = place.bell.notified() => {}
                _ = changes.changed() => {}
                looked = self.look(store, request) => looked.map_err(|e| placed(e, stands))?,
                () = tokio::time::sleep(pause) => {}
            }
            waited = arrived.elapsed();
        }
        bounded(request.operation_timeout, store.leave(request)).await?;
        Ok(Acquisition::Busy(place.taken().flatten()))
    }

    async fn attempt(
        &self,
        store: &dyn Contender,
        request: &AcquireRequest,
        waited: Duration,
    ) -> Result<Attempt, LockError> {
        let limit = match request.wait {
            Wait::Until(deadline) => {
                request.operation_timeout.min(request.clock.until(deadline).max(Self::LEAST_ATTEMPT))
            }
            Wait::Never | Wait::Forever => request.operation_timeout,
        };
        bounded(limit, store.attempt(request, waited)).await
    }

    /// Looks until something has changed, as soon as nobody else does.
    async fn look(&self, store: &dyn Contender, request: &AcquireRequest) -> Result<(), LockError> {
        // Held across the awaits on purpose: one looks, the others queue up to be next, and dropping the future passes it on.
        let mut last = self.last_look.lock().await;
        loop {
            let idle = locked(&self.last_arrival).elapsed();
            tokio::time::sleep((idle / 32).clamp(self.pace.least, self.pace.most)).await;
            let now = bounded(request.operation_timeout, store.look()).await?;
            // The very first look counts as a change: what came between the attempt and it is unknown.
            if last.replace(now) != Some(now) {
                self.changes.send_modify(|n| *n = n.wrapping_add(1));
                return Ok(());
            }
        }
    }

    fn join(&self, name: &LockName) -> Place<'_> {
        let bell = Arc::new(Notify::new());
        locked(&self.lines).entry(name.clone()).or_default().bells.push_back(bell.clone());
        Place { room: self, name: name.clone(), bell }
    }
}

/// A request's place in its line; dropping it gives the place up and rings for the next.
struct Place<'a> {
    room: &'a WaitingRoom,
    name: LockName,
    bell: Arc<Notify>,
}

impl Place<'_> {
    fn with_line<T>(&self, f: impl FnOnce(&mut Line) -> T) -> T {
        // The entry lives as long as a place in it.
        f(locked(&self.room.lines).entry(self.name.clone()).or_default())
    }

    fn is_first(&self) -> bool {
        self.with_line(|line| line.bells.front().is_some_and(|bell| Arc::ptr_eq(bell, &self.bell)))
    }

    fn answer(&self, taken: Option<Option<Holder>>) {
        self.with_line(|line| line.taken = taken);
    }

    fn taken(&self) -> Option<Option<Holder>> {
        self.with_line(|line| line.taken.clone())
    }

    /// The answer of a request that never came to the front: "busy" only if somebody was told so.
    fn give_up(&self, request: &AcquireRequest) -> Result<Acquisition, LockError> {
        match self.taken() {
            Some(holder) => Ok(Acquisition::Busy(holder)),
            None if request.cancel.is_cancelled() => Ok(Acquisition::Busy(None)),
            None => Err(no_answer()),
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut lines = locked(&self.room.lines);
        let Some(line) = lines.get_mut(&self.name) else { return };
        line.bells.retain(|bell| !Arc::ptr_eq(bell, &self.bell));
        match line.bells.front() {
            Some(next) => next.notify_one(),
            None => drop(lines.remove(&self.name)),
        }
    }
}

fn no_answer() -> LockError {
    LockError::new(ErrorKind::Unavailable, "no answer about the name within the wait limit")
        .with_effect(Effect::NotApplied)
        .advice("look for what keeps the store from answering, or wait longer")
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in these sections can leave the data half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
