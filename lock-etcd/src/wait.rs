//! Waiting: for the end of the contender before, and for the loss of what is held. One watch each, from now on and never from the past.

use std::time::Duration;

use etcd_client::{Client, Error, EventType, KeyValue, WatchOptions, WatchStream};
use lock_core::{AcquireRequest, ErrorKind, LockError, LostReason, bounded};
use tokio::sync::SemaphorePermit;

use crate::acquire::Over;
use crate::backend::Inner;
use crate::connection::Resend;
use crate::kept::{Beat, Kept};
use crate::lease::Own;

/// A hold shorter than this opens no watch of its own.
const QUIET: Duration = Duration::from_millis(200);
/// Between two attempts to open a watch that failed.
const PAUSE: Duration = Duration::from_millis(250);

/// How many requests of a process line up at a time. A crowd that comes at once, or that a new connection wakes, would else delay the
/// heart-beat of the lease on which all of them stand until it runs out: then all lose their places and come at once again.
pub(crate) const CROWD: usize = 32;

/// Why a waiter looks again.
pub(crate) enum Woken {
    /// Something happened to the one before it.
    Gone,
    /// There is a new way to the server.
    Redialled,
    /// The limit has passed, or the request was cancelled.
    Over,
    /// The lease that carried the place is gone.
    PlaceLost,
}

/// Waits for the end of the contender before, and keeps the place alive meanwhile. A turn is the right to open a watch.
pub(crate) async fn until_gone<'a>(
    inner: &Inner,
    request: &AcquireRequest,
    before: &KeyValue,
    place: &Kept,
    turn: impl Future<Output = Result<Option<SemaphorePermit<'a>>, Over>>,
) -> Result<Woken, LockError> {
    let replaced = inner.link.replaced();
    tokio::select! {
        biased;
        () = request.over() => Ok(Woken::Over),
        gone = gone(inner, request.operation_timeout, before, turn) => gone,
        () = replaced => Ok(Woken::Redialled),
        lost = stay(inner, place) => lost,
    }
}

async fn gone<'a>(
    inner: &Inner,
    limit: Duration,
    before: &KeyValue,
    turn: impl Future<Output = Result<Option<SemaphorePermit<'a>>, Over>>,
) -> Result<Woken, LockError> {
    let watched = Box::pin(async {
        let Ok(turn) = turn.await else { return Ok(Woken::Over) };
        gone_at_server(inner, limit, before, turn).await.map(|()| Woken::Gone)
    });
    let Some(mut ahead) = inner.neighbours.find(before.key()) else { return watched.await };
    if ahead.gone_in_time().await {
        return Ok(Woken::Gone);
    }
    tokio::select! {
        biased;
        () = ahead.gone() => Ok(Woken::Gone),
        woken = watched => woken,
    }
}

/// The turn ends once nothing can be missed any more.
async fn gone_at_server(
    inner: &Inner,
    limit: Duration,
    before: &KeyValue,
    turn: Option<SemaphorePermit<'_>>,
) -> Result<(), LockError> {
    let mut events = Box::pin(watch(inner, limit, before.key())).await?;
    let still = bounded(limit, async {
        let request = |client: &Client| {
            let (mut kv, key) = (client.kv_client(), before.key().to_vec());
            async move { kv.get(key, None).await }
        };
        inner.link.send_patiently(Resend::Once, limit / 2, request).await.map_err(|failure| inner.link.error(failure))
    });
    let still = Box::pin(still).await?;
    let same = |kv: &KeyValue| kv.create_revision() == before.create_revision() && kv.lease() != 0;
    if !still.kvs().first().is_some_and(same) {
        return Ok(());
    }
    drop(turn);
    // A change of the entry's value or lease is no end, unless it is no contender any more.
    while let Some(seen) = next(inner, &mut events).await? {
        if !seen.as_ref().is_some_and(same) {
            return Ok(());
        }
    }
    Ok(())
}

/// Prolongs the lease of the place, as long as there is one.
async fn stay(inner: &Inner, place: &Kept) -> Result<Woken, LockError> {
    let (third, least) = (place.ttl / 3, place.ttl / 20);
    loop {
        tokio::time::sleep(third.saturating_sub(place.age()).max(least)).await;
        match place.beat(&inner.link, third.min(inner.limit)).await {
            Ok(Beat::Gone) => return Ok(Woken::PlaceLost),
            Ok(Beat::Alive) => {}
            Err(error) if place.is_running() => tracing::debug!(%error, "a place is not prolonged yet"),
            Err(error) => return Err(error),
        }
    }
}

/// Waits for the loss of what is held.
pub(crate) async fn lost(own: Own) -> LostReason {
    tokio::time::sleep(QUIET).await;
    loop {
        let replaced = own.inner.link.replaced();
        let seen = tokio::select! {
            biased;
            seen = watch_own(&own) => seen,
            () = replaced => continue,
        };
        match seen {
            Ok(Some(reason)) => return reason,
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::Closed => return std::future::pending().await,
            Err(error) => tracing::debug!(%error, "the watch on a held entry is opened again"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// `None` when the watch ended without a loss.
async fn watch_own(own: &Own) -> Result<Option<LostReason>, LockError> {
    let (inner, limit) = (&own.inner, own.limit);
    let mut events = watch(inner, limit, &own.standing.key).await?;
    if let Some(reason) = bounded(limit, inner.check(own.standing.clone())).await?.lost {
        return own.explain(reason).await.map(Some);
    }
    while let Some(seen) = next(inner, &mut events).await? {
        // Events are of one key: the last one counts.
        let kv = seen.as_ref();
        if let Some(reason) = own.standing.verdict(kv) {
            return own.explain(reason).await.map(Some);
        }
    }
    Ok(None)
}

/// Opens a watch and waits until the server has confirmed it: what happens from here on is seen.
async fn watch(inner: &Inner, limit: Duration, key: &[u8]) -> Result<WatchStream, LockError> {
    let request = |client: &Client| {
        let (mut watches, key) = (client.watch_client(), key.to_vec());
        async move {
            let mut events = watches.watch(key, Some(WatchOptions::new())).await?;
            // The first message says that the watch was created, or why not: the login has run out, say.
            match events.message().await? {
                Some(created) if !created.canceled() => Ok(events),
                Some(refused) => Err(Error::WatchError(refused.cancel_reason().to_owned())),
                None => Err(Error::WatchError("the stream ended".to_owned())),
            }
        }
    };
    // It may be dropped early, since what it is opened for can come about by itself; that says nothing about the connection.
    let opened = inner.link.send_patiently(Resend::Once, limit / 2, request);
    bounded(limit, async { opened.await.map_err(|failure| inner.link.error(failure)) }).await
}

/// The key after the next event, where it was not deleted; `Ok(None)` when the server has ended the watch.
async fn next(inner: &Inner, events: &mut WatchStream) -> Result<Option<Option<KeyValue>>, LockError> {
    loop {
        let message = events.message().await.map_err(|error| inner.link.stream_error(error))?;
        let Some(message) = message.filter(|message| !message.canceled()) else { return Ok(None) };
        let Some(event) = message.events().last() else { continue };
        let kv = event.kv().filter(|_| event.event_type() == EventType::Put);
        return Ok(Some(kv.cloned()));
    }
}
