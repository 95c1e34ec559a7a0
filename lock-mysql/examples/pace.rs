//! How fast it goes: `cargo run --release -p lock-mysql --example pace -- mysql://user:password@host/database`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_core::{AcquireRequest, Acquisition, DistributedLock, Lease, LockError, LockName, Owner, Wait};
use lock_mysql::{MysqlConfig, MysqlLock};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Outcome {
    let url = std::env::args().nth(1).ok_or("give the URL of a database")?;
    let config = MysqlConfig::from_url(url)?;
    let (one, two) = (Arc::new(MysqlLock::connect(config.clone()).await?), Arc::new(MysqlLock::connect(config).await?));
    for tasks in [1, 16, 128] {
        println!("{tasks:>4} at a time: {:.0} acquire and release pairs a second", pairs(&one, tasks).await?);
    }
    let mut spans = Vec::new();
    for round in 0..200 {
        let (from, to) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
        spans.push(hand_over(from, to).await?);
    }
    spans.sort();
    println!("hand-over between two clients: median {:.1?}, 99th of 100 {:.1?}", spans[100], spans[198]);
    one.close().await?;
    two.close().await?;
    Ok(())
}

async fn pairs(lock: &Arc<MysqlLock>, tasks: usize) -> Outcome<f64> {
    const SPAN: Duration = Duration::from_secs(3);
    let start = Instant::now();
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let lock = lock.clone();
            tokio::spawn(async move {
                let mut pairs = 0_u32;
                while start.elapsed() < SPAN {
                    let mut lease = take(&lock, &request(&format!("pace-{task}"))?).await?;
                    lease.release().await?;
                    pairs += 1;
                }
                Ok::<_, LockError>(pairs)
            })
        })
        .collect();
    let mut pairs = 0;
    for task in running {
        pairs += task.await??;
    }
    Ok(f64::from(pairs) / start.elapsed().as_secs_f64())
}

async fn hand_over(from: &MysqlLock, to: &MysqlLock) -> Outcome<Duration> {
    let mut lease = take(from, &request("pace-hand-over")?).await?;
    let mut waiting = request("pace-hand-over")?;
    waiting.wait = Wait::Forever;
    let released = async {
        // It must wait before the release, and at no fixed moment between two polls.
        tokio::time::sleep(Duration::from_micros(150_000 + u64::from(waiting.owner.as_bytes()[0]) * 200)).await;
        lease.release().await?;
        Ok::<_, LockError>(Instant::now())
    };
    let taken = async {
        let lease = take(to, &waiting).await?;
        Ok::<_, LockError>((lease, Instant::now()))
    };
    let (released, (mut lease, taken)) = tokio::try_join!(released, taken)?;
    lease.release().await?;
    Ok(taken.saturating_duration_since(released))
}

async fn take(lock: &MysqlLock, request: &AcquireRequest) -> Result<Box<dyn Lease>, LockError> {
    match lock.acquire(request).await? {
        Acquisition::Granted(lease) => Ok(lease),
        Acquisition::Busy(_) => Err(LockError::new(lock_core::ErrorKind::Timeout, "somebody else uses this table")),
    }
}

fn request(name: &str) -> Result<AcquireRequest, LockError> {
    Ok(AcquireRequest::new(LockName::new(name)?, Owner::random()?))
}
