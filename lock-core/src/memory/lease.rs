use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;

use super::store::{Entry, Store};
use crate::{Deadline, FencingToken, Lease, LockError, LostReason, Released, Renewal};

#[derive(Debug)]
pub(super) struct MemoryLease {
    pub(super) store: Arc<Store>,
    pub(super) entry: Entry,
}

impl MemoryLease {
    pub(super) fn new(store: &Arc<Store>, entry: Entry) -> Self {
        Self { store: store.clone(), entry }
    }
}

#[async_trait]
impl Lease for MemoryLease {
    fn fencing_token(&self) -> FencingToken {
        FencingToken::new(self.entry.token)
    }

    fn effective_ttl(&self) -> Duration {
        self.entry.ttl
    }

    fn valid_until(&self) -> Deadline {
        Deadline::valid_until(self.entry.sent, self.entry.ttl)
    }

    fn loss(&self) -> BoxFuture<'static, LostReason> {
        let lost = self.entry.lost.clone();
        Box::pin(async move {
            lost.raised.cancelled().await;
            // Set before it is raised.
            lost.reason.get().copied().unwrap_or(LostReason::Removed)
        })
    }

    async fn renew(&mut self) -> Result<Renewal, LockError> {
        Ok(match self.store.renew(&self.entry.name, &self.entry.owner, self.entry.ttl) {
            Ok(sent) => {
                self.entry.sent = sent;
                Renewal::Renewed
            }
            Err(reason) => Renewal::Lost(reason),
        })
    }

    async fn release(&mut self) -> Result<Released, LockError> {
        Ok(self.store.release(&self.entry.name, &self.entry.owner))
    }
}
