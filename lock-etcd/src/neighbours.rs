//! Requests and locks of this process, so that the one behind hears of their end without asking the server. All of it is a hint: who is
//! woken proves to the server that nobody stands before it, and who hears nothing looks there in time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::connection::lock;

/// How long the one behind relies on a neighbour that holds the name or is about to: one that goes then without a word is missed this long.
const QUIET: Duration = Duration::from_millis(200);
/// How long it relies on a neighbour that waits, too: less than the second within which a freed name must be noticed.
const PATIENCE: Duration = Duration::from_millis(700);

/// Since when a neighbour holds or asks; `None` while it waits itself.
type Acts = Option<Instant>;

/// Those that are there, by the keys of their entries.
#[derive(Default)]
pub(crate) struct Neighbours(Mutex<HashMap<Vec<u8>, watch::Receiver<Acts>>>);

impl Neighbours {
    pub(crate) fn enter(self: &Arc<Self>, key: Vec<u8>) -> Here {
        let (acts, seen) = watch::channel(Some(Instant::now()));
        lock(&self.0).insert(key.clone(), seen);
        Here { all: self.clone(), key, acts }
    }

    pub(crate) fn find(&self, key: &[u8]) -> Option<Ahead> {
        lock(&self.0).get(key).cloned().map(Ahead)
    }
}

/// One that is there until this is dropped, which wakes the one behind.
pub(crate) struct Here {
    all: Arc<Neighbours>,
    key: Vec<u8>,
    acts: watch::Sender<Acts>,
}

impl Here {
    pub(crate) fn waits(&self) {
        self.acts.send_replace(None);
    }

    pub(crate) fn acts(&self) {
        self.acts.send_replace(Some(Instant::now()));
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        let mut all = lock(&self.all.0);
        // The same request made again may have taken its place.
        if all.get(&self.key).is_some_and(|seen| seen.same_channel(&self.acts.subscribe())) {
            all.remove(&self.key);
        }
    }
}

/// The one before, seen from behind.
pub(crate) struct Ahead(watch::Receiver<Acts>);

impl Ahead {
    /// Waits for its end.
    pub(crate) async fn gone(&mut self) {
        while self.0.changed().await.is_ok() {}
    }

    /// Waits for its end as long as it can be relied on to tell; whether it has ended.
    pub(crate) async fn gone_in_time(&mut self) -> bool {
        let patience = Instant::now() + PATIENCE;
        loop {
            let acts = *self.0.borrow_and_update();
            let until = acts.map_or(patience, |since| patience.min(since + QUIET));
            match timeout_at(until, self.0.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return true,
                Err(_) => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_of_a_neighbour_is_heard_and_its_silence_is_not_trusted() {
        let all = Arc::new(Neighbours::default());
        let here = all.enter(b"k".to_vec());
        let start = Instant::now();
        assert!(!all.find(b"k").unwrap().gone_in_time().await);
        let quiet = start.elapsed();
        assert!(quiet >= QUIET && quiet < PATIENCE, "{quiet:?}");
        here.waits();
        assert!(!all.find(b"k").unwrap().gone_in_time().await);
        assert!(start.elapsed() >= QUIET + PATIENCE);
        here.waits();
        let mut ahead = all.find(b"k").unwrap();
        let (gone, ()) = tokio::join!(ahead.gone_in_time(), async { drop(here) });
        assert!(gone);
        ahead.gone().await;
        assert!(all.find(b"k").is_none());
    }

    #[test]
    fn the_end_of_a_forerunner_does_not_hide_the_same_request_made_again() {
        let all = Arc::new(Neighbours::default());
        let (first, again) = (all.enter(b"k".to_vec()), all.enter(b"k".to_vec()));
        drop(first);
        assert!(all.find(b"k").is_some());
        drop(again);
        assert!(all.find(b"k").is_none());
    }
}
