//! What an operator sees and may do: look, list, revoke.

use futures_util::future::join_all;
use lock_core::{ErrorKind, FencingToken, Holder, HolderState, LockError, LockName, Page, Released, Revoke, bounded};
use zookeeper_client::{Client, Error};

use crate::backend::{Inner, delete, token};
use crate::errors::failed;
use crate::node::{Data, Role, queue};
use crate::path;

/// How many folders are looked into at once.
const AT_ONCE: usize = 64;

impl Inner {
    pub(crate) async fn look(&self, name: &LockName) -> Result<Option<Holder>, LockError> {
        let client = self.reader().await?;
        self.bounded(self.first(&client, name)).await
    }

    /// The names are sorted before their folders are looked into, until the page is full.
    pub(crate) async fn scan(&self, prefix: &str, page: &Page) -> Result<Vec<Holder>, LockError> {
        let client = self.reader().await?;
        let root = if self.pool.config().root().is_empty() { "/" } else { self.pool.config().root() };
        let listed = async {
            match client.list_children(root).await {
                Ok(children) => Ok(children),
                Err(Error::NoNode) => Ok(Vec::new()),
                Err(e) => Err(failed(e)),
            }
        };
        let mut names: Vec<_> = self.bounded(listed).await?.iter().filter_map(|segment| path::name(segment)).collect();
        names.retain(|name| name.as_str().starts_with(prefix) && page.after.as_ref().is_none_or(|last| name > last));
        names.sort_unstable();
        let mut holders = Vec::new();
        for some in names.chunks(AT_ONCE) {
            let looked = self.bounded(async { Ok(join_all(some.iter().map(|name| self.first(&client, name))).await) });
            for holder in looked.await? {
                holders.extend(holder?);
            }
            if holders.len() >= page.limit {
                break;
            }
        }
        holders.truncate(page.limit);
        Ok(holders)
    }

    pub(crate) async fn break_lock(
        &self,
        name: &LockName,
        expect: Option<FencingToken>,
        how: Revoke,
    ) -> Result<Released, LockError> {
        let client = self.reader().await?;
        self.bounded(async {
            let folder = path::folder(self.pool.config().root(), name);
            let children = children(&client, &folder).await?;
            let Some((first, _)) = queue(&children).first().copied() else { return Ok(Released::NotHeld) };
            let node = format!("{folder}/{first}");
            let (data, stat) = match client.get_data(&node).await {
                Err(Error::NoNode) => return Ok(Released::NotHeld),
                got => got.map_err(failed)?,
            };
            if expect.is_some_and(|expect| expect != token(&stat)) {
                return Ok(Released::NotHeld);
            }
            let done = match (how, Data::decode(&data)) {
                (Revoke::Now, _) => delete(&client, &node).await.map_err(failed)?,
                (Revoke::Mark, Some(data)) if data.role == Role::Revoked => true,
                (Revoke::Mark, Some(data)) => {
                    let mark = Data { role: Role::Revoked, ..data };
                    match client.set_data(&node, &mark.encode(), Some(stat.version)).await {
                        Err(Error::NoNode) => false,
                        marked => marked.map(|_| true).map_err(failed)?,
                    }
                }
                (Revoke::Mark, None) => {
                    return Err(LockError::new(
                        ErrorKind::Foreign,
                        "another library's client holds it, and knows no marks",
                    )
                    .advice("end that client, or revoke the lock at once"));
                }
            };
            Ok(if done { Released::Released } else { Released::NotHeld })
        })
        .await
    }

    /// The first contender of a name.
    async fn first(&self, client: &Client, name: &LockName) -> Result<Option<Holder>, LockError> {
        let folder = path::folder(self.pool.config().root(), name);
        // Whoever is first may leave before it is read.
        for _ in 0..10 {
            let children = children(client, &folder).await?;
            let queue = queue(&children);
            let Some((first, _)) = queue.first() else { return Ok(None) };
            if let Some(mut holder) = self.holder(client, name, &folder, first).await {
                holder.waiters = Some(queue.len() as u64 - 1);
                return Ok(Some(holder));
            }
        }
        Ok(None)
    }

    /// What a node says of its owner; `None` when it is gone, or may not be read.
    pub(crate) async fn holder(&self, client: &Client, name: &LockName, folder: &str, node: &str) -> Option<Holder> {
        let (data, stat) = client.get_data(&format!("{folder}/{node}")).await.ok()?;
        let mut holder = match Data::decode(&data) {
            Some(data) => {
                let state = match data.role {
                    Role::Holds => HolderState::Held,
                    Role::Waits => HolderState::Reserved,
                    Role::Revoked => HolderState::Revoked,
                };
                let mut holder = Holder::new(name.clone(), data.shown(), state);
                holder.label = Some(data.label).filter(|label| !label.is_empty());
                holder.since = Some(data.since);
                // How long the session still lives is not shown; this long if it is renewed no more.
                holder.remaining = Some(data.ttl);
                holder
            }
            None => Holder::new(name.clone(), node, HolderState::Foreign),
        };
        holder.token = Some(token(&stat));
        Some(holder)
    }

    /// A client whose server has seen all that was done before.
    async fn reader(&self) -> Result<Client, LockError> {
        self.bounded(async {
            let client = self.pool.any().await?.client()?;
            client.sync("/").await.map_err(failed)?;
            Ok(client)
        })
        .await
    }

    pub(crate) async fn bounded<T>(&self, answer: impl Future<Output = Result<T, LockError>>) -> Result<T, LockError> {
        bounded(self.pool.config().operation_limit(), answer).await
    }
}

async fn children(client: &Client, folder: &str) -> Result<Vec<String>, LockError> {
    match client.list_children(folder).await {
        Ok(children) => Ok(children),
        Err(Error::NoNode) => Ok(Vec::new()),
        Err(e) => Err(failed(e)),
    }
}
