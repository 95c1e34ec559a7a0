//! Can this server keep the promises as it is configured?

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use lock_core::Promise::{Exclusion, Loss, Service, Survival, Waiting};
use lock_core::{Diagnosis, ErrorKind, FencingToken, LockError, bounded, if_allowed};
use redis::{Cmd, Value};
use tokio::time::Instant;

use crate::backend::Inner;
use crate::errors::from_driver;
use crate::scripts::{number, parts, text};

/// Round trips measured.
const PINGS: usize = 5;
const MAY_LOOK: &str = "ACL SETUSER .. +info lets doctor look";

impl Inner {
    pub(crate) async fn diagnosis(&self) -> Result<Diagnosis, LockError> {
        let answer = if_allowed(self.asked(&redis::cmd("INFO")).await)?;
        let mut info = Info::of(answer.as_ref().map_or("", shown));
        let fewest = self.fewest_replicas(&info).await?;
        if let Some(fewest) = &fewest {
            info.0.insert("connected_slaves", fewest);
        }
        let mut it = Diagnosis::new(format!("{} at {}", info.version(), self.link.server()));
        server(&mut it, &info, self.link.replicas());
        self.group(&mut it, &info).await?;
        eviction(&mut it, &info);
        let fsync = if_allowed(self.asked(redis::cmd("CONFIG").arg("GET").arg("appendfsync")).await)?;
        let fsync = fsync.as_ref().and_then(|answer| match answer {
            Value::Map(pairs) => pairs.first().map(|(_, value)| text(Some(value))),
            other => parts(other).get(1).map(|value| text(Some(value))),
        });
        persistence(&mut it, &info, fsync);
        self.channel(&mut it).await;
        self.times(&mut it).await?;
        Ok(it)
    }

    /// A primary answers; in a cluster the first.
    async fn asked(&self, cmd: &Cmd) -> Result<Value, LockError> {
        let answer = async {
            match self.link.shards().await?.first() {
                Some(shard) => self.link.command_at(shard, cmd).await,
                None => self.link.command(cmd).await,
            }
        };
        bounded(self.limit, answer).await
    }

    /// In a cluster, how many replicas the primary has that has the fewest: there the most is lost, and `min_replicas` fails first.
    async fn fewest_replicas(&self, info: &Info<'_>) -> Result<Option<String>, LockError> {
        if !self.link.is_cluster() || info.get("connected_slaves").is_empty() {
            return Ok(None);
        }
        let ask = redis::cmd("INFO").arg("replication").to_owned();
        let shards = bounded(self.limit, self.link.shards()).await?;
        let asked = shards.iter().map(|shard| bounded(self.limit, self.link.command_at(shard, &ask)));
        // One that does not answer is the state's matter.
        let answers = join_all(asked).await.into_iter().flatten();
        let counts = answers.filter_map(|answer| Info::of(shown(&answer)).get("connected_slaves").parse::<u32>().ok());
        Ok(counts.min().map(|fewest| fewest.to_string()))
    }

    /// What stands around the server: sentinels, or the rest of a cluster.
    async fn group(&self, it: &mut Diagnosis, info: &Info<'_>) -> Result<(), LockError> {
        if let Some(sentinels) = self.link.sentinels() {
            let (able, all) = (sentinels.able().await, sentinels.count());
            let shown = format!("{able} of {all} see who is needed for a failover");
            if able * 2 > all {
                it.kept(Service, "sentinels", shown);
            } else {
                it.broken(Service, "sentinels", shown, "see SENTINEL CKQUORUM on each of them");
            }
        }
        if info.get("cluster_enabled") != "1" {
            return Ok(());
        }
        if !self.link.is_cluster() {
            it.limited(
                Service,
                "cluster",
                "this is a node of a cluster; a name whose slot another node serves is refused by it",
                "give redis+cluster://HOST",
            );
            return Ok(());
        }
        let state = if_allowed(self.asked(redis::cmd("CLUSTER").arg("INFO")).await)?;
        let state = state.as_ref().map_or("", shown);
        let primaries = bounded(self.limit, self.link.shards()).await?.len();
        match (state.contains("cluster_state:ok"), state.is_empty()) {
            (true, _) => {
                it.kept(Service, "cluster", format!("{primaries} primaries serve all slots; what follows is of one, and the replicas of the one with the fewest"));
            }
            (_, true) => it.unknown(Service, "cluster", "this user may not see its state", "ACL SETUSER .. +cluster"),
            _ => it.broken(Service, "cluster", "some slots are served by nobody", "see CLUSTER INFO"),
        }
        Ok(())
    }

