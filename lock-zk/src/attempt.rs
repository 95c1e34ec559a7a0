//! One acquisition: into the queue, through it, and to the grant.

use std::sync::Arc;

use lock_core::{AcquireRequest, Acquisition, Effect, ErrorKind, FencingToken, Lease, LockError, Wait, bounded};
use tokio::sync::SemaphorePermit;
use tokio::time::Instant;
use zookeeper_client::{Acls, Client, CreateMode, Error, MultiWriteResult};

use crate::anew::make_anew;
use crate::backend::{Inner, delete, token};
use crate::errors::failed;
use crate::lease::{ZkLease, is_marked};
use crate::line::Standing;
use crate::node::{Data, Role, queue};
use crate::path;
use crate::pool::Place;
use crate::session::{Doubt, Session, ended};
use crate::wait::{Before, Turn};

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
    standing: Arc<Standing>,
}

/// The session of those who wait, and the doubt about what it may hold of this owner.
type Waiting = (Arc<Session>, Doubt);

/// The node of this request in the queue.
struct Own {
    node: String,
    /// The token of a grant by this node; `None` when another may have been granted the name since the node was made, so that it
    /// must be made anew to be given one.
    token: Option<FencingToken>,
    /// Whether it stands in the session of those who wait.
    waits: bool,
}

impl<'a> Attempt<'a> {
    /// Acquires as [`DistributedLock::acquire`](lock_core::DistributedLock::acquire) asks.
    pub(crate) async fn run(inner: &'a Arc<Inner>, request: &'a AcquireRequest) -> Result<Acquisition, LockError> {
        let folder = path::folder(inner.pool.config().root(), &request.name);
        let place = inner.pool.place(&request.owner, request.ttl, &folder);
        let place = bounded(request.operation_timeout, place).await.map_err(|e| e.with_effect(Effect::NotApplied))?;
        let data = Data::new(request, place.session.timeout());
        let prefix = path::prefix(&request.owner);
        let entering = permit(inner, request).await?;
        let is_contended = request.wait != Wait::Never && inner.lines.is_contended(&folder);
        let standing = Arc::new(inner.lines.join(&folder, &prefix));
        let attempt = Self { inner, request, place, folder, prefix, data, standing };
        // An older doubt about this owner is this request's now.
        let sessions = attempt.place.sessions();
        sessions.iter().for_each(|session| session.settle(&request.owner));
        let doubts: Vec<_> = sessions.iter().map(|session| Doubt::new(session, request.owner)).collect();
        // Whoever will probably have to wait goes where it would have to move.
        let mut waiting = if is_contended { Some(attempt.waiting().await?) } else { None };
        let acquired = attempt.stand_in_line(entering, &mut waiting).await?;
        waiting.into_iter().for_each(|(_, doubt)| doubt.settle());
        doubts.into_iter().for_each(Doubt::settle);
        attempt.place.stop_waiting();
        if matches!(acquired, Acquisition::Busy(_)) {
            inner.pool.leave(&request.owner);
        }
        Ok(acquired)
    }

    async fn stand_in_line(
        &self,
        entering: Option<SemaphorePermit<'_>>,
        waiting: &mut Option<Waiting>,
    ) -> Result<Acquisition, LockError> {
        let limit = self.request.operation_timeout;
        let session = waiting.as_ref().map_or(&self.place.session, |(session, _)| session).clone();
        let (mut own, mut children) = bounded(limit, self.enter(&session, waiting.is_some())).await?;
        while let Some(older) = bounded(limit, self.forerunner(&session, &own, &children)).await? {
            own = older;
            children = self.list(&session.client()?).await?;
        }
        self.standing.stands(&own.node);
        let Some(before) = self.before(&own, &children)? else {
            return self.first_granted(&own).await;
        };
        self.standing.is_behind();
        if self.request.wait == Wait::Never {
            let first = first(&children, &before);
            return bounded(limit, self.leave(&self.client()?, &own.node, first)).await;
        }
        self.wait(own, before, entering, waiting).await
    }

