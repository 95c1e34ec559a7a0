//! One session with the ensemble, which many locks of one TTL share.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use lock_core::{Clock, Deadline, ErrorKind, LockError, Owner};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use zookeeper_client::{Client, Error, MultiWriteError};

use crate::BACKEND;
use crate::config::ZkConfig;
use crate::errors::failed;
use crate::pulse::{Pulse, Tempo};
use crate::wait::mind;

/// How many bytes of paths a session may hold. Closing it writes one transaction that lists them all, and a server cannot read back
/// a transaction of more than a megabyte.
const MOST_PATHS: usize = 512 * 1024;

/// The driver gives a silent connection up after this, and pings it three times before.
const LONGEST_SILENCE: Duration = Duration::from_secs(2);

/// A heart-beat that any number of leases wait for.
pub(crate) type Beat = Shared<BoxFuture<'static, Result<(), Error>>>;

/// One session.
pub(crate) struct Session {
    client: Mutex<Option<Client>>,
    id: i64,
    timeout: Duration,
    clock: Clock,
    pulse: Mutex<Pulse>,
    beat: Mutex<Option<Beat>>,
    /// Since when there is no connection.
    away: Mutex<Option<Instant>>,
    path_bytes: AtomicUsize,
    debts: Mutex<Debts>,
    /// Rung when there is a new debt, and when the session is closed.
    pub(crate) alarm: Arc<Notify>,
    /// Set when it is closed by us: the driver closes it when the last client is dropped, so nobody may wait with one.
    closed: CancellationToken,
}

/// What must be gone from the session by a certain moment.
#[derive(Debug, Default)]
struct Debts {
    /// Nodes of leases that nobody renews, with their end.
    ends: HashMap<String, Instant>,
    /// Owners of whom something may have been left: unless that is cleared until then, the session is kept alive no longer (rule R4).
    doubts: HashMap<Owner, Instant>,
}

/// What is due in a session.
pub(crate) enum Due {
    /// Nothing before this moment, if ever.
    Later(Option<Instant>),
    /// These nodes are to be deleted.
    Ended(Vec<String>),
    /// A doubt was not cleared.
    Over,
}

impl Session {
    /// Looks whether a server gives sessions. Dials each server once.
    pub(crate) async fn probe(config: &ZkConfig, asked: Duration) -> Result<(), LockError> {
        let connector = config.connector().with_session_timeout(asked);
        connector.connect(&config.each_once()).await.map(drop).map_err(failed)
    }

    /// Opens one, of at least that time-out. While servers are silent it goes on trying.
    pub(crate) async fn open(config: &ZkConfig, asked: Duration, tempo: Tempo) -> Result<Arc<Self>, LockError> {
        let clock = Clock::system();
        let (sent, client) = loop {
            let connector = config
                .connector()
                .with_session_timeout(asked)
                .with_connection_timeout((asked * 2 / 5).min(LONGEST_SILENCE));
            let sent = clock.now();
            match connector.connect(&config.cluster()).await {
                // The driver tries no longer than the time-out that it asks for. How long we try is for the caller to bound.
                Err(Error::Timeout) => {}
                connected => break (sent, connected.map_err(failed)?),
            }
        };
        let states = client.state_watcher();
        let mut pulse = Pulse::new(sent, client.session_timeout(), tempo);
        pulse.set_alone(Some(is_alone(&client).await));
        let session = Arc::new(Self {
            id: client.session_id().0,
            timeout: client.session_timeout(),
            client: Mutex::new(Some(client)),
            clock,
            pulse: Mutex::new(pulse),
            beat: Mutex::default(),
            away: Mutex::default(),
            path_bytes: AtomicUsize::new(0),
            debts: Mutex::default(),
            alarm: Arc::default(),
            closed: CancellationToken::new(),
        });
        tokio::spawn(mind(Arc::downgrade(&session), session.alarm.clone(), states));
        Ok(session)
    }

    /// The driver's client, whose requests keep their order.
    pub(crate) fn client(&self) -> Result<Client, LockError> {
        locked(&self.client).clone().ok_or_else(|| {
            LockError::new(ErrorKind::Unavailable, "the session was closed").advice("try again, with a new session")
        })
    }

