//! How long each measure may take: the whole run stays below 15 minutes, a quick one below 2.

use std::time::Duration;

/// The hold of every contended measure.
pub const HOLD: Duration = Duration::from_millis(1);
/// So long that the other one waits and is idle when the lock is handed over.
pub const IDLE_HOLD: Duration = Duration::from_millis(5);

/// Rounds, and how long one row runs in one round.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    pub rounds: usize,
    pub span: Duration,
}

#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Names at once, and how long.
    pub names: &'static [usize],
    pub uncontended: Share,
    /// Waiters in one process.
    pub waiters: &'static [usize],
    pub contended: Share,
    /// Waiters in as many processes.
    pub processes: &'static [usize],
    pub hand_over: Share,
    pub requests: Duration,
    /// Held names, and how long they are watched.
    pub held: &'static [usize],
    pub held_span: Duration,
    pub starts: usize,
    /// Cycles under valgrind.
    pub instructions: u64,
    pub pings: usize,
}

const fn some(rounds: usize, millis: u64) -> Share {
    Share { rounds, span: Duration::from_millis(millis) }
}

impl Pace {
    pub const FULL: Self = Self {
        names: &[1, 16, 128],
        uncontended: some(7, 300),
        waiters: &[2, 16, 64],
        contended: some(3, 700),
        processes: &[2, 16, 64],
        hand_over: some(3, 1_500),
        requests: Duration::from_millis(1_200),
        held: &[1, 1_000, 10_000],
        held_span: Duration::from_secs(12),
        starts: 60,
        instructions: 5_000,
        pings: 400,
    };
    pub const QUICK: Self = Self {
        names: &[1, 16, 128],
        uncontended: some(2, 100),
        waiters: &[2, 16],
        contended: some(1, 300),
        processes: &[16],
        hand_over: some(1, 400),
        requests: Duration::from_millis(400),
        held: &[1_000],
        held_span: Duration::from_secs(11),
        starts: 15,
        instructions: 1_000,
        pings: 200,
    };
}
