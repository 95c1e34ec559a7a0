//! One acquisition: into the queue, through it, and to the grant.

use std::sync::Arc;

use lock_core::{AcquireRequest, Acquisition, Effect, ErrorKind, FencingToken, Lease, LockError, Wait, bounded};
use tokio::sync::SemaphorePermit;
use tokio::time::Instant;
use zookeeper_client::{Client, CreateMode, Error, MultiWriteResult};

use crate::backend::{Inner, delete, token};
use crate::errors::failed;
use crate::lease::{ZkLease, is_marked};
use crate::node::{Data, Role, queue};
use crate::path;
use crate::pool::Place;
use crate::session::{Doubt, ended};
use crate::wait::{Turn, turn};

/// How often a folder that vanishes while it is used is made again.
const FOLDER_TRIES: u32 = 20;

/// One acquisition from its first request to its answer.
pub(crate) struct Attempt<'a> {
    inner: &'a Arc<Inner>,
    request: &'a AcquireRequest,
    place: Arc<Place>,
    folder: String,
    prefix: String,
    data: Data,
}

/// The node of this request in the queue.
struct Own {
    node: String,
    /// The token of a grant by this node; `None` when another may have been granted the name since the node was made, so that it
    /// must be made anew to be given one.
    token: Option<FencingToken>,
}

impl<'a> Attempt<'a> {
    /// Acquires as [`DistributedLock::acquire`](lock_core::DistributedLock::acquire) asks.
    pub(crate) async fn run(inner: &'a Arc<Inner>, request: &'a AcquireRequest) -> Result<Acquisition, LockError> {
        let folder = path::folder(inner.pool.config().root(), &request.name);
        let place = inner.pool.place(&request.owner, request.ttl, &folder);
        let place = bounded(request.operation_timeout, place).await.map_err(|e| e.with_effect(Effect::NotApplied))?;
        let data = Data::new(request, place.session.timeout());
        let prefix = path::prefix(&request.owner);
        let attempt = Self { inner, request, place, folder, prefix, data };
        let entering = attempt.permit().await?;
        // An older doubt about this owner is this request's now.
        let sessions = attempt.place.sessions();
        sessions.iter().for_each(|session| session.settle(&request.owner));
        let doubts: Vec<_> = sessions.iter().map(|session| Doubt::new(session, request.owner)).collect();
        let acquired = attempt.stand_in_line(entering).await?;
        doubts.into_iter().for_each(Doubt::settle);
        attempt.place.stop_waiting();
        if matches!(acquired, Acquisition::Busy(_)) {
            inner.pool.leave(&request.owner);
        }
        Ok(acquired)
    }

    async fn stand_in_line(&self, entering: Option<SemaphorePermit<'_>>) -> Result<Acquisition, LockError> {
        let limit = self.request.operation_timeout;
        let (mut own, mut children) = bounded(limit, self.enter()).await?;
        while let Some(older) = bounded(limit, self.forerunner(&own, &children)).await? {
            own = older;
            children = self.list(&self.client()?).await?;
        }
        let Some((rank, first)) = self.rank(&own, &children)? else { return bounded(limit, self.grant(own)).await };
        if self.request.wait == Wait::Never {
            return bounded(limit, self.leave(&self.client()?, &own.node, first)).await;
        }
        self.wait(own, rank, &children, entering).await
    }