    /// A session that ends soon after its process, for a node that waits.
    async fn waiting(&self) -> Result<Waiting, LockError> {
        let session = bounded(self.request.operation_timeout, self.inner.pool.waiting(&self.place)).await?;
        session.settle(&self.request.owner);
        let doubt = Doubt::new(&session, self.request.owner);
        Ok((session, doubt))
    }

    /// Waits in the session of those who wait, where the node is moved unless it was made there, until it is the first.
    async fn wait(
        &self,
        mut own: Own,
        mut before: Before,
        entering: Option<SemaphorePermit<'_>>,
        waiting: &mut Option<Waiting>,
    ) -> Result<Acquisition, LockError> {
        let limit = self.request.operation_timeout;
        let (session, _) = match waiting {
            Some(waiting) => waiting,
            none => none.insert(self.waiting().await?),
        };
        let client = session.client()?;
        if !own.waits {
            bounded(limit, make_anew(&client, self.acls(), &self.path(&own.node), &self.waiting_data(), None)).await?;
        }
        own.token = None;
        drop(entering);
        loop {
            match before.turn(session, &client, self.request).await.map_err(failed)? {
                Turn::Gone if before.was_first => {
                    if let Some(granted) = bounded(limit, self.grant(&own, Some(&before.path))).await? {
                        return Ok(granted);
                    }
                }
                Turn::Gone => {}
                Turn::Over => return bounded(limit, self.give_up(&client, &own.node, &before)).await,
            }
            match self.before(&own, &self.list(&client).await?)? {
                Some(now) => before = now,
                None => return self.first_granted(&own).await,
            }
        }
    }

    /// Grants a node that a list has shown to be the first.
    async fn first_granted(&self, own: &Own) -> Result<Acquisition, LockError> {
        let granted = bounded(self.request.operation_timeout, self.grant(own, None)).await?;
        granted.ok_or_else(|| failed(Error::RuntimeInconsistent))
    }

