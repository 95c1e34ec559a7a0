//! The table of faults: what each does, what it needs, and how long it lasts.

use crate::Need;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blow {
    /// The worker is gone, and another takes its place.
    Kill,
    /// The worker is stopped and goes on.
    Halt,
    /// The worker's own runtime is blocked by a task that sleeps on its thread.
    Block,
    /// The worker can open no file or socket.
    Starve,
    Cut,
    Refuse,
    SlowRequests,
    SlowReplies,
    BlackHole,
    CutAfterRequest,
    HalfOpen,
    Trickle,
    ServerKill,
    ServerStop,
    ReadOnly,
    Remove,
    Replace,
    /// A client takes the name and is never heard of again.
    Abandon,
    /// A client wakes too late.
    Frozen,
    Queues,
    Clients,
    Scripts,
    Memory,
    Leases,
    LeaderKill,
    LeaderStop,
}

/// What a fault needs of the ground on which it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// Nothing.
    Nothing,
    /// Workers that are processes of their own.
    Processes,
    /// Workers that are threads of this process, and cannot be killed with what they hold.
    Threads,
    /// What the suite's harness can do.
    Harness(Need),
    /// A server of this product that the run has started itself.
    Own(&'static str),
    /// Several members.
    Members,
}

/// One kind of fault.
#[derive(Debug)]
pub(super) struct Fault {
    /// Its name in schedules and verdicts.
    pub(super) name: &'static str,
    pub(super) blow: Blow,
    pub(super) wants: Wants,
    /// How long it lasts, in milliseconds.
    pub(super) span: (u64, u64),
    pub(super) weight: u64,
}

impl Fault {
    /// Whether it hits what stands under a name.
    pub(super) fn is_of_a_name(&self) -> bool {
        matches!(self.blow, Blow::Remove | Blow::Replace | Blow::Abandon | Blow::Frozen | Blow::Queues)
    }

    /// Whether it touches nothing that a worker takes.
    pub(super) fn is_alone(&self) -> bool {
        self.blow == Blow::Frozen
    }

    /// Whether it shows what the backend does by itself; for as long as nothing, it hits a name that no worker takes.
    pub(super) fn needs_no_worker(&self) -> bool {
        matches!(self.blow, Blow::Frozen | Blow::Abandon)
    }

    /// Whether it hits one worker, or its line.
    pub(super) fn is_of_a_worker(&self) -> bool {
        use Blow::{
            BlackHole, Block, Cut, CutAfterRequest, HalfOpen, Halt, Kill, Refuse, SlowReplies, SlowRequests, Starve,
            Trickle,
        };
        matches!(
            self.blow,
            Kill | Halt
                | Block
                | Starve
                | Cut
                | Refuse
                | SlowRequests
                | SlowReplies
                | BlackHole
                | CutAfterRequest
                | HalfOpen
                | Trickle
        )
    }
}

const fn row(name: &'static str, blow: Blow, wants: Wants, span: (u64, u64), weight: u64) -> Fault {
    Fault { name, blow, wants, span, weight }
}

/// All kinds. A run takes those whose needs its ground has.
pub(super) const FAULTS: &[Fault] = &[
    row("worker killed", Blow::Kill, Wants::Nothing, (0, 0), 8),
    row("worker stopped", Blow::Halt, Wants::Processes, (100, 1_200), 5),
    row("worker stopped for longer than its TTL", Blow::Halt, Wants::Processes, (1_600, 6_000), 3),
    row("worker's runtime blocked", Blow::Block, Wants::Nothing, (100, 5_000), 4),
    row("no files left in a worker", Blow::Starve, Wants::Processes, (200, 3_000), 3),
    row("line cut", Blow::Cut, Wants::Harness(Need::Network), (0, 0), 5),
    row("connections refused", Blow::Refuse, Wants::Harness(Need::Network), (200, 3_000), 3),
    row("requests delayed", Blow::SlowRequests, Wants::Harness(Need::Network), (200, 3_000), 3),
    row("replies delayed", Blow::SlowReplies, Wants::Harness(Need::Network), (200, 3_000), 3),
    row("line dark", Blow::BlackHole, Wants::Harness(Need::Network), (200, 6_000), 4),
    row("line cut after the request", Blow::CutAfterRequest, Wants::Harness(Need::Network), (100, 1_000), 4),
    row("connections half open", Blow::HalfOpen, Wants::Harness(Need::Network), (500, 6_000), 3),
    row("replies trickle", Blow::Trickle, Wants::Harness(Need::Network), (500, 3_000), 2),
    row("server killed", Blow::ServerKill, Wants::Harness(Need::Server), (0, 1_000), 3),
    row("server stopped", Blow::ServerStop, Wants::Harness(Need::Freeze), (200, 4_000), 3),
    row("server read-only", Blow::ReadOnly, Wants::Harness(Need::Refusal), (200, 3_000), 2),
    row("entry removed by hand", Blow::Remove, Wants::Nothing, (0, 0), 4),
    row("owner replaced by hand", Blow::Replace, Wants::Nothing, (0, 0), 3),
    row("holder dies", Blow::Abandon, Wants::Threads, (0, 2), 8),
    row("client frozen", Blow::Frozen, Wants::Threads, (0, 0), 10),
    row("queue deleted by hand", Blow::Queues, Wants::Own("redis"), (0, 0), 2),
    row("clients killed", Blow::Clients, Wants::Own("redis"), (0, 0), 3),
    row("clients killed", Blow::Clients, Wants::Own("mysql"), (0, 0), 4),
    row("scripts flushed", Blow::Scripts, Wants::Own("redis"), (0, 0), 2),
    row("no memory left", Blow::Memory, Wants::Own("redis"), (200, 3_000), 2),
    row("leases revoked", Blow::Leases, Wants::Own("etcd"), (0, 0), 3),
    row("leader killed", Blow::LeaderKill, Wants::Members, (500, 4_000), 4),
    row("leader stopped", Blow::LeaderStop, Wants::Members, (500, 6_000), 4),
];
