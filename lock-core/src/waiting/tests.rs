//! The waiting room under a clock that jumps from timer to timer.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};

use super::*;
use crate::{Clock, Deadline, FencingToken, LostReason, Owner, Released, Renewal, TimeSource};

const PACE: Pace =
    Pace { least: Duration::from_millis(2), most: Duration::from_millis(20), beat: Duration::from_millis(250) };

/// A store of one lock, which counts what it is asked.
#[derive(Debug, Default)]
struct Fake {
    held: Mutex<Option<Owner>>,
    version: AtomicU64,
    /// Whether a change of the lock changes the version.
    silent: bool,
    broken: Mutex<bool>,
    free_in: Option<Duration>,
    attempts: AtomicU32,
    looks: AtomicU32,
    leaves: AtomicU32,
}

impl Fake {
    fn held() -> Self {
        let fake = Self::default();
        *locked(&fake.held) = Some(Owner::random().unwrap());
        fake
    }

    fn release(&self) {
        *locked(&self.held) = None;
        if !self.silent {
            self.version.fetch_add(1, SeqCst);
        }
    }

    fn answers(&self) -> Result<(), LockError> {
        if *locked(&self.broken) { Err(LockError::new(ErrorKind::Unavailable, "broken")) } else { Ok(()) }
    }
}

#[async_trait]
impl Contender for Fake {
    async fn attempt(&self, request: &AcquireRequest, _: Duration) -> Result<Attempt, LockError> {
        self.attempts.fetch_add(1, SeqCst);
        self.answers()?;
        let mut held = locked(&self.held);
        if held.is_some() {
            return Ok(Attempt::Busy { holder: None, free_in: self.free_in });
        }
        *held = Some(request.owner);
        Ok(Attempt::Granted(Box::new(FakeLease)))
    }

    async fn look(&self) -> Result<u64, LockError> {
        self.looks.fetch_add(1, SeqCst);
        self.answers()?;
        Ok(self.version.load(SeqCst))
    }

    async fn leave(&self, _: &AcquireRequest) -> Result<(), LockError> {
        self.leaves.fetch_add(1, SeqCst);
        self.answers()
    }
}

#[derive(Debug)]
struct FakeLease;

#[async_trait]
impl Lease for FakeLease {
    fn fencing_token(&self) -> FencingToken {
        FencingToken::new(1)
    }
    fn effective_ttl(&self) -> Duration {
        Duration::from_secs(1)
    }
    fn valid_until(&self) -> Deadline {
        Deadline::NEVER
    }
    fn loss(&self) -> BoxFuture<'static, LostReason> {
        std::future::pending().boxed()
    }
    async fn renew(&mut self) -> Result<Renewal, LockError> {
        Ok(Renewal::Renewed)
    }
    async fn release(&mut self) -> Result<Released, LockError> {
        Ok(Released::Released)
    }
}

fn request(wait: Wait) -> AcquireRequest {
    let mut request = AcquireRequest::new(LockName::new("a").unwrap(), Owner::random().unwrap());
    request.wait = wait;
    request
}

/// The clock of the tests' runtime.
#[derive(Debug)]
struct Paused(Instant);

impl TimeSource for Paused {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

fn within(millis: u64) -> AcquireRequest {
    let mut request = request(Wait::Never);
    request.clock = Clock::from_source(Arc::new(Paused(Instant::now())));
    request.wait = Wait::Until(request.clock.now().after(Duration::from_millis(millis)));
    request
}

async fn after(millis: u64, deed: impl FnOnce()) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
    deed();
}

fn is_granted(answer: Result<Acquisition, LockError>) -> bool {
    matches!(answer.unwrap(), Acquisition::Granted(_))
}

