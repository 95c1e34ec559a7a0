//! Can this cluster keep the promises as it is configured?

use std::time::Duration;

use etcd_client::{AlarmAction, AlarmType, Client, Error, GetOptions, MemberListResponse, StatusResponse};
use lock_core::Promise::{Loss, Service, Survival, Waiting};
use lock_core::{Diagnosis, FencingToken, LockError, bounded, if_allowed};
use tokio::time::Instant;

use crate::backend::Inner;
use crate::connection::Resend;
use crate::keys::HELPERS;

/// Round trips measured.
const PINGS: usize = 5;
/// What a server takes that was told no quota.
const QUOTA: i64 = 2 << 30;

impl Inner {
    pub(crate) async fn diagnosis(&self, least: Duration) -> Result<Diagnosis, LockError> {
        let status = self.asked(|client| {
            let mut maintenance = client.maintenance_client();
            async move { maintenance.status().await }
        });
        let Some(status) = if_allowed(status.await)? else {
            let mut it = Diagnosis::new(format!("etcd at {}", self.link.servers()));
            it.unknown(Service, "status", "this user may not see it", "log in as one with the role root to look");
            return self.times(it).await;
        };
        let mut it = Diagnosis::new(format!("etcd {} at {}", status.version(), self.link.servers()));
        let revision = status.header().map_or(0, |header| header.revision());
        it.newest_token = Some(FencingToken::new(revision.unsigned_abs()));
        member(&mut it, &status);
        let members = self.asked(|client| {
            let mut cluster = client.cluster_client();
            async move { cluster.member_list().await }
        });
        members_of(&mut it, if_allowed(members.await)?.as_ref());
        let alarms = self.asked(|client| {
            let mut maintenance = client.maintenance_client();
            async move { maintenance.alarm(AlarmAction::Get, AlarmType::None, None).await }
        });
        let alarms = if_allowed(alarms.await)?;
        alarms_of(&mut it, alarms.map(|found| found.alarms().iter().map(|alarm| alarm.alarm()).collect()));
        shortest(&mut it, least);
        self.times(it).await
    }

    async fn asked<T, F>(&self, request: impl Fn(&Client) -> F) -> Result<T, LockError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let answer = async { self.link.send(Resend::Once, request).await.map_err(|failure| self.link.error(failure)) };
        bounded(self.limit, answer).await
    }

    async fn times(&self, mut it: Diagnosis) -> Result<Diagnosis, LockError> {
        let mut trips = Vec::with_capacity(PINGS);
        for _ in 0..PINGS {
            let sent = Instant::now();
            // By a majority, as each read of this library.
            bounded(self.limit, self.link.get(HELPERS.to_vec(), GetOptions::new())).await?;
            trips.push(sent.elapsed());
        }
        it.latency(&mut trips);
        Ok(it)
    }
}

fn member(it: &mut Diagnosis, status: &StatusResponse) {
    match status.leader() {
        0 => it.broken(Service, "leader", "none: no lock can be taken", "restore a majority of the members"),
        leader => it.kept(Service, "leader", format!("{leader:x}")),
    }
    if status.is_learner() {
        it.broken(Service, "member", "this one is a learner, which serves no locks", "name voting members in the URL");
    }
    let quota = Some(status.db_size_quota()).filter(|told| *told > 0);
    space(it, status.db_size(), quota);
}

/// Only servers from 3.6 on tell their quota.
fn space(it: &mut Diagnosis, size: i64, quota: Option<i64>) {
    let known = if quota.is_some() { "" } else { " (the default, since this server does not tell its own)" };
    let quota = quota.unwrap_or(QUOTA);
    let shown = format!("{} of {} MiB{known}", size >> 20, quota >> 20);
    match size < quota / 10 * 8 {
        true => it.kept(Service, "space", shown),
        false => it.limited(
            Service,
            "space",
            format!("{shown}; at the quota no lock can be taken"),
            "etcdctl compact and etcdctl defrag, or raise --quota-backend-bytes",
        ),
    }
}

fn members_of(it: &mut Diagnosis, members: Option<&MemberListResponse>) {
    let voters = members.map(|found| found.members().iter().filter(|member| !member.is_learner()).count());
    quorum(it, voters);
}

