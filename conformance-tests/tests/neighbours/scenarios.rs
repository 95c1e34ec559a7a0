//! What must hold between them and us.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use conformance_tests::{Outcome, Stop, ensure, eventually};
use futures_util::future::BoxFuture;
use lock_core::{ErrorKind, HolderState, LockManager, Released, Revoke};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::Neighbour;
use crate::client::{Client, STEP_LIMIT};

pub(crate) type Scenario = fn(Arc<Neighbour>) -> BoxFuture<'static, Outcome>;

/// Each scenario has a name of its own to lock.
pub(crate) const ALL: [(&str, Scenario); 7] = [
    ("both_take_turns", |n| Box::pin(both_take_turns(n, GAP))),
    ("it_gets_its_turn_in_a_crowd", |n| Box::pin(it_gets_its_turn_in_a_crowd(n))),
    ("it_waits_while_we_hold", |n| Box::pin(it_waits_while_we_hold(n))),
    ("we_wait_while_it_holds", |n| Box::pin(we_wait_while_it_holds(n))),
    ("it_dies_holding", |n| Box::pin(it_dies_holding(n))),
    ("it_dies_waiting", |n| Box::pin(it_dies_waiting(n))),
    ("it_is_revoked", |n| Box::pin(it_is_revoked(n))),
];

const LONG: Duration = Duration::from_secs(40);
/// The time to live of whoever dies, and of ours where it must be renewed, which a busy machine must manage.
const SHORT: Duration = Duration::from_secs(6);
/// How long a waiter is watched that must not get in. Its request has long arrived by then.
const WATCHED: Duration = Duration::from_millis(700);

/// The gap that a second writer would fall into.
const GAP: Duration = Duration::from_millis(5);
/// The turns that each side takes.
const TURNS: u64 = 100;
/// The turns of a neighbour that stands in no queue, while ours do.
const TURNS_IN_A_CROWD: u64 = 3;

async fn we_wait_while_it_holds(n: Arc<Neighbour>) -> Outcome {
    let name = format!("{}-holds", n.name);
    let (ours, mut theirs) = (n.backend.locks().await?, n.client(&name, LONG).await?);
    theirs.acquire().await?;
    ensure!(ours.lock(&name).try_acquire().await?.is_none(), "both hold");
    let shown = ours.inspect(&name).await?.ok_or("inspect shows no holder")?;
    ensure!(shown.state == HolderState::Foreign, "inspect shows {shown:?}");
    let mut next = tokio::spawn(ours.lock(&name).wait(STEP_LIMIT).acquire());
    ensure!(timeout(WATCHED, &mut next).await.is_err(), "we did not wait");
    theirs.release().await?;
    let guard = next.await??;
    ensure!(guard.is_held(), "we do not hold");
    guard.release().await?;
    Ok(ours.close().await?)
}

async fn it_waits_while_we_hold(n: Arc<Neighbour>) -> Outcome {
    let name = format!("{}-waits", n.name);
    let (ours, mut theirs) = (n.backend.locks().await?, n.client(&name, LONG).await?);
    let guard = ours.lock(&name).ttl(SHORT).acquire().await?;
    theirs.ask()?;
    // For longer than the time to live, so that it meets a lease that was renewed.
    theirs.stays_silent(guard.ttl() + WATCHED).await?;
    ensure!(guard.is_held(), "it took it from us: {:?}", guard.lost_reason());
    stands_in_the_queue(&ours, &name).await?;
    guard.release().await?;
    theirs.expect("held").await?;
    ensure!(ours.lock(&name).try_acquire().await?.is_none(), "both hold");
    theirs.release().await?;
    Ok(ours.close().await?)
}

/// A backend that counts waiters counts theirs, too.
async fn stands_in_the_queue(ours: &LockManager, name: &str) -> Outcome {
    let shown = ours.inspect(name).await?.ok_or("inspect shows no holder")?;
    ensure!(shown.state == HolderState::Held, "inspect shows {shown:?}");
    // Who only tries again and again stands nowhere.
    let queues = ours.capabilities().backend != "redis";
    ensure!(!queues || shown.waiters == Some(1), "it waits, and inspect shows {shown:?}");
    Ok(())
}

async fn it_dies_holding(n: Arc<Neighbour>) -> Outcome {
    let name = format!("{}-dies-holding", n.name);
    let (ours, mut theirs) = (n.backend.locks().await?, n.client(&name, SHORT).await?);
    theirs.acquire().await?;
    let next = tokio::spawn(ours.lock(&name).wait(STEP_LIMIT).acquire());
    theirs.kill()?;
    next.await??.release().await?;
    Ok(ours.close().await?)
}

async fn it_dies_waiting(n: Arc<Neighbour>) -> Outcome {
    let name = format!("{}-dies-waiting", n.name);
    let (ours, mut theirs) = (n.backend.locks().await?, n.client(&name, SHORT).await?);
    let guard = ours.lock(&name).ttl(LONG).acquire().await?;
    theirs.ask()?;
    theirs.stays_silent(WATCHED).await?;
    theirs.kill()?;
    guard.release().await?;
    ours.lock(&name).wait(STEP_LIMIT).acquire().await?.release().await?;
    Ok(ours.close().await?)
}

