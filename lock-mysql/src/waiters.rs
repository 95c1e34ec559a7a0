//! For which names this process waits, and what it last read of them.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use lock_core::LockName;
use tokio::time::Instant;

use crate::link::lock;
use crate::row::{NameState, Row, key};

/// How long what was read may stand for what is there. A little more than a poll takes.
const FRESH: Duration = Duration::from_millis(120);

/// The names that requests of this process wait for. One poll reads them all, and the attempts that it gives rise to read what it brought:
/// so the server is asked once a poll, whatever the number of names and waiters.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<HashMap<LockName, Watched>>);

#[derive(Debug)]
struct Watched {
    waiters: usize,
    /// What was read, and just before when; `None` in it says that there is no row.
    seen: Option<(Instant, Option<Row>)>,
    /// When this process last changed the row: what was asked for before tells nothing.
    changed: Instant,
}

/// While it lives, its name is watched.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    waiters: &'a Waiters,
    name: LockName,
}

impl Waiters {
    pub(crate) fn join(&self, name: &LockName) -> Watch<'_> {
        let mut names = lock(&self.0);
        let watched = names.entry(name.clone());
        watched.or_insert(Watched { waiters: 0, seen: None, changed: Instant::now() }).waiters += 1;
        Watch { waiters: self, name: name.clone() }
    }

    pub(crate) fn names(&self) -> Vec<LockName> {
        lock(&self.0).keys().cloned().collect()
    }

    /// Says that this process has changed the row.
    pub(crate) fn changed(&self, name: &LockName) {
        if let Some(watched) = lock(&self.0).get_mut(name) {
            (watched.seen, watched.changed) = (None, Instant::now());
        }
    }

    /// What the last poll told of the name, unless that is too long ago.
    pub(crate) fn seen(&self, name: &LockName) -> Option<NameState> {
        let names = lock(&self.0);
        let (at, row) = names.get(name)?.seen.as_ref()?;
        let age = at.elapsed();
        (age < FRESH).then(|| row.as_ref().map_or_else(NameState::default, |row| row.state(age)))
    }

    /// Notes what was asked for at this moment.
    pub(crate) fn note(&self, at: Instant, names: &[LockName], rows: &[Row]) {
        let mut watched = lock(&self.0);
        for name in names {
            if let Some(watched) = watched.get_mut(name).filter(|watched| watched.changed < at) {
                let bytes = key(name);
                watched.seen = Some((at, rows.iter().find(|row| row.name == bytes).cloned()));
            }
        }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let mut names = lock(&self.waiters.0);
        if let Some(watched) = names.get_mut(&self.name) {
            watched.waiters -= 1;
            if watched.waiters == 0 {
                names.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_was_asked_for_before_a_change_of_ones_own_tells_nothing() {
        let (waiters, name) = (Waiters::default(), LockName::new("x").unwrap());
        let watch = waiters.join(&name);
        let second = waiters.join(&name);
        let step = || tokio::time::advance(Duration::from_millis(1));
        step().await;
        waiters.note(Instant::now(), std::slice::from_ref(&name), &[]);
        assert!(waiters.seen(&name).is_some());
        let before = Instant::now();
        step().await;
        waiters.changed(&name);
        waiters.note(before, std::slice::from_ref(&name), &[]);
        assert!(waiters.seen(&name).is_none());
        step().await;
        waiters.note(Instant::now(), std::slice::from_ref(&name), &[]);
        assert!(waiters.seen(&name).is_some());
        tokio::time::advance(FRESH).await;
        assert!(waiters.seen(&name).is_none(), "what is old is not told");
        drop(watch);
        assert_eq!(waiters.names(), [name]);
        drop(second);
        assert!(waiters.names().is_empty());
    }
}
