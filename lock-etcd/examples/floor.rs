//! How near the backend comes to the least that etcd can do: acquire and release, against put-if-absent on a lease that is there already
//! and a compared delete on the same kind of connection, in turns; and against the server's own lock service on that lease.
//!
//! `cargo run --release -p lock-etcd --example floor -- 127.0.0.1:2379`

use std::error::Error;
use std::time::{Duration, Instant};

use etcd_client::{Client, Compare, CompareOp, LockOptions, PutOptions, Txn, TxnOp};
use lock_core::{AcquireRequest, Acquisition, DistributedLock, LockName, Owner};
use lock_etcd::{EtcdConfig, EtcdLock};

const ROUND: Duration = Duration::from_millis(400);
const ROUNDS: usize = 9;

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let server = std::env::args().nth(1).ok_or("give host:port of an etcd server")?;
    let lock = EtcdLock::connect(EtcdConfig::from_url(format!("etcd://{server}"))?).await?;
    let client = Client::connect([server], None).await?;
    let lease = client.lease_client().grant(600, None).await?.id();
    for names in [1, 16, 128] {
        let mut ratios = Vec::new();
        let mut best = [0.0_f64; 3];
        for _ in 0..ROUNDS {
            let (raw, service, lock) = (client.clone(), client.clone(), lock.clone());
            let rates = [
                rate(names, move |name| raw_cycle(raw.clone(), lease, name)).await?,
                rate(names, move |name| service_cycle(service.clone(), lease, name)).await?,
                rate(names, move |name| our_cycle(lock.clone(), name)).await?,
            ];
            best.iter_mut().zip(rates).for_each(|(best, rate)| *best = best.max(rate));
            ratios.push(rates[2] / rates[0]);
        }
        ratios.sort_by(f64::total_cmp);
        let [raw, service, ours] = best;
        let median = ratios[ROUNDS / 2];
        println!(
            "{names:4} names: raw {raw:6.0}/s  lock service {service:6.0}/s  ours {ours:6.0}/s  ours/raw {median:.2} (median of {ROUNDS})"
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

async fn raw_cycle(client: Client, lease: i64, name: String) -> Result<(), Failure> {
    let key = format!("raw/{name}");
    let put = TxnOp::put(key.clone(), "", Some(PutOptions::new().with_lease(lease)));
    let take = Txn::new().when([Compare::create_revision(key.clone(), CompareOp::Equal, 0)]).and_then([put]);
    let mut kv = client.kv_client();
    let taken = kv.txn(take).await?;
    let revision = taken.header().ok_or("no header")?.revision();
    let ours = Compare::create_revision(key.clone(), CompareOp::Equal, revision);
    let given = kv.txn(Txn::new().when([ours]).and_then([TxnOp::delete(key, None)])).await?;
    if taken.succeeded() && given.succeeded() { Ok(()) } else { Err("the raw lock was not free".into()) }
}

async fn service_cycle(client: Client, lease: i64, name: String) -> Result<(), Failure> {
    let mut locks = client.lock_client();
    let key = locks.lock(format!("service/{name}"), Some(LockOptions::new().with_lease(lease))).await?;
    locks.unlock(key.key()).await?;
    Ok(())
}

async fn our_cycle(lock: EtcdLock, name: String) -> Result<(), Failure> {
    let request = AcquireRequest::new(LockName::new(name)?, Owner::random()?);
    match lock.acquire(&request).await? {
        Acquisition::Granted(mut lease) => lease.release().await.map(|_| ()).map_err(Into::into),
        Acquisition::Busy(_) => Err("our lock was not free".into()),
    }
}