#[tokio::test(start_paused = true)]
async fn who_does_not_wait_asks_once() {
    let (room, store) = (WaitingRoom::new(PACE), Fake::held());
    assert!(!is_granted(room.acquire(&store, &request(Wait::Never)).await));
    assert_eq!((store.attempts.load(SeqCst), store.looks.load(SeqCst), store.leaves.load(SeqCst)), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_change_is_seen_within_the_pace() {
    for (held_for, within) in [(50, 5), (5000, 25)] {
        let (room, store) = (WaitingRoom::new(PACE), Fake::held());
        let begin = Instant::now();
        let request = request(Wait::Forever);
        let (answer, ()) = tokio::join!(room.acquire(&store, &request), after(held_for, || store.release()));
        assert!(is_granted(answer));
        let late = begin.elapsed() - Duration::from_millis(held_for);
        assert!(late <= Duration::from_millis(within), "{late:?} late after {held_for} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_missed_change_is_found_by_the_beat_and_a_known_end_at_once() {
    let (room, mut store) = (WaitingRoom::new(PACE), Fake::held());
    store.silent = true;
    let begin = Instant::now();
    let forever = request(Wait::Forever);
    let (answer, ()) = tokio::join!(room.acquire(&store, &forever), after(300, || store.release()));
    assert!(is_granted(answer));
    assert!(begin.elapsed() <= Duration::from_millis(510), "{:?}", begin.elapsed());

    let mut store = Fake::held();
    store.silent = true;
    store.free_in = Some(Duration::from_millis(40));
    let begin = Instant::now();
    let (answer, ()) = tokio::join!(room.acquire(&store, &forever), after(40, || store.release()));
    assert!(is_granted(answer));
    assert!(begin.elapsed() <= Duration::from_millis(45), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_poke_needs_no_look() {
    let (room, mut store) = (WaitingRoom::new(PACE), Fake::held());
    store.silent = true;
    let forever = request(Wait::Forever);
    let begin = Instant::now();
    let (answer, ()) = tokio::join!(
        room.acquire(&store, &forever),
        after(7, || {
            store.release();
            room.poke(&forever.name);
        })
    );
    assert!(is_granted(answer));
    assert_eq!(begin.elapsed().as_millis(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_waiters_ask_as_one() {
    let (room, store) = (WaitingRoom::new(PACE), Fake::held());
    let requests: Vec<_> = (0..100).map(|_| request(Wait::Forever)).collect();
    let begin = Instant::now();
    let all = join_all(requests.iter().map(|request| room.acquire(&store, request)));
    let (answers, ()) = tokio::join!(tokio::time::timeout(Duration::from_secs(10), all), async {
        after(9_900, || requests.iter().for_each(|request| request.cancel.cancel())).await;
    });
    assert!(answers.unwrap().into_iter().all(|answer| !is_granted(answer)));
    let seconds = begin.elapsed().as_secs_f64();
    let attempts = f64::from(store.attempts.load(SeqCst));
    assert!(attempts / seconds < 5.0, "{attempts} attempts in {seconds} s");
    assert!(f64::from(store.looks.load(SeqCst)) / seconds < 120.0, "{} looks", store.looks.load(SeqCst));
    assert!(locked(&room.lines).is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_line_keeps_its_order_and_closes_over_those_that_leave() {
    let (room, store) = (WaitingRoom::new(PACE), Fake::held());
    let order = Mutex::new(Vec::new());
    let requests: Vec<_> = (0..10).map(|_| request(Wait::Forever)).collect();
    let waiters = requests.iter().enumerate().map(|(i, request)| {
        let (room, store, order) = (&room, &store, &order);
        async move {
            if is_granted(room.acquire(store, request).await) {
                locked(order).push(i);
                store.release();
            }
        }
    });
    let leave = after(20, || [0, 4, 9].iter().for_each(|i| requests[*i].cancel.cancel()));
    tokio::join!(join_all(waiters), leave, after(40, || store.release()));
    assert_eq!(*locked(&order), [1, 2, 3, 5, 6, 7, 8]);
    assert!(locked(&room.lines).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_waiter_makes_room_at_once() {
    let (room, store) = (WaitingRoom::new(PACE), Fake::held());
    let (first, second) = (request(Wait::Forever), request(Wait::Forever));
    let begin = Instant::now();
    let dropped = tokio::time::timeout(Duration::from_millis(30), room.acquire(&store, &first));
    let (dropped, answer, ()) = tokio::join!(dropped, room.acquire(&store, &second), after(35, || store.release()));
    assert!(dropped.is_err() && is_granted(answer));
    assert!(begin.elapsed() <= Duration::from_millis(40), "{:?}", begin.elapsed());
    assert!(locked(&room.lines).is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_leaves_the_store() {
    let (room, store) = (WaitingRoom::new(PACE), Fake::held());
    assert!(!is_granted(room.acquire(&store, &within(100)).await));
    assert_eq!(store.leaves.load(SeqCst), 1);
    // A place that could not be removed is an error, so that the keeper abandons it.
    let request = request(Wait::Forever);
    let (answer, ()) = tokio::join!(
        room.acquire(&store, &request),
        after(1, || {
            *locked(&store.broken) = true;
            request.cancel.cancel();
        })
    );
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(locked(&room.lines).is_empty());
}

#[tokio::test(start_paused = true)]
async fn silence_is_not_contention() {
    /// A store that never answers.
    #[derive(Debug)]
    struct Silent;

    #[async_trait]
    impl Contender for Silent {
        async fn attempt(&self, _: &AcquireRequest, _: Duration) -> Result<Attempt, LockError> {
            std::future::pending().await
        }
        async fn look(&self) -> Result<u64, LockError> {
            std::future::pending().await
        }
        async fn leave(&self, _: &AcquireRequest) -> Result<(), LockError> {
            Ok(())
        }
    }
    let room = WaitingRoom::new(PACE);
    let (first, second) = (within(500), within(50));
    let begin = Instant::now();
    let (first, second) = tokio::join!(room.acquire(&Silent, &first), room.acquire(&Silent, &second));
    assert_eq!(first.unwrap_err().kind(), ErrorKind::Unavailable);
    let second = second.unwrap_err();
    assert_eq!((second.kind(), second.effect()), (ErrorKind::Unavailable, Effect::NotApplied));
    assert!(begin.elapsed() < Duration::from_millis(700), "{:?}", begin.elapsed());

    // Behind one that was told "busy", it is contention.
    let store = Fake::held();
    let (first, second) = (within(500), within(50));
    let (first, second) = tokio::join!(room.acquire(&store, &first), room.acquire(&store, &second));
    assert!(!is_granted(first) && !is_granted(second));
}

#[tokio::test(start_paused = true)]
async fn a_broken_look_is_told() {
    let (room, store) = (WaitingRoom::new(PACE), Fake::held());
    let (one, two) = (request(Wait::Forever), request(Wait::Forever));
    let (one, two, ()) = tokio::join!(
        room.acquire(&store, &one),
        room.acquire(&store, &two),
        after(50, || *locked(&store.broken) = true)
    );
    // The first may have left its place; the second never had one, or did not know.
    assert_eq!(one.unwrap_err().effect(), Effect::Unknown);
    assert!(two.is_err());
    assert!(locked(&room.lines).is_empty());
}
