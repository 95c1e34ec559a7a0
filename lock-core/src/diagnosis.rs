//! What a backend says of its own fitness: what was seen, and from that a verdict for each promise.

use std::time::Duration;

use crate::{Capabilities, ErrorKind, FencingToken, LockError, Reach};

/// Above this round trip, and this difference of clocks, a finding is limited.
const SLOW: Duration = Duration::from_millis(100);
const APART_MS: i64 = 1000;

/// What users rely on, as few sentences as there are: each stands for some rules of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Promise {
    /// Locks can be taken and given back at all.
    Service,
    /// One holder at a time.
    Exclusion,
    /// A lease ends in time, and its holder learns of it.
    Loss,
    /// Fencing tokens rise.
    Fencing,
    /// Whoever waits is woken in time.
    Waiting,
    /// Locks outlive the crash or loss of a server.
    Survival,
}

impl Promise {
    /// All promises, the most needed first.
    pub const ALL: [Self; 6] =
        [Self::Service, Self::Exclusion, Self::Loss, Self::Fencing, Self::Waiting, Self::Survival];

    /// A fixed word for scripts, such as `exclusion`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Exclusion => "exclusion",
            Self::Loss => "loss",
            Self::Fencing => "fencing",
            Self::Waiting => "waiting",
            Self::Survival => "survival",
        }
    }

    /// The promise in words.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Service => "locks can be taken and given back",
            Self::Exclusion => "one holder at a time",
            Self::Loss => "a lease ends in time, and its holder knows",
            Self::Fencing => "fencing tokens rise",
            Self::Waiting => "whoever waits is woken in time",
            Self::Survival => "locks outlive the crash or loss of a server",
        }
    }

    /// The rules of the [`contract`](crate::contract) behind it.
    pub const fn rules(self) -> &'static [&'static str] {
        match self {
            Self::Service => &["O1", "O2", "E2"],
            Self::Exclusion => &["M1", "M2"],
            Self::Loss => &["T1", "T2", "T3", "L2", "L5"],
            Self::Fencing => &["F1", "F2"],
            Self::Waiting => &["W2", "W4"],
            Self::Survival => &["M1"],
        }
    }

    /// Whether every backend owes it. How much a lock must outlive is for its user to say.
    pub const fn is_needed(self) -> bool {
        !matches!(self, Self::Survival)
    }
}

/// Whether a promise can be kept as the backend is configured. The worst is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// It can.
    Kept,
    /// It can, within limits that the finding names.
    Limited,
    /// It could not be looked at, or this user may not look.
    Unknown,
    /// It cannot.
    NotKept,
}

impl Verdict {
    /// The verdict in words, such as `kept, but`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Limited => "kept, but",
            Self::Unknown => "unknown",
            Self::NotKept => "not kept",
        }
    }
}

/// One thing that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The promise that it touches.
    pub promise: Promise,
    /// What was looked at, such as `eviction`.
    pub topic: &'static str,
    /// What was seen there, and what it means.
    pub value: String,
    /// Whether the promise can be kept with it.
    pub verdict: Verdict,
    /// What to do; empty where all is well.
    pub advice: String,
}

/// What a backend says of its own fitness.
///
/// ```
/// use lock_core::{Diagnosis, Promise, Verdict};
/// let mut it = Diagnosis::new("Redis 7.0.15 at db1:6379");
/// it.kept(Promise::Exclusion, "role", "primary");
/// it.broken(Promise::Exclusion, "eviction", "allkeys-lru: a held lock may be evicted", "set maxmemory-policy noeviction");
/// assert_eq!(it.verdict(Promise::Exclusion), Verdict::NotKept);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnosis {
    /// What answered, such as `Redis 7.0.15 at db1:6379`.
    pub server: String,
    /// One entry a matter.
    pub findings: Vec<Finding>,
    /// No token that was granted so far is above this one, where the backend can tell without a grant.
    pub newest_token: Option<FencingToken>,
}

impl Diagnosis {
    /// A diagnosis without findings.
    pub fn new(server: impl Into<String>) -> Self {
        Self { server: server.into(), findings: Vec::new(), newest_token: None }
    }

    /// Notes that all is well with a matter.
    pub fn kept(&mut self, promise: Promise, topic: &'static str, value: impl Into<String>) {
        self.note(promise, topic, Verdict::Kept, value.into(), String::new());
    }

    /// Notes a matter that limits the promise.
    pub fn limited(
        &mut self,
        promise: Promise,
        topic: &'static str,
        value: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.note(promise, topic, Verdict::Limited, value.into(), advice.into());
    }

    /// Notes a matter that breaks the promise.
    pub fn broken(
        &mut self,
        promise: Promise,
        topic: &'static str,
        value: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.note(promise, topic, Verdict::NotKept, value.into(), advice.into());
    }

    /// Notes that a matter could not be looked at.
    pub fn unknown(
        &mut self,
        promise: Promise,
        topic: &'static str,
        value: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.note(promise, topic, Verdict::Unknown, value.into(), advice.into());
    }

    fn note(&mut self, promise: Promise, topic: &'static str, verdict: Verdict, value: String, advice: String) {
        self.findings.push(Finding { promise, topic, value, verdict, advice });
    }

