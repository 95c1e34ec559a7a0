//! The keeper: one task that owns a lock from request to release.

mod acquire;
mod keep;
mod release;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{mpsc, oneshot};

use crate::hold::Hold;
use crate::retry::Backoff;
use crate::shared::Shared;
use crate::{AcquireRequest, LockError, LockName, LostReason, Owner, Released};

/// What the user's side gets when the lock is acquired. Dropping it anywhere closes the channel, and the keeper releases.
pub(crate) struct Grant {
    pub(crate) hold: Arc<Hold>,
    pub(crate) commands: mpsc::Sender<Command>,
}

/// What a guard asks of its keeper.
pub(crate) enum Command {
    Renew(oneshot::Sender<Result<(), LockError>>),
    Release(oneshot::Sender<Result<Released, LockError>>),
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
    pub(crate) async fn live(self, reply: Reply) {
        let shared = self.shared.clone();
        let (name, owner, ttl) = (self.request.name.clone(), self.request.owner, self.request.ttl.get());
        if AssertUnwindSafe(self.run(reply)).catch_unwind().await.is_err() {
            tracing::error!(lock = %name, "the keeper of a lock panicked; its entry is being removed");
            abandon(&shared, &name, &owner, ttl).await;
        }
    }

    async fn run(self, reply: Reply) {
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
        let (commands, inbox) = mpsc::channel(1);
        let grant = Grant { hold: hold.clone(), commands };
        let _listed = self.shared.list_held(&self.request.name);
        if reply.send(Ok(Some(grant))).is_err() {
            hold.release();
            hold.guard_goes();
        }
        self.keep(lease, hold, inbox).await;
        drop(last_breath);
    }
}

/// Raises `KeeperDied` when the keeper ends before the lease has.
struct LastBreath(Arc<Hold>);

impl Drop for LastBreath {
    fn drop(&mut self) {
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
