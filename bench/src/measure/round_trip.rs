//! The round trip of the smallest question, one at a time: what latencies are compared with.

use std::time::Instant;

use conformance_tests::Stop;
use sqlx::Connection;

use super::Bench;
use crate::results::Measure;
use crate::rows::{Backend, Row, etcd, redis as redis_rows, zk};
use crate::stats::median;

pub async fn run(bench: &mut Bench<'_>) -> Result<(), Stop> {
    let (backend, url, count) = (bench.backend, bench.url, bench.pace.pings);
    bench.say("round trips", Row::Floor, count);
    let micros = match backend {
        Backend::Memory => return Ok(()),
        Backend::Sqlite => {
            let mut link = sqlx::SqliteConnection::connect(url).await?;
            timed(count, async || Ok(sqlx::query("SELECT 1 FROM locks LIMIT 1").execute(&mut link).await.map(drop)?))
                .await?
        }
        Backend::Redis => {
            let mut link = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
            timed(count, async || redis_rows::ping(&mut link).await).await?
        }
        Backend::Mysql => {
            let mut link = sqlx::MySqlConnection::connect(url).await?;
            timed(count, async || Ok(link.ping().await?)).await?
        }
        Backend::Zk => {
            let link = zk::Floor::connect(url).await?;
            timed(count, async || link.ping().await).await?
        }
        Backend::Etcd => {
            let link = etcd::Floor::connect(url).await?;
            timed(count, async || link.ping().await).await?
        }
    };
    bench.results.add((backend, Measure::RoundTrip, Row::Floor, 1), &[("p50", median(&micros))]);
    Ok(())
}

async fn timed(count: usize, mut ask: impl AsyncFnMut() -> Result<(), Stop>) -> Result<Vec<f64>, Stop> {
    let mut micros = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        ask().await?;
        micros.push(start.elapsed().as_nanos() as f64 / 1e3);
    }
    Ok(micros)
}
