//! Clusters of three: whoever holds a lock through a server that has lost its leader knows that it is lost before anybody else is granted it.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use conformance_tests::proxy::Proxy;
use conformance_tests::servers::cluster::{Cluster, Product};
use conformance_tests::servers::etcd::Etcd;
use conformance_tests::servers::zk::Zk;
use conformance_tests::{Stop, ensure};
use lock_core::{DistributedLock, Held, LockManager};
use lock_etcd::{EtcdConfig, EtcdLock};
use lock_zk::{ZkConfig, ZkLock};
use tokio::time::{sleep, timeout};

/// What happens to the server that the holder talks to, and to no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It follows, and is cut off from the others.
    FollowerCut,
    /// It leads, and is cut off from the others.
    LeaderCut,
    /// It leads, and is stopped until the waiter was granted the lock.
    LeaderStopped,
    /// It leads, and is killed.
    LeaderKilled,
    /// All are killed and come back, one after another.
    Rolling,
    /// It leads, is stopped for a moment in which the others choose a new leader, and goes on; then the holder's line is cut.
    LeaderPaused(Duration),
    /// It follows while its leader is stopped for such a moment; then the holder's line is cut.
    LeaderOfPaused(Duration),
}

impl Fault {
    fn is_pause(self) -> bool {
        matches!(self, Self::LeaderPaused(_) | Self::LeaderOfPaused(_))
    }
}

/// What differs between the products.
trait Kind: Product {
    const NAME: &'static str;
    fn url(hosts: &str) -> String;
    fn open(
        url: String,
    ) -> impl Future<Output = Result<Arc<dyn DistributedLock>, lock_core::LockError>> + Send + 'static;
}

impl Kind for Zk {
    const NAME: &'static str = "zk";
    fn url(hosts: &str) -> String {
        format!("zk://{hosts}/locks")
    }
    async fn open(url: String) -> Result<Arc<dyn DistributedLock>, lock_core::LockError> {
        Ok(Arc::new(ZkLock::connect(ZkConfig::from_url(&url)?).await?))
    }
}

impl Kind for Etcd {
    const NAME: &'static str = "etcd";
    fn url(hosts: &str) -> String {
        format!("etcd://{hosts}")
    }
    async fn open(url: String) -> Result<Arc<dyn DistributedLock>, lock_core::LockError> {
        Ok(Arc::new(EtcdLock::connect(EtcdConfig::from_url(&url)?).await?))
    }
}

async fn manager<P: Kind>(hosts: &str) -> Result<LockManager, Stop> {
    Ok(LockManager::builder().connect(P::open(P::url(hosts))).await?)
}

/// Looks without a pause until it is not held any more.
fn end_of(held: Held) -> thread::JoinHandle<Instant> {
    thread::spawn(move || {
        while held.is_held() {
            thread::sleep(Duration::from_micros(50));
        }
        Instant::now()
    })
}

/// What one fault showed: by how much the holder's loss came before the waiter's grant and how long that took from the fault on, or how both held
/// the lock.
type Shown = Result<(Duration, Duration), String>;

