//! Two that look on: one at the store, whether the first name stands free; one at the machine, whether it runs who measures.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_core::{Clock, HolderState, LockName};
use tokio::task::JoinHandle;

use super::ground::Ground;
use super::history::{Nanos, nanos};
use crate::Stop;

/// Stretches that are noted.
type Notes = Arc<Mutex<Vec<(Nanos, Nanos)>>>;

/// A stretch below this is not worth a note.
const WORTH: Nanos = 20_000_000;

/// Looks at the first name all the time.
#[derive(Debug)]
pub(super) struct StoreWatch {
    task: JoinHandle<()>,
    notes: Notes,
    slow: Notes,
}

/// A server that takes longer for a look, straight to it and without any fault in the line, is noted. What follows from it is for the checker to say.
const SLOW: Nanos = 65_000_000;

impl StoreWatch {
    pub(super) async fn begin(ground: &Ground, name: &str) -> Result<Self, Stop> {
        let (lock, name, clock) = (ground.connect().await?, LockName::new(name)?, Clock::system());
        let notes = Notes::default();
        let slow = Notes::default();
        let (kept, late) = (Arc::clone(&notes), Arc::clone(&slow));
        let task = tokio::spawn(async move {
            let mut free_since = None;
            loop {
                let asked = nanos(clock.now());
                let seen = lock.inspect(&name).await;
                let now = nanos(clock.now());
                if now - asked > SLOW {
                    late.lock().unwrap_or_else(PoisonError::into_inner).push((asked, now));
                }
                match seen {
                    Ok(Some(holder)) if holder.state == HolderState::Held => {
                        if let Some(since) = free_since.take().filter(|since| now - since > WORTH) {
                            kept.lock().unwrap_or_else(PoisonError::into_inner).push((since, now));
                        }
                    }
                    // Set aside for a waiter is not held: a dead waiter costs that time.
                    Ok(_) => drop(free_since.get_or_insert(asked)),
                    // What nobody can see is not counted.
                    Err(_) => free_since = None,
                }
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        });
        Ok(Self { task, notes, slow })
    }

    /// When the name stood free, and when the server was slow.
    pub(super) fn end(self) -> [Vec<(Nanos, Nanos)>; 2] {
        self.task.abort();
        [self.notes, self.slow].map(|notes| std::mem::take(&mut *notes.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// A thread that wakes often, and notes when it woke too late.
#[derive(Debug)]
pub(super) struct StallWatch {
    over: Arc<AtomicBool>,
    notes: Notes,
}

const TICK: Duration = Duration::from_millis(20);
/// So late a thread may wake on a machine that is not overloaded.
const LATE: Duration = Duration::from_millis(150);

impl StallWatch {
    pub(super) fn begin() -> Self {
        let (over, notes) = (Arc::<AtomicBool>::default(), Notes::default());
        let (stop, kept) = (Arc::clone(&over), Arc::clone(&notes));
        std::thread::spawn(move || {
            let clock = Clock::system();
            while !stop.load(Ordering::Relaxed) {
                let slept = clock.now();
                std::thread::sleep(TICK);
                let woke = clock.now();
                if woke.saturating_since(slept) > TICK + LATE {
                    kept.lock().unwrap_or_else(PoisonError::into_inner).push((nanos(slept), nanos(woke)));
                }
            }
        });
        Self { over, notes }
    }

    pub(super) fn end(self) -> Vec<(Nanos, Nanos)> {
        self.over.store(true, Ordering::Relaxed);
        std::mem::take(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
