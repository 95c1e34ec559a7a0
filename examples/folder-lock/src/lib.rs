//! Locks of one machine in a folder: a toy that keeps the whole contract.
//!
//! The folder holds one JSON file with all locks. It is read, changed and replaced while an advisory lock of the kernel is held, and that is
//! the atomic step on which all else stands. Time is the machine's time since boot, which every process reads alike and which never steps.

mod table;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use lock_core::{
    AcquireRequest, Acquisition, Attempt, Capabilities, Contender, Deadline, Diagnosis, DistributedLock, FencingToken,
    Holder, Lease, LockError, LockName, LostReason, Owner, Pace, Page, Promise, Reach, Released, Renewal, Revoke,
    WaitingRoom,
};

use table::{Folder, Row};

const PACE: Pace =
    Pace { least: Duration::from_millis(2), most: Duration::from_millis(20), beat: Duration::from_millis(250) };

const CAPABILITIES: Capabilities = {
    let mut it = Capabilities::new("folder");
    it.reach = Reach::Machine;
    it
};

/// The locks of one folder.
#[derive(Debug)]
pub struct FolderLock {
    folder: Arc<Folder>,
    room: Arc<WaitingRoom>,
}

impl FolderLock {
    /// Opens the folder, and creates it where it is missing.
    ///
    /// # Errors
    /// `Config` when it cannot be created.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, LockError> {
        Ok(Self { folder: Arc::new(Folder::open(path.into())?), room: Arc::new(WaitingRoom::new(PACE)) })
    }
}

#[async_trait]
impl DistributedLock for FolderLock {
    fn capabilities(&self) -> &Capabilities {
        &CAPABILITIES
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition, LockError> {
        self.room.acquire(self, request).await
    }

    // A step of a dropped request either came before this one or finds that nobody wants it: see `Folder::step`.
    async fn abandon(&self, name: &LockName, owner: &Owner) -> Result<Released, LockError> {
        let (key, owner) = (name.as_str().to_owned(), owner.to_string());
        let released = self.folder.step(move |table, now| table.remove_if(&key, now, |row| row.owner == owner)).await?;
        self.room.poke(name);
        Ok(released)
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<Holder>, LockError> {
        let key = name.as_str().to_owned();
        let found = self.folder.step(move |table, now| table.live(&key, now).cloned().map(|row| (row, now))).await?;
        Ok(found.map(|(row, now)| row.into_holder(name.clone(), now)))
    }

    async fn list(&self, prefix: &str, page: Page) -> Result<Vec<Holder>, LockError> {
        let prefix = prefix.to_owned();
        self.folder.step(move |table, now| table.list(&prefix, &page, now)).await
    }

    async fn revoke(&self, name: &LockName, expect: Option<FencingToken>, how: Revoke) -> Result<Released, LockError> {
        let key = name.as_str().to_owned();
        let expected = move |row: &Row| expect.is_none_or(|token| row.token == token.get());
        let act = move |table: &mut table::Table, now| match how {
            Revoke::Now => table.remove_if(&key, now, expected),
            Revoke::Mark => table.revoke_if(&key, now, expected),
        };
        let revoked = self.folder.step(act).await?;
        self.room.poke(name);
        Ok(revoked)
    }

    async fn diagnose(&self) -> Result<Diagnosis, LockError> {
        self.folder.step(|_, _| ()).await?;
        let mut it = Diagnosis::new("a folder");
        it.kept(Promise::Service, "folder", "it can be read and written");
        let value = "locks outlive processes; after a restart of the machine old ends mean nothing";
        it.limited(Promise::Survival, "restart", value, "put the folder below /run, which a restart empties");
        Ok(it)
    }

    async fn close(&self) -> Result<(), LockError> {
        Ok(())
    }
}

#[async_trait]
impl Contender for FolderLock {
    async fn attempt(&self, request: &AcquireRequest, _: Duration) -> Result<Attempt, LockError> {
        let (key, owner, ttl) = (request.name.as_str().to_owned(), request.owner.to_string(), request.ttl.get());
        let label = request.label.to_string();
        let sent = request.clock.now();
        let (row, now) = self.folder.step(move |table, now| (table.take(key, &owner, ttl, label, now), now)).await?;
        Ok(match row {
            Ok(row) => Attempt::Granted(Box::new(FolderLease {
                folder: self.folder.clone(),
                room: self.room.clone(),
                request: request.clone(),
                token: row.token,
                sent,
            })),
            Err(row) => Attempt::Busy {
                free_in: Some(row.until.saturating_sub(now)),
                holder: Some(row.into_holder(request.name.clone(), now)),
            },
        })
    }

    async fn look(&self) -> Result<u64, LockError> {
        self.folder.version().await
    }

    async fn leave(&self, _: &AcquireRequest) -> Result<(), LockError> {
        Ok(()) // Nobody stands in a queue of the folder.
    }
}

#[derive(Debug)]
struct FolderLease {
    folder: Arc<Folder>,
    room: Arc<WaitingRoom>,
    request: AcquireRequest,
    token: u64,
    sent: Deadline,
}

#[async_trait]
impl Lease for FolderLease {
    fn fencing_token(&self) -> FencingToken {
        FencingToken::new(self.token)
    }

    fn effective_ttl(&self) -> Duration {
        self.request.ttl.get()
    }

    fn valid_until(&self) -> Deadline {
        Deadline::valid_until(self.sent, self.effective_ttl())
    }

    fn loss(&self) -> BoxFuture<'static, LostReason> {
        Box::pin(std::future::pending()) // A folder tells nobody anything: renewals find a loss.
    }

    async fn renew(&mut self) -> Result<Renewal, LockError> {
        let (key, owner, ttl) =
            (self.request.name.as_str().to_owned(), self.request.owner.to_string(), self.request.ttl.get());
        let sent = self.request.clock.now();
        let renewal = self.folder.step(move |table, now| table.renew(&key, &owner, ttl, now)).await?;
        if renewal == Renewal::Renewed {
            self.sent = sent;
        }
        Ok(renewal)
    }

    async fn release(&mut self) -> Result<Released, LockError> {
        let (key, owner) = (self.request.name.as_str().to_owned(), self.request.owner.to_string());
        let released = self.folder.step(move |table, now| table.remove_if(&key, now, |row| row.owner == owner)).await?;
        self.room.poke(&self.request.name);
        Ok(released)
    }
}
