//! The backend's side of the contract.

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{
    AcquireRequest, Acquisition, Capabilities, Diagnosis, DistributedLock, Durability, FencingToken, Holder, LockError,
    LockName, Owner, Page, Reach, Released, Revoke, bounded,
};

use crate::row::{Row, key};
use crate::statement::Arg;
use crate::store::{LEAST_TTL, Store};
use crate::wait::Line;
use crate::{MysqlConfig, diagnose};

/// Locks in a table of a MySQL or MariaDB server.
///
/// Five connections at most serve it, whatever the number of locks and waiters: two for renewals and releases, two for taking names, and one
/// for polls and the operator's view. A sixth is opened for a moment to clean up after a request whose answer did not come.
#[derive(Debug)]
pub struct MysqlLock {
    store: Arc<Store>,
    capabilities: Capabilities,
}

fn capabilities(config: &MysqlConfig) -> Capabilities {
    let mut it = Capabilities::new(crate::BACKEND);
    it.durability = if config.hosts().len() > 1 { Durability::AsyncReplica } else { Durability::Single };
    it.reach = Reach::Network;
    it.min_ttl = LEAST_TTL;
    it.fencing_survives_data_loss = true;
    it.leases_survive_restart = true;
    it
}

impl MysqlLock {
    /// Logs in. The table is created when it is first needed, where that is allowed.
    ///
    /// # Errors
    /// `Unavailable` while the server cannot be reached, `Denied` for a wrong user or password, `Config` for a database that is not there.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub async fn connect(config: MysqlConfig) -> Result<Self, LockError> {
        let store = Store::new(&config);
        drop(store.keeping().await.map_err(|e| e.backend(crate::BACKEND).operation("connect"))?);
        Ok(Self { store: Arc::new(store), capabilities: capabilities(&config) })
    }

    async fn holders(&self, prefix: &str, page: Page) -> Result<Vec<Holder>, LockError> {
        let store = &self.store;
        // No byte of UTF-8 is 0xFF, so this is the end of all names with the prefix.
        let end = [prefix.as_bytes(), &[0xFF]].concat();
        let args = [
            Arg::Bytes(prefix.into()),
            Arg::Bytes(end),
            Arg::Bytes(page.after.as_ref().map_or(Vec::new(), key)),
            Arg::Int(i64::try_from(page.limit).unwrap_or(i64::MAX)),
        ];
        let mut link = store.watching().await?;
        let rows: Vec<Row> = store.rows(link.rows(store.statements.list.query(&args)).await)?;
        // A name that no program of ours can have written is not a lock's.
        Ok(rows.into_iter().filter_map(Row::into_holder).collect())
    }

    async fn try_revoke(
        &self,
        name: &LockName,
        expect: Option<FencingToken>,
        how: Revoke,
    ) -> Result<Released, LockError> {
        let store = &self.store;
        let args = [
            Arg::Bytes(key(name)),
            Arg::Uint(expect.map_or(0, FencingToken::get)),
            Arg::Int(i64::from(expect.is_none())),
        ];
        let statement = match how {
            Revoke::Mark => &store.statements.revoke_mark,
            Revoke::Now => &store.statements.revoke_now,
        };
        let mut link = store.keeping().await?;
        let done = link.change(statement, &args, None).await;
        store.waiters.changed(name);
        store.room.poke(name);
        Ok(if store.counted(done)? == 1 { Released::Released } else { Released::NotHeld })
    }

    async fn try_inspect(&self, name: &LockName) -> Result<Option<Holder>, LockError> {
        let mut link = self.store.watching().await?;
        Ok(self.store.state(&mut link, name).await?.into_holder(name))
    }
}

#[async_trait]
impl DistributedLock for MysqlLock {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition, LockError> {
        let line = Line::new(&self.store, request);
        self.store.room.acquire(&line, request).await.map_err(|e| named(e, "acquire", &request.name))
    }

    /// A request that is still on its way cannot take effect later: the server has ended its session before these statements are sent.
    async fn abandon(&self, name: &LockName, owner: &Owner) -> Result<Released, LockError> {
        self.store.abandon(name, owner).await.map_err(|e| named(e, "abandon", name))
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<Holder>, LockError> {
        bounded(self.store.limit, self.try_inspect(name)).await.map_err(|e| named(e, "inspect", name))
    }

    async fn list(&self, prefix: &str, page: Page) -> Result<Vec<Holder>, LockError> {
        let listed = bounded(self.store.limit, self.holders(prefix, page)).await;
        listed.map_err(|e| e.backend(crate::BACKEND).operation("list"))
    }

    async fn revoke(&self, name: &LockName, expect: Option<FencingToken>, how: Revoke) -> Result<Released, LockError> {
        bounded(self.store.limit, self.try_revoke(name, expect, how)).await.map_err(|e| named(e, "revoke", name))
    }

    async fn diagnose(&self) -> Result<Diagnosis, LockError> {
        let found = bounded(self.store.limit * 2, diagnose::diagnose(&self.store)).await;
        found.map_err(|e| e.backend(crate::BACKEND).operation("diagnose"))
    }

    async fn close(&self) -> Result<(), LockError> {
        self.store.close().await;
        Ok(())
    }
}

fn named(error: LockError, operation: &'static str, name: &LockName) -> LockError {
    error.backend(crate::BACKEND).operation(operation).name(name)
}
