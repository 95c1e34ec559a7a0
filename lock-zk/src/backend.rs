//! The backend: acquiring, giving up, and the rest of the contract's calls.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{
    AcquireRequest, Acquisition, Capabilities, Diagnosis, DistributedLock, Durability, FencingToken, Holder, LockError,
    LockName, Owner, Page, Reach, Released, Revoke, bounded,
};
use tokio::sync::Semaphore;
use zookeeper_client::{Client, Error, Stat};

use crate::BACKEND;
use crate::attempt::Attempt;
use crate::config::ZkConfig;
use crate::errors::{failed, is_over};
use crate::line::Lines;
use crate::path::{folder, prefix};
use crate::pool::Pool;
use crate::session::{Doubt, Session};

/// Locks in a ZooKeeper ensemble.
#[derive(Clone)]
pub struct ZkLock(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) pool: Pool,
    /// How many requests enter a queue at a time. Each lists it, and answers come one after the other: those of a crowd that comes at once would
    /// come too late, and be asked for again.
    pub(crate) entering: Semaphore,
    pub(crate) lines: Arc<Lines>,
    capabilities: Capabilities,
}

/// The places of [`Inner::entering`].
const CROWD: usize = 16;

impl ZkLock {
    /// Connects, and learns the ensemble's limits. Must run inside a tokio runtime, on which the sessions then live.
    ///
    /// # Errors
    /// `Unavailable` when no server can be reached, `Denied` for a login that is refused.
    ///
    /// # Cancel safety
    /// Dropping it may leave a session without nodes, which ends after its time-out.
    pub async fn connect(config: ZkConfig) -> Result<Self, LockError> {
        let limit = config.connect_limit();
        let pool = bounded(limit, Pool::open(config)).await.map_err(|e| e.backend(BACKEND).operation("connect"))?;
        let capabilities = capabilities(&pool);
        Ok(Self(Arc::new(Inner { pool, entering: Semaphore::new(CROWD), lines: Arc::default(), capabilities })))
    }
}

fn capabilities(pool: &Pool) -> Capabilities {
    let mut capabilities = Capabilities::new(BACKEND);
    capabilities.durability = if pool.is_alone() { Durability::Single } else { Durability::Quorum };
    capabilities.reach = Reach::Network;
    capabilities.expiry_grain = pool.tick();
    capabilities.restart_adds_ttl = true;
    (capabilities.min_ttl, capabilities.max_ttl) = pool.limits();
    capabilities.fifo = true;
    capabilities.pushes_loss = true;
    capabilities.leases_survive_restart = true;
    capabilities
}

#[async_trait]
impl DistributedLock for ZkLock {
    fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition, LockError> {
        let acquired = Attempt::run(&self.0, request).await;
        acquired.map_err(|e| context(e, "acquire", &request.name))
    }

    async fn abandon(&self, name: &LockName, owner: &Owner) -> Result<Released, LockError> {
        self.0.abandon(name, owner).await.map_err(|e| context(e, "abandon", name))
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<Holder>, LockError> {
        self.0.look(name).await.map_err(|e| context(e, "inspect", name))
    }

    async fn list(&self, prefix: &str, page: Page) -> Result<Vec<Holder>, LockError> {
        self.0.scan(prefix, &page).await.map_err(|e| e.backend(BACKEND).operation("list"))
    }

    async fn revoke(&self, name: &LockName, expect: Option<FencingToken>, how: Revoke) -> Result<Released, LockError> {
        self.0.break_lock(name, expect, how).await.map_err(|e| context(e, "revoke", name))
    }

    async fn diagnose(&self) -> Result<Diagnosis, LockError> {
        self.0.diagnosis().await.map_err(|e| e.backend(BACKEND).operation("diagnose"))
    }

    async fn close(&self) -> Result<(), LockError> {
        self.0.pool.close();
        Ok(())
    }
}

pub(crate) fn context(e: LockError, operation: &'static str, name: &LockName) -> LockError {
    e.backend(BACKEND).operation(operation).name(name)
}

impl Inner {
    /// Removes an owner's nodes by the sessions that may still be making one: a session's requests keep their order, so what is on
    /// its way comes before.
    async fn abandon(&self, name: &LockName, owner: &Owner) -> Result<Released, LockError> {
        let limit = self.pool.config().operation_limit();
        let mut sessions = self.pool.place_of(owner).map(|place| place.sessions()).unwrap_or_default();
        let doubts: Vec<_> = sessions.iter().map(|session| Doubt::new(session, *owner)).collect();
        sessions.retain(|session| !session.is_over());
        if sessions.is_empty() {
            sessions.push(bounded(limit, self.pool.any()).await?);
        }
        let mut answer = Released::NotHeld;
        for session in &sessions {
            if bounded(limit, self.remove_all(session, name, owner)).await? {
                answer = Released::Released;
            }
        }
        doubts.into_iter().for_each(Doubt::settle);
        self.pool.leave(owner);
        Ok(answer)
    }

    /// Removes the nodes of an owner; whether there was one.
    async fn remove_all(&self, session: &Session, name: &LockName, owner: &Owner) -> Result<bool, LockError> {
        let (client, folder, prefix) = (session.client()?, folder(self.pool.config().root(), name), prefix(owner));
        // The list is read from a follower, which may lag behind what another session has done.
        let (synced, listed) = tokio::join!(client.sync("/"), client.list_children(&folder));
        synced.map_err(failed)?;
        let nodes = match listed {
            Ok(children) => children,
            Err(Error::NoNode) => Vec::new(),
            Err(e) => return Err(failed(e)),
        };
        let mut was_there = false;
        for node in nodes.iter().filter(|node| node.starts_with(&prefix)) {
            let path = format!("{folder}/{node}");
            was_there |= delete(&client, &path).await.map_err(failed)?;
            session.forget(&path);
        }
        Ok(was_there)
    }
}

/// The end of the process's use of it: sessions close with their last lease.
impl Drop for Inner {
    fn drop(&mut self) {
        self.pool.close();
    }
}

/// Deletes a node; whether it was there. With its session over it is gone, or will be.
pub(crate) async fn delete(client: &Client, path: &str) -> Result<bool, Error> {
    match client.delete(path, None).await {
        Ok(()) => Ok(true),
        Err(Error::NoNode) => Ok(false),
        Err(e) if is_over(&e) => Ok(false),
        Err(e) => Err(e),
    }
}

/// The token of a node: the number of the transaction that made it.
pub(crate) fn token(stat: &Stat) -> FencingToken {
    FencingToken::new(stat.czxid.cast_unsigned())
}

impl fmt::Debug for ZkLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkLock").field("config", self.0.pool.config()).finish_non_exhaustive()
    }
}
