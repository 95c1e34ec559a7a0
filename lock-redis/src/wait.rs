//! Waiting: who waits in this process, how they are woken, and the one poll for each name.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use lock_core::{LockError, LockName, Owner, bounded};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::backend::Inner;
use crate::connection::{Link, Resend, lock};
use crate::scripts::{DECLINE, POLL, number, parts, text};
use crate::slot::{Keys, Kind};

/// A poll beats the process's heart, which counts as dead after 600 ms.
const POLL_EVERY: Duration = Duration::from_millis(200);
/// How long the server leaves a name open for clients that know of no queue.
const OPEN: Duration = Duration::from_millis(20);
/// The subscription is looked at so often; polls bridge what it misses.
const PING_EVERY: Duration = Duration::from_secs(5);

/// The primary that the sentinels name is compared with the one in use so often.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// All waiters and leases of one process.
#[derive(Default)]
pub(crate) struct Registry {
    tables: Mutex<Tables>,
}

#[derive(Default)]
struct Tables {
    names: HashMap<LockName, Queue>,
    leases: HashMap<Owner, oneshot::Sender<()>>,
    /// Owners of whom a request may still be on its way.
    doubts: HashSet<Owner>,
}

#[derive(Default)]
struct Queue {
    waiters: HashMap<Owner, Waiter>,
    /// The poll of this name, once there is one: how to hurry it.
    poll: Option<Arc<Hurry>>,
}

#[derive(Default)]
struct Waiter {
    wake: Arc<Notify>,
    /// The server's time at which it joined the queue; none before it has.
    place: Option<u64>,
}

/// Tells a poll to come earlier.
#[derive(Default)]
struct Hurry {
    within: Mutex<Option<Duration>>,
    notify: Notify,
}

impl Hurry {
    fn within(&self, delay: Duration) {
        *lock(&self.within) = Some(delay);
        self.notify.notify_one();
    }
}

/// A waiter's entry in the registry, gone when this is dropped.
pub(crate) struct Place<'a> {
    registry: &'a Registry,
    name: &'a LockName,
    owner: Owner,
    wake: Arc<Notify>,
}

impl Place<'_> {
    /// Ready when there is reason to look again.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut tables = lock(&self.registry.tables);
        let Some(queue) = tables.names.get_mut(self.name) else { return };
        queue.waiters.remove(&self.owner);
        if !queue.waiters.is_empty() {
            return;
        }
        match &queue.poll {
            // It sees that nobody is left, and ends.
            Some(poll) => poll.within(Duration::ZERO),
            None => drop(tables.names.remove(self.name)),
        }
    }
}

impl Registry {
    /// Enters a waiter before it asks, so that no message about it can come too early.
    pub(crate) fn enter<'a>(&'a self, name: &'a LockName, owner: Owner) -> Place<'a> {
        let wake = Arc::<Notify>::default();
        let waiter = Waiter { wake: wake.clone(), place: None };
        lock(&self.tables).names.entry(name.clone()).or_default().waiters.insert(owner, waiter);
        Place { registry: self, name, owner, wake }
    }

    /// Ready when the lease of this owner is revoked; an error when it is gone.
    pub(crate) fn revocation(&self, owner: Owner) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        lock(&self.tables).leases.insert(owner, sender);
        receiver
    }

    pub(crate) fn forget_lease(&self, owner: &Owner) {
        lock(&self.tables).leases.remove(owner);
    }

    pub(crate) fn doubt(&self, owner: Owner) {
        lock(&self.tables).doubts.insert(owner);
    }

    pub(crate) fn is_in_doubt(&self, owner: &Owner) -> bool {
        lock(&self.tables).doubts.contains(owner)
    }

    pub(crate) fn settle(&self, owner: &Owner) {
        lock(&self.tables).doubts.remove(owner);
    }

    fn wake(&self, name: &LockName, owner: &Owner) -> bool {
        let tables = lock(&self.tables);
        let waiter = tables.names.get(name).and_then(|queue| queue.waiters.get(owner));
        if let Some(waiter) = waiter {
            waiter.wake.notify_one();
        }
        waiter.is_some()
    }

    fn wake_all(&self, name: &LockName) {
        if let Some(queue) = lock(&self.tables).names.get(name) {
            queue.waiters.values().for_each(|waiter| waiter.wake.notify_one());
        }
    }

    fn is_known(&self, name: &LockName, owner: &Owner) -> bool {
        let tables = lock(&self.tables);
        tables.leases.contains_key(owner)
            || tables.names.get(name).is_some_and(|queue| queue.waiters.contains_key(owner))
    }

    fn hurry(&self, name: &LockName, delay: Duration) {
        if let Some(poll) = lock(&self.tables).names.get(name).and_then(|queue| queue.poll.as_ref()) {
            poll.within(delay);
        }
    }

    fn revoke(&self, owner: &Owner) {
        if let Some(lease) = lock(&self.tables).leases.remove(owner) {
            // Nobody listens any more: then it is gone anyway.
            let _ = lease.send(());
        }
    }

    /// The waiter of this process that joined the queue first; `Err` when nobody waits any more, and the name is forgotten.
    fn oldest(&self, name: &LockName) -> Result<Option<Owner>, ()> {
        let mut tables = lock(&self.tables);
        let Some(queue) = tables.names.get(name).filter(|queue| !queue.waiters.is_empty()) else {
            tables.names.remove(name);
            return Err(());
        };
        let queued = queue.waiters.iter().filter_map(|(owner, waiter)| Some((waiter.place?, owner)));
        Ok(queued.min_by_key(|(place, _)| *place).map(|(_, owner)| *owner))
    }
}

