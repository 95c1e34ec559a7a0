//! The backend: the contract's calls, and what all acquisitions of a client share.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{Txn, TxnOp, TxnOpResponse};
use lock_core::{
    AcquireRequest, Acquisition, Batch, Capabilities, Clock, Diagnosis, DistributedLock, Durability, FencingToken,
    Holder, LockError, LockName, Owner, Page, Reach, Released, Revoke, bounded,
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::BACKEND;
use crate::acquire::Attempt;
use crate::config::EtcdConfig;
use crate::connection::{Link, Resend, lock};
use crate::kept::{Beat, Kept};
use crate::keys;
use crate::neighbours::Neighbours;
use crate::standing::{Checked, MOST, Standing};
use crate::wait::CROWD;

/// Locks in an etcd cluster.
#[derive(Clone)]
pub struct EtcdLock(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) link: Link,
    pub(crate) limit: Duration,
    pub(crate) clock: Clock,
    /// The shared leases, by their TTL in seconds.
    classes: Mutex<HashMap<i64, Arc<Kept>>>,
    granting: tokio::sync::Mutex<()>,
    pub(crate) checks: Batch<Standing, Checked>,
    /// How many may make their first request at a time, and how many line up.
    pub(crate) tries: Semaphore,
    pub(crate) turns: Semaphore,
    /// On which leases a request of an owner may have put something.
    hooks: Mutex<HashMap<Owner, Vec<Hook>>>,
    pub(crate) neighbours: Arc<Neighbours>,
    closed: CancellationToken,
    capabilities: Capabilities,
}

/// A lease that bears something of an owner.
#[derive(Clone)]
pub(crate) struct Hook {
    pub(crate) kept: Arc<Kept>,
    /// Whether a request may still be on its way that would put something there.
    pub(crate) doubt: bool,
}

impl EtcdLock {
    /// Connects. Must run inside a tokio runtime, on which the connection then lives.
    ///
    /// # Errors
    /// `Unavailable` when no server of the URL can be reached or the cluster has no leader, `Denied` for a wrong password or a missing right,
    /// `Config` for a login where the cluster knows no users.
    ///
    /// # Cancel safety
    /// Dropping it leaves nothing but a lease that ends by itself.
    pub async fn connect(config: EtcdConfig) -> Result<Self, LockError> {
        let closed = CancellationToken::new();
        let limit = config.operation_limit();
        let connect_limit = config.connect_limit();
        let link = Link::new(config, closed.clone());
        let clock = Clock::system();
        // The shortest lease: what the server makes of it is its minimum, and waiters will need it.
        let least = bounded(connect_limit, Kept::grant(&link, clock.clone(), LEAST, false)).await;
        let least = Arc::new(least.map_err(|e| e.backend(BACKEND).operation("connect"))?);
        let inner = Inner {
            link,
            limit,
            clock,
            capabilities: capabilities(least.ttl),
            classes: Mutex::new(HashMap::from([(LEAST, least)])),
            granting: tokio::sync::Mutex::default(),
            checks: Batch::new(MOST),
            tries: Semaphore::new(CROWD),
            turns: Semaphore::new(CROWD),
            hooks: Mutex::default(),
            neighbours: Arc::default(),
            closed,
        };
        Ok(Self(Arc::new(inner)))
    }
}

/// The TTL in seconds of the lease on which waiters stand: the shorter, the sooner a dead one is out of the way.
pub(crate) const LEAST: i64 = 1;

fn capabilities(least: Duration) -> Capabilities {
    let mut capabilities = Capabilities::new(BACKEND);
    capabilities.durability = Durability::Quorum;
    capabilities.reach = Reach::Network;
    // The server looks for leases that have ended every 500 ms, and ends them by a write of its own.
    capabilities.expiry_grain = Duration::from_secs(1);
    capabilities.restart_adds_ttl = true;
    capabilities.min_ttl = least;
    capabilities.fifo = true;
    capabilities.pushes_loss = true;
    capabilities.leases_survive_restart = true;
    capabilities
}

#[async_trait]
impl DistributedLock for EtcdLock {
    fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition, LockError> {
        let acquired = Attempt::new(&self.0, request).run().await;
        acquired.map_err(|e| self.0.context(e, "acquire", &request.name))
    }

