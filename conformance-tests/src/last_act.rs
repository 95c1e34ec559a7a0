//! What becomes of a guard that is dropped as the last act of `main`.

use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use lock_core::{DistributedLock, LockManager};
use lock_redis::{RedisConfig, RedisLock};

use crate::Stop;
use crate::servers::redis::{RedisServer, patient_connection};

/// The argument by which the program becomes the one whose `main` ends.
pub const FLAG: &str = "--last-act";

/// Runs `rounds` processes that drop their guard as the last act of `main`, and answers how many entries are left 1 s later.
///
/// # Errors
/// What kept it from being carried out.
pub async fn count(rounds: usize, close: bool) -> Result<usize, Stop> {
    let server = RedisServer::start(&[]).await?;
    let url = format!("redis://127.0.0.1:{}/", server.port());
    for round in 0..rounds {
        let mut child = Command::new(std::env::current_exe()?);
        child.args([FLAG, &url, &format!("last-{round}"), if close { "close" } else { "drop" }]).stdin(Stdio::null());
        let status = child.status()?;
        if !status.success() {
            return Err(format!("a process ended with {status}").into());
        }
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut left = 0;
    let mut connection = patient_connection(&url).await?;
    for round in 0..rounds {
        let there: bool = redis::cmd("EXISTS").arg(format!("last-{round}")).query_async(&mut connection).await?;
        left += usize::from(there);
    }
    Ok(left)
}

/// The process itself: what `#[tokio::main]` makes of a `main` whose last value is a guard.
///
/// # Errors
/// What the library answers.
pub fn act(arguments: &[String]) -> Result<ExitCode, Stop> {
    let [url, name, end] = arguments else { return Err("needs URL, NAME and drop or close".into()) };
    let config = RedisConfig::from_url(url)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let connection = async { Ok(Arc::new(RedisLock::connect(config).await?) as Arc<dyn DistributedLock>) };
        let locks = LockManager::builder().connect(connection).await?;
        let guard = locks.lock(name).acquire().await?;
        if end == "close" {
            drop(guard);
            locks.close().await?;
        }
        Ok(ExitCode::SUCCESS)
    })
}
