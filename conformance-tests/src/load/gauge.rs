//! What a process takes up, and what its server sees of it.

use std::fmt;

use crate::Stop;
use crate::counters::{self, Counters};
use crate::harnesses::attached;

/// What this process takes up at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Memory in use, in bytes.
    pub memory: u64,
    /// Open file descriptors, its connections among them.
    pub files: u64,
    /// Tasks of this runtime.
    pub tasks: u64,
}

impl Footprint {
    /// What is taken up now, with the tasks of the runtime that this is called on.
    ///
    /// # Errors
    /// Where there is no `/proc` as Linux has it.
    pub fn now() -> Result<Self, Stop> {
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks() as u64;
        // The folder that is read is one of them.
        let files = std::fs::read_dir("/proc/self/fd")?.count() as u64 - 1;
        Ok(Self { memory: resident()?, files, tasks })
    }
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = self.memory as f64 / f64::from(1 << 20);
        write!(f, "{mib:.1} MiB, {} files, {} tasks", self.files, self.tasks)
    }
}

/// The memory of this process that is in use, in bytes.
pub(super) fn resident() -> Result<u64, Stop> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS in /proc/self/status")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}

/// What the server at a URL has counted; `None` for a file, which counts nothing.
///
/// # Errors
/// When it cannot be asked.
///
/// # Cancel safety
/// Dropping it loses nothing.
pub async fn server(url: &str) -> Result<Option<Counters>, Stop> {
    Ok(Some(match url.split(':').next() {
        Some("redis") => counters::redis(url).await?,
        Some("mysql") => counters::mysql(&attached::mysql_options_of(url)?).await?,
        Some("zk") => counters::zk(attached::first_port(url)?).await?,
        Some("etcd") => counters::etcd(attached::first_port(url)?).await?,
        _ => return Ok(None),
    }))
}
