//! Can this server keep the promises as it is configured?

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::{Diagnosis, LockError, Verdict, bounded};
use redis::Value;
use tokio::time::Instant;

use crate::backend::Inner;
use crate::scripts::{number, parts, text};

/// Round trips measured.
const PINGS: u32 = 5;

impl Inner {
    pub(crate) async fn diagnosis(&self) -> Result<Diagnosis, LockError> {
        let info = bounded(self.limit, self.link.command(&redis::cmd("INFO"))).await?;
        let info = match &info {
            Value::VerbatimString { text, .. } => text.as_str(),
            other => text(Some(other)),
        };
        let info: HashMap<&str, &str> = info.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
        let get = |key: &str| info.get(key).copied().unwrap_or("");
        let server = match get("valkey_version") {
            "" => format!("Redis {}", get("redis_version")),
            version => format!("Valkey {version}"),
        };
        let diagnosis = Diagnosis::new(server);
        let diagnosis = role(diagnosis, get("role"), get("connected_slaves"));
        let diagnosis = eviction(diagnosis, get("maxmemory"), get("maxmemory_policy"));
        let diagnosis = persistence(diagnosis, get("aof_enabled"), get("rdb_last_bgsave_status"));
        self.times(diagnosis).await
    }

    /// Latency and the difference of the clocks.
    async fn times(&self, diagnosis: Diagnosis) -> Result<Diagnosis, LockError> {
        let mut best = Duration::MAX;
        let mut apart = 0;
        for _ in 0..PINGS {
            let sent = Instant::now();
            let answer = bounded(self.limit, self.link.command(&redis::cmd("TIME"))).await?;
            let trip = sent.elapsed();
            if trip < best {
                best = trip;
                let theirs = number(parts(&answer).first()).unwrap_or(0) * 1000
                    + number(parts(&answer).get(1)).unwrap_or(0) / 1000;
                let ours = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
                apart = i64::try_from(ours).unwrap_or(i64::MAX).saturating_sub(theirs);
            }
        }
        let verdict = if best < Duration::from_millis(100) { Verdict::Good } else { Verdict::Limited };
        let latency = format!("a round trip takes {best:.1?}; a TTL should be at least 20 times as long");
        let verdict_clock = if apart.abs() < 1000 { Verdict::Good } else { Verdict::Limited };
        let clock = format!(
            "the clocks of server and client differ by {apart} ms; leases do not depend on it, what `since` shows does"
        );
        Ok(diagnosis.finding("M2", verdict, latency).finding("T3", verdict_clock, clock))
    }
}

fn role(diagnosis: Diagnosis, role: &str, replicas: &str) -> Diagnosis {
    match (role, replicas) {
        ("master", "0" | "") => diagnosis.finding(
            "M1",
            Verdict::Limited,
            "one server without replicas: exclusion holds while it keeps its memory",
        ),
        ("master", n) => diagnosis.finding(
            "M1",
            Verdict::Limited,
            format!("{n} replicas are fed asynchronously: a failover may forget the last grants; use fencing tokens"),
        ),
        ("slave", _) => {
            diagnosis.finding("M1", Verdict::Bad, "this server is a replica and refuses writes; give the primary")
        }
        _ => diagnosis.finding("M1", Verdict::Unknown, "the server does not say what its role is"),
    }
}

fn eviction(diagnosis: Diagnosis, limit: &str, policy: &str) -> Diagnosis {
    match (limit, policy) {
        (_, "noeviction") => diagnosis.finding("L5", Verdict::Good, "the server evicts nothing"),
        (_, "") => diagnosis.finding("L5", Verdict::Unknown, "the eviction policy is not shown to this user"),
        ("0", policy) => diagnosis.finding("L5", Verdict::Limited, format!("maxmemory-policy is {policy}; without maxmemory nothing is evicted yet")),
        (_, policy) => diagnosis.finding(
            "L5",
            Verdict::Bad,
            format!("maxmemory-policy is {policy}: a held lock may be evicted; set noeviction, or lock in a server of its own"),
        ),
    }
}

fn persistence(diagnosis: Diagnosis, aof: &str, last_save: &str) -> Diagnosis {
    let diagnosis = match aof {
        "1" => diagnosis.finding("F2", Verdict::Good, "the append-only file is on: leases come back after a restart, the last second perhaps not"),
        "0" => diagnosis.finding(
            "F2",
            Verdict::Limited,
            "the append-only file is off: a restart forgets leases; tokens go on rising as long as the server's clock does",
        ),
        _ => diagnosis.finding("F2", Verdict::Unknown, "the server does not say whether it persists"),
    };
    match last_save {
        "err" => diagnosis.finding(
            "E2",
            Verdict::Bad,
            "the last save to disk failed: the server may refuse writes (MISCONF)",
        ),
        _ => diagnosis,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(diagnosis: &Diagnosis) -> Verdict {
        diagnosis.findings.last().unwrap().verdict
    }

    #[test]
    fn a_policy_that_evicts_locks_is_bad_once_there_is_a_limit() {
        let new = || Diagnosis::new("x");
        assert_eq!(verdict(&eviction(new(), "0", "noeviction")), Verdict::Good);
        assert_eq!(verdict(&eviction(new(), "0", "allkeys-lru")), Verdict::Limited);
        assert_eq!(verdict(&eviction(new(), "100", "volatile-ttl")), Verdict::Bad);
        assert_eq!(verdict(&role(new(), "slave", "0")), Verdict::Bad);
        assert_eq!(verdict(&persistence(new(), "1", "err")), Verdict::Bad);
    }
}