    /// Notes what the backend declares of itself.
    pub fn declared(&mut self, of: &Capabilities) {
        match of.reach {
            Reach::Process => self.limited(
                Promise::Exclusion,
                "reach",
                "tasks and threads of this process alone exclude each other",
                "use sqlite: for the processes of a machine, or a server",
            ),
            Reach::Machine => self.kept(Promise::Exclusion, "reach", "the processes of this machine"),
            Reach::Network => self.kept(Promise::Exclusion, "reach", "every machine that reaches the server"),
        }
        let more = if of.restart_adds_ttl { ", or one TTL more after a restart of the server" } else { "" };
        self.kept(
            Promise::Loss,
            "expiry",
            format!("at most {:?} late{more}", Duration::from_secs(1) + of.expiry_grain),
        );
        let notice = if of.pushes_loss { "within 1s" } else { "at the next renewal, within a third of the TTL" };
        self.kept(Promise::Loss, "removal", format!("an entry that is removed by hand is noticed {notice}"));
        if of.fencing_survives_data_loss {
            self.kept(Promise::Fencing, "data loss", "tokens go on rising after it");
        } else {
            self.limited(
                Promise::Fencing,
                "data loss",
                "tokens start anew when all data are lost",
                "keep the number below, and give fence_base=N in the URL after such a loss",
            );
        }
        if of.fifo {
            self.kept(Promise::Waiting, "order", "in order of arrival");
        } else {
            self.limited(
                Promise::Waiting,
                "order",
                "not strictly in order of arrival",
                "nothing to do: nobody starves; take redis, zk or etcd if the order matters",
            );
        }
    }

    /// Notes the median of some round trips.
    pub fn latency(&mut self, trips: &mut [Duration]) {
        trips.sort_unstable();
        let Some(median) = trips.get(trips.len() / 2) else { return };
        let value = format!("a round trip takes {median:.1?} (median of {})", trips.len());
        match *median < SLOW {
            true => self.kept(Promise::Loss, "latency", value),
            false => self.limited(
                Promise::Loss,
                "latency",
                value,
                format!("give TTLs of {:?} or more: 20 times as long", *median * 20),
            ),
        }
    }

    /// Notes by how many milliseconds the server's clock is ahead of this machine's.
    pub fn clocks(&mut self, ahead: i64) {
        let value = format!("the server's is {} ms {}", ahead.abs(), if ahead < 0 { "behind" } else { "ahead" });
        match ahead.abs() < APART_MS {
            true => self.kept(Promise::Fencing, "clock", value),
            false => self.limited(
                Promise::Fencing,
                "clock",
                format!("{value}; leases do not depend on it, tokens after a loss of data do"),
                "let both machines keep their time by NTP",
            ),
        }
    }

    /// Whether the promise can be kept: its worst finding; unknown where there is none.
    pub fn verdict(&self, promise: Promise) -> Verdict {
        let found = self.findings.iter().filter(|finding| finding.promise == promise);
        found.map(|finding| finding.verdict).max().unwrap_or(Verdict::Unknown)
    }
}

/// What a question was answered; `None` where this user may not ask it, or this server does not know it.
///
/// # Errors
/// All others.
pub fn if_allowed<T>(answer: Result<T, LockError>) -> Result<Option<T>, LockError> {
    match answer {
        Err(e) if matches!(e.kind(), ErrorKind::Denied | ErrorKind::Unsupported | ErrorKind::Internal) => Ok(None),
        answer => answer.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_decides_and_silence_is_no_good_sign() {
        let mut it = Diagnosis::new("x");
        assert_eq!(it.verdict(Promise::Service), Verdict::Unknown);
        it.kept(Promise::Service, "a", "");
        assert_eq!(it.verdict(Promise::Service), Verdict::Kept);
        it.limited(Promise::Service, "b", "", "");
        it.unknown(Promise::Service, "c", "", "");
        assert_eq!(it.verdict(Promise::Service), Verdict::Unknown);
        it.broken(Promise::Service, "d", "", "");
        it.kept(Promise::Service, "e", "");
        assert_eq!(it.verdict(Promise::Service), Verdict::NotKept);
        assert_eq!(it.verdict(Promise::Fencing), Verdict::Unknown);
    }

    #[test]
    fn slow_lines_and_wrong_clocks_are_limits_and_no_faults() {
        let mut it = Diagnosis::new("x");
        it.latency(&mut [9000, 1, 2].map(Duration::from_millis));
        it.clocks(-999);
        assert_eq!((it.verdict(Promise::Loss), it.verdict(Promise::Fencing)), (Verdict::Kept, Verdict::Kept));
        it.latency(&mut [Duration::from_millis(150)]);
        it.clocks(1000);
        assert_eq!((it.verdict(Promise::Loss), it.verdict(Promise::Fencing)), (Verdict::Limited, Verdict::Limited));
        assert!(it.findings[2].advice.contains("3s"), "{:?}", it.findings[2]);
    }

    #[test]
    fn a_missing_right_is_no_error() {
        let fail = |kind| if_allowed(Err::<(), _>(LockError::new(kind, "x")));
        assert_eq!(fail(ErrorKind::Denied).unwrap(), None);
        assert_eq!(fail(ErrorKind::Unavailable).unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(if_allowed(Ok(7)).unwrap(), Some(7));
    }
}
