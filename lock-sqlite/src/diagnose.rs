//! What `doctor` shows of the file.

use lock_core::{Diagnosis, LockError, Verdict};

use crate::file::{self, FileSystem, file_system};
use crate::store::{Query, Store, sql};

/// The file and its log take some 5 MiB at the most.
const LEAST_FREE: u64 = 16 << 20;

/// Looks at the file and the settings. Creates the file where it is missing, as every acquire would.
pub(crate) async fn diagnose(store: &Store) -> Result<Diagnosis, LockError> {
    let mut link = store.writer().await?;
    let query: Query<(String, String, i64)> = sql!("settings");
    let rows = link.fetch(query).await?;
    let (version, mode, next_token) = rows.into_iter().next().unwrap_or_default();
    let mut it = Diagnosis::new(format!("SQLite {version}"));
    it = match mode.as_str() {
        "wal" => it.finding("M1", Verdict::Good, "the journal mode is WAL"),
        mode => it.finding(
            "M1",
            Verdict::Limited,
            format!(
                "the journal mode is {mode}: locks hold, and each grant waits for the disk; run PRAGMA journal_mode=WAL"
            ),
        ),
    };
    it = match file_system(&store.path) {
        Some(FileSystem::Local) => it.finding("M1", Verdict::Good, "the file is on a local file system"),
        Some(FileSystem::Fuse) => it.finding(
            "M1",
            Verdict::Limited,
            "the file is on a FUSE file system: if another machine or virtual machine can reach it, locks do not hold there",
        ),
        Some(FileSystem::Network(name)) => {
            it.finding("M1", Verdict::Bad, format!("the file is on a network file system ({name}); use a local disk"))
        }
        None => it.finding("M1", Verdict::Unknown, "the kind of the file system is unknown; it must be a local one"),
    };
    if let Some(mode) = file::mode(&store.path).filter(|mode| mode & 0o022 != 0) {
        let text = format!("the file has mode {mode:03o}: whoever may write it can break every lock in it");
        it = it.finding("O1", Verdict::Limited, text);
    }
    if let Some(free) = file::free_space(&store.path) {
        let verdict = if free < LEAST_FREE { Verdict::Limited } else { Verdict::Good };
        it = it.finding(
            "U1",
            verdict,
            format!("{} MiB are free on the disk; a full one lets no lock be taken", free >> 20),
        );
    }
    Ok(it.finding("F2", Verdict::Good, format!("the next token is above {next_token}")))
}
