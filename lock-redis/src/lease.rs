//! One granted hold of a name.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::Inner;
use crate::connection::Resend;
use crate::errors::unexpected;
use crate::scripts::{RENEW, text};
use crate::slot::{Keys, Kind};
use crate::view::meta_ttl;
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
        let context = |e: LockError| self.inner.context(e, "renew", self.keys.name());
        let owner = self.owner.to_string();
        let (ttl, meta_ttl) = (self.ttl.as_millis().to_string(), meta_ttl(self.ttl.get()).to_string());
        let token = self.token.get().to_string();
        let meta = self.keys.helper(Kind::Meta);
        let keys: [&[u8]; 2] = [self.keys.lock(), &meta];
        let args: [&[u8]; 5] =
            [owner.as_bytes(), ttl.as_bytes(), meta_ttl.as_bytes(), self.note.as_bytes(), token.as_bytes()];
        let sent = self.clock.now();
        let link = &self.inner.link;
        let answer = bounded(self.limit, link.run(&RENEW, &keys, &args, Resend::Once)).await.map_err(context)?;
        let (answer, written) = (answer.value, answer.over);
        Ok(match text(Some(&answer)) {
            "renewed" => {
                link.confirm(&written, self.limit).await.map_err(context)?;
                self.valid_until = Deadline::valid_until(sent, self.ttl.get());
                Renewal::Renewed
            }
            "revoked" => Renewal::Lost(LostReason::ForceReleased),
            "taken" => Renewal::Lost(LostReason::TakenOver),
            "absent" if self.clock.has_passed(self.valid_until) => Renewal::Lost(LostReason::Expired),
            "absent" => Renewal::Lost(LostReason::Removed),
            _ => return Err(context(unexpected(&answer))),
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
