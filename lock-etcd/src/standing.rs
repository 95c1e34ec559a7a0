//! Whether entries still stand as they were written: one question for many leases.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Compare, CompareOp, KeyValue, ResponseHeader, Txn, TxnOp, TxnOpResponse};
use lock_core::{LockError, LostReason, bounded};

use crate::backend::Inner;
use crate::connection::Resend;
use crate::keys::{self, State};

/// How many entries one transaction looks at. It has two comparisons for each, and a server takes 128 unless it is told otherwise.
pub(crate) const MOST: usize = 60;

/// An entry as it must stand.
#[derive(Clone)]
pub(crate) struct Standing {
    pub(crate) key: Vec<u8>,
    /// The revision at which it was created.
    pub(crate) created: i64,
    /// The revision at which it was last written.
    pub(crate) written: i64,
    /// The server's lease that it hangs on, and its TTL.
    pub(crate) lease: i64,
    pub(crate) ttl: Duration,
}

/// What a check has shown.
pub(crate) struct Checked {
    pub(crate) lost: Option<LostReason>,
    pub(crate) header: Option<ResponseHeader>,
}

impl Standing {
    fn compares(&self) -> [Compare; 2] {
        let key = || self.key.clone();
        [
            Compare::mod_revision(key(), CompareOp::Equal, self.written),
            Compare::lease(key(), CompareOp::Equal, self.lease),
        ]
    }

    /// Why the lease is lost, by what stands under its key.
    pub(crate) fn verdict(&self, kv: Option<&KeyValue>) -> Option<LostReason> {
        let Some(kv) = kv else { return Some(LostReason::Removed) };
        let ours = kv.create_revision() == self.created && kv.lease() == self.lease;
        match keys::parsed(kv.value()) {
            Some((State::Held, ..)) if ours => None,
            Some((State::Revoked, ..)) if ours => Some(LostReason::ForceReleased),
            _ => Some(LostReason::TakenOver),
        }
    }
}

impl Inner {
    /// Looks at an entry, together with those that are looked at in the same moment. A majority takes part in the answer.
    pub(crate) async fn check(self: &Arc<Self>, standing: Standing) -> Result<Checked, LockError> {
        let inner = self.clone();
        let send = move |all: Vec<Standing>| {
            let inner = inner.clone();
            async move {
                let limit = all.iter().map(|standing| standing.ttl / 6).fold(inner.limit, Duration::min);
                bounded(limit, inner.check_all(&all)).await
            }
        };
        self.checks.ask(standing, send).await
    }

    /// An answer of a few bytes, as long as all of them stand.
    async fn check_all(&self, all: &[Standing]) -> Result<Vec<Checked>, LockError> {
        let txn = Txn::new()
            .when(all.iter().flat_map(Standing::compares).collect::<Vec<_>>())
            .or_else(all.iter().map(|standing| TxnOp::get(standing.key.clone(), None)).collect::<Vec<_>>());
        let answer = self.link.txn(txn, Resend::Once).await.map_err(|failure| self.link.error(failure))?;
        let found = answer.op_responses();
        let checked = |(place, standing): (usize, &Standing)| {
            let lost = match found.get(place) {
                _ if answer.succeeded() => None,
                Some(TxnOpResponse::Get(found)) => standing.verdict(found.kvs().first()),
                _ => Some(LostReason::Removed),
            };
            Checked { lost, header: answer.header().cloned() }
        };
        Ok(all.iter().enumerate().map(checked).collect())
    }
}
