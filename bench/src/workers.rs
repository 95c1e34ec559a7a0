//! Workers that are tasks of this process.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::Stop;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::clock::{exact_sleep, now};
use crate::grants::{Grant, Grants};
use crate::order::{Mode, Order};

/// One way to lock: ours, a floor or a peer.
pub trait Client: Send + Sync + 'static {
    type Held: Send;

    /// Waits until the name is held. May be dropped.
    fn acquire(&self, name: &str) -> impl Future<Output = Result<Self::Held, Stop>> + Send;

    fn release(&self, held: Self::Held) -> impl Future<Output = Result<(), Stop>> + Send;
}

/// Who carries out orders: tasks, a program, or many programs.
#[async_trait]
pub trait Runner: Send {
    async fn run(&mut self, order: &Order) -> Result<Grants, Stop>;
}

/// Tasks with these clients: all of them share the first, but for turns, where the second worker has the last.
pub struct Tasks<C>(pub Vec<Arc<C>>);

#[async_trait]
impl<C: Client> Runner for Tasks<C> {
    async fn run(&mut self, order: &Order) -> Result<Grants, Stop> {
        // Turns: what lets the other one ask. The first asks at once, the second when it holds.
        let gates: Arc<[Semaphore]> = [Semaphore::new(0), Semaphore::new(0)].into();
        let end = Instant::now() + order.span;
        let mut tasks = Vec::new();
        for worker in 0..order.workers {
            let share = if order.mode == Mode::Turns && worker > 0 { self.0.last() } else { self.0.first() };
            let client = Arc::clone(share.ok_or("a row without a client")?);
            tasks.push(tokio::spawn(work(client, order.clone(), worker, end, Arc::clone(&gates))));
        }
        let mut grants = Grants::default();
        for task in tasks {
            grants.0.push(task.await??);
        }
        Ok(grants)
    }
}

async fn work<C: Client>(
    client: Arc<C>,
    order: Order,
    worker: usize,
    end: Instant,
    gates: Arc<[Semaphore]>,
) -> Result<Vec<Grant>, Stop> {
    let (name, turns) = (order.name_of(worker), order.mode == Mode::Turns);
    let mut grants = Vec::new();
    if turns && worker > 0 && !passes(&gates[worker], end).await {
        return Ok(grants);
    }
    while Instant::now() < end {
        let asked = now();
        let held = match order.mode {
            // Nobody is in the way, and a timer costs.
            Mode::Apart => client.acquire(&name).await?,
            _ => match timeout_at(end, client.acquire(&name)).await {
                Ok(held) => held?,
                Err(_) => break,
            },
        };
        let acquired = now();
        if turns {
            gates[1 - worker].add_permits(1);
        }
        if order.hold > Duration::ZERO {
            exact_sleep(order.hold).await?;
        }
        let releasing = now();
        client.release(held).await?;
        grants.push(Grant(asked, acquired, releasing, now()));
        if turns && !passes(&gates[worker], end).await {
            break;
        }
    }
    Ok(grants)
}

/// Waits to be let through, up to the end.
async fn passes(gate: &Semaphore, end: Instant) -> bool {
    match timeout_at(end, gate.acquire()).await {
        Ok(Ok(permit)) => {
            permit.forget();
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::memory::InProcess;

    fn order(mode: Mode, workers: usize) -> Order {
        let (span, hold) = (Duration::from_millis(300), Duration::from_millis(1));
        Order { mode, name: "n".into(), workers, span, hold }
    }

    #[tokio::test]
    async fn turns_alternate_and_wait() -> Result<(), Stop> {
        let grants = Tasks(vec![Arc::new(InProcess::default())]).run(&order(Mode::Turns, 2)).await?;
        let (least, most) = grants.least_and_most();
        assert!(least > 0 && most - least <= 1, "{least} and {most}");
        // Each grant but the first was waited for, and the last may have nobody after it.
        assert!(grants.hand_overs()?.len() + 2 >= grants.count());
        Ok(())
    }

    #[tokio::test]
    async fn workers_together_exclude_each_other() -> Result<(), Stop> {
        let grants = Tasks(vec![Arc::new(InProcess::default())]).run(&order(Mode::Together, 4)).await?;
        grants.hand_overs()?;
        assert!(grants.count() > 0 && grants.0.len() == 4);
        Ok(())
    }
}
