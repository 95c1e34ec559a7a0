//! The torture: workers acquire, hold, renew, release, give up and die over a few names, while a seeded schedule of faults hits them,
//! their lines and the server. Each writes a history, and a checker proves from all of them that the contract was kept.
//!
//! `docs/torture.md` says how to run it and how to read its verdict.

mod acts;
pub mod checker;
mod driver;
mod faults;
mod ground;
mod hands;
pub mod history;
mod hold;
#[cfg(feature = "mutants")]
pub mod mutants;
mod plan;
mod probes;
mod progress;
mod record;
mod register;
pub mod report;
mod strays;
mod strike;
mod timeline;
mod verdict;
mod watch;
mod worker;

use std::time::Duration;

pub use driver::Torture;
pub use ground::{Ground, Refused};
pub use plan::{Dice, Strike, schedule};
pub use record::{Promises, Record, Scope, Struck};
pub use report::{timeline, write as write_report};
pub use verdict::Verdict;
pub use worker::{FLAG, obey};

/// The TTLs that locks are asked for with. The odd one shows whoever rounds down; the long one, whoever waits for an expiry instead of a wake-up.
pub(crate) const TTLS: [Duration; 3] =
    [Duration::from_millis(1_500), Duration::from_millis(1_999), Duration::from_millis(4_000)];

/// The longest of them.
pub(crate) const LONGEST_TTL: Duration = TTLS[2];

/// How far a bound may be overrun on a machine that has other things to do, beyond the stalls that are measured.
pub(crate) const SLACK: Duration = Duration::from_millis(500);
