//! What a manager, its keepers and its guards share.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::AtomicIsize;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::retry::Rhythm;
use crate::runtime::Runtime;
use crate::{Clock, DistributedLock, LockName};

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) backend: Backend,
    pub(crate) clock: Clock,
    pub(crate) operation_timeout: Duration,
    pub(crate) closing: CancellationToken,
    pub(crate) keepers: TaskTracker,
    /// Changes when the clock has jumped and when the manager is closed: then keepers look at both again.
    pub(crate) alarms: watch::Sender<u64>,
    /// How many guards have gone whose release is not confirmed yet.
    pub(crate) departures: Arc<AtomicIsize>,
    /// The moments at which locks are renewed.
    pub(crate) rhythm: Rhythm,
    held: Mutex<HashMap<LockName, usize>>,
    pub(crate) runtime: Runtime,
}

/// How often the clock is compared with the one that timers go by (rule L2: a suspend is noticed within 500 ms).
const TICK: Duration = Duration::from_millis(250);

/// By how much the clock must run ahead in a tick to have jumped.
const JUMP: Duration = Duration::from_millis(20);

impl Shared {
    pub(crate) fn new(
        backend: Arc<dyn DistributedLock>,
        clock: Clock,
        operation_timeout: Duration,
        runtime: Runtime,
    ) -> Arc<Self> {
        let shared = Arc::new(Self {
            backend: Backend { lock: Some(backend), handle: runtime.handle.clone() },
            clock: clock.clone(),
            operation_timeout,
            closing: CancellationToken::new(),
            keepers: TaskTracker::new(),
            alarms: watch::Sender::new(0),
            departures: Arc::default(),
            rhythm: Rhythm::random(),
            held: Mutex::default(),
            runtime,
        });
        shared.runtime.handle.spawn(watch_clock(Arc::downgrade(&shared), clock));
        shared
    }

    /// Lets all keepers look at the clock, and whether the manager is closed.
    pub(crate) fn alarm(&self) {
        self.alarms.send_modify(|alarms| *alarms += 1);
    }

    /// Lists a name as held by this manager, until the answer is dropped.
    pub(crate) fn list_held(self: &Arc<Self>, name: &LockName) -> Listed {
        *self.held().entry(name.clone()).or_default() += 1;
        Listed { shared: self.clone(), name: name.clone() }
    }

    pub(crate) fn holds(&self, name: &LockName) -> bool {
        self.held().contains_key(name)
    }

    fn held(&self) -> std::sync::MutexGuard<'_, HashMap<LockName, usize>> {
        // The map is whole between any two statements, also after a panic elsewhere.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A driver may need its runtime's context to be dropped in, and the last user may be any thread.
#[derive(Debug)]
pub(crate) struct Backend {
    lock: Option<Arc<dyn DistributedLock>>,
    handle: Handle,
}

impl Deref for Backend {
    type Target = Arc<dyn DistributedLock>;

    fn deref(&self) -> &Self::Target {
        // Taken in `drop` alone.
        self.lock.as_ref().expect("the backend is there until it is dropped")
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        let _context = self.handle.enter();
        self.lock = None;
    }
}

pub(crate) struct Listed {
    shared: Arc<Shared>,
    name: LockName,
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut held = self.shared.held();
        if let Some(count) = held.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.name);
            }
        }
    }
}

/// Timers stand still while the machine sleeps, the clock does not. One look a tick serves ten thousand locks.
async fn watch_clock(shared: Weak<Shared>, clock: Clock) {
    let mut last = (clock.now(), Instant::now());
    loop {
        tokio::time::sleep(TICK).await;
        let now = (clock.now(), Instant::now());
        let ahead = now.0.saturating_since(last.0).saturating_sub(now.1 - last.1);
        last = now;
        let Some(shared) = shared.upgrade() else { return };
        if ahead > JUMP {
            shared.alarm();
        }
        if shared.closing.is_cancelled() && shared.keepers.is_empty() {
            return;
        }
    }
}
