//! The backend: acquiring, giving up, and the rest of the contract's calls.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{
    AcquireRequest, Acquisition, Capabilities, Diagnosis, DistributedLock, Durability, Effect, ErrorKind, FencingToken,
    Holder, Lease, LockError, LockName, Owner, Page, Reach, Released, Revoke, Wait, bounded,
};
use tokio::time::Instant;
use zookeeper_client::{Client, CreateMode, Error, MultiWriteResult, Stat};

use crate::BACKEND;
use crate::config::ZkConfig;
use crate::errors::{failed, is_over};
use crate::lease::{ZkLease, is_marked};
use crate::node::{Data, queue};
use crate::path::{folder, prefix};
use crate::pool::{Place, Pool};
use crate::session::{Doubt, ended};
use crate::wait::{Turn, turn};

/// How often a folder that vanishes while it is used is made again.
const FOLDER_TRIES: u32 = 20;

/// Locks in a ZooKeeper ensemble.
#[derive(Clone)]
pub struct ZkLock(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) pool: Pool,
    capabilities: Capabilities,
}

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
        Ok(Self(Arc::new(Inner { pool, capabilities })))
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

/// One acquisition from its first request to its answer.
struct Attempt<'a> {
    inner: &'a Arc<Inner>,
    request: &'a AcquireRequest,
    place: Arc<Place>,
    client: Client,
    folder: String,
    prefix: String,
}

/// A node of this request in the queue.
struct Own {
    node: String,
    token: FencingToken,
}

impl<'a> Attempt<'a> {
    async fn run(inner: &'a Arc<Inner>, request: &'a AcquireRequest) -> Result<Acquisition, LockError> {
        let folder = folder(inner.pool.config().root(), &request.name);
        let place = inner.pool.place(&request.owner, request.ttl, &folder);
        let place = bounded(request.operation_timeout, place).await.map_err(|e| e.with_effect(Effect::NotApplied))?;
        let client = place.session.client()?;
        let prefix = prefix(&request.owner);
        let attempt = Self { inner, request, place, client, folder, prefix };
        // An older doubt about this owner is this request's now.
        attempt.place.session.settle(&request.owner);
        let doubt = Doubt::new(&attempt.place.session, request.owner);
        let acquired = attempt.stand_in_line().await?;
        doubt.settle();
        if matches!(acquired, Acquisition::Busy(_)) {
            inner.pool.leave(&request.owner);
        }
        Ok(acquired)
    }

    async fn stand_in_line(&self) -> Result<Acquisition, LockError> {
        let limit = self.request.operation_timeout;
        let (mut own, mut children) = bounded(limit, self.enter()).await?;
        loop {
            if let Some(older) = bounded(limit, self.forerunner(&own, &children)).await? {
                own = older;
                children = self.list().await?;
                continue;
            }
            let queue = queue(&children);
            let Some(rank) = queue.iter().position(|(node, _)| *node == own.node) else {
                return Err(ended()
                    .with_effect(Effect::NotApplied)
                    .advice("its place in the queue was removed; try again"));
            };
            let Some(before) = rank.checked_sub(1) else { return self.grant(own) };
            if self.request.wait == Wait::Never {
                return bounded(limit, self.leave(&own.node, queue[0].0)).await;
            }
            let before = self.path(queue[before].0);
            match turn(&self.client, &before, rank, self.request).await.map_err(failed)? {
                Turn::Moved => children = self.list().await?,
                Turn::Over => return bounded(limit, self.leave(&own.node, queue[0].0)).await,
            }
        }
    }

    /// Makes the node and lists the queue, in one round trip; makes the folder where there is none.
    async fn enter(&self) -> Result<(Own, Vec<String>), LockError> {
        let data = Data::new(self.request, self.place.session.timeout()).encode();
        let path = self.path(&self.prefix);
        let acls = self.inner.pool.config().acls();
        let options = CreateMode::EphemeralSequential.with_acls(acls);
        for _ in 0..FOLDER_TRIES {
            let sent = self.place.session.now();
            // Both are on their way before the first answer, in this order.
            let create = self.client.create(&path, &data, &options);
            let list = self.client.list_children(&self.folder);
            let (created, listed) = tokio::join!(create, list);
            match (created, listed) {
                (Ok((stat, number)), Ok(children)) => {
                    self.place.session.answered(sent);
                    let own = Own { node: format!("{}{number}", self.prefix), token: token(&stat) };
                    return Ok((own, children));
                }
                (Err(Error::NoNode), _) => {
                    if let Some(entered) = self.enter_new(&path, &data).await? {
                        return Ok(entered);
                    }
                }
                // Removed by hand in between, with the node.
                (Ok(_), Err(Error::NoNode)) => {}
                (Err(e), _) | (_, Err(e)) => return Err(failed(e)),
            }
        }
        Err(failed(Error::NoNode))
    }

