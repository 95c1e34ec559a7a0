//! What `doctor` shows of the file.

use lock_core::Promise::{Exclusion, Service, Survival};
use lock_core::{Diagnosis, FencingToken, LockError};
use tokio::time::Instant;

use crate::file::{self, FileSystem, file_system};
use crate::store::{Query, Store, sql};

/// The file and its log take some 5 MiB at the most.
const LEAST_FREE: u64 = 16 << 20;
/// Looks measured.
const LOOKS: usize = 5;

/// Looks at the file and the settings. Creates the file where it is missing, as every acquire would.
pub(crate) async fn diagnose(store: &Store) -> Result<Diagnosis, LockError> {
    let mut link = store.writer().await?;
    let mut trips = Vec::with_capacity(LOOKS);
    let (mut version, mut mode, mut next_token) = <(String, String, i64)>::default();
    for _ in 0..LOOKS {
        let asked = Instant::now();
        let query: Query<(String, String, i64)> = sql!("settings");
        (version, mode, next_token) = link.fetch(query).await?.into_iter().next().unwrap_or_default();
        trips.push(asked.elapsed());
    }
    let mut it = Diagnosis::new(format!("SQLite {version}, {}", store.path.display()));
    it.latency(&mut trips);
    match mode.as_str() {
        "wal" => it.kept(Survival, "journal", "WAL"),
        mode => it.limited(
            Survival,
            "journal",
            format!("{mode}: locks hold, and each grant waits for the disk"),
            "PRAGMA journal_mode=WAL",
        ),
    }
    it.limited(
        Survival,
        "restart",
        "leases outlive their programs; a restart of the machine ends them all, and their holders with them",
        "nothing to do, unless other machines depend on it: then take a server as backend",
    );
    match file_system(&store.path) {
        Some(FileSystem::Local) => it.kept(Exclusion, "file system", "a local one"),
        Some(FileSystem::Fuse) => it.limited(
            Exclusion,
            "file system",
            "FUSE: if another machine or virtual machine can reach the file, locks do not hold there",
            "name a file on a local disk",
        ),
        Some(FileSystem::Network(name)) => {
            it.broken(Exclusion, "file system", format!("{name}, which is a network's"), "name a file on a local disk");
        }
        None => it.unknown(Exclusion, "file system", "its kind is unknown", "make sure that it is a local one"),
    }
    if let Some(mode) = file::mode(&store.path) {
        let shown = format!("the file has mode {mode:03o}");
        match mode & 0o022 {
            0 => it.kept(Exclusion, "rights", shown),
            _ => it.limited(
                Exclusion,
                "rights",
                format!("{shown}: whoever may write it can break every lock in it"),
                format!("chmod go-w {}", store.path.display()),
            ),
        }
    }
    if let Some(free) = file::free_space(&store.path) {
        let shown = format!("{} MiB are free", free >> 20);
        match free < LEAST_FREE {
            true => {
                it.limited(Service, "disk", format!("{shown}; a full one lets no lock be taken"), "free some space")
            }
            false => it.kept(Service, "disk", shown),
        }
    }
    it.newest_token = Some(FencingToken::new(next_token.unsigned_abs()));
    Ok(it)
}
