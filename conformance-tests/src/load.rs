//! Load: many locks held, many waiters, many processes, many cycles, and what they cost.
//!
//! Each takes the URL of a server that nobody else uses meanwhile, since the server's own counters are read.

mod crowd;
mod cycles;
pub mod gauge;
mod held;
mod processes;

use std::time::Duration;

use lock_core::LockManager;

use crate::harnesses::attached::Attached;
use crate::{Harness, Stop};

pub use crowd::{Crowd, crowd};
pub use cycles::{Cycles, cycles};
pub use held::{Held, hold};
pub use processes::{FLAG, Turns, take_turns, turns};

/// How long an answer may take under load: a thousand requests at once stand in line at a server.
const PATIENCE: Duration = Duration::from_secs(20);

/// A manager at a URL, whose tasks live on the caller's runtime so that they can be counted.
async fn manager(url: &str) -> Result<LockManager, Stop> {
    let (attached, own) = (Attached::new(url)?, url.to_owned());
    let builder = LockManager::builder().runtime(tokio::runtime::Handle::current()).operation_timeout(PATIENCE);
    Ok(builder.connect(async move { attached.connect(&own).await }).await?)
}
