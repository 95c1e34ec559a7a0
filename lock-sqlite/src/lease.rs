//! One granted hold of a name.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{BoxFuture, pending};
use lock_core::{
    AcquireRequest, Clock, Deadline, FencingToken, Lease, LockError, LockName, LostReason, Owner, Released, Renewal,
};

use crate::store::{Query, Store, Taken, key, micros, sql};

/// A row of the table `locks` that bears our owner.
#[derive(Debug)]
pub(crate) struct SqliteLease {
    store: Arc<Store>,
    name: LockName,
    owner: Owner,
    ttl: Duration,
    token: FencingToken,
    /// The holder's clock.
    clock: Clock,
    valid_until: Deadline,
    /// When the row expires at the latest, on the file's clock.
    expires: i64,
}

impl SqliteLease {
    pub(crate) fn new(store: Arc<Store>, request: &AcquireRequest, taken: &Taken) -> Self {
        let ttl = request.ttl.get();
        Self {
            store,
            name: request.name.clone(),
            owner: request.owner,
            ttl,
            token: FencingToken::new(taken.token.unsigned_abs()),
            clock: request.clock.clone(),
            valid_until: Deadline::valid_until(taken.sent, ttl),
            expires: taken.expires,
        }
    }

    /// Why the row is not ours any more, from what stands there now.
    fn gone(&self, successor: Option<bool>, expires: i64) -> LostReason {
        match successor {
            Some(true) => LostReason::ForceReleased,
            Some(false) => LostReason::TakenOver,
            None if self.store.clock.now() >= expires => LostReason::Expired,
            None => LostReason::Removed,
        }
    }

    async fn try_renew(&mut self) -> Result<Renewal, LockError> {
        let expires = self.expires;
        let Some(mut writer) = self.store.existing_writer().await? else {
            return Ok(Renewal::Lost(self.gone(None, expires)));
        };
        let sent = self.clock.now();
        let now = self.store.clock.now();
        let ttl = micros(self.ttl);
        // Noted before the answer is there, since a dropped renewal may take effect.
        self.expires = self.expires.max(now.saturating_add(ttl));
        let query: Query<(i64,)> = sql!("renew");
        let rows = writer
            .fetch(
                query
                    .bind(key(&self.name))
                    .bind(self.owner.to_string())
                    .bind(self.store.clock.boot().to_owned())
                    .bind(now)
                    .bind(ttl),
            )
            .await?;
        if !rows.is_empty() {
            self.valid_until = Deadline::valid_until(sent, self.ttl);
            return Ok(Renewal::Renewed);
        }
        let state = self.store.state(&mut writer, &self.name).await?;
        Ok(Renewal::Lost(self.gone(state.lease.map(|lease| lease.is_revoked()), expires)))
    }
}

#[async_trait]
impl Lease for SqliteLease {
    fn fencing_token(&self) -> FencingToken {
        self.token
    }

    fn effective_ttl(&self) -> Duration {
        self.ttl
    }

    fn valid_until(&self) -> Deadline {
        self.valid_until
    }

    fn loss(&self) -> BoxFuture<'static, LostReason> {
        // A file tells nobody of a change; renewals find out.
        Box::pin(pending())
    }

    async fn renew(&mut self) -> Result<Renewal, LockError> {
        self.try_renew().await.map_err(|e| e.operation("renew").name(&self.name))
    }

    async fn release(&mut self) -> Result<Released, LockError> {
        self.store.release(&self.name, &self.owner).await.map_err(|e| e.operation("release").name(&self.name))
    }
}
