//! Can this cluster keep the promises as it is configured?

use std::time::Duration;

use etcd_client::{AlarmAction, AlarmType, Client, GetOptions};
use lock_core::{Diagnosis, DistributedLock, LockError, Verdict, bounded};
use tokio::time::Instant;

use crate::backend::{EtcdLock, Inner};
use crate::connection::Resend;

/// Round trips measured.
const PINGS: u32 = 5;

impl Inner {
    pub(crate) async fn diagnosis(&self, least: Duration) -> Result<Diagnosis, LockError> {
        let link = &self.link;
        let request = |client: &Client| {
            let mut maintenance = client.maintenance_client();
            async move { maintenance.status().await }
        };
        let asked = async { link.send(Resend::Once, request).await.map_err(|failure| link.error(failure)) };
        let status = bounded(self.limit, asked).await?;
        let diagnosis = Diagnosis::new(format!("etcd {}", status.version()));
        let diagnosis = match self.members().await {
            Ok(1) => {
                diagnosis.finding("M1", Verdict::Limited, "a single member: what it acknowledged is lost with its disk")
            }
            Ok(n) if n % 2 == 0 => diagnosis.finding(
                "M1",
                Verdict::Limited,
                format!("{n} members: an odd number outlives as many faults with less"),
            ),
            Ok(n) => {
                diagnosis.finding("M1", Verdict::Good, format!("{n} members: it outlives {} of them", (n - 1) / 2))
            }
            Err(e) => diagnosis.finding("M1", Verdict::Unknown, format!("the members are not shown to this user: {e}")),
        };
        let diagnosis = match self.alarms().await {
            Ok(alarms) if alarms.is_empty() => diagnosis.finding("E2", Verdict::Good, "no alarm is set"),
            Ok(alarms) => diagnosis.finding(
                "E2",
                Verdict::Bad,
                format!("alarms are set ({}): writes are refused", alarms.join(", ")),
            ),
            Err(e) => diagnosis.finding("E2", Verdict::Unknown, format!("alarms are not shown to this user: {e}")),
        };
        let text = format!(
            "the shortest lease is {least:?}: a dead waiter ahead is out of the way after that time and up to 1 s"
        );
        let verdict = if least <= Duration::from_secs(1) { Verdict::Good } else { Verdict::Limited };
        self.latency(diagnosis.finding("W2", verdict, text)).await
    }

    async fn members(&self) -> Result<usize, LockError> {
        let request = |client: &Client| {
            let mut cluster = client.cluster_client();
            async move { cluster.member_list().await }
        };
        let asked = async { self.link.send(Resend::Once, request).await.map_err(|failure| self.link.error(failure)) };
        Ok(bounded(self.limit, asked).await?.members().iter().filter(|member| !member.is_learner()).count())
    }

    async fn alarms(&self) -> Result<Vec<String>, LockError> {
        let request = |client: &Client| {
            let mut maintenance = client.maintenance_client();
            async move { maintenance.alarm(AlarmAction::Get, AlarmType::None, None).await }
        };
        let asked = async { self.link.send(Resend::Once, request).await.map_err(|failure| self.link.error(failure)) };
        Ok(bounded(self.limit, asked).await?.alarms().iter().map(|alarm| format!("{:?}", alarm.alarm())).collect())
    }

    async fn latency(&self, diagnosis: Diagnosis) -> Result<Diagnosis, LockError> {
        let mut best = Duration::MAX;
        for _ in 0..PINGS {
            let sent = Instant::now();
            bounded(self.limit, self.link.get(b"\xffdistlock/".to_vec(), GetOptions::new())).await?;
            best = best.min(sent.elapsed());
        }
        let verdict = if best < Duration::from_millis(100) { Verdict::Good } else { Verdict::Limited };
        let text = format!("a read by a majority takes {best:.1?}; a TTL should be at least 20 times as long");
        Ok(diagnosis.finding("M2", verdict, text))
    }
}

impl EtcdLock {
    pub(crate) fn least(&self) -> Duration {
        self.capabilities().min_ttl
    }
}
