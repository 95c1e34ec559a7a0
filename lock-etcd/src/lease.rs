//! One granted hold of a name.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{Client, Compare, CompareOp, DeleteOptions, Txn, TxnOp, TxnOpResponse};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lock_core::{
    Clock, Deadline, ErrorKind, FencingToken, Lease, LockError, LockName, LostReason, Owner, Released, Renewal, bounded,
};

use crate::backend::Inner;
use crate::connection::Resend;
use crate::kept::{Beat, Kept};
use crate::keys::{self, State};
use crate::neighbours::Here;
use crate::standing::Standing;
use crate::wait::lost;

pub(crate) struct EtcdLease {
    pub(crate) inner: Arc<Inner>,
    pub(crate) kept: Arc<Kept>,
    pub(crate) name: LockName,
    pub(crate) owner: Owner,
    pub(crate) token: FencingToken,
    /// The revision at which the entry was last written.
    pub(crate) written: i64,
    pub(crate) valid_until: Deadline,
    pub(crate) clock: Clock,
    pub(crate) limit: Duration,
    pub(crate) released: bool,
    /// Until its end is confirmed.
    pub(crate) here: Option<Here>,
}

/// The entry of a lease, for those who watch it.
pub(crate) struct Own {
    pub(crate) inner: Arc<Inner>,
    kept: Arc<Kept>,
    pub(crate) standing: Standing,
    pub(crate) limit: Duration,
}

impl Own {
    /// Tells an entry that was removed from one that went with its lease.
    pub(crate) async fn explain(&self, reason: LostReason) -> Result<LostReason, LockError> {
        if reason != LostReason::Removed {
            return Ok(reason);
        }
        if !self.kept.is_running() {
            return Ok(LostReason::Expired);
        }
        let request = |client: &Client| {
            let (mut leases, id) = (client.lease_client(), self.kept.id);
            async move { leases.time_to_live(id, None).await }
        };
        let asked = async {
            self.inner.link.send(Resend::Once, request).await.map_err(|failure| self.inner.link.error(failure))
        };
        // An answer that does not come must not keep the loss back.
        match bounded(Duration::from_millis(200), asked).await {
            Ok(answer) if answer.ttl() <= 0 => {
                self.kept.is_gone();
                Ok(LostReason::SessionLost)
            }
            _ => Ok(LostReason::Removed),
        }
    }
}

impl EtcdLease {
    fn standing(&self) -> Standing {
        Standing {
            key: keys::entry(&self.name, &self.owner),
            created: self.revision(),
            written: self.written,
            lease: self.kept.id,
            ttl: self.kept.ttl,
        }
    }

    fn own(&self) -> Own {
        Own { inner: self.inner.clone(), kept: self.kept.clone(), standing: self.standing(), limit: self.limit }
    }

    fn revision(&self) -> i64 {
        // It came from an i64.
        self.token.get().cast_signed()
    }

    async fn prolong(&mut self) -> Result<Renewal, LockError> {
        // A second time where a new leader came in between.
        for _ in 0..2 {
            let asked = self.kept.now();
            let check = self.inner.check(self.standing());
            let (beat, checked) = tokio::try_join!(self.kept.beat(&self.inner.link, self.inner.limit), check)?;
            if let Some(renewal) = self.judge(beat, checked.lost) {
                return Ok(renewal);
            }
            if self.kept.confirm(asked, checked.header.as_ref()) {
                self.valid_until = self.kept.valid_until(&self.clock);
                return Ok(Renewal::Renewed);
            }
        }
        Err(LockError::new(ErrorKind::Unavailable, "the leader changed during the renewal").advice("try again"))
    }

    /// What is lost by these answers.
    fn judge(&self, beat: Beat, loss: Option<LostReason>) -> Option<Renewal> {
        if beat == Beat::Gone {
            let expired = self.clock.has_passed(self.valid_until);
            return Some(Renewal::Lost(if expired { LostReason::Expired } else { LostReason::SessionLost }));
        }
        match loss? {
            LostReason::Removed if self.clock.has_passed(self.valid_until) => Some(Renewal::Lost(LostReason::Expired)),
            reason => Some(Renewal::Lost(reason)),
        }
    }

    /// Deletes the entry, held or marked, if it is still this lease's; with the fences against what is still on its way.
    async fn delete(&self) -> Result<Released, LockError> {
        let hooks = self.inner.hooks(&self.owner);
        let key = keys::entry(&self.name, &self.owner);
        let mut ops = vec![TxnOp::delete(key.clone(), Some(DeleteOptions::new().with_prev_key()))];
        ops.extend(Inner::fences(&hooks));
        let txn = Txn::new()
            .when([
                Compare::create_revision(key.clone(), CompareOp::Equal, self.revision()),
                Compare::lease(key, CompareOp::Equal, self.kept.id),
            ])
            .and_then(ops)
            .or_else(Inner::fences(&hooks).collect::<Vec<_>>());
        let link = &self.inner.link;
        let answer = link.txn(txn, Resend::Once).await.map_err(|failure| link.error(failure))?;
        let held = match answer.op_responses().first() {
            Some(TxnOpResponse::Delete(deleted)) if answer.succeeded() => {
                deleted.prev_kvs().first().and_then(|kv| keys::parsed(kv.value())).map(|(state, ..)| state)
                    == Some(State::Held)
            }
            _ => false,
        };
        self.inner.end_own(&self.owner, &hooks).await?;
        Ok(if held { Released::Released } else { Released::NotHeld })
    }
}

#[async_trait]
impl Lease for EtcdLease {
    fn fencing_token(&self) -> FencingToken {
        self.token
    }

    fn effective_ttl(&self) -> Duration {
        self.kept.ttl
    }

    fn valid_until(&self) -> Deadline {
        self.valid_until
    }

    fn loss(&self) -> BoxFuture<'static, LostReason> {
        lost(self.own()).boxed()
    }

    async fn renew(&mut self) -> Result<Renewal, LockError> {
        let limit = self.limit;
        let answer = bounded(limit, self.prolong()).await;
        answer.map_err(|e| self.inner.context(e, "renew", &self.name))
    }

    async fn release(&mut self) -> Result<Released, LockError> {
        // From here on nobody takes care of the entry but this call and its repetitions.
        self.kept.orphan(self.owner);
        let released = bounded(self.limit, self.delete()).await;
        if released.is_ok() {
            self.released = true;
            self.here = None;
        }
        released.map_err(|e| self.inner.context(e, "release", &self.name))
    }
}

/// Only a note in memory: the keeper releases or abandons, and else the shared lease is not prolonged for long.
impl Drop for EtcdLease {
    fn drop(&mut self) {
        if !self.released {
            self.kept.orphan(self.owner);
        }
    }
}

impl fmt::Debug for EtcdLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("EtcdLease");
        shown.field("name", &self.name).field("owner", &self.owner).field("token", &self.token);
        shown.finish_non_exhaustive()
    }
}