    fn acls(&self) -> Acls<'_> {
        self.inner.pool.config().acls()
    }

    fn waiting_data(&self) -> Data {
        Data { role: Role::Waits, ..self.data.clone() }
    }

    /// The node right before this one; `None` when there is none.
    fn before(&self, own: &Own, children: &[String]) -> Result<Option<Before>, LockError> {
        let queue = queue(children);
        let Some(rank) = queue.iter().position(|(node, _)| *node == own.node) else {
            return Err(ended().advice("its place in the queue was removed; try again"));
        };
        let Some((node, _)) = rank.checked_sub(1).and_then(|last| queue.get(last)) else { return Ok(None) };
        let here = self.inner.lines.find(&self.folder, node);
        let (node, path, was_first) = ((*node).to_owned(), self.path(node), rank == 1);
        Ok(Some(Before { node, path, rank, was_first, was_waiting: false, here }))
    }

    /// Makes the node and lists the queue, in one round trip; makes the folder where there is none.
    async fn enter(&self, session: &Session, waits: bool) -> Result<(Own, Vec<String>), LockError> {
        let data = if waits { self.waiting_data() } else { self.data.clone() }.encode();
        let (client, path) = (session.client()?, self.path(&self.prefix));
        let options = CreateMode::EphemeralSequential.with_acls(self.inner.pool.config().acls());
        for _ in 0..FOLDER_TRIES {
            let sent = session.now();
            // Both are on their way before the first answer, in this order.
            let create = client.create(&path, &data, &options);
            let list = client.get_children(&self.folder);
            let (created, listed) = tokio::join!(create, list);
            match (created, listed) {
                (Ok((node, number)), Ok((children, folder))) => {
                    session.answered(sent);
                    // Nobody came or went in between.
                    let is_last = folder.pzxid == node.czxid;
                    let token = (is_last && !waits).then(|| token(&node));
                    return Ok((Own { node: format!("{}{number}", self.prefix), token, waits }, children));
                }
                (Err(Error::NoNode), _) => {
                    if let Some(entered) = self.enter_new(session, &path, &data, waits).await? {
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
        session: &Session,
        path: &str,
        data: &[u8],
        waits: bool,
    ) -> Result<Option<(Own, Vec<String>)>, LockError> {
        let (client, config) = (session.client()?, self.inner.pool.config());
        let mut mode = CreateMode::Container;
        loop {
            let sent = session.now();
            let mut writer = client.new_multi_writer();
            let node = CreateMode::EphemeralSequential.with_acls(config.acls());
            writer.add_create(&self.folder, &[], &mode.with_acls(config.acls())).map_err(failed)?;
            writer.add_create(path, data, &node).map_err(failed)?;
            let (made, listed) = tokio::join!(writer.commit(), client.get_children(&self.folder));
            match (made.map_err(Error::from), listed) {
                (Ok(made), Ok((children, folder))) => {
                    session.answered(sent);
                    let Some(MultiWriteResult::Create { path, .. }) = made.into_iter().last() else {
                        return Err(failed(Error::RuntimeInconsistent));
                    };
                    let node = path.rsplit('/').next().unwrap_or_default().to_owned();
                    // In a transaction the server does not tell the node's own number, which is that of its folder.
                    let token = (folder.pzxid == folder.czxid && !waits).then(|| token(&folder));
                    return Ok(Some((Own { node, token, waits }, children)));
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
    async fn forerunner(&self, session: &Session, own: &Own, children: &[String]) -> Result<Option<Own>, LockError> {
        let is_other = |node: &&String| node.starts_with(&self.prefix) && **node != own.node;
        let Some(other) = children.iter().find(is_other) else { return Ok(None) };
        let path = self.path(other);
        let client = session.client()?;
        let stat = client.check_stat(&path).await.map_err(failed)?;
        let is_ours = |id| self.place.sessions().iter().any(|session| session.id() == id && !session.is_over());
        let keep = stat.is_some_and(|stat| is_ours(stat.ephemeral_owner) && !is_marked(&stat));
        let superfluous = if keep { self.path(&own.node) } else { path };
        delete(&client, &superfluous).await.map_err(failed)?;
        Ok(Some(match keep {
            true => Own { node: other.clone(), token: None, waits: false },
            false => Own { node: own.node.clone(), ..*own },
        }))
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

    /// Leaves the queue without the name, which is busy for its first. While there were others before, that one is known by a new list alone.
    async fn give_up(&self, client: &Client, own: &str, before: &Before) -> Result<Acquisition, LockError> {
        let is_known = before.was_first || self.request.cancel.is_cancelled();
        let children = if is_known { Vec::new() } else { self.list(client).await? };
        self.leave(client, own, first(&children, before)).await
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

    /// The node is the first, provided that `gone` stands no more: `None` where it does. Without a token it is made anew, in the session of the
    /// lease: so tokens rise in the order of the grants.
    async fn grant(&self, own: &Own, gone: Option<&str>) -> Result<Option<Acquisition>, LockError> {
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
                let Some(token) = make_anew(&session.client()?, self.acls(), &path, &self.data, gone).await? else {
                    doubt.settle();
                    return Ok(None);
                };
                session.answered(sent);
                token
            }
        };
        self.standing.granted(&own.node);
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
            standing: Some(self.standing.clone()),
        };
        Ok(Some(Acquisition::Granted(Box::new(lease) as Box<dyn Lease>)))
    }

    /// The session's client, never kept while waiting: a session that is closed ends with its last client.
    fn client(&self) -> Result<Client, LockError> {
        self.place.session.client()
    }

    fn path(&self, node: &str) -> String {
        format!("{}/{node}", self.folder)
    }
}

/// The first of a queue; without a list the node that was known to stand before.
fn first<'a>(children: &'a [String], before: &'a Before) -> &'a str {
    queue(children).first().map_or(&before.node, |(first, _)| first)
}

/// The right to enter, where a crowd is let in little by little. A request that does not wait needs none.
async fn permit<'a>(inner: &'a Inner, request: &AcquireRequest) -> Result<Option<SemaphorePermit<'a>>, LockError> {
    if request.wait == Wait::Never {
        return Ok(None);
    }
    tokio::select! {
        biased;
        // Never closed.
        permit = inner.entering.acquire() => Ok(permit.ok()),
        () = request.over() => {
            let error = LockError::new(ErrorKind::Unavailable, "the request did not get through the crowd within the wait limit");
            Err(error
                .with_effect(Effect::NotApplied)
                .advice("wait longer, or let fewer tasks of one process ask at a time"))
        }
    }
}
