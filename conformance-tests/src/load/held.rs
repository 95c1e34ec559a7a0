//! Many held locks in one process: what they cost at the server and in memory while nothing happens.

use std::fmt;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use lock_core::LostReason;

use super::gauge::{resident, server};
use crate::Stop;
use crate::counters::Counters;

/// What was seen while the locks were held.
#[derive(Debug)]
pub struct Held {
    names: usize,
    ttl: Duration,
    span: Duration,
    requests: u64,
    connections: u64,
    memory: u64,
    lost: Vec<LostReason>,
}

/// Takes so many names at a URL with one manager, holds them, and looks at the server's counters at both ends.
///
/// # Errors
/// When the URL is wrong, the server is away or its counters cannot be read.
///
/// # Cancel safety
/// Dropping it leaves the locks to their TTL.
pub async fn hold(url: &str, names: usize, span: Duration) -> Result<Held, Stop> {
    let before = count(url).await?;
    let locks = super::manager(url).await?;
    locks.lock("held-warm").acquire().await?.release().await?;
    let empty = resident()?;
    let mut guards = Vec::new();
    for some in (0..names).collect::<Vec<_>>().chunks(50) {
        guards.extend(try_join_all(some.iter().map(|number| locks.lock(format!("held-{number}")).acquire())).await?);
    }
    let ttl = guards.first().map(|guard| guard.ttl()).unwrap_or_default();
    // What was only needed to take them is over, such as watches that are opened a little later.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let memory = resident()?.saturating_sub(empty);
    let (start, first) = (Instant::now(), count(url).await?);
    tokio::time::sleep(span).await;
    let (span, last) = (start.elapsed(), count(url).await?);
    let lost = guards.iter().filter_map(|guard| guard.lost_reason()).collect();
    // A thousand releases at once take their time; they are made again until they are confirmed.
    drop(guards);
    locks.close().await?;
    let requests = last.requests.saturating_sub(first.requests);
    let connections = last.connections.saturating_sub(before.connections);
    Ok(Held { names, ttl, span, requests, connections, memory, lost })
}

impl Held {
    /// Whether none was lost.
    pub fn is_whole(&self) -> bool {
        self.lost.is_empty()
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { names, ttl, span, requests, connections, memory, lost } = self;
        writeln!(f, "held                        {names} locks with a TTL of {ttl:?} for {span:.1?}")?;
        writeln!(f, "lost                        {}", lost.len())?;
        if let Some(reason) = lost.first() {
            writeln!(f, "the first because           {reason:?}")?;
        }
        writeln!(f, "requests at the server      {:.1} a second", *requests as f64 / span.as_secs_f64())?;
        writeln!(f, "connections at the server   {connections}")?;
        write!(f, "memory in the process       {:.1} KiB a lock", *memory as f64 / *names as f64 / 1024.0)
    }
}

async fn count(url: &str) -> Result<Counters, Stop> {
    server(url).await?.ok_or_else(|| "only redis, mysql, zk and etcd servers count requests".into())
}
