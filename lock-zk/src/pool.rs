//! The sessions of one process: a few for each class of TTLs, opened when they are needed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::{Effect, ErrorKind, LockError, Owner, Ttl, bounded};
use tokio::sync::OnceCell;

use crate::config::ZkConfig;
use crate::pulse::Tempo;
use crate::session::{Session, ended, locked};
use crate::wait::Gate;

/// The least session time-out that is asked for: below it, a pause of a server's garbage collector ends leases.
const LEAST: Duration = Duration::from_secs(1);

/// What is asked for to learn the servers' tick: their least time-out is two of them.
const SHORTEST: Duration = Duration::from_millis(200);

/// The classes, in milliseconds, as far as the ensemble's limits allow. A TTL is rounded up to the next.
const LADDER: &[u64] = &[
    1_000, 1_500, 2_000, 3_000, 4_000, 6_000, 8_000, 10_000, 15_000, 20_000, 30_000, 40_000, 60_000, 90_000, 120_000,
    180_000, 300_000, 600_000,
];

/// The bytes of a node's own name beside its folder's: the prefix, and a number with its sign.
const NODE_BYTES: usize = 64;

type Cell = Arc<OnceCell<Arc<Session>>>;

/// Sessions by time-out, and which owner uses which.
#[derive(Debug)]
pub(crate) struct Pool {
    config: ZkConfig,
    classes: Mutex<HashMap<Duration, Cell>>,
    places: Mutex<HashMap<Owner, Arc<Place>>>,
    least: Duration,
    most: Duration,
    tempo: Tempo,
    is_alone: bool,
    gate: Gate,
    closed: AtomicBool,
}

/// An owner's share of a session.
#[derive(Debug)]
pub(crate) struct Place {
    /// The session that holds its lease.
    pub(crate) session: Arc<Session>,
    /// The session that keeps its place in the queue, while it waits.
    waiting: Mutex<Option<Arc<Session>>>,
    bytes: usize,
}

impl Place {
    fn new(session: Arc<Session>, bytes: usize) -> Self {
        Self { session, waiting: Mutex::default(), bytes }
    }

    /// All sessions that may hold a node of this owner.
    pub(crate) fn sessions(&self) -> Vec<Arc<Session>> {
        locked(&self.waiting).iter().chain([&self.session]).cloned().collect()
    }

    /// The session of its waiting node, where it has one.
    pub(crate) fn waiting(&self) -> Option<Arc<Session>> {
        locked(&self.waiting).clone()
    }

    /// The owner has nothing in the session of its waiting node any more.
    pub(crate) fn stop_waiting(&self) {
        if let Some(session) = locked(&self.waiting).take() {
            session.give_back(self.bytes);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.stop_waiting();
        self.session.give_back(self.bytes);
    }
}

impl Pool {
    /// Learns the ensemble's limits, by asking for a session that is too long and for one that may be too short.
    pub(crate) async fn open(config: ZkConfig) -> Result<Self, LockError> {
        let limit = async |asked| {
            // Nothing is proved by them, so any tempo will do.
            let session = Session::open(&config, asked, Tempo::of_tick(LEAST)).await?;
            let found = (session.timeout(), session.is_alone());
            session.close();
            Ok::<_, LockError>(found)
        };
        let longest = Duration::from_millis(i32::MAX as u64);
        let limits = async { tokio::try_join!(limit(longest), limit(LEAST)) };
        // The driver gives up after that time where no server is so quick: then the tick is taken for longer than it is, which is safe.
        let (limits, shortest) = tokio::join!(limits, limit(SHORTEST));
        let ((most, _), (least, is_alone)) = limits?;
        let two_ticks = shortest.map_or(least, |(timeout, _)| timeout.min(least));
        Ok(Self {
            config,
            classes: Mutex::default(),
            places: Mutex::default(),
            least,
            most: most.max(least),
            tempo: Tempo::of_tick(two_ticks / 2),
            is_alone,
            gate: Gate::default(),
            closed: AtomicBool::new(false),
        })
    }

    pub(crate) fn config(&self) -> &ZkConfig {
        &self.config
    }

    pub(crate) fn limits(&self) -> (Duration, Duration) {
        (self.least, self.most)
    }

    /// Whether the server belonged to no ensemble when this was opened.
    pub(crate) fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// A tick of the servers or more: their least time-out is two of them, unless they were told otherwise.
    pub(crate) fn tick(&self) -> Duration {
        self.least / 2
    }

    /// A place for an owner's node in a folder: the one that it has, or a new one.
    pub(crate) async fn place(&self, owner: &Owner, ttl: Ttl, folder: &str) -> Result<Arc<Place>, LockError> {
        if let Some(place) = self.place_of(owner).filter(|place| !place.session.is_over()) {
            return Ok(place);
        }
        let bytes = folder.len() + NODE_BYTES;
        let place = Arc::new(Place::new(self.roomy(self.class(ttl)?, bytes).await?, bytes));
        locked(&self.places).insert(*owner, place.clone());
        Ok(place)
    }

    /// A session of the least time-out for the node of an owner that waits: if its process dies, nobody stands behind it for longer.
    pub(crate) async fn waiting(&self, place: &Place) -> Result<Arc<Session>, LockError> {
        if place.session.timeout() <= self.least {
            return Ok(place.session.clone());
        }
        if let Some(session) = place.waiting().filter(|session| !session.is_over()) {
            return Ok(session);
        }
        place.stop_waiting();
        let session = self.roomy(class(self.least).min(self.most), place.bytes).await?;
        *locked(&place.waiting) = Some(session.clone());
        Ok(session)
    }