async fn it_is_revoked(n: Arc<Neighbour>) -> Outcome {
    let name = format!("{}-is-revoked", n.name);
    let (ours, mut theirs) = (n.backend.locks().await?, n.client(&name, LONG).await?);
    theirs.acquire().await?;
    // A mark lets nobody in beside it, whether it is of use or refused.
    match ours.revoke(&name, None, Revoke::Mark).await {
        Ok(Released::Released) => {}
        Err(error) if error.kind() == ErrorKind::Foreign => {}
        other => return Err(format!("a mark answered {other:?}").into()),
    }
    ensure!(ours.lock(&name).try_acquire().await?.is_none(), "both hold");
    let revoked = ours.revoke(&name, None, Revoke::Now).await?;
    ensure!(revoked == Released::Released, "revoking answered {revoked:?}");
    ours.lock(&name).wait(STEP_LIMIT).acquire().await?.release().await?;
    Ok(ours.close().await?)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Ours,
    Theirs,
}

/// What nothing but the lock protects.
struct Unprotected {
    count: AtomicU64,
    /// Between reading and writing.
    gap: Duration,
    /// Who came in last.
    last: watch::Sender<Option<Side>>,
}

impl Unprotected {
    fn new(gap: Duration) -> Self {
        Self { count: AtomicU64::new(0), gap, last: watch::channel(None).0 }
    }

    /// Asks for the lock only when the other side has just got it, so that each hand-over is from one side to the other, which waits.
    async fn wait_for_turn(&self, side: Side) -> Result<(), Stop> {
        let mut last = self.last.subscribe();
        let other_is_in = timeout(STEP_LIMIT, last.wait_for(|last| *last != Some(side))).await;
        ensure!(other_is_in.is_ok(), "{side:?} side: the other one does not get its turn");
        Ok(())
    }

    /// Adds one, with a gap that a second writer would fall into: the other side asks for the lock in it.
    async fn turn(&self, side: Side) {
        self.last.send_replace(Some(side));
        let count = self.count.load(Ordering::SeqCst);
        sleep(self.gap).await;
        self.count.store(count + 1, Ordering::SeqCst);
    }
}

async fn both_take_turns(n: Arc<Neighbour>, gap: Duration) -> Outcome {
    let name = format!("{}-turns", n.name);
    let (ours, mut theirs) = (n.backend.locks().await?, n.client(&name, LONG).await?);
    let shared = Unprotected::new(gap);
    let (our_turns, their_turns) =
        tokio::try_join!(our_turns(&ours, &name, &shared), their_turns(&mut theirs, &shared))?;
    ensure!((our_turns, their_turns) == (TURNS, TURNS), "{our_turns} turns of ours, {their_turns} of theirs");
    let count = shared.count.load(Ordering::SeqCst);
    ensure!(count == 2 * TURNS, "{} turns, and the count is {count}: two were in at once", 2 * TURNS);
    let free = eventually(STEP_LIMIT, || async { matches!(ours.inspect(&name).await, Ok(None)) }).await;
    ensure!(free, "something is left behind: {:?}", ours.inspect(&name).await?);
    Ok(ours.close().await?)
}

async fn our_turns(ours: &LockManager, name: &str, shared: &Unprotected) -> Result<u64, Stop> {
    let mut turns = 0;
    while turns < TURNS {
        shared.wait_for_turn(Side::Ours).await?;
        let guard = ours.lock(name).ttl(LONG).wait(STEP_LIMIT).acquire().await?;
        shared.turn(Side::Ours).await;
        ensure!(guard.is_held(), "we lost it: {:?}", guard.lost_reason());
        guard.release().await?;
        turns += 1;
    }
    Ok(turns)
}

async fn their_turns(theirs: &mut Client, shared: &Unprotected) -> Result<u64, Stop> {
    let mut turns = 0;
    while turns < TURNS {
        shared.wait_for_turn(Side::Theirs).await?;
        theirs.acquire().await?;
        shared.turn(Side::Theirs).await;
        theirs.release().await?;
        turns += 1;
    }
    Ok(turns)
}

/// Three of ours, over two connections, so that somebody of ours always waits.
async fn it_gets_its_turn_in_a_crowd(n: Arc<Neighbour>) -> Outcome {
    let name = format!("{}-crowd", n.name);
    let (one, other) = (n.backend.locks().await?, n.backend.locks().await?);
    let mut theirs = n.client(&name, LONG).await?;
    let shared = Unprotected::new(GAP);
    let done = AtomicBool::new(false);
    let ours = async |locks: &LockManager| -> Result<u64, Stop> {
        let mut turns = 0;
        while !done.load(Ordering::SeqCst) {
            let guard = locks.lock(&name).ttl(LONG).wait(STEP_LIMIT).acquire().await?;
            shared.turn(Side::Ours).await;
            guard.release().await?;
            turns += 1;
        }
        Ok(turns)
    };
    let its = async {
        for _ in 0..TURNS_IN_A_CROWD {
            theirs.acquire().await?;
            shared.turn(Side::Theirs).await;
            theirs.release().await?;
        }
        done.store(true, Ordering::SeqCst);
        Ok(TURNS_IN_A_CROWD)
    };
    let (a, b, c, its) = tokio::try_join!(ours(&one), ours(&one), ours(&other), its)?;
    let (turns, count) = (a + b + c + its, shared.count.load(Ordering::SeqCst));
    ensure!(count == turns, "{turns} turns, and the count is {count}: two were in at once");
    one.close().await?;
    Ok(other.close().await?)
}

/// A client that does not see our locks fails where it must.
pub(crate) async fn is_caught(n: Arc<Neighbour>) -> Outcome {
    let waits = it_waits_while_we_hold(Arc::clone(&n)).await;
    ensure!(format!("{waits:?}").contains("where it had to wait"), "it does not wait, and that gives {waits:?}");
    // So long that it is in before the gap is over.
    let turns = both_take_turns(n, GAP * 10).await;
    ensure!(format!("{turns:?}").contains("two were in at once"), "nothing kept it out, and that gives {turns:?}");
    Ok(())
}
