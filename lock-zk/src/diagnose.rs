//! Can these servers keep the promises as they are configured?

use std::time::Duration;

use futures_util::future::join_all;
use lock_core::Promise::{Exclusion, Loss, Service, Survival, Waiting};
use lock_core::{Diagnosis, LockError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use zookeeper_client::{Client, Error};

use crate::backend::Inner;
use crate::errors::failed;

/// Round trips measured.
const SYNCS: usize = 5;
/// How long a server may take to say what it is.
const WORD: Duration = Duration::from_secs(1);

impl Inner {
    pub(crate) async fn diagnosis(&self) -> Result<Diagnosis, LockError> {
        let config = self.pool.config();
        let (session, said) = tokio::join!(self.pool.any(), join_all(config.servers().iter().map(|at| word(at))));
        let client = session?.client()?;
        let mut it = servers(config.servers(), &said);
        let mut trips = Vec::with_capacity(SYNCS);
        for _ in 0..SYNCS {
            let sent = Instant::now();
            // By way of the leader, as each heart-beat.
            client.sync("/").await.map_err(failed)?;
            trips.push(sent.elapsed());
        }
        it.latency(&mut trips);
        let members = client.get_config().await.ok();
        ensemble(&mut it, members.as_ref().map(|(members, _)| String::from_utf8_lossy(members)).as_deref());
        limits(&mut it, self.pool.limits());
        folder(&mut it, &client, config.root()).await;
        Ok(it)
    }
}

/// What a server says of itself to the one word that it answers unless told otherwise.
async fn word(server: &str) -> Option<String> {
    let asked = async {
        let mut line = TcpStream::connect(server).await?;
        line.write_all(b"srvr").await?;
        let mut answer = String::new();
        line.take(4096).read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    timeout(WORD, asked).await.ok()?.ok()
}

fn servers(names: &[String], said: &[Option<String>]) -> Diagnosis {
    let after = |answer: &str, key: &str| {
        let line = answer.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.trim().split(['-', ',']).next()?.to_owned())
    };
    let answers = || said.iter().flatten();
    let version = answers().find_map(|answer| after(answer, "Zookeeper version:")).unwrap_or_default();
    let mut it = Diagnosis::new(format!("ZooKeeper {version} at {}", names.join(",")).replace("  ", " "));
    let roles: Vec<_> = answers().filter_map(|answer| after(answer, "Mode:")).collect();
    let down: Vec<_> =
        names.iter().zip(said).filter(|(_, said)| said.is_none()).map(|(name, _)| name.clone()).collect();
    if !down.is_empty() {
        it.limited(
            Service,
            "servers",
            format!("no answer from {}", down.join(", ")),
            "start these servers, or take them out of the URL",
        );
    } else if roles.len() < names.len() {
        it.unknown(
            Service,
            "servers",
            "not each says what it is; the word srvr may be off, or a server may be without its ensemble",
            "4lw.commands.whitelist=srvr lets doctor look",
        );
    } else {
        it.kept(Service, "servers", format!("all answer: {}", roles.join(", ")));
    }
    it
}

fn ensemble(it: &mut Diagnosis, members: Option<&str>) {
    let Some(members) = members else {
        return it.unknown(Survival, "ensemble", "its members may not be read", "let this user read /zookeeper/config");
    };
    let voters = |line: &&str| line.starts_with("server.") && !line.contains(":observer");
    match members.lines().filter(voters).count() {
        0 => it.limited(
            Survival,
            "ensemble",
            "one server alone: locks outlive its restart, and not the loss of its disk",
            "run three or five servers",
        ),
        voters @ 1..=2 => it.limited(
            Survival,
            "ensemble",
            format!("{voters} voting servers, which outlive the loss of none"),
            "run three or five servers",
        ),
        voters => it.kept(
            Survival,
            "ensemble",
            format!("{voters} voting servers: locks outlive the loss of {}", voters.div_ceil(2) - 1),
        ),
    }
}

fn limits(it: &mut Diagnosis, (least, most): (Duration, Duration)) {
    let shown = format!("from {least:?} to {most:?}; shorter ones are rounded up");
    match most >= lock_core::Ttl::DEFAULT.get() {
        true => it.kept(Loss, "TTL", shown),
        false => it.limited(
            Loss,
            "TTL",
            format!("{shown}, longer ones are refused, and the default is one"),
            "raise maxSessionTimeout, or give --ttl",
        ),
    }
    match least <= Duration::from_secs(1) {
        true => it.kept(Waiting, "dead waiters", format!("out of the way after {least:?}")),
        false => it.limited(
            Waiting,
            "dead waiters",
            format!("one that dies in the queue delays those behind it for {least:?} and a tick"),
            "lower tickTime or minSessionTimeout, to 1 s where that matters",
        ),
    }
}

/// Who may do what in the folder of all locks. Passwords stand hashed in an ACL, so no user is shown.
async fn folder(it: &mut Diagnosis, client: &Client, root: &str) {
    let path = if root.is_empty() { "/" } else { root };
    match client.get_acl(path).await {
        Err(Error::NoNode) => it.kept(Exclusion, "folder", format!("{path} is not there yet; the first lock makes it")),
        Err(_) => it.unknown(
            Exclusion,
            "folder",
            format!("the ACL of {path} may not be read"),
            format!("setAcl {path} auth:USER:PASSWORD:cdrwa, as one who may"),
        ),
        Ok((acls, _)) => {
            let shown: Vec<_> = acls.iter().map(|acl| format!("{} {}", acl.scheme(), acl.permission())).collect();
            let shown = format!("{path} has the ACL {}", shown.join(", "));
            match acls.iter().any(|acl| acl.scheme() == "world") {
                false => it.kept(Exclusion, "folder", shown),
                true => it.limited(
                    Exclusion,
                    "folder",
                    format!("{shown}: everybody who reaches the servers may be there"),
                    "give zk://USER:PASSWORD@HOST/FOLDER with a folder of its own, which is then this user's alone",
                ),
            }
        }
    }
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
    fn fewer_than_three_voters_outlive_none() {
        let of = |members: Option<&str>| verdict(Survival, |it| ensemble(it, members));
        assert_eq!(of(None), Verdict::Unknown);
        assert_eq!(of(Some("")), Verdict::Limited);
        let member = |n: u32, role: &str| format!("server.{n}=h{n}:2888:3888:{role};2181\n");
        let voters = |n| (1..=n).map(|n| member(n, "participant")).collect::<String>();
        assert_eq!(of(Some(&voters(2))), Verdict::Limited);
        assert_eq!(of(Some(&(voters(2) + &member(3, "observer")))), Verdict::Limited);
        assert_eq!(of(Some(&(voters(3) + "version=100000000"))), Verdict::Kept);
    }

    #[test]
    fn each_server_is_heard() {
        let names = ["a:1".to_owned(), "b:1".to_owned()];
        let leader = Some("Zookeeper version: 3.8.0-5a02a, built on x\nMode: leader\n".to_owned());
        let seen = servers(&names, &[leader.clone(), leader.clone()]);
        assert_eq!((seen.server.as_str(), seen.verdict(Service)), ("ZooKeeper 3.8.0 at a:1,b:1", Verdict::Kept));
        assert_eq!(servers(&names, &[leader.clone(), None]).verdict(Service), Verdict::Limited);
        let silent = Some("srvr is not executed because it is not in the whitelist.".to_owned());
        let seen = servers(&names, &[silent, leader]);
        assert_eq!(seen.verdict(Service), Verdict::Unknown);
    }

    #[test]
    fn session_limits_bound_what_can_be_asked_for() {
        let seconds = Duration::from_secs;
        let of = |promise, least, most| verdict(promise, |it| limits(it, (seconds(least), seconds(most))));
        assert_eq!((of(Loss, 1, 60), of(Waiting, 1, 60)), (Verdict::Kept, Verdict::Kept));
        assert_eq!((of(Loss, 4, 20), of(Waiting, 4, 20)), (Verdict::Limited, Verdict::Limited));
    }
}
