//! A process that holds thousands of names while a thousand of its tasks wait for another.

use std::fmt;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use tokio::task::JoinSet;

use super::gauge::{Footprint, server};
use crate::Stop;

/// How many may ask for their name at the same moment.
const AT_ONCE: usize = 100;

/// What became of the held names and of the waiters.
#[derive(Debug)]
pub struct Crowd {
    held: usize,
    lost: usize,
    waiters: usize,
    served: usize,
    /// From the moment at which the door was opened until the last waiter had been in.
    span: Duration,
    /// What was taken up before anything was taken, with all names held, with all waiters waiting, and at the end.
    footprints: [Footprint; 4],
    requests: Option<u64>,
}

/// Holds `held` names at a URL and lets `waiters` tasks wait for one more, each of which takes it once.
///
/// # Errors
/// When the URL is wrong, the server is away, or a waiter gets an error.
///
/// # Cancel safety
/// Dropping it leaves what is held to its TTL.
pub async fn crowd(url: &str, held: usize, waiters: usize) -> Result<Crowd, Stop> {
    let locks = super::manager(url).await?;
    locks.lock("crowd-door").acquire().await?.release().await?;
    let empty = Footprint::now()?;
    let mut guards = Vec::with_capacity(held);
    for some in (0..held).collect::<Vec<_>>().chunks(AT_ONCE) {
        guards.extend(try_join_all(some.iter().map(|number| locks.lock(format!("crowd-{number}")).acquire())).await?);
    }
    let full = Footprint::now()?;
    let door = locks.lock("crowd-door").acquire().await?;
    let mut crowd = JoinSet::new();
    for _ in 0..waiters {
        let locks = locks.clone();
        crowd.spawn(async move { locks.lock("crowd-door").acquire().await?.release().await });
    }
    // All have asked once the tasks have run; how far their requests have come is the backend's affair.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let waiting = Footprint::now()?;
    let (start, before) = (Instant::now(), server(url).await?);
    door.release().await?;
    let mut served = 0;
    while let Some(ended) = crowd.join_next().await {
        ended.map_err(|e| Stop::from(e.to_string()))??;
        served += 1;
    }
    let (span, after) = (start.elapsed(), server(url).await?);
    let requests = before.zip(after).map(|(before, after)| after.requests.saturating_sub(before.requests));
    let lost = guards.iter().filter(|guard| !guard.is_held()).count();
    drop(guards);
    locks.close().await?;
    let footprints = [empty, full, waiting, Footprint::now()?];
    Ok(Crowd { held, lost, waiters, served, span, footprints, requests })
}

impl Crowd {
    /// Whether no name was lost and every waiter got in.
    pub fn is_whole(&self) -> bool {
        self.lost == 0 && self.served == self.waiters
    }
}

impl fmt::Display for Crowd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { held, lost, waiters, served, span, footprints: [empty, full, waiting, end], requests } = self;
        writeln!(f, "held                        {held} names, lost {lost}")?;
        writeln!(f, "waiters                     {waiters}, served {served} in {span:.1?}")?;
        if let (Some(requests), 1..) = (requests, *served) {
            let each = *requests as f64 / *served as f64;
            writeln!(f, "requests at the server      {each:.1} a grant, with the renewals meanwhile")?;
        }
        writeln!(f, "empty                       {empty}")?;
        writeln!(f, "all held                    {full}")?;
        writeln!(f, "all waiting                 {waiting}")?;
        writeln!(f, "closed                      {end}")?;
        let each = |from: &Footprint, to: &Footprint, count: usize| {
            to.memory.saturating_sub(from.memory) as f64 / count.max(1) as f64 / 1024.0
        };
        write!(f, "memory                      {:.1} KiB a held name", each(empty, full, *held))?;
        write!(f, ", {:.1} KiB a waiter", each(full, waiting, *waiters))
    }
}
