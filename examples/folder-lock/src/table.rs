//! The file: what stands in it, and the one way to change it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lock_core::{
    Clock, Deadline, Effect, ErrorKind, FencingToken, Holder, HolderState, LockError, LockName, LostReason, Page,
    Released, Renewal,
};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

const REVOKED: &str = "revoked";

#[derive(Debug, Default, PartialEq, Clone, Serialize, Deserialize)]
pub(crate) struct Table {
    /// The last fencing token that was given.
    tokens: u64,
    locks: BTreeMap<String, Row>,
}

#[derive(Debug, PartialEq, Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) owner: String,
    pub(crate) token: u64,
    /// The end of the lease, as time since boot.
    pub(crate) until: Duration,
    label: String,
    since: SystemTime,
}

impl Row {
    pub(crate) fn into_holder(self, name: LockName, now: Duration) -> Holder {
        let state = if self.owner == REVOKED { HolderState::Revoked } else { HolderState::Held };
        let mut holder = Holder::new(name, self.owner, state);
        holder.token = Some(FencingToken::new(self.token));
        holder.label = (!self.label.is_empty()).then_some(self.label);
        holder.since = Some(self.since);
        holder.remaining = Some(self.until.saturating_sub(now));
        holder
    }
}

impl Table {
    pub(crate) fn live(&self, key: &str, now: Duration) -> Option<&Row> {
        self.locks.get(key).filter(|row| row.until > now)
    }

    /// The row of the grant, or the one that stands in its way.
    pub(crate) fn take(
        &mut self,
        key: String,
        owner: &str,
        ttl: Duration,
        label: String,
        now: Duration,
    ) -> Result<Row, Row> {
        match self.live(&key, now) {
            Some(row) if row.owner != owner => return Err(row.clone()),
            // What an earlier try of the same request left.
            Some(row) => return Ok(row.clone()),
            None => {}
        }
        self.tokens += 1;
        let row = Row { owner: owner.into(), token: self.tokens, until: now + ttl, label, since: SystemTime::now() };
        self.locks.insert(key, row.clone());
        Ok(row)
    }

    pub(crate) fn renew(&mut self, key: &str, owner: &str, ttl: Duration, now: Duration) -> Renewal {
        match self.locks.get_mut(key) {
            None => Renewal::Lost(LostReason::Removed),
            Some(row) if row.owner == REVOKED => Renewal::Lost(LostReason::ForceReleased),
            Some(row) if row.owner != owner => Renewal::Lost(LostReason::TakenOver),
            Some(row) if row.until <= now => Renewal::Lost(LostReason::Expired),
            Some(row) => {
                row.until = now + ttl;
                Renewal::Renewed
            }
        }
    }

    pub(crate) fn remove_if(&mut self, key: &str, now: Duration, which: impl Fn(&Row) -> bool) -> Released {
        match self.locks.get(key).filter(|row| which(row)).map(|row| row.until > now) {
            None => Released::NotHeld,
            Some(was_live) => {
                self.locks.remove(key);
                if was_live { Released::Released } else { Released::NotHeld }
            }
        }
    }

    pub(crate) fn revoke_if(&mut self, key: &str, now: Duration, which: impl Fn(&Row) -> bool) -> Released {
        match self.locks.get_mut(key).filter(|row| row.until > now && row.owner != REVOKED && which(row)) {
            None => Released::NotHeld,
            Some(row) => {
                row.owner = REVOKED.into();
                Released::Released
            }
        }
    }

    pub(crate) fn list(&self, prefix: &str, page: &Page, now: Duration) -> Vec<Holder> {
        let after = page.after.as_ref().map_or("", LockName::as_str);
        let rows =
            self.locks.iter().filter(|(key, row)| key.starts_with(prefix) && key.as_str() > after && row.until > now);
        let holders = rows.filter_map(|(key, row)| Some(row.clone().into_holder(LockName::from_store(key)?, now)));
        holders.take(page.limit).collect()
    }
}

#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn open(path: PathBuf) -> Result<Self, LockError> {
        fs::create_dir_all(&path).map_err(|e| {
            LockError::new(ErrorKind::Config, "the folder cannot be created")
                .backend("folder")
                .source(e)
                .advice("check its path and rights")
        })?;
        Ok(Self(path))
    }

    /// One atomic step. When the future is dropped before the step has begun, it is never done; so whatever is asked for afterwards comes
    /// after it or instead of it.
    pub(crate) async fn step<T: Send + 'static>(
        self: &Arc<Self>,
        act: impl FnOnce(&mut Table, Duration) -> T + Send + 'static,
    ) -> Result<T, LockError> {
        let wanted = Arc::new(());
        let (folder, still_wanted) = (self.clone(), Arc::downgrade(&wanted));
        let work = move || {
            let gate = File::create(folder.0.join("gate"))?;
            flock(&gate, FlockOperation::LockExclusive)?;
            if still_wanted.upgrade().is_none() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let before = folder.read()?;
            let mut table = before.clone();
            let answer = act(&mut table, now());
            if table != before {
                let new = folder.0.join("locks.new");
                fs::write(&new, serde_json::to_vec(&table)?)?;
                fs::rename(new, folder.0.join("locks.json"))?;
            }
            Ok(answer)
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|e| Err(io::Error::other(e))).map_err(failed)
    }

    fn read(&self) -> io::Result<Table> {
        match fs::read(self.0.join("locks.json")) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Table::default()),
            Err(e) => Err(e),
        }
    }

    /// Differs whenever the table was replaced.
    pub(crate) async fn version(self: &Arc<Self>) -> Result<u64, LockError> {
        let folder = self.clone();
        let look =
            move || fs::metadata(folder.0.join("locks.json")).map_or(0, |m| m.ino() ^ (m.mtime_nsec() as u64) << 20);
        tokio::task::spawn_blocking(look).await.map_err(|e| failed(io::Error::other(e)))
    }
}

fn failed(e: io::Error) -> LockError {
    let kind = match e.kind() {
        io::ErrorKind::PermissionDenied => ErrorKind::Denied,
        io::ErrorKind::InvalidData => ErrorKind::Foreign,
        _ => ErrorKind::Unavailable,
    };
    LockError::new(kind, "the folder's file cannot be used")
        .backend("folder")
        .with_effect(Effect::Unknown)
        .source(e)
        .advice("check its rights and the disk")
}

fn now() -> Duration {
    Clock::system().now().saturating_since(Deadline::PAST)
}
