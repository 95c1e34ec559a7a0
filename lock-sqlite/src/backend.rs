//! The backend's side of the contract.

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{
    AcquireRequest, Acquisition, Capabilities, Diagnosis, DistributedLock, Durability, FencingToken, Holder, LockError,
    LockName, Owner, Page, Reach, Released, Revoke, WaitingRoom,
};

use crate::clock::BootClock;
use crate::store::{LeaseRow, Query, Store, key, sql};
use crate::wait::{Line, PACE};
use crate::{SqliteConfig, diagnose};

/// Locks among the processes of one machine, in a SQLite file.
///
/// Two connections at most serve it, whatever the number of locks and waiters: one that writes, and one that looks for changes while
/// somebody waits. SQLite runs on a thread of each connection's own, so nothing blocks the caller's runtime.
#[derive(Debug)]
pub struct SqliteLock {
    store: Arc<Store>,
}

const CAPABILITIES: Capabilities = {
    let mut it = Capabilities::new(crate::BACKEND);
    it.durability = Durability::Single;
    it.reach = Reach::Machine;
    it.fencing_survives_data_loss = true;
    it.leases_survive_restart = true;
    it
};

impl SqliteLock {
    /// Opens the file, and creates it with its folder where it is missing: for this user alone, with modes 0600 and 0700.
    ///
    /// # Errors
    /// `Denied` without the right to read and write the file and its folder, `Config` for a folder, a network file system or a layout of a
    /// later version, `Foreign` for a file of another program, which is left as it is, `Unavailable` while the file cannot be reached.
    ///
    /// # Cancel safety
    /// Dropping it may leave an empty file, which the next connect fills.
    pub async fn connect(config: SqliteConfig) -> Result<Self, LockError> {
        let failed = |e: LockError| e.backend(crate::BACKEND).operation("connect");
        let clock = BootClock::new().map_err(failed)?;
        let store = Store::new(config.path().to_owned(), clock, WaitingRoom::new(PACE));
        drop(store.writer().await.map_err(failed)?);
        Ok(Self { store: Arc::new(store) })
    }

    async fn holders(&self, prefix: &str, page: Page) -> Result<Vec<Holder>, LockError> {
        let store = &self.store;
        if !store.file_exists() {
            return Ok(Vec::new());
        }
        let mut link = store.watcher().await?;
        // No byte of UTF-8 is 0xFF, so this is the end of all names with the prefix.
        let end = [prefix.as_bytes(), &[0xFF]].concat();
        let query: Query<(Vec<u8>, String, i64, i64, String, i64)> = sql!("list");
        let query = query
            .bind(store.clock.boot().to_owned())
            .bind(store.clock.now())
            .bind(prefix.as_bytes().to_vec())
            .bind(end)
            .bind(page.after.as_ref().map_or(Vec::new(), key))
            .bind(i64::try_from(page.limit).unwrap_or(i64::MAX));
        let rows = link.fetch(query).await?;
        Ok(rows
            .into_iter()
            .filter_map(|(name, owner, token, remaining, label, since)| {
                // A name that no program of ours can have written is not a lock's.
                let name = LockName::from_store(std::str::from_utf8(&name).ok()?)?;
                Some(LeaseRow { owner, token, remaining, label, since }.into_holder(name))
            })
            .collect())
    }

    async fn try_revoke(
        &self,
        name: &LockName,
        expect: Option<FencingToken>,
        how: Revoke,
    ) -> Result<Released, LockError> {
        let store = &self.store;
        // A token beyond the file's integers was never given.
        let expect = match expect.map(|token| i64::try_from(token.get())).transpose() {
            Ok(expect) => expect,
            Err(_) => return Ok(Released::NotHeld),
        };
        let Some(mut writer) = store.existing_writer().await? else {
            return Ok(Released::NotHeld);
        };
        let query: Query<(i64,)> = match how {
            Revoke::Mark => sql!("revoke_mark"),
            Revoke::Now => sql!("revoke_now"),
        };
        let query = query.bind(key(name)).bind(expect).bind(store.clock.boot().to_owned()).bind(store.clock.now());
        let rows = writer.fetch(query).await?;
        store.room.poke(name);
        Ok(if rows.is_empty() { Released::NotHeld } else { Released::Released })
    }
}

#[async_trait]
impl DistributedLock for SqliteLock {
    fn capabilities(&self) -> &Capabilities {
        &CAPABILITIES
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition, LockError> {
        let line = Line(&self.store);
        self.store.room.acquire(&line, request).await.map_err(|e| named(e, "acquire", &request.name))
    }

    /// A request that is still on its way cannot take effect later: it was either handed to the writing connection's thread, which works
    /// off what it is given in order, so before these statements; or it was dropped before, and is gone. A connection that is replaced is
    /// closed first, which also waits for what was handed to it.
    async fn abandon(&self, name: &LockName, owner: &Owner) -> Result<Released, LockError> {
        let failed = |e| named(e, "abandon", name);
        self.store.leave(name, owner).await.map_err(failed)?;
        self.store.release(name, owner).await.map_err(failed)
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<Holder>, LockError> {
        let store = &self.store;
        let failed = |e| named(e, "inspect", name);
        if !store.file_exists() {
            return Ok(None);
        }
        let mut link = store.watcher().await.map_err(failed)?;
        Ok(store.state(&mut link, name).await.map_err(failed)?.into_holder(name))
    }

    async fn list(&self, prefix: &str, page: Page) -> Result<Vec<Holder>, LockError> {
        self.holders(prefix, page).await.map_err(|e| e.backend(crate::BACKEND).operation("list"))
    }

    async fn revoke(&self, name: &LockName, expect: Option<FencingToken>, how: Revoke) -> Result<Released, LockError> {
        self.try_revoke(name, expect, how).await.map_err(|e| named(e, "revoke", name))
    }

    async fn diagnose(&self) -> Result<Diagnosis, LockError> {
        diagnose::diagnose(&self.store).await.map_err(|e| e.backend(crate::BACKEND).operation("diagnose"))
    }

    async fn close(&self) -> Result<(), LockError> {
        self.store.close().await;
        Ok(())
    }
}

fn named(error: LockError, operation: &'static str, name: &LockName) -> LockError {
    error.backend(crate::BACKEND).operation(operation).name(name)
}