impl Inner {
    /// Notes a waiter's place in the queue and sees to it that the name is polled. `busy_for` is the holder's remaining time.
    pub(crate) fn queued(self: &Arc<Self>, name: &LockName, owner: &Owner, place: u64, busy_for: Option<Duration>) {
        let mut tables = lock(&self.registry.tables);
        let Some(queue) = tables.names.get_mut(name) else { return };
        if let Some(waiter) = queue.waiters.get_mut(owner) {
            waiter.place = Some(place);
        }
        if queue.poll.is_none() {
            let hurry = Arc::<Hurry>::default();
            queue.poll = Some(hurry.clone());
            tokio::spawn(poll(self.clone(), name.clone(), hurry, next_poll(busy_for)));
        }
    }

    async fn poll_once(&self, keys: &Keys, oldest: &Owner) -> Result<Duration, LockError> {
        let (queue, board) = (keys.helper(Kind::Queue), keys.helper(Kind::Board));
        let all: [&[u8]; 3] = [keys.lock(), &queue, &board];
        let first = oldest.to_string();
        let args: [&[u8]; 2] = [self.process.as_bytes(), first.as_bytes()];
        let answer = bounded(self.limit, self.link.run(&POLL, &all, &args, Resend::Once)).await?.value;
        let answer = parts(&answer);
        let value = text(answer.first());
        if let Ok(owner) = value.parse::<Owner>() {
            self.registry.wake(keys.name(), &owner);
        }
        // The oldest fell out of the queue, or the queue is gone: everybody joins again, each at its old place.
        if number(answer.get(2)) == Some(0) && value != first && self.registry.is_known(keys.name(), oldest) {
            self.registry.wake_all(keys.name());
        }
        let remaining = number(answer.get(1)).and_then(|ms| u64::try_from(ms).ok());
        let busy_for = if value.is_empty() { Some(OPEN) } else { remaining.map(Duration::from_millis) };
        Ok(next_poll(busy_for))
    }

    /// Gives back what was set aside for a waiter that this process does not know (any more).
    async fn decline(&self, name: &LockName, owner: &Owner) {
        let keys = Keys::new(name);
        let [meta, queue, board] = [Kind::Meta, Kind::Queue, Kind::Board].map(|kind| keys.helper(kind));
        let all: [&[u8]; 4] = [keys.lock(), &meta, &queue, &board];
        let owner = owner.to_string();
        let args: [&[u8]; 1] = [owner.as_bytes()];
        let answer = bounded(self.limit, self.link.run(&DECLINE, &all, &args, Resend::Once)).await;
        if let Err(e) = answer {
            tracing::debug!(name = %name, error = %e, "a reservation was not given back; it ends by itself");
        }
    }

    async fn heard(self: Arc<Self>, message: &[u8]) {
        let Some((word, rest)) = message.split_first() else { return };
        let Some((owner, name)) = rest.split_at_checked(32) else { return };
        let owner = std::str::from_utf8(owner).ok().and_then(|text| text.parse::<Owner>().ok());
        let name = std::str::from_utf8(name).ok().and_then(LockName::from_store);
        let (Some(owner), Some(name)) = (owner, name) else { return };
        match word {
            b'R' if self.registry.wake(&name, &owner) => {}
            b'R' if !self.registry.is_known(&name, &owner) => self.decline(&name, &owner).await,
            b'O' => self.registry.hurry(&name, OPEN + Duration::from_millis(1)),
            b'X' => self.registry.revoke(&owner),
            _ => {}
        }
    }
}