    /// Its number, as the servers show it in `ephemeralOwner`.
    pub(crate) fn id(&self) -> i64 {
        self.id
    }

    /// The time-out that the ensemble granted.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Whether it has ended, by the driver's word or ours.
    pub(crate) fn is_over(&self) -> bool {
        locked(&self.client).as_ref().is_none_or(|client| client.state().is_terminated())
    }

    /// Ends it, and with it all its nodes, once the requests in flight are done.
    pub(crate) fn close(&self) {
        locked(&self.client).take();
        // It has a client, too.
        locked(&self.beat).take();
        self.closed.cancel();
        self.alarm.notify_one();
    }

    /// Ready when it has ended, by the driver's word or ours.
    pub(crate) async fn end(&self) {
        let Some(mut states) = locked(&self.client).as_ref().map(Client::state_watcher) else { return };
        let expired = async {
            let mut state = states.peek_state();
            while !state.is_terminated() {
                state = states.changed().await;
            }
        };
        tokio::select! {
            () = expired => {}
            () = self.closed.cancelled() => {}
        }
    }

    /// Puts a path's bytes on the session's account; `false` when it is full.
    pub(crate) fn reserve(&self, bytes: usize) -> bool {
        let add = |now: usize| Some(now + bytes).filter(|sum| *sum <= MOST_PATHS);
        self.path_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    /// Takes them off.
    pub(crate) fn give_back(&self, bytes: usize) {
        self.path_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Now, on the session's clock.
    pub(crate) fn now(&self) -> Deadline {
        self.clock.now()
    }

    /// A write that was sent at that moment was answered.
    pub(crate) fn answered(&self, sent: Deadline) {
        locked(&self.pulse).write(sent, self.now());
    }

    /// Until when a lease of this session may be trusted, on another clock.
    pub(crate) fn valid_until(&self, clock: &Clock) -> Deadline {
        // In this order: what passes between the two looks makes it end earlier.
        let theirs = clock.now();
        let age = self.age();
        Deadline::valid_until(theirs.before(age), self.timeout)
    }

    /// How long ago the last sign of life was sent that surely reached the leader.
    pub(crate) fn age(&self) -> Duration {
        self.clock.now().saturating_since(locked(&self.pulse).proved())
    }

    /// Whether its server belongs to no ensemble.
    pub(crate) fn is_alone(&self) -> bool {
        locked(&self.pulse).is_alone()
    }

    /// Whether a lease that starts now has most of its time before it. Alone, the request that makes its node sees to that.
    pub(crate) fn is_fresh(&self) -> bool {
        self.is_alone() || self.age() < self.timeout / 2
    }

    /// Whether it was proved to live so lately that a heart-beat would tell little more.
    pub(crate) fn is_proved(&self) -> bool {
        self.age() < self.timeout / 20
    }

    /// The connection came or went: whether the server is alone must be asked again.
    pub(crate) fn connection(&self, up: bool) {
        locked(&self.pulse).set_alone(None);
        *locked(&self.away) = (!up).then(Instant::now);
    }

    /// Whether it is without a connection for so long that another session should be tried: servers that have lost their data take
    /// no old session back, and the driver goes on asking until its time is over.
    pub(crate) fn is_away(&self) -> bool {
        locked(&self.away).is_some_and(|since| since.elapsed() > LONGEST_SILENCE)
    }

    /// The heart-beat in flight, or a new one.
    pub(crate) fn beat(self: &Arc<Self>) -> Result<Beat, LockError> {
        let client = self.client()?;
        let mut beat = locked(&self.beat);
        if let Some(beat) = beat.as_ref().filter(|beat| beat.peek().is_none()) {
            return Ok(beat.clone());
        }
        let new = beat_once(client, Arc::downgrade(self)).boxed().shared();
        Ok(beat.insert(new).clone())
    }

    /// The node is to be deleted then, unless this is called again or [`Session::forget`] before.
    pub(crate) fn end_at(&self, node: &str, end: Instant) {
        locked(&self.debts).ends.insert(node.to_owned(), end);
        self.alarm.notify_one();
    }

    /// The node is gone.
    pub(crate) fn forget(&self, node: &str) {
        locked(&self.debts).ends.remove(node);
    }

    /// Something of this owner may be left.
    pub(crate) fn doubt(&self, owner: Owner) {
        locked(&self.debts).doubts.entry(owner).or_insert_with(|| Instant::now() + self.timeout);
        self.alarm.notify_one();
    }

    /// Nothing of this owner is left, or somebody minds it.
    pub(crate) fn settle(&self, owner: &Owner) {
        locked(&self.debts).doubts.remove(owner);
    }

    /// What is to be done now.
    pub(crate) fn due(&self) -> Due {
        let (debts, now) = (locked(&self.debts), Instant::now());
        if debts.doubts.values().any(|by| *by <= now) || debts.ends.values().any(|end| *end + self.timeout <= now) {
            return Due::Over;
        }
        let ended: Vec<_> = debts.ends.iter().filter(|(_, end)| **end <= now).map(|(node, _)| node.clone()).collect();
        match ended.is_empty() {
            false => Due::Ended(ended),
            true => Due::Later(debts.ends.values().chain(debts.doubts.values()).min().copied()),
        }
    }
}

/// Wakes whoever minds the session, so that he sees that it is gone.
impl Drop for Session {
    fn drop(&mut self) {
        self.alarm.notify_one();
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("id", &self.id).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// A sign of life and, some time later, a write by which it is proved; see [`Pulse`]. It may lie about for long, and keeps no session open.
async fn beat_once(client: Client, session: Weak<Session>) -> Result<(), Error> {
    let session = || session.upgrade().ok_or(Error::ClientClosed);
    let sent = session()?.now();
    let known = locked(&session()?.pulse).alone();
    let alone = match known {
        Some(alone) => alone,
        None => is_alone(&client).await,
    };
    locked(&session()?.pulse).set_alone(Some(alone));
    client.sync("/").await?;
    let pause = {
        let session = session()?;
        let (now, mut pulse) = (session.now(), locked(&session.pulse));
        pulse.sign(sent, now);
        pulse.pause(now)
    };
    if !alone {
        sleep(pause).await;
        let sent = session()?.now();
        agree(&client).await?;
        session()?.answered(sent);
    }
    Ok(())
}

/// A write that changes nothing: a majority must take part in it as in any other.
async fn agree(client: &Client) -> Result<(), Error> {
    let mut writer = client.new_multi_writer();
    writer.add_check_version("/", -1)?;
    match writer.commit().await {
        // The servers have agreed that it fails.
        Ok(_) | Err(MultiWriteError::OperationFailed { .. }) => Ok(()),
        Err(MultiWriteError::RequestFailed { source }) => Err(source),
    }
}

/// Whether the server belongs to no ensemble: an ensemble's servers keep the list of its members in this node.
async fn is_alone(client: &Client) -> bool {
    client.get_config().await.is_ok_and(|(members, _)| members.is_empty())
}

/// An entry that is left on the session if the future that made it is dropped, or fails, before [`Doubt::settle`].
#[derive(Debug)]
pub(crate) struct Doubt {
    session: Arc<Session>,
    owner: Owner,
    open: bool,
}

impl Doubt {
    /// From here on something of the owner may be on its way.
    pub(crate) fn new(session: &Arc<Session>, owner: Owner) -> Self {
        Self { session: session.clone(), owner, open: true }
    }

    /// Nothing is left, or the lease minds it.
    pub(crate) fn settle(mut self) {
        self.open = false;
        self.session.settle(&self.owner);
    }
}

impl Drop for Doubt {
    fn drop(&mut self) {
        if self.open {
            self.session.doubt(self.owner);
        }
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in these sections can leave the data half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A session in the words of an error.
pub(crate) fn ended() -> LockError {
    LockError::new(ErrorKind::Unavailable, "the session ended").backend(BACKEND).advice("a new one is opened")
}
