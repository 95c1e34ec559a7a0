//! How near the backend comes to the least that Redis can do: acquire and release, against `SET NX PX` and a compare-and-delete
//! script on the same kind of connection, in turns.
//!
//! `cargo run --release -p lock-redis --example floor -- redis://127.0.0.1/`

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_core::{AcquireRequest, Acquisition, DistributedLock, LockName, Owner};
use lock_redis::{RedisConfig, RedisLock};
use redis::aio::MultiplexedConnection;

const ROUND: Duration = Duration::from_millis(400);
const ROUNDS: usize = 9;
const DELETE_OWN: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).ok_or("give the URL of a Redis server")?;
    let lock = RedisLock::connect(RedisConfig::from_url(&url)?).await?;
    let mut raw = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let hash: Arc<str> = redis::cmd("SCRIPT").arg("LOAD").arg(DELETE_OWN).query_async::<String>(&mut raw).await?.into();
    for names in [1, 16, 128] {
        let mut ratios = Vec::new();
        let (mut best_raw, mut best_ours) = (0.0_f64, 0.0_f64);
        for _ in 0..ROUNDS {
            let (raw, hash, lock) = (raw.clone(), hash.clone(), lock.clone());
            let floor = rate(names, move |name| raw_cycle(raw.clone(), hash.clone(), name)).await?;
            let ours = rate(names, move |name| our_cycle(lock.clone(), name)).await?;
            best_raw = best_raw.max(floor);
            best_ours = best_ours.max(ours);
            ratios.push(ours / floor);
        }
        ratios.sort_by(f64::total_cmp);
        let median = ratios[ROUNDS / 2];
        println!(
            "{names:4} names: raw {best_raw:8.0}/s  ours {best_ours:8.0}/s  ratio {median:.2} (median of {ROUNDS})"
        );
    }
    Ok(())
}

/// Cycles per second of so many tasks, each on a name of its own.
async fn rate<F, C>(names: usize, cycle: F) -> Result<f64, Failure>
where
    F: Fn(String) -> C + Clone + Send + 'static,
    C: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..names {
        let cycle = cycle.clone();
        tasks.spawn(async move {
            let mut cycles = 0_u32;
            while start.elapsed() < ROUND {
                cycle(format!("floor:{n}")).await?;
                cycles += 1;
            }
            Ok::<_, Failure>(cycles)
        });
    }
    let mut total = 0;
    while let Some(cycles) = tasks.join_next().await {
        total += cycles??;
    }
    Ok(f64::from(total) / start.elapsed().as_secs_f64())
}

async fn raw_cycle(mut raw: MultiplexedConnection, hash: Arc<str>, name: String) -> Result<(), Failure> {
    let owner = Owner::random()?.to_string();
    let mut take = redis::cmd("SET");
    take.arg(&name).arg(&owner).arg("NX").arg("PX").arg(30_000);
    let taken: bool = take.query_async(&mut raw).await?;
    let mut give = redis::cmd("EVALSHA");
    give.arg(&*hash).arg(1).arg(&name).arg(&owner);
    let given: bool = give.query_async(&mut raw).await?;
    if taken && given { Ok(()) } else { Err("the raw lock was not free".into()) }
}

async fn our_cycle(lock: RedisLock, name: String) -> Result<(), Failure> {
    let request = AcquireRequest::new(LockName::new(name)?, Owner::random()?);
    match lock.acquire(&request).await? {
        Acquisition::Granted(mut lease) => lease.release().await.map(|_| ()).map_err(Into::into),
        Acquisition::Busy(_) => Err("our lock was not free".into()),
    }
}