    /// Whether this user may listen to wake-ups.
    async fn channel(&self, it: &mut Diagnosis) {
        let listening = async {
            let mut connection = self.link.listen().await?;
            connection.subscribe(format!("distlock:{}", self.process)).await
        };
        let heard = async { listening.await.map_err(|e| from_driver(e, self.link.server())) };
        match bounded(self.limit, heard).await {
            Ok(()) => it.kept(Waiting, "channel", "wake-ups are pushed"),
            Err(e) => {
                let why = match e.kind() {
                    ErrorKind::Denied => "this user may not listen".to_owned(),
                    _ => e.to_string(),
                };
                it.limited(
                    Waiting,
                    "channel",
                    format!("{why}: waiters poll, and a hand-over takes up to 0.2 s more"),
                    "ACL SETUSER .. &distlock:* +subscribe +publish",
                );
            }
        }
    }

    /// Latency, the difference of the clocks, and a bound on the tokens: none is beyond the server's clock.
    async fn times(&self, it: &mut Diagnosis) -> Result<(), LockError> {
        let (mut trips, mut best, mut ahead) = (Vec::with_capacity(PINGS), Duration::MAX, 0);
        for _ in 0..PINGS {
            let sent = Instant::now();
            let Some(answer) = if_allowed(self.asked(&redis::cmd("TIME")).await)? else {
                it.unknown(Loss, "latency", "this user may not ask for the time", "ACL SETUSER .. +time");
                return Ok(());
            };
            let trip = sent.elapsed();
            trips.push(trip);
            let part = |at: usize| number(parts(&answer).get(at)).unwrap_or(0);
            let theirs = part(0) * 1_000_000 + part(1);
            if trip < best {
                best = trip;
                let ours = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
                ahead = theirs.saturating_sub(i64::try_from(ours).unwrap_or(i64::MAX)) / 1000;
            }
            it.newest_token = Some(FencingToken::new(theirs.unsigned_abs()));
        }
        it.latency(&mut trips);
        it.clocks(ahead);
        Ok(())
    }
}

/// What INFO shows; what it does not show is empty.
struct Info<'a>(HashMap<&'a str, &'a str>);

/// A text, plain or verbatim.
fn shown(answer: &Value) -> &str {
    match answer {
        Value::VerbatimString { text, .. } => text,
        other => text(Some(other)),
    }
}

impl<'a> Info<'a> {
    fn of(text: &'a str) -> Self {
        Self(text.lines().filter_map(|line| line.trim_end().split_once(':')).collect())
    }

    fn get(&self, key: &str) -> &str {
        self.0.get(key).copied().unwrap_or("")
    }

    fn version(&self) -> String {
        match (self.get("valkey_version"), self.get("redis_version")) {
            ("", "") => "Redis or Valkey".into(),
            ("", version) => format!("Redis {version}"),
            (version, _) => format!("Valkey {version}"),
        }
    }
}

fn server(it: &mut Diagnosis, info: &Info<'_>, min_replicas: u32) {
    it.kept(Service, "scripts", "this user may run them");
    match (info.get("role"), info.get("connected_slaves")) {
        ("master", "0" | "") => it.limited(
            Survival,
            "replicas",
            "none: while this server is down no lock is taken or renewed",
            "let a replica stand by, where that matters",
        ),
        ("master", n) if min_replicas > 0 => it.limited(
            Survival,
            "replicas",
            format!("{n}, of which {min_replicas} have a grant before it is answered: a failover to another one may forget it"),
            "let min_replicas be the number of replicas, or check fencing tokens at the resource",
        ),
        ("master", n) => it.limited(
            Survival,
            "replicas",
            format!("{n}, fed later than a grant is answered: a failover may forget the last grants"),
            "give min_replicas in the URL, or check fencing tokens at the resource",
        ),
        ("slave", _) => it.broken(Service, "role", "a replica, which refuses writes", "give the primary in the URL"),
        _ => it.unknown(Survival, "replicas", "this user may not see them", MAY_LOOK),
    }
    if min_replicas > 0 && info.get("connected_slaves").parse::<u32>().is_ok_and(|linked| linked < min_replicas) {
        it.broken(
            Service,
            "min_replicas",
            format!("fewer than {min_replicas} are linked: nothing is granted"),
            "see INFO replication, or lower min_replicas",
        );
    }
    if info.get("rdb_last_bgsave_status") == "err" {
        it.limited(
            Service,
            "saving",
            "the last save to disk failed: the server may refuse writes (MISCONF) until one succeeds",
            "see the server's log and its disk",
        );
    }
}

