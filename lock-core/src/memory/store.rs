//! Entries and queues.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    AcquireRequest, Clock, Deadline, FencingToken, Holder, HolderState, LockName, LostReason, Owner, Page, Released,
    Revoke, Wait,
};

/// All locks of one store. One mutex guards it; nothing waits while it is locked.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) clock: Clock,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
pub(super) struct Inner {
    pub(super) entries: BTreeMap<LockName, Entry>,
    pub(super) queues: BTreeMap<LockName, VecDeque<Waiter>>,
    /// The last token of the whole store: rises over all names, so that a name that is gone needs no counter.
    pub(super) last_token: u64,
}

/// A granted name.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: LockName,
    pub(super) owner: Owner,
    pub(super) revoked: bool,
    pub(super) token: u64,
    pub(super) ttl: Duration,
    pub(super) sent: Deadline,
    pub(super) expires: Deadline,
    pub(super) label: Arc<str>,
    pub(super) since: SystemTime,
    /// Set when the entry is taken from its holder, with the reason.
    pub(super) lost: Arc<Lost>,
}

#[derive(Debug, Default)]
pub(super) struct Lost {
    pub(super) raised: CancellationToken,
    pub(super) reason: std::sync::OnceLock<LostReason>,
}

impl Lost {
    pub(super) fn raise(&self, reason: LostReason) {
        let _ = self.reason.set(reason);
        self.raised.cancel();
    }
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) owner: Owner,
    pub(super) wake: Arc<Notify>,
}

pub(super) enum Turn {
    Granted(Entry),
    Busy(Holder),
}

impl Store {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, inner: Mutex::default() }
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        // Every change is whole before the lock is given back, also after a panic elsewhere.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the name if it is free and nobody stands before this request; else takes a place in the queue, if it waits.
    pub(super) fn take(&self, request: &AcquireRequest, place: &mut Place<'_>) -> Turn {
        let now = self.clock.now();
        let mut inner = self.inner();
        inner.expire(&request.name, now);
        let ttl = request.ttl.get();
        if let Some(own) = inner.entries.get_mut(&request.name).filter(|e| e.owner == request.owner && !e.revoked) {
            // A retry: the same lease and the same token.
            (own.sent, own.expires) = (now, now.after(ttl));
            return Turn::Granted(own.clone());
        }
        let first = inner.queues.get(&request.name).and_then(VecDeque::front).map(|waiter| waiter.owner);
        if inner.entries.contains_key(&request.name) || first.is_some_and(|owner| owner != request.owner) {
            let holder = inner.holder(&request.name, now).unwrap_or_else(|| {
                let owner = first.map(|owner| owner.to_string()).unwrap_or_default();
                Holder::new(request.name.clone(), owner, HolderState::Reserved)
            });
            if request.wait != Wait::Never {
                place.stand(&mut inner);
            }
            return Turn::Busy(holder);
        }
        inner.last_token += 1;
        let entry = Entry {
            name: request.name.clone(),
            owner: request.owner,
            revoked: false,
            token: inner.last_token,
            ttl,
            sent: now,
            expires: now.after(ttl),
            label: request.label.clone(),
            since: SystemTime::now(),
            lost: Arc::default(),
        };
        inner.entries.insert(request.name.clone(), entry.clone());
        place.leave(&mut inner);
        Turn::Granted(entry)
    }

    /// Compares the owner; a lease that is over is not revived.
    pub(super) fn renew(&self, name: &LockName, owner: &Owner, ttl: Duration) -> Result<Deadline, LostReason> {
        let now = self.clock.now();
        let mut inner = self.inner();
        let expired = inner.expire(name, now);
        match inner.entries.get_mut(name) {
            Some(entry) if entry.owner != *owner => Err(LostReason::TakenOver),
            Some(entry) if entry.revoked => Err(LostReason::ForceReleased),
            Some(entry) => {
                (entry.sent, entry.expires) = (now, now.after(ttl));
                Ok(now)
            }
            None if expired => Err(LostReason::Expired),
            None => Err(LostReason::Removed),
        }
    }

    pub(super) fn release(&self, name: &LockName, owner: &Owner) -> Released {
        let now = self.clock.now();
        let mut inner = self.inner();
        inner.leave(name, owner);
        inner.expire(name, now);
        match inner.entries.get(name) {
            Some(entry) if entry.owner == *owner && !entry.revoked => {
                inner.entries.remove(name);
                inner.wake_first(name);
                Released::Released
            }
            _ => Released::NotHeld,
        }
    }

    pub(super) fn revoke(&self, name: &LockName, expect: Option<FencingToken>, how: Revoke) -> Released {
        let now = self.clock.now();
        let mut inner = self.inner();
        inner.expire(name, now);
        match inner.entries.get_mut(name) {
            Some(entry) if expect.is_none_or(|token| token.get() == entry.token) => {
                entry.lost.raise(LostReason::ForceReleased);
                entry.revoked = true;
                if how == Revoke::Now {
                    inner.entries.remove(name);
                    inner.wake_first(name);
                }
                Released::Released
            }
            _ => Released::NotHeld,
        }
    }

    pub(super) fn holder(&self, name: &LockName) -> Option<Holder> {
        self.inner().holder(name, self.clock.now())
    }

    pub(super) fn list(&self, prefix: &str, page: &Page) -> Vec<Holder> {
        let now = self.clock.now();
        let inner = self.inner();
        let names = inner.entries.keys().filter(|name| name.as_str().starts_with(prefix));
        names
            .filter(|name| page.after.as_ref().is_none_or(|after| *name > after))
            .filter_map(|name| inner.holder(name, now))
            .take(page.limit)
            .collect()
    }

    /// How long until the present lease ends; a minute where there is none, since a release wakes.
    pub(super) fn until_free(&self, name: &LockName) -> Duration {
        let expires = self.inner().entries.get(name).map(|entry| entry.expires);
        expires.map_or(Duration::from_secs(60), |at| self.clock.until(at))
    }

    pub(super) fn waiters(&self, name: &LockName) -> usize {
        self.inner().queues.get(name).map_or(0, VecDeque::len)
    }

    #[cfg(feature = "test-util")]
    pub(super) fn remove(&self, name: &LockName, reason: LostReason) -> bool {
        let mut inner = self.inner();
        let Some(entry) = inner.entries.remove(name) else { return false };
        entry.lost.raise(reason);
        inner.wake_first(name);
        true
    }

    #[cfg(feature = "test-util")]
    pub(super) fn replace(&self, name: &LockName, owner: Owner, ttl: Duration) {
        let now = self.clock.now();
        let mut inner = self.inner();
        if let Some(old) = inner.entries.remove(name) {
            old.lost.raise(LostReason::TakenOver);
        }
        inner.last_token += 1;
        let entry = Entry {
            name: name.clone(),
            owner,
            revoked: false,
            token: inner.last_token,
            ttl,
            sent: now,
            expires: now.after(ttl),
            label: "".into(),
            since: SystemTime::now(),
            lost: Arc::default(),
        };
        inner.entries.insert(name.clone(), entry);
    }

    #[cfg(feature = "test-util")]
    pub(super) fn wipe(&self) {
        let mut inner = self.inner();
        for entry in std::mem::take(&mut inner.entries).into_values() {
            entry.lost.raise(LostReason::Removed);
        }
        inner.last_token = 0;
        for queue in inner.queues.values() {
            queue.iter().for_each(|waiter| waiter.wake.notify_one());
        }
    }
}

