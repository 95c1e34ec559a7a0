//! The broken memory backends under torture: each dies, or there is a reason why no user of the library could see it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use lock_core::memory::Fault;

use super::driver::Torture;
use super::ground::Ground;
use crate::Stop;
use crate::harnesses::memory::MemoryHarness;

/// Mutants that no user of `LockManager` can tell from the sound backend, and why. The suite, which calls the backend itself, kills them.
pub const SURVIVORS: &[(Fault, &str)] = &[];

/// A mutant under torture.
#[derive(Clone, Debug)]
pub struct Hunt {
    /// What is broken.
    pub fault: Fault,
    /// How long it took until it was found out.
    pub took: Duration,
    /// The check that found it and what it saw; `None` where it lived on.
    pub found: Option<(&'static str, String)>,
}

impl Hunt {
    /// Whether it was found out.
    pub fn has_died(&self) -> bool {
        self.found.is_some()
    }

    fn reason(&self) -> Option<&'static str> {
        SURVIVORS.iter().find(|(fault, _)| *fault == self.fault).map(|(_, reason)| *reason)
    }

    /// Whether it died, or has a reason to live.
    pub fn is_as_expected(&self) -> bool {
        self.has_died() != self.reason().is_some()
    }
}

impl fmt::Display for Hunt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.found {
            Some((check, text)) => {
                let text: String = text.replace(['|', '\n'], "/").chars().take(110).collect();
                write!(f, "| {:?} | {:.1} s | {check} | {text} |", self.fault, self.took.as_secs_f64())
            }
            None => write!(f, "| {:?} | lives | | {} |", self.fault, self.reason().unwrap_or("NOT EXPLAINED")),
        }
    }
}

/// The ground of the mutant with this name.
///
/// # Errors
/// What kept it from starting.
///
/// # Cancel safety
/// Dropping it starts nothing.
pub async fn ground(name: &str) -> Result<Option<Ground>, Stop> {
    match Fault::ALL.iter().find(|fault| format!("{fault:?}") == name) {
        Some(fault) => Ok(Some(Ground::over(Arc::new(MemoryHarness::with_fault(*fault)), 1).await?)),
        None => Ok(None),
    }
}

/// Tortures one mutant until it is found out, for so long at the most.
///
/// # Errors
/// What kept it from being carried out.
///
/// # Cancel safety
/// Dropping it ends the run.
pub async fn hunt(fault: Fault, limit: Duration, seed: u64) -> Result<Hunt, Stop> {
    let begun = Instant::now();
    let ground = Ground::over(Arc::new(MemoryHarness::with_fault(fault)), 1).await?;
    let torture = Torture { span: limit, seed, workers: 6, hasty: true, silent: true, ..Torture::default() };
    let verdict = torture.run(ground).await?;
    let found = verdict.violations().next().map(|finding| (finding.check, finding.text.clone()));
    Ok(Hunt { fault, took: verdict.found_after.unwrap_or(begun.elapsed()), found })
}

/// How many run at a time: most of the time is spent in waiting, and a machine that lags behind excuses what it sees.
const AT_A_TIME: usize = 6;

/// These, several at a time; told one by one as they come, and answered in the order in which they were given.
///
/// # Errors
/// What kept one from being carried out.
///
/// # Cancel safety
/// Dropping it ends the runs.
pub async fn hunt_all(
    faults: &[Fault],
    limit: Duration,
    seed: u64,
    mut tell: impl FnMut(&Hunt),
) -> Result<Vec<Hunt>, Stop> {
    let hunts = faults.iter().map(|fault| hunt(*fault, limit, seed));
    let mut hunts = futures_util::stream::iter(hunts).buffered(AT_A_TIME);
    let mut all = Vec::new();
    while let Some(hunt) = hunts.next().await {
        let hunt = hunt?;
        tell(&hunt);
        all.push(hunt);
    }
    Ok(all)
}
