//! Can these servers keep the promises as they are configured?

use std::time::Duration;

use lock_core::{Diagnosis, LockError, Verdict};
use tokio::time::Instant;

use crate::backend::Inner;
use crate::errors::failed;

/// Round trips measured.
const SYNCS: u32 = 5;

impl Inner {
    pub(crate) async fn diagnosis(&self) -> Result<Diagnosis, LockError> {
        self.bounded(async {
            let client = self.pool.any().await?.client()?;
            let members = match client.get_config().await {
                Ok((members, _)) => Some(String::from_utf8_lossy(&members).into_owned()),
                Err(_) => None,
            };
            let mut best = Duration::MAX;
            for _ in 0..SYNCS {
                let sent = Instant::now();
                client.sync("/").await.map_err(failed)?;
                best = best.min(sent.elapsed());
            }
            let diagnosis = ensemble(members.as_deref());
            Ok(limits(latency(diagnosis, best), self.pool.limits()))
        })
        .await
    }
}

fn ensemble(members: Option<&str>) -> Diagnosis {
    let Some(members) = members else {
        return Diagnosis::new("ZooKeeper").finding(
            "M1",
            Verdict::Unknown,
            "the list of the ensemble's members may not be read",
        );
    };
    let servers = members.lines().filter(|line| line.starts_with("server.")).collect::<Vec<_>>();
    let voters = servers.iter().filter(|line| !line.contains(":observer")).count();
    match (servers.len(), voters) {
        (0, _) => Diagnosis::new("ZooKeeper, one server alone").finding(
            "M1",
            Verdict::Limited,
            "one server without an ensemble: exclusion holds while it keeps its disk; three servers survive the loss of one",
        ),
        (all, 0..=2) => Diagnosis::new(format!("ZooKeeper, {all} servers")).finding(
            "M1",
            Verdict::Limited,
            format!("{voters} voting servers survive the loss of none; run three or five"),
        ),
        (all, voters) => Diagnosis::new(format!("ZooKeeper, {all} servers")).finding(
            "M1",
            Verdict::Good,
            format!("{voters} voting servers: exclusion holds while {} of them keep their disks", voters / 2 + 1),
        ),
    }
}

fn latency(diagnosis: Diagnosis, best: Duration) -> Diagnosis {
    let verdict = if best < Duration::from_millis(100) { Verdict::Good } else { Verdict::Limited };
    let text = format!("a round trip by way of the leader takes {best:.1?}; a TTL should be at least 20 times as long");
    diagnosis.finding("M2", verdict, text)
}

fn limits(diagnosis: Diagnosis, (least, most): (Duration, Duration)) -> Diagnosis {
    let text = format!(
        "TTLs from {least:?} to {most:?} are granted; shorter ones are rounded up, longer ones need a greater maxSessionTimeout"
    );
    let verdict = if most >= lock_core::Ttl::DEFAULT.get() { Verdict::Good } else { Verdict::Limited };
    diagnosis.finding("T2", verdict, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_than_three_voters_are_no_good() {
        let verdict = |members: Option<&str>| ensemble(members).findings[0].verdict;
        assert_eq!(verdict(None), Verdict::Unknown);
        assert_eq!(verdict(Some("")), Verdict::Limited);
        let member = |n: u32, role: &str| format!("server.{n}=h{n}:2888:3888:{role};2181\n");
        let voters = |n| (1..=n).map(|n| member(n, "participant")).collect::<String>();
        assert_eq!(verdict(Some(&voters(2))), Verdict::Limited);
        assert_eq!(verdict(Some(&(voters(2) + &member(3, "observer")))), Verdict::Limited);
        assert_eq!(verdict(Some(&(voters(3) + "version=100000000"))), Verdict::Good);
    }
}