    /// A place in another session, for a lease that would have little time left in the one that the owner has. What carries its node until then still
    /// counts as a session of the owner.
    pub(crate) async fn move_on(&self, owner: &Owner, ttl: Ttl, old: &Place) -> Result<Arc<Place>, LockError> {
        let new = Place::new(self.roomy(self.class(ttl)?, old.bytes).await?, old.bytes);
        let carrier = old.waiting().unwrap_or_else(|| old.session.clone());
        if !carrier.reserve(old.bytes) {
            return Err(ended());
        }
        *locked(&new.waiting) = Some(carrier);
        let new = Arc::new(new);
        locked(&self.places).insert(*owner, new.clone());
        Ok(new)
    }

    /// A session of a class, with these bytes put on its account.
    async fn roomy(&self, class: Duration, bytes: usize) -> Result<Arc<Session>, LockError> {
        loop {
            let (cell, session) = self.session(class).await?;
            if session.reserve(bytes) {
                return Ok(session);
            }
            // Full: it goes on for those that it has.
            self.drop_cell(class, &cell);
        }
    }

    pub(crate) fn place_of(&self, owner: &Owner) -> Option<Arc<Place>> {
        locked(&self.places).get(owner).cloned()
    }

    /// The owner has nothing in its session any more.
    pub(crate) fn leave(&self, owner: &Owner) {
        locked(&self.places).remove(owner);
    }

    /// Any session, for looking.
    pub(crate) async fn any(&self) -> Result<Arc<Session>, LockError> {
        let open = |cell: &Cell| cell.get().filter(|session| !session.is_over() && !session.is_away()).cloned();
        if let Some(session) = locked(&self.classes).values().find_map(open) {
            return Ok(session);
        }
        let class = self.class(Ttl::new(Ttl::DEFAULT.get().min(self.most))?)?;
        Ok(self.session(class).await?.1)
    }

    /// Ends all sessions. Their nodes go with them.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let classes = std::mem::take(&mut *locked(&self.classes));
        for session in classes.values().filter_map(|cell| cell.get()) {
            session.close();
        }
        for (_, place) in locked(&self.places).drain() {
            place.sessions().iter().for_each(|session| session.close());
        }
    }

    fn class(&self, ttl: Ttl) -> Result<Duration, LockError> {
        let ttl = ttl.get();
        if ttl > self.most {
            let (least, most) = (self.least, self.most);
            return Err(LockError::new(
                ErrorKind::InvalidTtl,
                format!("a TTL of {ttl:?} is beyond the servers' limit"),
            )
            .advice(format!(
                "give one up to {most:?} (shorter ones than {least:?} are rounded up), or raise maxSessionTimeout"
            )));
        }
        Ok(class(ttl.max(self.least)).min(self.most))
    }

    async fn session(&self, class: Duration) -> Result<(Cell, Arc<Session>), LockError> {
        loop {
            if self.closed.load(Ordering::Acquire) {
                return Err(LockError::new(ErrorKind::Closed, "the backend was closed"));
            }
            let cell = self.cell(class);
            let open = || {
                let opening = Session::open(&self.config, class, self.tempo);
                bounded(
                    self.config.operation_limit(),
                    self.gate.pass(Session::probe(&self.config, self.least), opening),
                )
            };
            let session = cell.get_or_try_init(open).await?;
            if session.timeout() < class {
                let granted = session.timeout();
                self.drop_cell(class, &cell);
                return Err(LockError::new(ErrorKind::InvalidTtl, "the servers have lowered their limit")
                    .with_effect(Effect::NotApplied)
                    .advice(format!("give a TTL up to {granted:?}")));
            }
            if !session.is_over() && !session.is_away() && session.is_fresh() {
                return Ok((cell.clone(), session.clone()));
            }
            // It ended or lost its line, or nobody has used it for so long that a lease in it would have little time left.
            self.drop_cell(class, &cell);
        }
    }

    fn cell(&self, class: Duration) -> Cell {
        locked(&self.classes).entry(class).or_default().clone()
    }

    /// New places go to another session; those that have one here keep it open.
    fn drop_cell(&self, class: Duration, cell: &Cell) {
        let mut classes = locked(&self.classes);
        if classes.get(&class).is_some_and(|now| Arc::ptr_eq(now, cell)) {
            classes.remove(&class);
        }
    }
}

/// The step of the classes beyond the ladder.
const STEP: Duration = Duration::from_secs(600);

/// The class of a TTL.
fn class(ttl: Duration) -> Duration {
    let step = LADDER.iter().map(|ms| Duration::from_millis(*ms)).find(|step| *step >= ttl);
    step.unwrap_or_else(|| STEP * u32::try_from(ttl.as_millis().div_ceil(STEP.as_millis())).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_never_shorter_than_the_ttl() {
        for (ttl, expected) in [(10, 1_000), (1_000, 1_000), (1_001, 1_500), (29_999, 30_000), (600_001, 1_200_000)] {
            assert_eq!(class(Duration::from_millis(ttl)), Duration::from_millis(expected));
        }
        for ms in (0..3_000_000).step_by(777) {
            let ttl = Duration::from_millis(ms);
            assert!(class(ttl) >= ttl, "{ttl:?}");
        }
    }
}
