//! All that waits: a contender for the one before it, a session for what is due.

use std::pin::pin;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::future::{Either, join_all, pending};
use lock_core::{AcquireRequest, ErrorKind, LockError, bounded};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, sleep_until};
use zookeeper_client::{Client, Error, EventType, SessionState, StateWatcher};

use crate::errors::{failed, is_over};
use crate::line::Stage;
use crate::node::{Data, Role};
use crate::session::{Due, Session, locked};

/// How often the first waiter looks for itself whether the node before it is still there, should the server's word get lost. The second one
/// looks half as often, and so on: all together ask little more often than the first.
const LOOK_EVERY: Duration = Duration::from_millis(900);

/// The pauses between attempts to open a session while there is no server.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// The bound on a request of [`mind`].
const LIMIT: Duration = Duration::from_secs(2);

/// How it went with the node before.
pub(crate) enum Turn {
    /// It is gone, or may be.
    Gone,
    /// The request's waiting is over.
    Over,
}

/// The node before a request's own, and what is known of it.
pub(crate) struct Before {
    pub(crate) node: String,
    pub(crate) path: String,
    /// How many nodes stood before the request's own.
    pub(crate) rank: usize,
    /// Whether it was the first of the queue, by a list or because it was granted the name: then nobody is before the request once it is gone.
    pub(crate) was_first: bool,
    /// Whether it was seen to wait. Such a node changes into one that holds by a grant alone.
    pub(crate) was_waiting: bool,
    /// How far its contender is, where that is one of this backend.
    pub(crate) here: Option<watch::Receiver<Stage>>,
}

impl Before {
    /// Waits until the node is gone. While its contender is one of this backend and waits itself, no server is asked to watch it.
    pub(crate) async fn turn(
        &mut self,
        session: &Session,
        client: &Client,
        request: &AcquireRequest,
    ) -> Result<Turn, Error> {
        if let Some(mut stages) = self.here.take() {
            let node = self.node.clone();
            let is_told = |stage: &Stage| stage.is_granted || stage.node.as_ref().is_some_and(|now| *now != node);
            let told = async { stages.wait_for(is_told).await.map(|stage| stage.node.as_ref() == Some(&node)) };
            match self.until(told, session, client, request).await? {
                Either::Left(Ok(is_granted)) => self.was_first |= is_granted,
                Either::Left(Err(_left)) => return Ok(Turn::Gone),
                Either::Right(turn) => return Ok(turn),
            }
            if self.was_first && stages.has_changed().is_err() {
                return Ok(Turn::Gone);
            }
        }
        loop {
            // Not `exists`: that would leave a watch behind on a node that is gone already.
            let watcher = tokio::select! {
                biased;
                watched = client.get_and_watch_data(&self.path) => match watched {
                    Ok((data, _, watcher)) => {
                        self.see(&data);
                        watcher
                    }
                    Err(Error::NoNode) => return Ok(Turn::Gone),
                    Err(e) => return Err(e),
                },
                () = request.over() => return Ok(Turn::Over),
            };
            match self.until(watcher.changed(), session, client, request).await? {
                Either::Left(event) if event.event_type == EventType::NodeDeleted => return Ok(Turn::Gone),
                // It was moved, or written into.
                Either::Left(_) => {}
                Either::Right(turn) => return Ok(turn),
            }
        }
    }

    /// Waits for an event, looks now and then whether the node is there, and listens for all that ends the waiting.
    async fn until<T>(
        &mut self,
        event: impl Future<Output = T>,
        session: &Session,
        client: &Client,
        request: &AcquireRequest,
    ) -> Result<Either<T, Turn>, Error> {
        let mut event = pin!(event);
        loop {
            let rank = if self.was_first { 1 } else { u32::try_from(self.rank).unwrap_or(u32::MAX).min(64) };
            let looked = async {
                sleep(LOOK_EVERY * rank).await;
                client.get_data(&self.path).await
            };
            let looked = tokio::select! {
                biased;
                () = session.end() => return Err(Error::SessionExpired),
                event = &mut event => return Ok(Either::Left(event)),
                () = request.over() => return Ok(Either::Right(Turn::Over)),
                looked = looked => looked,
            };
            match looked {
                Ok((data, _)) => self.see(&data),
                Err(Error::NoNode) => return Ok(Either::Right(Turn::Gone)),
                Err(e) => return Err(e),
            }
        }
    }

