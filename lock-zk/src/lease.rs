//! One granted hold of a name.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, pending};
use lock_core::{
    Clock, Deadline, FencingToken, Lease, LockError, LockName, LostReason, Owner, Released, Renewal, bounded,
};
use tokio::time::{Instant, sleep};
use zookeeper_client::{Client, Error, Stat};

use crate::backend::{Inner, context, delete};
use crate::errors::{failed, is_over};
use crate::line::Standing;
use crate::pool::Place;
use crate::session::Doubt;

pub(crate) struct ZkLease {
    pub(crate) inner: Arc<Inner>,
    pub(crate) place: Arc<Place>,
    pub(crate) name: LockName,
    pub(crate) owner: Owner,
    pub(crate) path: String,
    pub(crate) token: FencingToken,
    pub(crate) valid_until: Deadline,
    pub(crate) clock: Clock,
    pub(crate) renewed: bool,
    pub(crate) limit: Duration,
    /// Whether the node is watched: then it stands, unless [`Lease::loss`] is ready.
    pub(crate) is_watched: Arc<AtomicBool>,
    /// `None` once it is released.
    pub(crate) standing: Option<Arc<Standing>>,
}

/// How long a lease is held before its node is watched: most are given back sooner, and need no watch.
const WATCHED_AFTER: Duration = Duration::from_millis(100);

#[async_trait]
impl Lease for ZkLease {
    fn fencing_token(&self) -> FencingToken {
        self.token
    }

    fn effective_ttl(&self) -> Duration {
        self.place.session.timeout()
    }

    fn valid_until(&self) -> Deadline {
        self.valid_until
    }

    fn loss(&self) -> BoxFuture<'static, LostReason> {
        // The place keeps the session open as long as its end is waited for.
        let (place, path, is_watched) = (self.place.clone(), self.path.clone(), self.is_watched.clone());
        async move {
            let Ok(client) = place.session.client() else { return LostReason::SessionLost };
            let watched = async {
                sleep(WATCHED_AFTER).await;
                watched(&client, &path, &is_watched).await
            };
            tokio::select! {
                reason = watched => reason,
                () = place.session.end() => LostReason::SessionLost,
            }
        }
        .boxed()
    }

    async fn renew(&mut self) -> Result<Renewal, LockError> {
        bounded(self.limit, self.prolong()).await.map_err(|e| context(e, "renew", &self.name))
    }

    async fn release(&mut self) -> Result<Released, LockError> {
        let doubt = Doubt::new(&self.place.session, self.owner);
        let deleted = async {
            // A closed session has taken its nodes along.
            let Ok(client) = self.place.session.client() else { return Ok(false) };
            let_go(&client, &self.path).await.map_err(failed)
        };
        let deleted = bounded(self.limit, deleted).await.map_err(|e| context(e, "release", &self.name))?;
        doubt.settle();
        self.place.session.forget(&self.path);
        self.inner.pool.leave(&self.owner);
        self.standing = None;
        Ok(if deleted { Released::Released } else { Released::NotHeld })
    }
}

impl ZkLease {
    /// Joins the session's heart-beat, and looks whether the node still stands. A server tells of a change before it answers anything that was sent
    /// after it: so a watched node of which nothing was heard needs no look once the heart-beat was answered.
    async fn prolong(&mut self) -> Result<Renewal, LockError> {
        let session = &self.place.session;
        let Ok(client) = session.client() else { return Ok(Renewal::Lost(LostReason::SessionLost)) };
        let beat = if session.is_proved() { None } else { Some(session.beat()?) };
        let beaten = async { if let Some(beat) = beat { beat.await } else { Ok(()) } };
        let is_watched = || self.is_watched.load(Ordering::Acquire);
        let looked = async { if is_watched() { Ok(None) } else { client.check_stat(&self.path).await.map(Some) } };
        let (beaten, mut looked) = tokio::join!(beaten, looked);
        if matches!(looked, Ok(None)) && !is_watched() {
            looked = client.check_stat(&self.path).await.map(Some);
        }
        match (beaten, looked) {
            (_, Ok(Some(None))) => return Ok(Renewal::Lost(self.gone())),
            (_, Ok(Some(Some(stat)))) if is_marked(&stat) => return Ok(Renewal::Lost(LostReason::ForceReleased)),
            (Err(e), _) | (_, Err(e)) if is_over(&e) => return Ok(Renewal::Lost(LostReason::SessionLost)),
            (Err(e), _) | (_, Err(e)) => return Err(failed(e)),
            (Ok(()), Ok(None | Some(Some(_)))) => {}
        }
        self.valid_until = session.valid_until(&self.clock);
        if !self.renewed {
            session.end_at(&self.path, Instant::now() + session.timeout());
        }
        Ok(Renewal::Renewed)
    }

    fn gone(&self) -> LostReason {
        if self.clock.has_passed(self.valid_until) { LostReason::Expired } else { LostReason::Removed }
    }
}

/// Deletes the holder's node; whether it was still the holder's. Whoever revoked it has written into it: then it only goes.
async fn let_go(client: &Client, path: &str) -> Result<bool, Error> {
    match client.delete(path, Some(0)).await {
        Ok(()) => Ok(true),
        Err(Error::BadVersion) => delete(client, path).await.map(|_| false),
        Err(Error::NoNode) => Ok(false),
        Err(e) if is_over(&e) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Ready when the node is gone or marked.
async fn watched(client: &Client, path: &str, is_watched: &AtomicBool) -> LostReason {
    loop {
        match client.get_and_watch_data(path).await {
            Ok((_, stat, _)) if is_marked(&stat) => return LostReason::ForceReleased,
            // A changed line is mended by the driver, which asks what it missed.
            Ok((_, _, watcher)) => {
                let _watching = Watching::begin(is_watched);
                watcher.changed().await;
            }
            Err(Error::NoNode) => return LostReason::Removed,
            // The end of the session is told by its state.
            Err(e) if is_over(&e) => return pending().await,
            // With the line cut, the next request waits until there is another.
            Err(Error::ConnectionLoss | Error::Custom(_) | Error::UnexpectedError(_)) => {}
            // Renewals tell.
            Err(_) => return pending().await,
        }
    }
}

/// The time in which the node is watched: until something is heard, or nobody listens any more.
struct Watching<'a>(&'a AtomicBool);

impl<'a> Watching<'a> {
    fn begin(is_watched: &'a AtomicBool) -> Self {
        is_watched.store(true, Ordering::Release);
        Self(is_watched)
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Nobody but who revokes a lock writes into its node.
pub(crate) fn is_marked(stat: &Stat) -> bool {
    stat.version != 0
}

impl fmt::Debug for ZkLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ZkLease");
        shown.field("name", &self.name).field("owner", &self.owner).field("token", &self.token);
        shown.finish_non_exhaustive()
    }
}
