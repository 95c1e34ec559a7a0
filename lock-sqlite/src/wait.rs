//! How a request contends for a name, among the processes of the machine.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{AcquireRequest, Attempt, Contender, LockError, Pace};

use crate::lease::SqliteLease;
use crate::store::{PLACE_KEPT, Query, Store, micros, span, sql};

/// A look costs about 30 µs of processor time.
pub(crate) const PACE: Pace =
    Pace { least: Duration::from_millis(2), most: Duration::from_millis(20), beat: Duration::from_millis(250) };

/// The [`Contender`] of one request.
///
/// Of the processes that wait for a name, the one whose request has waited longest stands in the table `next`, and only it may take the name
/// when it is free. It renews its place when half of the time for which that is kept has passed; all others merely read.
#[derive(Debug)]
pub(crate) struct Line<'a>(pub(crate) &'a Arc<Store>);

#[async_trait]
impl Contender for Line<'_> {
    async fn attempt(&self, request: &AcquireRequest, waited: Duration) -> Result<Attempt, LockError> {
        let store = self.0;
        // The first try hopes for a free name; later ones read before they write, to leave the writing to the one whose turn it is.
        if waited.is_zero()
            && let Some(taken) = store.take(request).await?
        {
            return Ok(Attempt::Granted(Box::new(SqliteLease::new(store.clone(), request, &taken))));
        }
        let waits = request.wait != lock_core::Wait::Never;
        let owner = request.owner.to_string();
        // Who does not wait makes do with the one connection, since opening another takes a millisecond.
        let mut link = if waits { store.watcher().await? } else { store.writer().await? };
        let state = store.state(&mut link, &request.name).await?;
        drop(link);

        let own_place = state.next.as_ref().is_some_and(|next| next.owner == owner);
        let own_lease = state.lease.as_ref().is_some_and(|lease| lease.owner == owner);
        let free = own_lease || state.lease.is_none() && (state.next.is_none() || own_place);
        if free
            && waits
            && let Some(taken) = store.take(request).await?
        {
            return Ok(Attempt::Granted(Box::new(SqliteLease::new(store.clone(), request, &taken))));
        }
        let since = store.clock.now().saturating_sub(micros(waited));
        let may_stand = match &state.next {
            None => true,
            Some(next) if own_place => next.remaining < micros(PLACE_KEPT) / 2,
            Some(next) => next.since > since,
        };
        if waits && may_stand {
            store.line_up(request, since).await?;
        }
        let until = state.lease.as_ref().map(|lease| lease.remaining);
        let until = until.or(state.next.as_ref().filter(|_| !own_place).map(|next| next.remaining));
        Ok(Attempt::Busy { holder: state.into_holder(&request.name), free_in: until.map(span) })
    }

    async fn look(&self) -> Result<u64, LockError> {
        let mut watcher = self.0.watcher().await?;
        let query: Query<(i64,)> = sql!("data_version");
        let rows = watcher.fetch(query).await?;
        // The version counts within one connection.
        let version = rows.first().map_or(0, |(version,)| *version);
        Ok(u64::from(watcher.generation) << 32 | u64::from(version as u32))
    }

    async fn leave(&self, request: &AcquireRequest) -> Result<(), LockError> {
        self.0.leave(&request.name, &request.owner).await
    }
}