/// Strikes once. An error says that it could not be carried out.
async fn strike<P: Kind>(cluster: &Cluster<P>, fault: Fault, ttl: Duration, round: u32) -> Result<Shown, Stop> {
    let leader = cluster.leader().await?;
    let victim = match fault {
        Fault::FollowerCut | Fault::LeaderOfPaused(_) => (leader + 1) % 3,
        Fault::LeaderCut | Fault::LeaderStopped | Fault::LeaderKilled | Fault::Rolling | Fault::LeaderPaused(_) => {
            leader
        }
    };
    let host = |member: usize| format!("127.0.0.1:{}", cluster.members()[member].port());
    let line = Proxy::start(([127, 0, 0, 1], cluster.members()[victim].port()).into()).await?;
    let holder = manager::<P>(&line.address().to_string()).await?;
    let waiter = manager::<P>(&format!("{},{}", host((victim + 1) % 3), host((victim + 2) % 3))).await?;

    let name = format!("{}-{fault:?}-{round}", P::NAME);
    let mut guard = Some(holder.lock(&name).ttl(ttl).acquire().await?);
    // More locks on the same session or lease, so that something is renewed all the time; after a pause what counts is a renewal that waits since then.
    let mut beside = Vec::new();
    for number in 0..if fault.is_pause() || fault == Fault::Rolling { 0 } else { 8 } {
        sleep(ttl / 24).await;
        beside.push(holder.lock(format!("{name}-{number}")).ttl(ttl).acquire().await?);
    }
    let (queue, waited) = (waiter.clone(), name.clone());
    let waiting = tokio::spawn(async move {
        let granted = queue.lock(waited).ttl(ttl).wait_forever().acquire().await;
        (Instant::now(), granted)
    });
    // At another phase of the renewals in each round.
    sleep(ttl / 3 * (round * 7 % 20) / 20).await;
    let held = guard.as_ref().ok_or("nothing is held")?;
    ensure!(held.is_held() && !waiting.is_finished(), "it was lost before anything happened");
    let lost = end_of(held.held());
    let told = tokio::spawn(held.lost());
    let struck = Instant::now();
    match fault {
        Fault::FollowerCut | Fault::LeaderCut => cluster.cut(victim, true),
        Fault::LeaderStopped => cluster.members()[victim].stop()?,
        Fault::LeaderKilled => cluster.members()[victim].kill()?,
        Fault::Rolling => {
            for member in cluster.members() {
                member.start_again(cluster.product())?;
                cluster.ready().await?;
            }
            // It may have been held through all of it; then it is given up now.
            drop(guard.take());
        }
        Fault::LeaderPaused(pause) | Fault::LeaderOfPaused(pause) => {
            cluster.members()[leader].stop()?;
            sleep(pause).await;
            cluster.members()[leader].resume()?;
            sleep(Duration::from_millis(30)).await;
            line.black_hole(true);
        }
    }
    let Ok(waited) = timeout(ttl * 4 + Duration::from_secs(20), waiting).await else {
        return Err(format!("nobody was granted {name}; {}", state(cluster, &waiter, &name).await).into());
    };
    let (granted, answer) = waited?;
    let next = answer?;
    // A loss that is told from here on is too late.
    heal(cluster)?;
    // The thread must have seen it by now, or sees it at once.
    let lost = tokio::task::spawn_blocking(move || lost.join()).await?.map_err(|_| "the look panicked")?;
    // Who gave it up himself is told of no loss.
    let reason = if fault == Fault::Rolling { None } else { Some(told.await?) };
    let (lost, granted) = (lost - struck, granted - struck);
    println!("{name}: lost ({reason:?}) after {lost:?}, granted after {granted:?}");
    line.black_hole(false);
    next.release().await?;
    drop((guard, beside));
    // Not every line works yet; what is left ends with its TTL.
    let _ = timeout(Duration::from_secs(1), holder.close()).await;
    waiter.close().await?;
    let (margin, both) = (granted.checked_sub(lost), "both held it");
    Ok(margin
        .map(|margin| (margin, granted))
        .ok_or_else(|| format!("{name}: {both}: granted after {granted:?}, lost after {lost:?} only ({reason:?})")))
}

/// What the members and the waiter's side say, for when nothing moves.
async fn state<P: Kind>(cluster: &Cluster<P>, waiter: &LockManager, name: &str) -> String {
    let mut said = Vec::new();
    for (number, member) in cluster.members().iter().enumerate() {
        let (serves, leads) =
            (cluster.product().serves(member.port()).await, cluster.product().leads(member.port()).await);
        said.push(format!("member {number} serves: {serves}, leads: {leads}"));
    }
    format!("{}; the waiter's side sees {:?}", said.join("; "), waiter.inspect(name).await)
}