    /// Makes folder and node in one transaction: a container that never had a node would stay for ever. `None` when the folder is there by now.
    async fn enter_new(&self, path: &str, data: &[u8]) -> Result<Option<(Own, Vec<String>)>, LockError> {
        let config = self.inner.pool.config();
        let mut mode = CreateMode::Container;
        loop {
            let sent = self.place.session.now();
            let mut writer = self.client.new_multi_writer();
            writer.add_create(&self.folder, &[], &mode.with_acls(config.acls())).map_err(failed)?;
            writer.add_create(path, data, &CreateMode::EphemeralSequential.with_acls(config.acls())).map_err(failed)?;
            let made = writer.commit();
            let list = self.client.get_children(&self.folder);
            let (made, listed) = tokio::join!(made, list);
            match (made.map_err(Error::from), listed) {
                (Ok(made), Ok((children, folder))) => {
                    self.place.session.answered(sent);
                    let Some(MultiWriteResult::Create { path, .. }) = made.into_iter().last() else {
                        return Err(failed(Error::RuntimeInconsistent));
                    };
                    // In a transaction the server does not tell the node's own number, which is that of its folder.
                    let node = path.rsplit('/').next().unwrap_or_default().to_owned();
                    return Ok(Some((Own { node, token: token(&folder) }, children)));
                }
                (Err(Error::NodeExists), _) | (Ok(_), Err(Error::NoNode)) => return Ok(None),
                (Err(Error::NoNode), _) if !config.root().is_empty() => {
                    let options = CreateMode::Persistent.with_acls(config.acls());
                    self.client.mkdir(config.root(), &options).await.map_err(failed)?;
                }
                (Err(Error::Unimplemented), _) if mode == CreateMode::Container => mode = CreateMode::Persistent,
                (Err(e), _) | (_, Err(e)) => return Err(failed(e)),
            }
        }
    }

    /// Finds the node that an earlier try of this owner left. In this session it is kept, with its place in the queue; one of another session may
    /// end at any time, and goes.
    async fn forerunner(&self, own: &Own, children: &[String]) -> Result<Option<Own>, LockError> {
        let is_other = |node: &&String| node.starts_with(&self.prefix) && **node != own.node;
        let Some(other) = children.iter().find(is_other) else { return Ok(None) };
        let path = self.path(other);
        let older = match self.client.check_stat(&path).await {
            Ok(Some(stat)) => {
                let is_ours = stat.ephemeral_owner == self.place.session.id() && !is_marked(&stat);
                is_ours.then(|| Own { node: other.clone(), token: token(&stat) })
            }
            Ok(None) => None,
            Err(e) => return Err(failed(e)),
        };
        let superfluous = if older.is_some() { self.path(&own.node) } else { path };
        delete(&self.client, &superfluous).await.map_err(failed)?;
        let kept = older.unwrap_or_else(|| Own { node: own.node.clone(), token: own.token });
        Ok(Some(kept))
    }

    async fn list(&self) -> Result<Vec<String>, LockError> {
        let listed = async {
            match self.client.list_children(&self.folder).await {
                Ok(children) => Ok(children),
                Err(Error::NoNode) => Ok(Vec::new()),
                Err(e) => Err(failed(e)),
            }
        };
        bounded(self.request.operation_timeout, listed).await
    }

    /// Leaves the queue; the first of it is whom the name is busy for.
    async fn leave(&self, own: &str, first: &str) -> Result<Acquisition, LockError> {
        let own = self.path(own);
        let deleted = delete(&self.client, &own);
        let holder = async {
            let cancelled = self.request.cancel.is_cancelled();
            if cancelled {
                None
            } else {
                self.inner.holder(&self.client, &self.request.name, &self.folder, first).await
            }
        };
        let (deleted, holder) = tokio::join!(deleted, holder);
        deleted.map_err(failed)?;
        Ok(Acquisition::Busy(holder))
    }

    fn grant(&self, own: Own) -> Result<Acquisition, LockError> {
        let (request, session) = (self.request, &self.place.session);
        let valid_until = session.valid_until(&request.clock);
        if request.clock.has_passed(valid_until) {
            return Err(LockError::new(ErrorKind::Unavailable, "the grant came after its TTL had passed")
                .with_effect(Effect::Applied)
                .advice("give a TTL that is longer than a round trip to the server"));
        }
        let path = self.path(&own.node);
        if !request.renewed {
            session.end_at(&path, Instant::now() + session.timeout());
        }
        let lease = ZkLease {
            inner: self.inner.clone(),
            place: self.place.clone(),
            name: request.name.clone(),
            owner: request.owner,
            path,
            token: own.token,
            valid_until,
            clock: request.clock.clone(),
            renewed: request.renewed,
            limit: request.operation_timeout,
        };
        Ok(Acquisition::Granted(Box::new(lease) as Box<dyn Lease>))
    }

    fn path(&self, node: &str) -> String {
        format!("{}/{node}", self.folder)
    }
}

impl Inner {
    /// Removes an owner's nodes by the session that made them, whose requests keep their order: what is still on its way comes before.
    async fn abandon(&self, name: &LockName, owner: &Owner) -> Result<Released, LockError> {
        let place = self.pool.place_of(owner);
        let session = match place.as_ref().filter(|place| !place.session.is_over()) {
            Some(place) => place.session.clone(),
            None => self.pool.any().await?,
        };
        let client = session.client()?;
        let (folder, prefix) = (folder(self.pool.config().root(), name), prefix(owner));
        let doubt = place.is_some().then(|| Doubt::new(&session, *owner));
        let removed = async {
            // The list is read from a follower, which may lag behind what another session has done.
            let (synced, listed) = tokio::join!(client.sync("/"), client.list_children(&folder));
            synced.map_err(failed)?;
            let nodes = match listed {
                Ok(children) => children,
                Err(Error::NoNode) => Vec::new(),
                Err(e) => return Err(failed(e)),
            };
            let mut answer = Released::NotHeld;
            for node in nodes.iter().filter(|node| node.starts_with(&prefix)) {
                let path = format!("{folder}/{node}");
                if delete(&client, &path).await.map_err(failed)? {
                    answer = Released::Released;
                }
                session.forget(&path);
            }
            Ok(answer)
        };
        let answer = bounded(self.pool.config().operation_limit(), removed).await?;
        if let Some(doubt) = doubt {
            doubt.settle();
        }
        self.pool.leave(owner);
        Ok(answer)
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
