//! What a backend declares of itself, and the suite proves both ways.

use std::time::Duration;

use crate::Ttl;

/// What a backend promises beyond the common contract. Declared, not guessed: the conformance suite proves each one both ways.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The fixed name of the backend, such as `redis`.
    pub backend: &'static str,
    /// How far an acknowledged lease survives faults of the backend (rule M1).
    pub durability: Durability,
    /// Who can contend for a name.
    pub reach: Reach,
    /// By how much an expiry may come later than the TTL says (rule T1).
    pub expiry_grain: Duration,
    /// Whether a restart or leader change of the backend may add one whole TTL (rule T1).
    pub restart_adds_ttl: bool,
    /// The least TTL that is granted as it is; below it the TTL is rounded up.
    pub min_ttl: Duration,
    /// The greatest TTL; above it a request is refused.
    pub max_ttl: Duration,
    /// Whether waiters get the name in order of arrival, across processes (rule W4).
    pub fifo: bool,
    /// Whether an entry removed behind the holder's back is noticed within 1 s (rule L5).
    pub pushes_loss: bool,
    /// Whether tokens go on rising after the backend has lost all its data (rule F2).
    pub fencing_survives_data_loss: bool,
    /// Whether leases survive a restart of the backend, all waiting for them included.
    pub leases_survive_restart: bool,
    /// Whether [`DistributedLock::list`](crate::DistributedLock::list) works.
    pub lists: bool,
}

impl Capabilities {
    /// The weakest promises; a backend raises what it keeps.
    pub const fn new(backend: &'static str) -> Self {
        Self {
            backend,
            durability: Durability::Volatile,
            reach: Reach::Network,
            expiry_grain: Duration::ZERO,
            restart_adds_ttl: false,
            min_ttl: Ttl::MIN,
            max_ttl: Ttl::MAX,
            fifo: false,
            pushes_loss: false,
            fencing_survives_data_loss: false,
            leases_survive_restart: false,
            lists: true,
        }
    }
}

/// What an acknowledged lease survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// A majority of several servers keeps it.
    Quorum,
    /// One durable store keeps it.
    Single,
    /// One server keeps it in memory.
    Volatile,
    /// A primary keeps it and copies it later: a failover may forget it.
    AsyncReplica,
}

/// Who can contend for a name through a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    /// Tasks and threads of one process.
    Process,
    /// Processes of one machine.
    Machine,
    /// Every machine that reaches the server.
    Network,
}
