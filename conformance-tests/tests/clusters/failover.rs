//! A group that replicates later than it answers: how long nobody is granted anything after a fault, and whether two ever hold one lock.

use std::thread;
use std::time::{Duration, Instant};

use conformance_tests::{Stop, ensure, eventually};
use lock_core::{Held, LockManager};
use tokio::time::{sleep, timeout};

/// What happens to the primary of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is killed, and comes back once another one has taken over.
    Killed,
    /// It is stopped until another one has taken over.
    Stopped,
    /// It is cut off from all other servers; clients reach all.
    CutOff,
    /// It is cut off, and the holder is on its side of the cut.
    WrongSide,
    /// As `WrongSide`, with a holder that has its grants and renewals confirmed by a replica.
    WrongSideConfirmed,
    /// Every server is killed and comes back at once, one after another.
    Rolling,
}

impl Fault {
    fn is_cut(self) -> bool {
        matches!(self, Self::CutOff | Self::WrongSide | Self::WrongSideConfirmed)
    }

    fn holder_is_cut_off(self) -> bool {
        matches!(self, Self::WrongSide | Self::WrongSideConfirmed)
    }
}

/// A group of servers, one of which is the primary of a lock.
pub(crate) trait Group: Sync {
    const NAME: &'static str;
    /// The number of the primary of the lock's name.
    fn primary(&self) -> impl Future<Output = Result<usize, Stop>> + Send;
    /// A client. As the holder it is told from the others by its lines.
    fn client(&self, holder: bool, min_replicas: u32) -> impl Future<Output = Result<LockManager, Stop>> + Send;
    fn servers(&self) -> usize;
    fn kill(&self, server: usize) -> Result<(), Stop>;
    fn start_again(&self, server: usize) -> impl Future<Output = Result<(), Stop>> + Send;
    fn freeze(&self, server: usize, frozen: bool) -> Result<(), Stop>;
    fn cut_off(&self, server: usize, off: bool);
    /// Cuts the holder's lines to all but this server.
    fn cut_holder(&self, server: usize, off: bool);
    /// Somebody else takes over where the group does not do that by itself.
    fn take_over(&self, from: usize, fault: Fault) -> impl Future<Output = Result<(), Stop>> + Send;
    /// Waits until all is well; a server that is to follow does.
    fn ready(&self) -> impl Future<Output = Result<(), Stop>> + Send;
}

/// The TTL of the lock that is held. A failover takes about half of it.
const TTL: Duration = Duration::from_secs(6);

