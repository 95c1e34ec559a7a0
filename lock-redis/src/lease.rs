//! One granted hold of a name.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::Inner;
use crate::renew::{Renew, Renewed};
use crate::slot::Keys;
use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lock_core::{Clock, Deadline, FencingToken, Lease, LockError, LostReason, Owner, Released, Renewal, Ttl, bounded};

pub(crate) struct RedisLease {
    pub(crate) inner: Arc<Inner>,
    pub(crate) keys: Keys,
    pub(crate) owner: Owner,
    pub(crate) note: String,
    pub(crate) token: FencingToken,
    pub(crate) ttl: Ttl,
    pub(crate) valid_until: Deadline,
    pub(crate) clock: Clock,
    pub(crate) limit: Duration,
}

#[async_trait]
impl Lease for RedisLease {
    fn fencing_token(&self) -> FencingToken {
        self.token
    }

    fn effective_ttl(&self) -> Duration {
        self.ttl.get()
    }

    fn valid_until(&self) -> Deadline {
        self.valid_until
    }

    fn loss(&self) -> BoxFuture<'static, LostReason> {
        let revoked = self.inner.registry.revocation(self.owner);
        async move {
            if revoked.await.is_err() {
                // The lease is gone, and nobody is left to tell.
                std::future::pending::<()>().await;
            }
            LostReason::ForceReleased
        }
        .boxed()
    }

    async fn renew(&mut self) -> Result<Renewal, LockError> {
        let (keys, note) = (self.keys.clone(), self.note.clone());
        let renew = Renew { keys, owner: self.owner, note, token: self.token, ttl: self.ttl };
        let sent = self.clock.now();
        let renewed = bounded(self.limit, self.inner.renew(renew)).await;
        Ok(match renewed.map_err(|e| self.inner.context(e, "renew", self.keys.name()))? {
            Renewed::Done => {
                self.valid_until = Deadline::valid_until(sent, self.ttl.get());
                Renewal::Renewed
            }
            Renewed::Revoked => Renewal::Lost(LostReason::ForceReleased),
            Renewed::TakenOver => Renewal::Lost(LostReason::TakenOver),
            Renewed::Gone if self.clock.has_passed(self.valid_until) => Renewal::Lost(LostReason::Expired),
            Renewed::Gone => Renewal::Lost(LostReason::Removed),
        })
    }

    async fn release(&mut self) -> Result<Released, LockError> {
        let doubt = self.inner.registry.is_in_doubt(&self.owner);
        let released = self.inner.give_up(&self.keys, &self.owner, doubt, self.limit).await;
        released.map_err(|e| self.inner.context(e, "release", self.keys.name()))
    }
}

/// Only what is in memory: the keeper releases.
impl Drop for RedisLease {
    fn drop(&mut self) {
        self.inner.registry.forget_lease(&self.owner);
    }
}

impl fmt::Debug for RedisLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("RedisLease");
        shown.field("name", self.keys.name()).field("owner", &self.owner).field("token", &self.token);
        shown.finish_non_exhaustive()
    }
}