/// When to look next: as the holder's time ends, at the latest after [`POLL_EVERY`], a little apart from other processes.
fn next_poll(busy_for: Option<Duration>) -> Duration {
    let jitter = UNEVEN.with(|n| {
        n.set(n.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
        (n.get() >> 33) % 40
    });
    let regular = POLL_EVERY - Duration::from_millis(jitter);
    busy_for.map_or(regular, |busy| regular.min(busy + Duration::from_millis(1)))
}

thread_local! {
    static UNEVEN: std::cell::Cell<u64> = const { std::cell::Cell::new(1) };
}

/// Looks for all waiters of this process on one name, until nobody waits.
async fn poll(inner: Arc<Inner>, name: LockName, hurry: Arc<Hurry>, first: Duration) {
    let keys = Keys::new(&name);
    let mut due = tokio::time::Instant::now() + first;
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(due) => {}
            () = hurry.notify.notified() => {
                if let Some(delay) = lock(&hurry.within).take() {
                    due = due.min(tokio::time::Instant::now() + delay);
                }
                continue;
            }
            () = inner.closed.cancelled() => return inner.registry.wake_all(&name),
        }
        let next = match inner.registry.oldest(&name) {
            Err(()) => return,
            Ok(None) => POLL_EVERY,
            Ok(Some(oldest)) => inner.poll_once(&keys, &oldest).await.unwrap_or_else(|e| {
                tracing::debug!(name = %name, error = %e, "the queue could not be looked at");
                // Each waiter looks for itself, and reports what it meets.
                inner.registry.wake_all(&name);
                POLL_EVERY
            }),
        };
        due = tokio::time::Instant::now() + next;
    }
}

/// Asks the sentinels now and then who is the primary, until the backend is closed.
pub(crate) async fn follow(link: Arc<Link>, closed: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(FOLLOW_EVERY) => link.look_for_primary().await,
            () = closed.cancelled() => return,
        }
    }
}

/// Listens for wake-ups until the backend is closed; dials again when the connection ends.
pub(crate) async fn listen(inner: Weak<Inner>, link: Arc<Link>, channel: String, limit: Duration) {
    let Some(closed) = inner.upgrade().map(|inner| inner.closed.clone()) else { return };
    let mut denied = false;
    loop {
        let heard = async {
            let dialled = tokio::time::timeout(limit, async {
                let mut connection = link.listen().await?;
                connection.subscribe(&channel).await?;
                Ok::<_, redis::RedisError>(connection)
            });
            let connection = dialled.await.map_err(|_| "no answer".to_owned())?;
            let (mut sink, stream) = connection.map_err(|e| e.to_string())?.split();
            let mut stream = pin!(stream);
            loop {
                match tokio::time::timeout(PING_EVERY, stream.next()).await {
                    Ok(Some(message)) => {
                        let Some(inner) = inner.upgrade() else { return Ok(()) };
                        inner.heard(message.get_payload_bytes()).await;
                    }
                    Ok(None) => return Err("the connection ended".to_owned()),
                    Err(_) => {
                        let pong = tokio::time::timeout(limit, sink.ping::<redis::Value>()).await;
                        pong.map_err(|_| "no answer".to_owned())?.map_err(|e| e.to_string())?;
                    }
                }
            }
        };
        let why = tokio::select! {
            heard = heard => match heard { Ok(()) => return, Err(why) => why },
            // It still reaches the old primary, where nothing is published any more.
            () = link.moved.notified() => continue,
            () = closed.cancelled() => return,
        };
        let no_right = why.contains("NoPerm") || why.contains("NOPERM");
        if no_right && !denied {
            tracing::warn!(
                error = why,
                "wake-ups are not allowed to this user; waiters poll instead (docs/redis.md has the ACL rule)"
            );
        } else {
            tracing::debug!(error = why, "the subscription ended; waiters poll meanwhile");
        }
        denied = no_right;
        let pause = if denied { Duration::from_secs(60) } else { POLL_EVERY };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = closed.cancelled() => return,
        }
    }
}
