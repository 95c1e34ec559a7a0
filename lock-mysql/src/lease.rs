//! One granted hold of a name.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{BoxFuture, pending};
use lock_core::{
    AcquireRequest, Clock, Deadline, FencingToken, Lease, LockError, LockName, LostReason, Owner, Released, Renewal,
};

use crate::renew::{Renew, Renewed};
use crate::store::{Store, Taken, effective_ttl};

/// A row that bears our owner.
#[derive(Debug)]
pub(crate) struct MysqlLease {
    store: Arc<Store>,
    name: LockName,
    owner: Owner,
    ttl: Duration,
    token: FencingToken,
    clock: Clock,
    valid_until: Deadline,
    /// A renewal has found that it is not this owner's any more.
    lost: bool,
}

impl MysqlLease {
    pub(crate) fn new(store: Arc<Store>, request: &AcquireRequest, taken: &Taken) -> Self {
        let ttl = effective_ttl(request);
        Self {
            store,
            name: request.name.clone(),
            owner: request.owner,
            ttl,
            token: FencingToken::new(taken.token),
            clock: request.clock.clone(),
            valid_until: Deadline::valid_until(taken.sent, ttl),
            lost: false,
        }
    }

    async fn try_renew(&mut self) -> Result<Renewal, LockError> {
        let sent = self.clock.now();
        let renew = Renew { name: self.name.clone(), owner: self.owner, ttl: self.ttl };
        let renewed = self.store.renew(renew).await?;
        self.lost |= renewed != Renewed::Done;
        Ok(match renewed {
            Renewed::Done => {
                self.valid_until = Deadline::valid_until(sent, self.ttl);
                Renewal::Renewed
            }
            Renewed::Revoked => Renewal::Lost(LostReason::ForceReleased),
            Renewed::TakenOver => Renewal::Lost(LostReason::TakenOver),
            Renewed::Gone if self.clock.has_passed(self.valid_until) => Renewal::Lost(LostReason::Expired),
            Renewed::Gone => Renewal::Lost(LostReason::Removed),
        })
    }

    async fn try_release(&mut self) -> Result<Released, LockError> {
        let store = &self.store;
        let first = store.release(&mut *store.keeping().await?, &self.name, &self.owner).await;
        match first {
            Err(e) if e.broke => {}
            done => return done.map_err(|e| store.told(e)),
        }
        let mut link = store.keeping().await?;
        let again = store.release(&mut link, &self.name, &self.owner).await.map_err(|e| store.told(e))?;
        // The first may have taken effect without its answer: then the entry is gone, before its time and by us.
        let early = again == Released::NotHeld && !self.lost && !self.clock.has_passed(self.valid_until);
        if early && store.state(&mut link, &self.name).await?.lease.is_none() {
            return Ok(Released::Released);
        }
        Ok(again)
    }
}

#[async_trait]
impl Lease for MysqlLease {
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
        // The server tells nobody of a change; renewals find out.
        Box::pin(pending())
    }

    async fn renew(&mut self) -> Result<Renewal, LockError> {
        self.try_renew().await.map_err(|e| e.backend(crate::BACKEND).operation("renew").name(&self.name))
    }

    async fn release(&mut self) -> Result<Released, LockError> {
        self.try_release().await.map_err(|e| e.backend(crate::BACKEND).operation("release").name(&self.name))
    }
}
