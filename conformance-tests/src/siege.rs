//! The siege: processes that wait for one name on Redis, while they are killed and stopped and the server's side is hurt.
//!
//! Each waiter writes down when it believed that it held the lock, by the machine's clock. Afterwards the beliefs of all are laid side by
//! side: no two may overlap, tokens must rise, and the lock may not stand free for long while somebody waits.

mod faults;
mod record;
mod store;
mod worker;

use std::path::Path;
use std::time::{Duration, Instant};

use crate::Stop;
use crate::process::Process;
use crate::servers::redis::RedisServer;

pub use record::Verdict;
pub use worker::{FLAG, work};

/// The name that all fight for.
pub(crate) const NAME: &str = "siege";
/// Short, so that dead holders do not fill the time.
pub(crate) const TTL: Duration = Duration::from_millis(1500);
const PROCESSES: usize = 4;

/// What to do and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Siege {
    /// How long the faults go on.
    pub span: Duration,
    /// Waiters in each of the four processes.
    pub waiters: usize,
    /// Which faults come when.
    pub seed: u64,
}

impl Siege {
    /// Lays siege, prints a line of progress every few seconds to standard error, and answers the verdict.
    ///
    /// # Errors
    /// What kept it from being carried out; what it found is in the verdict.
    pub async fn lay(self) -> Result<Verdict, Stop> {
        let server = RedisServer::start(&[]).await?;
        let url = format!("redis://127.0.0.1:{}/", server.port());
        let folder = tempfile::tempdir()?;
        let mut faults = faults::Faults::new(&url, self.seed).await?;
        let store = store::StoreWatch::begin(&url).await?;
        let mut generation = 0;
        let mut workers = Vec::new();
        for _ in 0..PROCESSES {
            workers.push(worker::spawn(&url, folder.path(), generation, self.waiters)?);
            generation += 1;
        }
        let start = Instant::now();
        let mut said = start;
        while start.elapsed() < self.span {
            let hit = faults.next(&workers).await?;
            if let Some(dead) = hit.killed {
                workers[dead] = worker::spawn(&url, folder.path(), generation, self.waiters)?;
                generation += 1;
            }
            if said.elapsed() > Duration::from_secs(10) {
                said = Instant::now();
                eprintln!("{:>4} s  {} faults", start.elapsed().as_secs(), faults.total());
            }
        }
        let longest_free = store.end().await?;
        faults.end(&workers)?;
        end_all(&workers).await?;
        let left = faults.leftovers().await?;
        Verdict::of(folder.path(), longest_free, faults.counts(), left)
    }
}

/// Asks all workers to stop, and waits until they have released.
async fn end_all(workers: &[Process]) -> Result<(), Stop> {
    for worker in workers {
        worker.with_child(|child| drop(child.stdin.take()));
    }
    let ended = crate::eventually(Duration::from_secs(30), || async {
        workers.iter().all(|worker| worker.exit_code().is_some())
    });
    if ended.await { Ok(()) } else { Err("a worker does not end within 30 s of being asked".into()) }
}

/// How the file of one worker process is called.
fn record_file(folder: &Path, generation: u64) -> std::path::PathBuf {
    folder.join(format!("worker-{generation}"))
}
