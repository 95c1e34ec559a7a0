//! How to change, under a lock, something that the lock alone protects.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::{LockError, LockGuard, LockManager, Released};
use tokio::sync::watch;

use crate::shop::{Sale, Shop};

/// Choosing, paying: the time between reading the stock and writing it back.
const PAUSE: Duration = Duration::from_millis(1);

/// One customer who wants one thing.
pub(crate) struct Buyer {
    pub(crate) name: String,
    pub(crate) product: usize,
    /// How long to wait in all.
    pub(crate) patience: Duration,
    pub(crate) locks: LockManager,
    pub(crate) shop: Arc<Shop>,
}

/// What became of a buyer.
#[derive(Debug, Default)]
pub(crate) struct Visit {
    pub(crate) outcome: Outcome,
    /// From asking for the lock to having it.
    pub(crate) waited: Duration,
    /// How often the lock was lost before anything was written.
    pub(crate) lost: usize,
    /// Whether the release was not confirmed in time, or the lock was found gone by then.
    pub(crate) unconfirmed: bool,
}

#[derive(Debug, Default)]
pub(crate) enum Outcome {
    Bought(Instant),
    SoldOut,
    /// The lock was not to be had, within the wait limit or at all.
    GaveUp(LockError),
    /// The book could not be read or written.
    Failed(io::Error),
    /// The shop was closed meanwhile.
    #[default]
    WentHome,
}

/// What one turn at the counter came to.
enum Turn {
    Over(Outcome),
    /// The lock was lost, and nothing has been written.
    LostBeforeWrite,
}

impl Buyer {
    /// Queues until served, refused or closed out.
    pub(crate) async fn visit(&self, stopped: &mut watch::Receiver<bool>) -> Visit {
        let mut visit = Visit::default();
        let came = Instant::now();
        loop {
            let asked = Instant::now();
            // The wait limit covers the queue and outages alike: the library asks again for as long as it lasts.
            let patience = self.patience.saturating_sub(came.elapsed());
            let request = self.locks.lock(format!("flash-sale:{}", self.product)).wait(patience);
            let acquired = tokio::select! {
                biased;
                // Dropping the request gives up the place in the queue.
                _ = stopped.wait_for(|stopped| *stopped) => return visit,
                acquired = request.acquire() => acquired,
            };
            visit.waited += asked.elapsed();
            let guard = match acquired {
                Ok(guard) => guard,
                Err(error) => {
                    visit.outcome = Outcome::GaveUp(error);
                    return visit;
                }
            };
            match self.buy(&guard).await {
                Ok(Turn::Over(outcome)) => {
                    visit.outcome = outcome;
                    // The sale stands, whatever becomes of the release: one that is not confirmed goes on in the background, and
                    // what no release removes the TTL does.
                    visit.unconfirmed = !matches!(guard.release().await, Ok(Released::Released));
                    return visit;
                }
                // Nothing from before counts any more: neither the book that was read nor the token. So to the end of the queue.
                Ok(Turn::LostBeforeWrite) => visit.lost += 1,
                Err(error) => {
                    visit.outcome = Outcome::Failed(error);
                    return visit;
                }
            }
        }
    }

    /// Reads, pauses, writes back.
    async fn buy(&self, guard: &LockGuard) -> io::Result<Turn> {
        // Small files on a local disk, so reading them here is quicker than a hop to another thread.
        let mut book = self.shop.read(self.product)?;
        if book.len() >= self.shop.stock {
            // True for good, since nothing comes back into stock; else this would need the look below, too.
            return Ok(Turn::Over(Outcome::SoldOut));
        }
        tokio::time::sleep(PAUSE).await;
        let sale = Sale { buyer: self.name.clone(), token: guard.fencing_token().get() };
        book.push(sale.clone());
        // The last look, with no await between it and the write. While the lock is held nobody else can be inside, and some of its time must
        // be left for the write itself. What no look can cover is a machine that stands still right here for longer than that: where
        // it matters, the resource refuses an older token, as in the example `fenced_row`.
        if guard.remaining() < guard.ttl() / 10 {
            return Ok(Turn::LostBeforeWrite);
        }
        self.shop.write(self.product, &book, &self.name)?;
        self.shop.hand_out_receipt(self.product, &sale)?;
        Ok(Turn::Over(Outcome::Bought(Instant::now())))
    }
}
