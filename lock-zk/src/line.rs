//! What the contenders of one backend know of each other without asking a server. All of it spares requests, and nothing of it is relied on: what
//! grants a name is a transaction of the server.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::session::locked;

/// How long a name counts as contended after the last one left who had to stand behind another.
const CONTENDED_FOR: Duration = Duration::from_millis(500);

/// Of how many names that is remembered. One pushes another out.
const REMEMBERED: usize = 256;

/// How far a contender is. When it has left, the channel of its stages is closed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Stage {
    /// Its node, once that is known.
    pub(crate) node: Option<String>,
    /// Whether it was the first with that node.
    pub(crate) is_granted: bool,
}

/// The contenders of one backend, by the folder and by what their nodes' names begin with.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    standing: Mutex<HashMap<String, HashMap<String, watch::Receiver<Stage>>>>,
    /// The hash of a folder, and when it was contended last.
    contended: Mutex<HashMap<usize, (u64, Instant)>>,
    hasher: RandomState,
}

impl Lines {
    /// A contender comes. It is known from before its node is made, so that nobody sees the node and does not know it.
    pub(crate) fn join(self: &Arc<Self>, folder: &str, prefix: &str) -> Standing {
        let (stage, seen) = watch::channel(Stage::default());
        locked(&self.standing).entry(folder.to_owned()).or_default().insert(prefix.to_owned(), seen);
        let (folder, prefix) = (folder.to_owned(), prefix.to_owned());
        Standing { lines: self.clone(), folder, prefix, stage, was_behind: AtomicBool::new(false) }
    }

    /// Whether whoever comes will probably have to wait: a contender of this backend stands there, or one has waited there a moment ago.
    pub(crate) fn is_contended(&self, folder: &str) -> bool {
        let (slot, hash) = self.slot(folder);
        locked(&self.standing).contains_key(folder)
            || locked(&self.contended)
                .get(&slot)
                .is_some_and(|(known, at)| *known == hash && at.elapsed() < CONTENDED_FOR)
    }

    /// The contender of this backend whose node that may be.
    pub(crate) fn find(&self, folder: &str, node: &str) -> Option<watch::Receiver<Stage>> {
        let prefix = &node[..=node.rfind("-lock-").map(|at| at + "-lock".len())?];
        locked(&self.standing).get(folder)?.get(prefix).cloned()
    }

    fn slot(&self, folder: &str) -> (usize, u64) {
        let hash = self.hasher.hash_one(folder);
        (hash as usize % REMEMBERED, hash)
    }
}

/// One contender, from before its node is made until it has left.
#[derive(Debug)]
pub(crate) struct Standing {
    lines: Arc<Lines>,
    folder: String,
    prefix: String,
    stage: watch::Sender<Stage>,
    was_behind: AtomicBool,
}

impl Standing {
    /// Another stands before it.
    pub(crate) fn is_behind(&self) {
        self.was_behind.store(true, Ordering::Relaxed);
    }

    /// It stands in the queue with this node.
    pub(crate) fn stands(&self, node: &str) {
        self.stage.send_replace(Stage { node: Some(node.to_owned()), is_granted: false });
    }

    /// It was the first with this node, by the server's word.
    pub(crate) fn granted(&self, node: &str) {
        self.stage.send_replace(Stage { node: Some(node.to_owned()), is_granted: true });
    }
}

/// However it ends, whoever stands behind it hears of it.
impl Drop for Standing {
    fn drop(&mut self) {
        if *self.was_behind.get_mut() {
            let (slot, hash) = self.lines.slot(&self.folder);
            locked(&self.lines.contended).insert(slot, (hash, Instant::now()));
        }
        let mut standing = locked(&self.lines.standing);
        let Some(contenders) = standing.get_mut(&self.folder) else { return };
        // A later try of the same owner stands there by itself.
        if contenders.get(&self.prefix).is_some_and(|seen| seen.same_channel(&self.stage.subscribe())) {
            contenders.remove(&self.prefix);
        }
        if contenders.is_empty() {
            standing.remove(&self.folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &str = "_c_x-lock-";

    #[tokio::test(start_paused = true)]
    async fn a_name_is_contended_while_one_stands_there_and_a_moment_after_one_had_to_wait() {
        let lines = Arc::<Lines>::default();
        assert!(!lines.is_contended("/a"));
        let alone = lines.join("/a", PREFIX);
        assert!(lines.is_contended("/a") && !lines.is_contended("/b"));
        drop(alone);
        assert!(!lines.is_contended("/a"));
        let behind = lines.join("/a", PREFIX);
        behind.is_behind();
        drop(behind);
        assert!(lines.is_contended("/a") && !lines.is_contended("/b"));
        tokio::time::advance(CONTENDED_FOR).await;
        assert!(!lines.is_contended("/a"));
    }

    #[tokio::test]
    async fn a_grant_and_a_leave_are_heard_and_nothing_is_kept() {
        let lines = Arc::<Lines>::default();
        let standing = lines.join("/a", PREFIX);
        let mut seen = lines.find("/a", "_c_x-lock-0000000007").unwrap();
        for (folder, node) in
            [("/b", "_c_x-lock-0000000007"), ("/a", "_c_y-lock-0000000007"), ("/a", "x"), ("/a", "-lock-")]
        {
            assert!(lines.find(folder, node).is_none(), "{folder}/{node}");
        }
        assert_eq!(*seen.borrow_and_update(), Stage::default());
        let node = Some("_c_x-lock-0000000007".to_owned());
        standing.stands("_c_x-lock-0000000007");
        assert_eq!(*seen.borrow_and_update(), Stage { node: node.clone(), is_granted: false });
        standing.granted("_c_x-lock-0000000007");
        seen.changed().await.unwrap();
        assert_eq!(*seen.borrow_and_update(), Stage { node, is_granted: true });
        drop(standing);
        assert!(seen.changed().await.is_err());
        assert!(locked(&lines.standing).is_empty());
    }

    #[tokio::test]
    async fn an_earlier_try_that_ends_late_takes_nothing_from_a_later_one() {
        let lines = Arc::<Lines>::default();
        let (earlier, later) = (lines.join("/a", PREFIX), lines.join("/a", PREFIX));
        drop(earlier);
        let seen = lines.find("/a", "_c_x-lock-0000000007").unwrap();
        later.granted("_c_x-lock-0000000007");
        assert!(seen.has_changed().unwrap());
        drop(later);
        assert!(locked(&lines.standing).is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let lines = Arc::<Lines>::default();
        for i in 0..10_000 {
            lines.join(&format!("/{i}"), PREFIX).is_behind();
        }
        assert!(locked(&lines.contended).len() <= REMEMBERED);
    }
}
