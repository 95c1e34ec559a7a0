//! How many requests a server gets while something goes on.

use conformance_tests::load::gauge;
use conformance_tests::{Stop, ensure};
use futures_util::StreamExt;
use tokio::task::JoinHandle;

/// A count that has begun.
pub enum Tally {
    /// Redis counts the commands of scripts as well, so each request is looked at as it arrives.
    Watched { url: String, task: JoinHandle<u64> },
    /// The server's own counter, and what it counts for being asked.
    Counted { url: String, before: u64, asking: u64 },
}

/// Ends a count; nobody else says it.
const MARK: &str = "distlock-bench-ends-counting";

impl Tally {
    pub async fn start(url: &str) -> Result<Self, Stop> {
        let url = url.to_owned();
        if url.starts_with("redis:") {
            let monitor = redis::Client::open(&*url)?.get_async_monitor().await?;
            let task = tokio::spawn(count(monitor));
            return Ok(Self::Watched { url, task });
        }
        let first = requests(&url).await?;
        let before = requests(&url).await?;
        Ok(Self::Counted { url, before, asking: before - first })
    }

    /// Requests since the start.
    pub async fn stop(self) -> Result<u64, Stop> {
        match self {
            Self::Watched { url, task } => {
                let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
                let _: String = redis::cmd("ECHO").arg(MARK).query_async(&mut connection).await?;
                Ok(task.await?)
            }
            Self::Counted { url, before, asking } => {
                let after = requests(&url).await?;
                ensure!(after >= before, "a server that counts backwards");
                Ok((after - before).saturating_sub(asking))
            }
        }
    }
}

async fn requests(url: &str) -> Result<u64, Stop> {
    Ok(gauge::server(url).await?.ok_or("this backend has no server that counts")?.requests)
}

async fn count(monitor: redis::aio::Monitor) -> u64 {
    let mut lines = std::pin::pin!(monitor.into_on_message::<String>());
    let mut requests = 0;
    while let Some(line) = lines.next().await {
        if line.contains(MARK) {
            break;
        }
        requests += u64::from(is_request(&line));
    }
    requests
}

/// Whether a line of MONITOR is a client's request, not a script's command and not the greeting of a new connection.
fn is_request(line: &str) -> bool {
    let mut words = line.splitn(4, ' ').skip(2);
    let from_client = words.next().is_some_and(|sender| sender != "lua]");
    let command = words.next().unwrap_or_default().to_ascii_lowercase();
    from_client && !command.starts_with("\"client\" \"setinfo\"") && !command.starts_with("\"hello\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_scripts_are_no_requests() {
        assert!(is_request(r#"1700000000.1 [0 127.0.0.1:5] "evalsha" "x" "1" "k""#));
        assert!(!is_request(r#"1700000000.1 [0 lua] "get" "k""#));
        assert!(!is_request(r#"1700000000.1 [0 127.0.0.1:5] "CLIENT" "SETINFO" "LIB-NAME" "redis-rs""#));
        assert!(!is_request("OK"));
    }
}