    /// The right to enter, where a crowd is let in little by little. A request that does not wait needs none.
    async fn permit(&self) -> Result<Option<SemaphorePermit<'a>>, LockError> {
        if self.request.wait == Wait::Never {
            return Ok(None);
        }
        tokio::select! {
            biased;
            // Never closed.
            permit = self.inner.entering.acquire() => Ok(permit.ok()),
            () = self.request.over() => {
                let error = LockError::new(ErrorKind::Unavailable, "the request did not get through the crowd within the wait limit");
                Err(error
                    .with_effect(Effect::NotApplied)
                    .advice("wait longer, or let fewer tasks of one process ask at a time"))
            }
        }
    }

    /// Moves the node to a session that ends soon after its process, and waits there until it is the first.
    async fn wait(
        &self,
        mut own: Own,
        mut rank: usize,
        children: &[String],
        entering: Option<SemaphorePermit<'_>>,
    ) -> Result<Acquisition, LockError> {
        let limit = self.request.operation_timeout;
        let session = bounded(limit, self.inner.pool.waiting(&self.place)).await?;
        let (client, path) = (session.client()?, self.path(&own.node));
        session.settle(&self.request.owner);
        let doubt = Doubt::new(&session, self.request.owner);
        let data = Data { role: Role::Waits, ..self.data.clone() };
        own.token = None;
        bounded(limit, make_anew(&client, &path, &data, self)).await?;
        drop(entering);
        let mut children = children.to_vec();
        let acquired = loop {
            let queue = queue(&children);
            let (before, first) = (self.path(queue[rank - 1].0), queue[0].0);
            match turn(&session, &client, &before, rank, self.request).await.map_err(failed)? {
                Turn::Over => break bounded(limit, self.leave(&client, &own.node, first)).await?,
                Turn::Moved => {}
            }
            children = self.list(&client).await?;
            match self.rank(&own, &children)? {
                Some((now, _)) => rank = now,
                None => break bounded(limit, self.grant(own)).await?,
            }
        };
        doubt.settle();
        Ok(acquired)
    }

    /// How many stand before the node, and who is the first of them; `None` when nobody does.
    fn rank<'b>(&self, own: &Own, children: &'b [String]) -> Result<Option<(usize, &'b str)>, LockError> {
        let queue = queue(children);
        match queue.iter().position(|(node, _)| *node == own.node) {
            Some(0) => Ok(None),
            Some(rank) => Ok(Some((rank, queue[0].0))),
            None => Err(ended().advice("its place in the queue was removed; try again")),
        }
    }

    /// Makes the node and lists the queue, in one round trip; makes the folder where there is none.
    async fn enter(&self) -> Result<(Own, Vec<String>), LockError> {
        let (client, data, path) = (self.client()?, self.data.encode(), self.path(&self.prefix));
        let options = CreateMode::EphemeralSequential.with_acls(self.inner.pool.config().acls());
        for _ in 0..FOLDER_TRIES {
            let sent = self.place.session.now();
            // Both are on their way before the first answer, in this order.
            let create = client.create(&path, &data, &options);
            let list = client.get_children(&self.folder);
            let (created, listed) = tokio::join!(create, list);
            match (created, listed) {
                (Ok((node, number)), Ok((children, folder))) => {
                    self.place.session.answered(sent);
                    // Nobody came or went in between.
                    let is_last = folder.pzxid == node.czxid;
                    let token = is_last.then(|| token(&node));
                    return Ok((Own { node: format!("{}{number}", self.prefix), token }, children));
                }
                (Err(Error::NoNode), _) => {
                    if let Some(entered) = self.enter_new(&client, &path, &data).await? {
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
    async fn enter_new(
        &self,
        client: &Client,
        path: &str,
        data: &[u8],
    ) -> Result<Option<(Own, Vec<String>)>, LockError> {
        let config = self.inner.pool.config();
        let mut mode = CreateMode::Container;
        loop {
            let sent = self.place.session.now();
            let mut writer = client.new_multi_writer();
            let node = CreateMode::EphemeralSequential.with_acls(config.acls());
            writer.add_create(&self.folder, &[], &mode.with_acls(config.acls())).map_err(failed)?;
            writer.add_create(path, data, &node).map_err(failed)?;
            let (made, listed) = tokio::join!(writer.commit(), client.get_children(&self.folder));
            match (made.map_err(Error::from), listed) {
                (Ok(made), Ok((children, folder))) => {
                    self.place.session.answered(sent);
                    let Some(MultiWriteResult::Create { path, .. }) = made.into_iter().last() else {
                        return Err(failed(Error::RuntimeInconsistent));
                    };
                    let node = path.rsplit('/').next().unwrap_or_default().to_owned();
                    // In a transaction the server does not tell the node's own number, which is that of its folder.
                    let token = (folder.pzxid == folder.czxid).then(|| token(&folder));
                    return Ok(Some((Own { node, token }, children)));
                }
                (Err(Error::NodeExists), _) | (Ok(_), Err(Error::NoNode)) => return Ok(None),
                (Err(Error::NoNode), _) if !config.root().is_empty() => {
                    let options = CreateMode::Persistent.with_acls(config.acls());
                    client.mkdir(config.root(), &options).await.map_err(failed)?;
                }
                // It knows no containers.
                (Err(Error::Unimplemented), _) if mode == CreateMode::Container => mode = CreateMode::Persistent,
                (Err(e), _) | (_, Err(e)) => return Err(failed(e)),
            }
        }
    }

    /// Finds the node that an earlier try of this owner left. In a living session of this owner it is kept, with its place in the queue; one of
    /// another session may end at any time, and goes.
    async fn forerunner(&self, own: &Own, children: &[String]) -> Result<Option<Own>, LockError> {
        let is_other = |node: &&String| node.starts_with(&self.prefix) && **node != own.node;
        let Some(other) = children.iter().find(is_other) else { return Ok(None) };
        let path = self.path(other);
        let client = self.client()?;
        let stat = client.check_stat(&path).await.map_err(failed)?;
        let is_ours = |id| self.place.sessions().iter().any(|session| session.id() == id && !session.is_over());
        let keep = stat.is_some_and(|stat| is_ours(stat.ephemeral_owner) && !is_marked(&stat));
        let superfluous = if keep { self.path(&own.node) } else { path };
        delete(&client, &superfluous).await.map_err(failed)?;
        let (node, token) = if keep { (other.clone(), None) } else { (own.node.clone(), own.token) };
        Ok(Some(Own { node, token }))
    }

    async fn list(&self, client: &Client) -> Result<Vec<String>, LockError> {
        let listed = async {
            match client.list_children(&self.folder).await {
                Ok(children) => Ok(children),
                Err(Error::NoNode) => Ok(Vec::new()),
                Err(e) => Err(failed(e)),
            }
        };
        bounded(self.request.operation_timeout, listed).await
    }

    /// Leaves the queue; the first of it is whom the name is busy for.
    async fn leave(&self, client: &Client, own: &str, first: &str) -> Result<Acquisition, LockError> {
        let own = self.path(own);
        let deleted = delete(client, &own);
        let holder = async {
            let cancelled = self.request.cancel.is_cancelled();
            if cancelled { None } else { self.inner.holder(client, &self.request.name, &self.folder, first).await }
        };
        let (deleted, holder) = tokio::join!(deleted, holder);
        deleted.map_err(failed)?;
        Ok(Acquisition::Busy(holder))
    }

    /// The node is the first. Without a token it is made anew, in the session of the lease: so tokens rise in the order of the grants.
    async fn grant(&self, own: Own) -> Result<Acquisition, LockError> {
        let (request, path) = (self.request, self.path(&own.node));
        let is_fresh = self.place.session.is_fresh();
        let place = match is_fresh {
            true => self.place.clone(),
            false => self.inner.pool.move_on(&request.owner, request.ttl, &self.place).await?,
        };
        let session = &place.session;
        let doubt = Doubt::new(session, request.owner);
        let token = match own.token.filter(|_| is_fresh) {
            Some(token) => token,
            None => {
                let sent = session.now();
                let token = make_anew(&session.client()?, &path, &self.data, self).await?;
                session.answered(sent);
                token
            }
        };
        let valid_until = session.valid_until(&request.clock);
        if request.clock.has_passed(valid_until) {
            return Err(LockError::new(ErrorKind::Unavailable, "the grant came after its TTL had passed")
                .with_effect(Effect::Applied)
                .advice("give a TTL that is longer than a round trip to the server"));
        }
        if !request.renewed {
            session.end_at(&path, Instant::now() + session.timeout());
        }
        doubt.settle();
        place.stop_waiting();
        let lease = ZkLease {
            inner: self.inner.clone(),
            place,
            name: request.name.clone(),
            owner: request.owner,
            path,
            token,
            valid_until,
            clock: request.clock.clone(),
            renewed: request.renewed,
            limit: request.operation_timeout,
            is_watched: Arc::default(),
        };
        Ok(Acquisition::Granted(Box::new(lease) as Box<dyn Lease>))
    }

    /// The session's client, never kept while waiting: a session that is closed ends with its last client.
    fn client(&self) -> Result<Client, LockError> {
        self.place.session.client()
    }

    fn path(&self, node: &str) -> String {
        format!("{}/{node}", self.folder)
    }
}

/// Puts a node of this client's session in the place of the owner's node, under the same name and so at the same place in the queue, in one
/// transaction: nobody gets in between. Answers the new node's token.
async fn make_anew(client: &Client, path: &str, data: &Data, attempt: &Attempt<'_>) -> Result<FencingToken, LockError> {
    let options = CreateMode::Ephemeral.with_acls(attempt.inner.pool.config().acls());
    let mut writer = client.new_multi_writer();
    // Whoever revoked it has written into it.
    writer.add_delete(path, Some(0)).map_err(failed)?;
    writer.add_create(path, &data.encode(), &options).map_err(failed)?;
    let (made, stat) = tokio::join!(writer.commit(), client.check_stat(path));
    match (made.map_err(Error::from), stat) {
        (Ok(_), Ok(Some(stat))) => Ok(token(&stat)),
        (Err(Error::NoNode | Error::BadVersion), _) | (Ok(_), Ok(None)) => {
            Err(ended().advice("its place in the queue was removed or revoked; try again"))
        }
        (Err(e), _) | (_, Err(e)) => Err(failed(e)),
    }
}
