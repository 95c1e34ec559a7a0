//! One process of the siege: many waiters that take the lock in turn.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lock_core::{Clock, Deadline, DistributedLock, LockManager};
use lock_redis::{RedisConfig, RedisLock};

use super::record::{BYTES, Belief};
use super::{NAME, TTL, record_file};
use crate::Stop;
use crate::process::Process;

/// The argument by which the program becomes a worker.
pub const FLAG: &str = "--siege-worker";

pub(super) fn spawn(url: &str, folder: &Path, generation: u64, waiters: usize) -> Result<Process, Stop> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([FLAG, url, &waiters.to_string()]).arg(record_file(folder, generation)).stdin(Stdio::piped());
    Ok(Process::spawn(command)?)
}

/// Works until standard input ends: acquires, looks again and again whether it holds, writes down each look, releases.
///
/// # Errors
/// An error that the contract does not allow here.
pub fn work(arguments: &[String]) -> Result<ExitCode, Stop> {
    let [url, waiters, file] = arguments else { return Err("a worker needs URL, WAITERS and FILE".into()) };
    let waiters: usize = waiters.parse().map_err(|_| "WAITERS is no number")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let config = RedisConfig::from_url(url)?;
    runtime.block_on(async {
        let connection = async { Ok(Arc::new(RedisLock::connect(config).await?) as Arc<dyn DistributedLock>) };
        let locks = LockManager::builder().connect(connection).await?;
        let records = Arc::new(Records { file: std::fs::File::create(file)?, next: AtomicU64::new(0) });
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..waiters {
            all.spawn(take_turns(locks.clone(), records.clone()));
        }
        let ended = tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
        tokio::select! {
            _ = ended => {}
            Some(failed) = all.join_next() => {
                failed.map_err(|e| Stop::from(e.to_string()))??;
            }
        }
        all.shutdown().await;
        locks.close().await?;
        Ok(ExitCode::SUCCESS)
    })
}

struct Records {
    file: std::fs::File,
    next: AtomicU64,
}

async fn take_turns(locks: LockManager, records: Arc<Records>) -> Result<(), Stop> {
    let clock = Clock::system();
    let start = Deadline::PAST;
    let since = |moment: Deadline| u64::try_from(moment.saturating_since(start).as_nanos()).unwrap_or(u64::MAX);
    loop {
        let guard = match locks.lock(NAME).ttl(TTL).acquire().await {
            Ok(guard) => guard,
            // A server that is stopped for longer than the operation time-out.
            Err(error) if error.is_retryable() => continue,
            Err(error) => return Err(error.into()),
        };
        let place = records.next.fetch_add(1, Ordering::Relaxed) * BYTES as u64;
        let mut belief = Belief { from: since(clock.now()), token: guard.fencing_token().get(), ..Belief::default() };
        // One to three looks, each of which is written down only if it still says "held" afterwards.
        for _ in 0..=(belief.token % 3) {
            let now = since(clock.now());
            let Some(valid_until) = guard.valid_until() else { break };
            (belief.last, belief.valid_until) = (now, since(valid_until));
            records.file.write_all_at(&belief.to_bytes(), place)?;
            tokio::time::sleep(Duration::from_micros(300)).await;
        }
        let now = since(clock.now());
        if guard.is_held() {
            (belief.last, belief.released) = (now, 1);
            records.file.write_all_at(&belief.to_bytes(), place)?;
        }
        // An answer that fails leaves the lock to its TTL; the record says that it was given up.
        let _ = guard.release().await;
    }
}