fn quorum(it: &mut Diagnosis, voters: Option<usize>) {
    match voters {
        None => {
            it.unknown(Survival, "members", "this user may not see them", "log in as one with the role root to look")
        }
        Some(voters @ 0..=2) => it.limited(
            Survival,
            "members",
            format!("{voters}: locks outlive a restart, and not the loss of a disk"),
            "run three or five members",
        ),
        Some(voters) => it.kept(
            Survival,
            "members",
            format!("{voters}: locks outlive the loss of {}, and tokens too", voters.div_ceil(2) - 1),
        ),
    }
}

fn alarms_of(it: &mut Diagnosis, alarms: Option<Vec<AlarmType>>) {
    let Some(alarms) = alarms else {
        return it.unknown(Service, "alarms", "this user may not see them", "etcdctl alarm list, as root");
    };
    if alarms.is_empty() {
        it.kept(Service, "alarms", "none");
    }
    for alarm in alarms {
        match alarm {
            AlarmType::Corrupt => it.broken(
                Service,
                "alarms",
                "CORRUPT: the members disagree about the data",
                "find the odd member (etcdctl endpoint hashkv), replace it, then etcdctl alarm disarm",
            ),
            _ => it.broken(
                Service,
                "alarms",
                "NOSPACE: the quota is reached and no lock can be taken; held ones are renewed and released",
                "etcdctl compact, etcdctl defrag, then etcdctl alarm disarm; or raise --quota-backend-bytes",
            ),
        }
    }
}

/// A dead waiter stands ahead until its lease has ended, and so does a dead holder with a TTL below.
fn shortest(it: &mut Diagnosis, least: Duration) {
    let shown = format!("the shortest lease is {least:?}");
    match least <= Duration::from_secs(1) {
        true => it.kept(Waiting, "dead waiters", shown),
        false => it.limited(
            Waiting,
            "dead waiters",
            format!("{shown}: one that dies in the queue delays those behind it for that time and up to 1 s"),
            "for 1 s: --election-timeout of 250 to 660 ms, in one data centre",
        ),
    }
    it.kept(Loss, "TTL", format!("whole seconds from {least:?} on; others are rounded up"));
}

#[cfg(test)]
mod tests {
    use lock_core::{Promise, Verdict};

    use super::*;

    fn verdict(promise: Promise, look: impl FnOnce(&mut Diagnosis)) -> Verdict {
        let mut it = Diagnosis::new("x");
        look(&mut it);
        it.verdict(promise)
    }

    #[test]
    fn fewer_than_three_voters_outlive_no_disk() {
        for (voters, expected) in [
            (None, Verdict::Unknown),
            (Some(1), Verdict::Limited),
            (Some(2), Verdict::Limited),
            (Some(3), Verdict::Kept),
            (Some(5), Verdict::Kept),
        ] {
            assert_eq!(verdict(Survival, |it| quorum(it, voters)), expected, "{voters:?}");
        }
    }

    #[test]
    fn a_full_or_damaged_store_takes_no_locks() {
        assert_eq!(verdict(Service, |it| alarms_of(it, None)), Verdict::Unknown);
        assert_eq!(verdict(Service, |it| alarms_of(it, Some(vec![]))), Verdict::Kept);
        for alarm in [AlarmType::Nospace, AlarmType::Corrupt] {
            assert_eq!(verdict(Service, |it| alarms_of(it, Some(vec![alarm]))), Verdict::NotKept);
        }
        assert_eq!(verdict(Service, |it| space(it, 9 << 20, Some(10 << 20))), Verdict::Limited);
        assert_eq!(verdict(Service, |it| space(it, 9 << 20, None)), Verdict::Kept);
    }

    #[test]
    fn long_leases_keep_dead_waiters_in_the_queue() {
        assert_eq!(verdict(Waiting, |it| shortest(it, Duration::from_secs(1))), Verdict::Kept);
        assert_eq!(verdict(Waiting, |it| shortest(it, Duration::from_secs(2))), Verdict::Limited);
    }
}