impl Inner {
    /// Drops an entry whose time is over. Answers whether it did.
    pub(super) fn expire(&mut self, name: &LockName, now: Deadline) -> bool {
        let over = self.entries.get(name).is_some_and(|entry| entry.expires <= now);
        if over {
            self.entries.remove(name);
            self.wake_first(name);
        }
        over
    }

    pub(super) fn wake_first(&self, name: &LockName) {
        if let Some(first) = self.queues.get(name).and_then(VecDeque::front) {
            first.wake.notify_one();
        }
    }

    fn leave(&mut self, name: &LockName, owner: &Owner) {
        let Some(queue) = self.queues.get_mut(name) else { return };
        let was_first = queue.front().is_some_and(|waiter| waiter.owner == *owner);
        queue.retain(|waiter| waiter.owner != *owner);
        if queue.is_empty() {
            self.queues.remove(name);
        } else if was_first {
            self.wake_first(name);
        }
    }

    fn holder(&self, name: &LockName, now: Deadline) -> Option<Holder> {
        let entry = self.entries.get(name).filter(|entry| entry.expires > now)?;
        let state = if entry.revoked { HolderState::Revoked } else { HolderState::Held };
        let mut holder = Holder::new(name.clone(), entry.owner.to_string(), state);
        holder.token = Some(FencingToken::new(entry.token));
        holder.label = (!entry.label.is_empty()).then(|| entry.label.to_string());
        holder.since = Some(entry.since);
        holder.remaining = Some(entry.expires.saturating_since(now));
        holder.waiters = Some(self.queues.get(name).map_or(0, |queue| queue.len() as u64));
        Some(holder)
    }
}

/// A request's place in the queue; given up when dropped.
pub(super) struct Place<'a> {
    store: &'a Store,
    name: LockName,
    owner: Owner,
    wake: Arc<Notify>,
    standing: bool,
}

impl<'a> Place<'a> {
    pub(super) fn new(store: &'a Store, request: &AcquireRequest) -> Self {
        let wake = Arc::new(Notify::new());
        Self { store, name: request.name.clone(), owner: request.owner, wake, standing: false }
    }

    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    fn stand(&mut self, inner: &mut Inner) {
        if !self.standing {
            self.standing = true;
            let waiter = Waiter { owner: self.owner, wake: self.wake.clone() };
            inner.queues.entry(self.name.clone()).or_default().push_back(waiter);
        }
    }

    fn leave(&mut self, inner: &mut Inner) {
        if std::mem::take(&mut self.standing) {
            inner.leave(&self.name, &self.owner);
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.standing {
            let store = self.store;
            self.leave(&mut store.inner());
        }
    }
}
