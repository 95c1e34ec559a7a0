//! Renewals: those of many leases in two statements.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{LockError, LockName, Owner, bounded};

use crate::row::{NameState, key, micros};
use crate::statement::Arg;
use crate::store::Store;

/// A lease whose remaining time is to be its TTL again.
pub(crate) struct Renew {
    pub(crate) name: LockName,
    pub(crate) owner: Owner,
    pub(crate) ttl: Duration,
}

impl Renew {
    /// How long the server may take for it, so that there is time for a second try over another connection.
    fn limit(&self) -> Duration {
        (self.ttl / 6).max(Duration::from_millis(5))
    }
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewed {
    Done,
    Revoked,
    TakenOver,
    Gone,
}

impl Store {
    /// Renews a lease, together with those that are renewed at the same time.
    pub(crate) async fn renew(self: &Arc<Self>, renew: Renew) -> Result<Renewed, LockError> {
        let store = self.clone();
        let send = move |all: Vec<Renew>| {
            let store = store.clone();
            async move {
                let limit = all.iter().map(Renew::limit).fold(store.limit, Duration::min);
                bounded(limit, store.renew_all(&all)).await
            }
        };
        self.renewals.ask(renew, send).await
    }

    async fn renew_all(&self, all: &[Renew]) -> Result<Vec<Renewed>, LockError> {
        let mut by_ttl: HashMap<Duration, Vec<&Renew>> = HashMap::new();
        for renew in all {
            by_ttl.entry(renew.ttl).or_default().push(renew);
        }
        let mut may_dial = true;
        'sent: loop {
            let mut link = self.keeping().await?;
            let mut matched = 0;
            for (ttl, some) in &by_ttl {
                let owners: Vec<_> = some.iter().map(|renew| renew.owner.to_string()).collect();
                let args = [Arg::Text(owners.join(",")), Arg::Int(micros(*ttl))];
                let names: Vec<_> = some.iter().map(|renew| key(&renew.name)).collect();
                matched += match link.change_by(|| self.statements.renew.query_in(&args, &names), None).await {
                    Ok(done) => done.rows_affected(),
                    // A connection that died while it was idle is nothing to speak of, and renewing twice is renewing.
                    Err(e) if e.broke && may_dial => {
                        may_dial = false;
                        continue 'sent;
                    }
                    Err(e) => self.counted(Err(e))?,
                };
            }
            // Each matches its own row alone, and so none more often than once. A server that counts what it changed may count less.
            if matched == all.len() as u64 {
                return Ok(vec![Renewed::Done; all.len()]);
            }
            // Who still owns a live row was renewed: nobody else writes an owner's name into it.
            let names: Vec<_> = all.iter().map(|renew| renew.name.clone()).collect();
            let rows = self.read(&mut link, &names).await?;
            let states: HashMap<_, _> =
                rows.into_iter().map(|row| (row.name.clone(), row.state(Duration::ZERO))).collect();
            return Ok(all.iter().map(|renew| judge(renew, states.get(&key(&renew.name)))).collect());
        }
    }
}

fn judge(renew: &Renew, state: Option<&NameState>) -> Renewed {
    match state.and_then(|state| state.lease.as_ref()) {
        Some(lease) if lease.owner == renew.owner.to_string() => Renewed::Done,
        Some(lease) if lease.is_revoked() => Renewed::Revoked,
        Some(_) => Renewed::TakenOver,
        None => Renewed::Gone,
    }
}