fn heal<P: Kind>(cluster: &Cluster<P>) -> Result<(), Stop> {
    for (number, member) in cluster.members().iter().enumerate() {
        cluster.cut(number, false);
        if member.has_ended() { member.start_again(cluster.product())? } else { member.resume()? }
    }
    Ok(())
}

/// Strikes, and once more where servers that were hurt before had not come to rest yet.
async fn strike_well<P: Kind>(cluster: &Cluster<P>, fault: Fault, ttl: Duration, round: u32) -> Result<Shown, Stop> {
    let mut tries = 4;
    loop {
        let struck = strike(cluster, fault, ttl, round).await;
        // Whatever came of it, the next finds all well.
        heal(cluster)?;
        cluster.ready().await?;
        tries -= 1;
        match struck {
            Err(stop) if tries > 0 => println!("{} {fault:?} {round}: {stop:?}; once more", P::NAME),
            struck => return struck,
        }
    }
}

async fn besiege<P: Kind>(product: P, faults: impl Fn(u32) -> Vec<(Fault, Duration)>) -> Result<(), Stop> {
    let asked = std::env::var("CLUSTER_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let rounds = asked.unwrap_or(3);
    let cluster = Cluster::of(product, 3).await?;
    let all = faults(0).len();
    let (mut margins, mut broken) = (vec![Vec::new(); all], Vec::new());
    for round in 0..rounds {
        for (number, (fault, ttl)) in faults(round).into_iter().enumerate() {
            // They take their time; once each will do, unless more was asked for.
            if (fault.is_pause() || fault == Fault::Rolling) && round > 0 && asked.is_none() {
                continue;
            }
            match strike_well(&cluster, fault, ttl, round).await? {
                Ok(shown) => margins[number].push(shown),
                Err(both) => broken.push(both),
            }
        }
    }
    for (number, (fault, ttl)) in faults(0).into_iter().enumerate() {
        let margins = &mut margins[number];
        margins.sort();
        if let Some((least, _)) = margins.first() {
            let (of, median) = (margins.len(), margins[margins.len() / 2].0);
            let mut grants: Vec<_> = margins.iter().map(|(_, granted)| *granted).collect();
            grants.sort();
            let (p50, worst) = (grants[of / 2], grants[of - 1]);
            println!(
                "{} {fault:?} TTL {ttl:?}: next grant p50 {p50:.1?}, worst {worst:.1?}; lost before that by {least:?} at least, {median:?} in the median; of {of}",
                P::NAME
            );
        }
    }
    ensure!(broken.is_empty(), "{broken:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn zookeeper_never_grants_what_is_held_beyond_a_cut() -> Result<(), Stop> {
    let ms = Duration::from_millis;
    besiege(Zk { tick: 100, sync_limit: 5 }, |round| {
        let pause = ms(1_000 + u64::from(round * 300 % 900));
        vec![
            (Fault::FollowerCut, ms(2_000)),
            (Fault::LeaderCut, ms(2_000)),
            (Fault::LeaderStopped, ms(2_000)),
            (Fault::LeaderKilled, ms(2_000)),
            (Fault::Rolling, ms(2_000)),
            (Fault::LeaderPaused(pause), ms(3_000)),
            (Fault::LeaderOfPaused(pause), ms(3_000)),
        ]
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_never_grants_what_is_held_beyond_a_cut() -> Result<(), Stop> {
    let ms = Duration::from_millis;
    besiege(Etcd::with(&[]), |round| {
        let pause = ms(700 + u64::from(round * 100 % 300));
        vec![
            (Fault::FollowerCut, ms(2_000)),
            (Fault::LeaderCut, ms(2_000)),
            (Fault::LeaderStopped, ms(2_000)),
            (Fault::LeaderKilled, ms(2_000)),
            (Fault::Rolling, ms(2_000)),
            (Fault::LeaderPaused(pause), ms(6_000)),
            (Fault::LeaderOfPaused(pause), ms(6_000)),
        ]
    })
    .await
}
