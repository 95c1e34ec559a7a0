//! The keeper: one task that owns a lock from request to release.

mod acquire;
mod keep;
mod release;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::oneshot;

use crate::hold::Hold;
use crate::retry::Backoff;
use crate::shared::Shared;
use crate::{AcquireRequest, Held, LockError, LockName, LostReason, Owner};

/// What the user's side gets when the lock is acquired. Wherever it is dropped, the keeper releases.
pub(crate) struct Grant {
    pub(crate) held: Held,
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.held.0.release();
        self.held.0.guard_goes();
    }
}

/// How the lock is to be kept once it is held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldPlan {
    pub(crate) auto_renew: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) min_hold: Duration,
}

/// What the acquisition came to: `None` when another holds the name and the request does not wait.
pub(crate) type Reply = oneshot::Sender<Result<Option<Grant>, LockError>>;

pub(crate) struct Keeper {
    pub(crate) shared: Arc<Shared>,
    pub(crate) request: AcquireRequest,
    pub(crate) plan: HoldPlan,
}

impl Keeper {
    /// Lives from request to release. A panic of the backend ends in [`abandon`], never in an entry that nobody minds.
    // An `async fn` would have room for its arguments twice.
    #[allow(clippy::manual_async_fn)]
    pub(crate) fn live(self, reply: Reply) -> impl Future<Output = ()> + Send {
        async move {
            if AssertUnwindSafe(self.run(reply)).catch_unwind().await.is_err() {
                let AcquireRequest { name, owner, ttl, .. } = &self.request;
                tracing::error!(lock = %name, "the keeper of a lock panicked; its entry is being removed");
                Box::pin(abandon(&self.shared, name, owner, ttl.get())).await;
            }
        }
    }

    async fn run(&self, reply: Reply) {
        let Some((lease, reply)) = self.obtain(reply).await else { return };
        let hold = Arc::new(Hold::new(
            self.request.name.clone(),
            self.request.owner,
            lease.fencing_token(),
            lease.effective_ttl(),
            lease.valid_until(),
            self.request.clock.clone(),
            self.shared.departures.clone(),
        ));
        // Held from here on; if this task dies, the guard learns of it.
        let last_breath = LastBreath(hold.clone());
        let _listed = self.shared.list_held(&self.request.name);
        // Where nobody waits for it any more, it is dropped.
        let _ = reply.send(Ok(Some(Grant { held: Held(hold.clone()) })));
        self.keep(lease, &hold).await;
        drop(last_breath);
    }
}

/// Raises `KeeperDied` when the keeper ends before the lease has, and leaves no call of the guard unanswered.
struct LastBreath(Arc<Hold>);

impl Drop for LastBreath {
    fn drop(&mut self) {
        self.0.mailbox.close();
        self.0.keeper_goes();
        if self.0.is_held() {
            self.0.lose(LostReason::KeeperDied);
        }
    }
}

/// Removes what an owner may have left, until it is confirmed or its TTL has run out (rule U1).
async fn abandon(shared: &Shared, name: &LockName, owner: &Owner, ttl: Duration) {
    let end = shared.clock.now().after(ttl + shared.operation_timeout);
    let mut backoff = Backoff::default();
    loop {
        match crate::bounded(shared.operation_timeout, shared.backend.abandon(name, owner)).await {
            Ok(_) => return,
            Err(error) if shared.clock.has_passed(end) => {
                tracing::warn!(lock = %name, %error, "what an unclear request may have left is not removed; its TTL takes it");
                return;
            }
            Err(_) => backoff.sleep().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<F>(_: fn(Keeper, Reply) -> F) -> usize {
        size_of::<F>()
    }

    /// Each held lock has one: what only a renewal or a release needs is boxed for the moment.
    #[test]
    fn a_keeper_is_small() {
        let bytes = size_of_future(Keeper::live);
        assert!(bytes < 1_100, "{bytes} bytes");
    }
}