/// What a fault showed.
#[derive(Debug)]
pub(crate) struct Shown {
    /// From the fault until a waiting client was granted another lock of the same primary.
    next: Duration,
    /// Whether the holder kept its lock through it.
    kept: bool,
    /// For how long two believed themselves holders.
    both: Duration,
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

/// All names of one round stand in one slot of a cluster.
pub(crate) const TAG: &str = "{lock}";

pub(crate) async fn strike<G: Group>(group: &G, fault: Fault, round: u32) -> Result<Shown, Stop> {
    group.ready().await?;
    let name = format!("{TAG}-{}-{fault:?}-{round}", G::NAME);
    let confirmed = u32::from(fault == Fault::WrongSideConfirmed);
    let (holder, other) = (group.client(true, confirmed).await?, group.client(false, 0).await?);
    let guard = holder.lock(&name).ttl(TTL).acquire().await?;
    let token = guard.fencing_token();
    let (queue, waited) = (other.clone(), name.clone());
    let waiting = tokio::spawn(async move {
        let granted = queue.lock(waited).ttl(TTL).wait_forever().acquire().await;
        (Instant::now(), granted)
    });
    // At another phase of the renewals in each round.
    sleep(Duration::from_millis(300) + TTL / 3 * (round * 7 % 20) / 20).await;
    ensure!(guard.is_held() && !waiting.is_finished(), "it was lost before anything happened");
    let lost = end_of(guard.held());
    let primary = group.primary().await?;

    let struck = Instant::now();
    match fault {
        Fault::Killed => group.kill(primary)?,
        Fault::Stopped => group.freeze(primary, true)?,
        Fault::CutOff | Fault::WrongSide | Fault::WrongSideConfirmed => {
            group.cut_off(primary, true);
            if fault.holder_is_cut_off() {
                group.cut_holder(primary, true);
            }
        }
        Fault::Rolling => {
            for server in 0..group.servers() {
                group.kill(server)?;
                group.start_again(server).await?;
                // As whoever does it by hand: the next one when this one works again.
                group.ready().await?;
            }
        }
    }
    if fault != Fault::Rolling {
        group.take_over(primary, fault).await?;
    }
    // While the old primary still answers, a grant of the new one is what counts.
    let changed = || async { group.primary().await.is_ok_and(|now| now != primary) };
    ensure!(fault == Fault::Rolling || eventually(Duration::from_secs(60), changed).await, "nobody took over");
    let fresh = other.lock(format!("{name}-next")).ttl(TTL).wait_forever().acquire();
    let fresh = timeout(Duration::from_secs(60), fresh).await.map_err(|_| "nobody was granted anything")??;
    let next = struck.elapsed();
    drop(fresh);
    if fault.is_cut() && fault != Fault::CutOff {
        // Long enough for whoever can be told to be told.
        sleep(TTL + Duration::from_secs(1)).await;
    }
    let heal = async {
        match fault {
            Fault::Killed => group.start_again(primary).await?,
            Fault::Stopped => group.freeze(primary, false)?,
            _ => {}
        }
        group.cut_off(primary, false);
        group.cut_holder(primary, false);
        group.ready().await
    };
    heal.await?;
    // A holder that still believes has been told otherwise by its next renewal, or is right.
    sleep(TTL / 2).await;
    let kept = guard.is_held();
    if kept {
        ensure!(!waiting.is_finished(), "{name}: two holders, and nobody is told of it");
        guard.release().await?;
    } else {
        drop(guard);
    }
    let (granted, answer) =
        timeout(TTL * 2 + Duration::from_secs(10), waiting).await.map_err(|_| "nobody got in")??;
    let second = answer?;
    ensure!(second.fencing_token() > token, "{name}: the tokens do not rise");
    let lost = tokio::task::spawn_blocking(move || lost.join()).await?.map_err(|_| "the look panicked")?;
    second.release().await?;
    let shown = Shown { next, kept, both: lost.saturating_duration_since(granted) };
    println!("{name}: {shown:?}");
    let _ = timeout(Duration::from_secs(5), holder.close()).await;
    other.close().await?;
    Ok(shown)
}

/// Each fault so often, and a table of what it took. `must` says whether two may never believe themselves holders.
pub(crate) async fn besiege<G: Group>(group: &G, faults: &[Fault], must: impl Fn(Fault) -> bool) -> Result<(), Stop> {
    let rounds = std::env::var("CLUSTER_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    let mut table = Vec::new();
    for &fault in faults {
        let mut shown = Vec::new();
        for round in 0..rounds {
            shown.push(strike(group, fault, round).await?);
        }
        shown.sort_by_key(|shown| shown.next);
        let (p50, worst) = (shown[shown.len() / 2].next, shown[shown.len() - 1].next);
        let kept = shown.iter().filter(|shown| shown.kept).count();
        let twice = shown.iter().filter(|shown| !shown.both.is_zero()).count();
        let longest = shown.iter().map(|shown| shown.both).max().unwrap_or_default();
        let of = shown.len();
        table.push(format!(
            "{} {fault:?}: next grant p50 {p50:.1?}, worst {worst:.1?}; kept by its holder {kept} of {of}; two holders {twice} of {of}, for {longest:.1?} at most",
            G::NAME
        ));
        ensure!(twice == 0 || !must(fault), "{table:#?}");
    }
    println!("{}", table.join("\n"));
    Ok(())
}