    /// Notes what the node says of its contender.
    fn see(&mut self, data: &[u8]) {
        match Data::decode(data).map(|data| data.role) {
            Some(Role::Waits) => self.was_waiting = true,
            Some(Role::Holds) => self.was_first |= self.was_waiting,
            Some(Role::Revoked) | None => {}
        }
    }
}

/// Keeps requests that meet an outage from dialling the servers all together, again and again.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// The pause before the next attempt, after one that failed.
    pause: Mutex<Option<Duration>>,
    turn: tokio::sync::Mutex<()>,
}

impl Gate {
    /// Carries out `open`. While attempts fail they come one at a time, after a pause, and only once `probe` has found a server: for `probe` dials each
    /// server once, and `open` many times.
    pub(crate) async fn pass<T>(
        &self,
        probe: impl Future<Output = Result<(), LockError>>,
        open: impl Future<Output = Result<T, LockError>>,
    ) -> Result<T, LockError> {
        if locked(&self.pause).is_none() {
            return self.note(open.await);
        }
        let _alone = self.turn.lock().await;
        let pause = *locked(&self.pause);
        if let Some(pause) = pause {
            sleep(pause).await;
            self.note(probe.await)?;
        }
        self.note(open.await)
    }

    fn note<T>(&self, answer: Result<T, LockError>) -> Result<T, LockError> {
        let mut pause = locked(&self.pause);
        *pause = match &answer {
            Err(e) if e.kind() == ErrorKind::Unavailable => {
                Some(pause.map_or(PAUSES.0, |pause| (pause * 2).min(PAUSES.1)))
            }
            _ => None,
        };
        answer
    }
}

/// Sees to what is due in a session: deletes the nodes of leases that nobody renews at their end, and closes the session when a doubt is
/// not cleared in time (rule R4). Ends with the session.
pub(crate) async fn mind(session: Weak<Session>, alarm: Arc<Notify>, mut states: StateWatcher) {
    loop {
        let Some(due) = session.upgrade().filter(|session| !session.is_over()).map(|session| session.due()) else {
            return;
        };
        let next = match due {
            Due::Later(None) => Either::Left(pending()),
            Due::Later(Some(at)) => Either::Right(sleep_until(at)),
            Due::Over => {
                tracing::warn!("what may be left of a lock could not be removed in time; its session is closed");
                return session.upgrade().iter().for_each(|session| session.close());
            }
            Due::Ended(nodes) => {
                let Some(session) = session.upgrade() else { return };
                if !join_all(nodes.iter().map(|node| remove(&session, node))).await.contains(&false) {
                    continue;
                }
                Either::Right(sleep_until(tokio::time::Instant::now() + LOOK_EVERY / 9))
            }
        };
        tokio::select! {
            () = next => {}
            () = alarm.notified() => {}
            state = states.changed() => {
                let Some(session) = session.upgrade() else { return };
                session.connection(state == SessionState::SyncConnected);
                if state.is_terminated() {
                    return;
                }
            }
        }
    }
}

/// Deletes a node; whether it is surely gone.
async fn remove(session: &Session, node: &str) -> bool {
    let Ok(client) = session.client() else { return true };
    let deleted = async {
        match client.delete(node, None).await {
            Ok(()) | Err(Error::NoNode) => Ok(true),
            Err(e) if is_over(&e) => Ok(true),
            Err(e) => Err(failed(e)),
        }
    };
    let gone = bounded(LIMIT, deleted).await.unwrap_or(false);
    if gone {
        session.forget(node);
    }
    gone
}