    async fn abandon(&self, name: &LockName, owner: &Owner) -> Result<Released, LockError> {
        let given_up = bounded(self.0.limit, self.0.give_up(name, owner)).await;
        given_up.map_err(|e| self.0.context(e, "abandon", name))
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<Holder>, LockError> {
        let shown = bounded(self.0.limit, self.0.look(name)).await;
        shown.map_err(|e| self.0.context(e, "inspect", name))
    }

    async fn list(&self, prefix: &str, page: Page) -> Result<Vec<Holder>, LockError> {
        self.0.scan(prefix, &page).await.map_err(|e| e.backend(BACKEND).operation("list"))
    }

    async fn revoke(&self, name: &LockName, expect: Option<FencingToken>, how: Revoke) -> Result<Released, LockError> {
        let broken = bounded(self.0.limit, self.0.break_lock(name, expect, how)).await;
        broken.map_err(|e| self.0.context(e, "revoke", name))
    }

    async fn diagnose(&self) -> Result<Diagnosis, LockError> {
        self.0.diagnosis(self.capabilities().min_ttl).await.map_err(|e| e.backend(BACKEND).operation("diagnose"))
    }

    async fn close(&self) -> Result<(), LockError> {
        let inner = &self.0;
        let classes: Vec<_> = lock(&inner.classes).drain().map(|(_, kept)| kept).collect();
        let ends = classes.iter().filter(|kept| kept.is_running()).map(|kept| kept.revoke(&inner.link));
        // What is not confirmed ends by itself: nobody prolongs it any more.
        let _ = bounded(inner.limit, async { Ok(futures_util::future::join_all(ends).await) }).await;
        inner.closed.cancel();
        inner.link.close();
        Ok(())
    }
}

impl Inner {
    /// The shared lease of so many seconds, with most of its time before it.
    pub(crate) async fn shared(&self, seconds: i64) -> Result<Arc<Kept>, LockError> {
        let usable = || lock(&self.classes).get(&seconds).filter(|kept| kept.is_usable() && kept.is_running()).cloned();
        loop {
            let Some(kept) = usable() else { break };
            if kept.age() < kept.ttl / 4 || kept.beat(&self.link, self.limit).await? == Beat::Alive {
                return Ok(kept);
            }
        }
        let _one = self.granting.lock().await;
        if let Some(kept) = usable() {
            return Ok(kept);
        }
        let kept = Arc::new(Kept::grant(&self.link, self.clock.clone(), seconds, false).await?);
        lock(&self.classes).insert(seconds, kept.clone());
        Ok(kept)
    }

    /// The shared lease of so many seconds and its sentinel's revision, where they are known and nothing need be asked.
    pub(crate) fn at_hand(&self, seconds: i64) -> Option<(Arc<Kept>, i64)> {
        let kept = lock(&self.classes).get(&seconds).cloned()?;
        let fresh = kept.is_usable() && kept.age() < kept.ttl / 2;
        kept.known_fence().filter(|_| fresh).map(|at| (kept, at))
    }

    /// A lease for one lock alone. The same request made again gets the same one.
    pub(crate) async fn own(&self, owner: &Owner, seconds: i64) -> Result<Arc<Kept>, LockError> {
        let known = self.hooks(owner).into_iter().map(|hook| hook.kept);
        if let Some(kept) = known.into_iter().find(|kept| kept.own && kept.is_usable() && kept.is_running()) {
            return Ok(kept);
        }
        let kept = Arc::new(Kept::grant(&self.link, self.clock.clone(), seconds, true).await?);
        self.hook(*owner, &kept, false);
        Ok(kept)
    }

    pub(crate) fn hooks(&self, owner: &Owner) -> Vec<Hook> {
        lock(&self.hooks).get(owner).cloned().unwrap_or_default()
    }

    /// Notes that an owner may have something on a lease; a doubt stays until it is settled.
    pub(crate) fn hook(&self, owner: Owner, kept: &Arc<Kept>, doubt: bool) {
        let mut hooks = lock(&self.hooks);
        let all = hooks.entry(owner).or_default();
        match all.iter_mut().find(|hook| hook.kept.id == kept.id) {
            Some(hook) => hook.doubt |= doubt,
            None => all.push(Hook { kept: kept.clone(), doubt }),
        }
    }

    /// Nothing of the owner is left, and nothing is on its way.
    pub(crate) fn settle(&self, owner: &Owner) {
        for hook in lock(&self.hooks).remove(owner).unwrap_or_default() {
            hook.kept.adopt(owner);
        }
    }

    /// What makes requests of this owner fail that are still on their way.
    pub(crate) fn fences(hooks: &[Hook]) -> impl Iterator<Item = TxnOp> {
        let shared = hooks.iter().filter(|hook| hook.doubt && !hook.kept.own);
        shared.map(|hook| TxnOp::delete(keys::sentinel(hook.kept.id), None))
    }

    /// Ends the leases that were this owner's alone, and forgets it.
    pub(crate) async fn end_own(&self, owner: &Owner, hooks: &[Hook]) -> Result<(), LockError> {
        for hook in hooks.iter().filter(|hook| hook.kept.own) {
            hook.kept.revoke(&self.link).await?;
        }
        self.settle(owner);
        Ok(())
    }

    /// Removes the owner's entry, held or waiting, in one step with the fences, so that it comes after what was in doubt.
    pub(crate) async fn give_up(&self, name: &LockName, owner: &Owner) -> Result<Released, LockError> {
        let hooks = self.hooks(owner);
        hooks.iter().for_each(|hook| hook.kept.orphan(*owner));
        let mut ops = vec![TxnOp::delete(keys::entry(name, owner), None)];
        ops.extend(Self::fences(&hooks));
        let answer = self.link.txn(Txn::new().and_then(ops), Resend::Once).await;
        let answer = answer.map_err(|failure| self.link.error(failure))?;
        let deleted = match answer.op_responses().first() {
            Some(TxnOpResponse::Delete(deleted)) => deleted.deleted() > 0,
            _ => false,
        };
        self.end_own(owner, &hooks).await?;
        Ok(if deleted { Released::Released } else { Released::NotHeld })
    }

    pub(crate) fn context(&self, e: LockError, operation: &'static str, name: &LockName) -> LockError {
        e.backend(BACKEND).operation(operation).name(name)
    }
}

impl fmt::Debug for EtcdLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdLock").field("servers", &self.0.link.servers()).finish_non_exhaustive()
    }
}
