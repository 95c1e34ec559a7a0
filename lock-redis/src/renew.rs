//! Renewals: those of many leases in one script.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::{FencingToken, LockError, Owner, Ttl, bounded};

use crate::backend::Inner;
use crate::connection::Resend;
use crate::errors::unexpected;
use crate::scripts::{RENEW, parts, text};
use crate::slot::{Keys, Kind};
use crate::view::meta_ttl;

/// How many one script renews: the server does nothing else meanwhile, for a fraction of a millisecond.
pub(crate) const MOST: usize = 64;

/// A lease whose remaining time is to be its TTL again.
pub(crate) struct Renew {
    pub(crate) keys: Keys,
    pub(crate) owner: Owner,
    pub(crate) note: String,
    pub(crate) token: FencingToken,
    pub(crate) ttl: Ttl,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewed {
    Done,
    Revoked,
    TakenOver,
    Gone,
}

/// What the script is told of one lease.
struct Told {
    keys: [Vec<u8>; 2],
    args: [String; 5],
}

impl Renew {
    fn told(&self) -> Told {
        let ttl = self.ttl.as_millis().to_string();
        let meta_ttl = meta_ttl(self.ttl.get()).to_string();
        Told {
            keys: [self.keys.lock().to_vec(), self.keys.helper(Kind::Meta)],
            args: [self.owner.to_string(), ttl, meta_ttl, self.note.clone(), self.token.get().to_string()],
        }
    }

    /// How long the server may take for it, so that there is time for a second try over another connection.
    fn limit(&self) -> Duration {
        (self.ttl.get() / 6).max(Duration::from_millis(5))
    }
}

impl Inner {
    /// Renews a lease, together with those that are renewed at the same moment. The names of a cluster live on different nodes, and go alone.
    pub(crate) async fn renew(self: &Arc<Self>, renew: Renew) -> Result<Renewed, LockError> {
        if self.link.is_cluster() {
            return self.renew_one(&renew).await;
        }
        let inner = self.clone();
        let send = move |all: Vec<Renew>| {
            let inner = inner.clone();
            async move { Ok(inner.renew_each(&all).await) }
        };
        self.renewals.ask(renew, send).await?
    }

    async fn renew_each(&self, all: &[Renew]) -> Vec<Result<Renewed, LockError>> {
        match self.renew_all(all).await {
            Ok(answers) => answers,
            // One may be to blame alone, such as a key of a wrong type.
            Err(error) if !error.is_retryable() && all.len() > 1 => {
                join_all(all.iter().map(|renew| self.renew_one(renew))).await
            }
            Err(error) => all.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn renew_one(&self, renew: &Renew) -> Result<Renewed, LockError> {
        self.renew_all(std::slice::from_ref(renew)).await?.swap_remove(0)
    }

    /// As many answers as questions.
    async fn renew_all(&self, all: &[Renew]) -> Result<Vec<Result<Renewed, LockError>>, LockError> {
        let limit = all.iter().map(Renew::limit).fold(self.limit, Duration::min);
        let told: Vec<_> = all.iter().map(Renew::told).collect();
        let keys: Vec<&[u8]> = told.iter().flat_map(|told| &told.keys).map(Vec::as_slice).collect();
        let args: Vec<&[u8]> = told.iter().flat_map(|told| &told.args).map(String::as_bytes).collect();
        bounded(limit, async {
            let answer = self.link.run(&RENEW, &keys, &args, Resend::Once).await?;
            let said = parts(&answer.value).iter().map(|said| Renewed::said(text(Some(said))));
            let renewed = said.collect::<Option<Vec<_>>>().filter(|renewed| renewed.len() == all.len());
            let renewed = renewed.ok_or_else(|| unexpected(&answer.value))?;
            // What is lost is lost, whatever replicas say.
            let confirmed = self.link.confirm(&answer.over, limit).await;
            let confirm =
                |renewed| if renewed == Renewed::Done { confirmed.clone().map(|()| renewed) } else { Ok(renewed) };
            Ok(renewed.into_iter().map(confirm).collect())
        })
        .await
    }
}

impl Renewed {
    fn said(word: &str) -> Option<Self> {
        Some(match word {
            "renewed" => Self::Done,
            "revoked" => Self::Revoked,
            "taken" => Self::TakenOver,
            "absent" => Self::Gone,
            _ => return None,
        })
    }
}
