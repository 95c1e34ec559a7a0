//! Many cycles of one manager: whatever it takes up must stay as it was.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use lock_core::{LockError, LockManager};

use super::gauge::{Footprint, server};
use crate::{Stop, eventually};

/// So many tasks take locks at once, each pair of them the same name, so that half of the grants follow a wait.
const TASKS: u64 = 16;
const PARTS: usize = 10;
/// An allocator keeps what it may need again, and a page is taken up as a whole.
const SLACK: u64 = 2 << 20;
/// What a cycle may leave in memory, in bytes: less than anything that would be forgotten.
const BYTES_PER_CYCLE: f64 = 24.0;

/// What one manager took up over many cycles.
#[derive(Debug)]
pub struct Cycles {
    cycles: u64,
    span: Duration,
    /// After the warm-up and after each part: the footprint and the server's connections.
    samples: Vec<(Footprint, u64)>,
}

/// Acquires and releases so many times at a URL, in ten parts after a warm-up as long as one, and looks after each.
///
/// # Errors
/// When the URL is wrong, the server is away or a cycle fails.
///
/// # Cancel safety
/// Dropping it leaves what is held to its TTL.
pub async fn cycles(url: &str, cycles: u64) -> Result<Cycles, Stop> {
    let locks = super::manager(url).await?;
    let part = cycles.div_ceil(PARTS as u64);
    some(&locks, part).await?;
    let mut samples = vec![sample(url).await?];
    let start = Instant::now();
    for number in 1..=PARTS {
        some(&locks, part).await?;
        samples.push(sample(url).await?);
        eprintln!("{:>4} s  {} cycles", start.elapsed().as_secs(), part * number as u64);
    }
    let span = start.elapsed();
    locks.close().await?;
    Ok(Cycles { cycles: part * PARTS as u64, span, samples })
}

async fn some(locks: &LockManager, cycles: u64) -> Result<(), Stop> {
    let left = Arc::new(AtomicU64::new(cycles));
    let one_task = async |number: u64| -> Result<(), LockError> {
        let more = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        while more().is_ok() {
            locks.lock(format!("cycles-{}", number / 2)).acquire().await?.release().await?;
        }
        Ok(())
    };
    try_join_all((0..TASKS).map(one_task)).await?;
    Ok(())
}

/// Looks once the tasks of the last cycles have ended, which is a moment after their releases were answered.
async fn sample(url: &str) -> Result<(Footprint, u64), Stop> {
    let idle = std::sync::Mutex::new(Footprint::now()?);
    eventually(Duration::from_secs(2), || async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let Ok(now) = Footprint::now() else { return false };
        let mut idle = idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let same = now.tasks == idle.tasks && now.files == idle.files;
        *idle = now;
        same
    })
    .await;
    let connections = server(url).await?.map_or(0, |counters| counters.connections);
    Ok((*idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner), connections))
}

impl Cycles {
    /// What has grown from the first sample to the last, one line each; empty when all is flat.
    pub fn grown(&self) -> Vec<String> {
        let (Some((first, first_links)), Some((last, last_links))) = (self.samples.first(), self.samples.last()) else {
            return vec!["nothing was measured".into()];
        };
        let memory = SLACK + (self.cycles as f64 * BYTES_PER_CYCLE) as u64;
        let mut grown = Vec::new();
        let mut judge = |what: &str, first: u64, last: u64, slack: u64| {
            if last > first + slack {
                grown.push(format!("{what} grew from {first} to {last} over {} cycles", self.cycles));
            }
        };
        judge("memory in bytes", first.memory, last.memory, memory);
        // A connection may be there twice for a moment, while it is replaced.
        judge("open files", first.files, last.files, 1);
        judge("connections at the server", *first_links, *last_links, 1);
        judge("tasks", first.tasks, last.tasks, 4);
        grown
    }
}

impl fmt::Display for Cycles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pace = self.cycles as f64 / self.span.as_secs_f64();
        write!(f, "cycles                      {} in {:.1?}, {pace:.0} a second", self.cycles, self.span)?;
        let ends = self.samples.first().into_iter().chain(self.samples.last());
        for (what, (footprint, connections)) in ["before", "after"].iter().zip(ends) {
            write!(f, "\n{what:<27} {footprint}, {connections} connections at the server")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_is_named() {
        let sample = |memory, files, tasks, links| (Footprint { memory, files, tasks }, links);
        let judge =
            |last| Cycles { cycles: 1000, span: Duration::ZERO, samples: vec![sample(1 << 20, 9, 9, 2), last] }.grown();
        assert!(judge(sample(2 << 20, 10, 12, 3)).is_empty());
        assert!(judge(sample(9 << 20, 9, 9, 2))[0].starts_with("memory"));
        assert!(judge(sample(1 << 20, 11, 9, 2))[0].starts_with("open files"));
        assert!(judge(sample(1 << 20, 9, 99, 2))[0].starts_with("tasks"));
        assert!(judge(sample(1 << 20, 9, 9, 4))[0].starts_with("connections"));
    }
}