fn eviction(it: &mut Diagnosis, info: &Info<'_>) {
    let (limit, policy) = (info.get("maxmemory"), info.get("maxmemory_policy"));
    let shown = format!("{policy}, maxmemory {}", if limit == "0" { "without limit" } else { limit });
    match (limit, policy) {
        (_, "") => it.unknown(Exclusion, "eviction", "this user may not see the policy", MAY_LOOK),
        (_, "noeviction") => it.kept(Exclusion, "eviction", shown),
        ("0", _) => it.limited(
            Exclusion,
            "eviction",
            format!("{shown}: with a limit, held locks could be evicted"),
            "CONFIG SET maxmemory-policy noeviction",
        ),
        _ => it.broken(
            Exclusion,
            "eviction",
            format!("{shown}: a held lock may be evicted, and then another enters beside its holder"),
            "CONFIG SET maxmemory-policy noeviction, or lock in a server of its own",
        ),
    }
    let (used, most) = (info.get("used_memory").parse::<u64>(), limit.parse::<u64>());
    if let (Ok(used), Ok(most @ 1..)) = (used, most)
        && used > most / 10 * 9
    {
        it.limited(
            Service,
            "memory",
            format!("{used} of {most} bytes are in use; at the limit no lock is taken (OOM)"),
            "free memory, or raise maxmemory",
        );
    }
}

fn persistence(it: &mut Diagnosis, info: &Info<'_>, fsync: Option<&str>) {
    match (info.get("aof_enabled"), fsync) {
        ("1", Some("always")) => it.kept(Survival, "persistence", "append-only file, each write on the disk"),
        ("1", fsync) => it.limited(
            Survival,
            "persistence",
            format!("append-only file, appendfsync {}: a crash may forget the last grants", fsync.unwrap_or("unknown")),
            "CONFIG SET appendfsync always, where that matters; each grant then waits for the disk",
        ),
        ("0", _) => it.broken(
            Survival,
            "persistence",
            "no append-only file: a restart forgets all leases, or goes back to an old snapshot",
            "CONFIG SET appendonly yes, or check fencing tokens at the resource",
        ),
        _ => it.unknown(Survival, "persistence", "this user may not see it", MAY_LOOK),
    }
}

#[cfg(test)]
mod tests {
    use lock_core::{Promise, Verdict};

    use super::*;

    fn verdict(promise: Promise, look: impl Fn(&mut Diagnosis, &Info<'_>), info: &[(&str, &str)]) -> Verdict {
        let mut it = Diagnosis::new("x");
        look(&mut it, &Info(info.iter().copied().collect()));
        it.verdict(promise)
    }

    #[test]
    fn a_policy_that_evicts_locks_breaks_exclusion_once_there_is_a_limit() {
        for (limit, policy, expected) in [
            ("0", "noeviction", Verdict::Kept),
            ("0", "allkeys-lru", Verdict::Limited),
            ("100", "noeviction", Verdict::Kept),
            ("100", "volatile-ttl", Verdict::NotKept),
            ("", "", Verdict::Unknown),
        ] {
            let info = [("maxmemory", limit), ("maxmemory_policy", policy)];
            assert_eq!(verdict(Exclusion, eviction, &info), expected, "{limit} {policy}");
        }
    }

    #[test]
    fn what_a_server_outlives_follows_from_its_role_and_its_disk() {
        let alone = |it: &mut Diagnosis, info: &Info<'_>| server(it, info, 0);
        assert_eq!(verdict(Service, alone, &[("role", "slave")]), Verdict::NotKept);
        assert_eq!(verdict(Service, alone, &[("rdb_last_bgsave_status", "err")]), Verdict::Limited);
        assert_eq!(verdict(Survival, alone, &[]), Verdict::Unknown);
        let two = |it: &mut Diagnosis, info: &Info<'_>| server(it, info, 2);
        assert_eq!(verdict(Service, two, &[("role", "master"), ("connected_slaves", "1")]), Verdict::NotKept);
        assert_eq!(verdict(Service, two, &[("role", "master"), ("connected_slaves", "2")]), Verdict::Kept);
        for (aof, fsync, expected) in [
            ("1", Some("always"), Verdict::Kept),
            ("1", Some("everysec"), Verdict::Limited),
            ("1", None, Verdict::Limited),
            ("0", Some("everysec"), Verdict::NotKept),
            ("", None, Verdict::Unknown),
        ] {
            let look = |it: &mut Diagnosis, info: &Info<'_>| persistence(it, info, fsync);
            assert_eq!(verdict(Survival, look, &[("aof_enabled", aof)]), expected, "{aof} {fsync:?}");
        }
    }

    #[test]
    fn memory_that_runs_out_is_told_before_it_has() {
        let info = |used| [("maxmemory", "1000"), ("maxmemory_policy", "noeviction"), ("used_memory", used)];
        assert_eq!(verdict(Service, eviction, &info("950")), Verdict::Limited);
        assert_eq!(verdict(Service, eviction, &info("500")), Verdict::Unknown);
    }
}
