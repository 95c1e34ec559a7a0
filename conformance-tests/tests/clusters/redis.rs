//! Redis with a replica and sentinels, and Redis Cluster.

use std::sync::Arc;
use std::time::Duration;

use conformance_tests::servers::gates::End;
use conformance_tests::servers::redis_group::{Form, RedisGroup};
use conformance_tests::{Stop, ensure, eventually};
use lock_core::{DistributedLock, Durability, ErrorKind, LockError, LockManager, LostReason};
use lock_redis::{RedisConfig, RedisLock};

use super::failover::{Fault, Group, TAG, besiege};

/// With or without sentinels.
struct Redis<const CLUSTER: bool>(RedisGroup);

async fn open(url: String) -> Result<Arc<dyn DistributedLock>, LockError> {
    Ok(Arc::new(RedisLock::connect(RedisConfig::from_url(url)?).await?))
}

fn client_of(
    group: &RedisGroup,
    holder: bool,
    min_replicas: u32,
) -> impl Future<Output = Result<LockManager, Stop>> + Send {
    let url = group.url(None, holder);
    let sign = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{sign}min_replicas={min_replicas}");
    async move { Ok(LockManager::builder().connect(open(url)).await?) }
}

impl<const CLUSTER: bool> Group for Redis<CLUSTER> {
    const NAME: &'static str = if CLUSTER { "redis+cluster" } else { "redis+sentinel" };

    async fn primary(&self) -> Result<usize, Stop> {
        self.0.primary(TAG).await
    }

    fn client(&self, holder: bool, min_replicas: u32) -> impl Future<Output = Result<LockManager, Stop>> + Send {
        client_of(&self.0, holder, min_replicas)
    }

    fn servers(&self) -> usize {
        self.0.servers()
    }

    fn kill(&self, server: usize) -> Result<(), Stop> {
        self.0.kill(server)
    }

    async fn start_again(&self, server: usize) -> Result<(), Stop> {
        self.0.start_again(server)
    }

    fn freeze(&self, server: usize, frozen: bool) -> Result<(), Stop> {
        self.0.freeze(server, frozen)
    }

    fn cut_off(&self, server: usize, off: bool) {
        self.0.cut_off(server, off);
    }

    fn cut_holder(&self, server: usize, off: bool) {
        for other in self.0.members().filter(|other| *other != server) {
            self.0.cut(End::Holder, End::Server(other), off);
        }
    }

    async fn take_over(&self, _from: usize, _fault: Fault) -> Result<(), Stop> {
        Ok(())
    }

    async fn ready(&self) -> Result<(), Stop> {
        self.0.ready().await
    }
}

const ALL: [Fault; 6] =
    [Fault::Killed, Fault::Stopped, Fault::CutOff, Fault::WrongSide, Fault::WrongSideConfirmed, Fault::Rolling];

/// In a normal run those that show the most; all where rounds are asked for.
fn faults() -> &'static [Fault] {
    if std::env::var_os("CLUSTER_ROUNDS").is_some() {
        &ALL
    } else {
        &[Fault::Killed, Fault::CutOff, Fault::WrongSideConfirmed]
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_fail_over_and_locks_go_on() -> Result<(), Stop> {
    let group = Redis::<false>(RedisGroup::start(Form::Sentinel { replicas: 1 }).await?);
    besiege(&group, faults(), |fault| fault == Fault::WrongSideConfirmed).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_fails_over_and_locks_go_on() -> Result<(), Stop> {
    let group = Redis::<true>(RedisGroup::start(Form::Cluster).await?);
    besiege(&group, faults(), |fault| fault == Fault::WrongSideConfirmed).await
}

/// The one way in which a failover lets two in: what was granted had not reached the replica. The token tells them apart, and the first is told.
#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_grant_has_the_lower_token_and_its_holder_is_told() -> Result<(), Stop> {
    let ttl = Duration::from_secs(6);
    let group = RedisGroup::start(Form::Sentinel { replicas: 1 }).await?;
    let (first, second, sure) =
        tokio::try_join!(client_of(&group, false, 0), client_of(&group, false, 0), client_of(&group, false, 1))?;
    ensure!(first.capabilities().durability == Durability::AsyncReplica, "a failover may forget the last grants");
    // The counter is there, and the replica has it.
    sure.lock("n").ttl(ttl).acquire().await?.release().await?;
    let (primary, replica) = (End::Server(0), End::Server(1));
    group.cut(primary, replica, true);
    let guard = first.lock("n").ttl(ttl).acquire().await?;

    // Nothing is granted that must be confirmed; nothing of it is left.
    let refused = sure.lock("sure").ttl(ttl).try_acquire().await.expect_err("no replica has it");
    ensure!(refused.kind() == ErrorKind::Unavailable && refused.is_retryable(), "{refused}");
    ensure!(
        refused.to_string().contains("0 of 1 replicas") && refused.to_string().contains("min_replicas"),
        "{refused}"
    );
    // An attempt that the limit cut short is cleaned up after the answer.
    let given_back = || async { group.ask::<u32>(0, &["EXISTS", "sure"]).await.is_ok_and(|found| found == 0) };
    ensure!(eventually(ttl / 2, given_back).await, "the grant was not given back");

    group.kill(0)?;
    let promoted = || async { group.primary("n").await.is_ok_and(|now| now == 1) };
    ensure!(eventually(Duration::from_secs(30), promoted).await, "nobody took over");
    let next = second.lock("n").ttl(ttl).wait_forever().acquire().await?;
    ensure!(next.fencing_token() > guard.fencing_token(), "{} {}", next.fencing_token(), guard.fencing_token());
    let told = tokio::time::timeout(ttl + Duration::from_secs(1), guard.lost()).await;
    // Whose renewal comes to the new primary before the next holder finds nothing there.
    ensure!(matches!(told, Ok(LostReason::TakenOver | LostReason::Removed | LostReason::Expired)), "{told:?}");
    group.cut(primary, replica, false);
    next.release().await?;
    Ok(())
}

/// A slot moves to another node, key by key, while a lock in it is held and waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_held_while_its_slot_moves() -> Result<(), Stop> {
    let (group, ttl) = (RedisGroup::start(Form::Cluster).await?, Duration::from_secs(6));
    let (holder, other) = tokio::try_join!(client_of(&group, false, 1), client_of(&group, false, 1))?;
    let name = format!("{TAG}-moves");
    let guard = holder.lock(&name).ttl(ttl).acquire().await?;
    let waiting = tokio::spawn({
        let (other, name) = (other.clone(), name.clone());
        async move { other.lock(name).ttl(ttl).wait_forever().acquire().await }
    });
    let from = group.primary(&name).await?;
    let to = (from + 1) % 3;
    let slot: String = group.ask::<u16>(from, &["CLUSTER", "KEYSLOT", &name]).await?.to_string();
    let queued =
        || async { group.ask::<u32>(from, &["CLUSTER", "COUNTKEYSINSLOT", &slot]).await.is_ok_and(|n| n == 4) };
    ensure!(eventually(Duration::from_secs(10), queued).await, "lock, counter, queue and board stand there");
    let (from_id, to_id): (String, String) =
        (group.ask(from, &["CLUSTER", "MYID"]).await?, group.ask(to, &["CLUSTER", "MYID"]).await?);
    let () = group.ask(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]).await?;
    let () = group.ask(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]).await?;
    let address = group.address(to);
    // A look creates the queue's helpers anew while they move, so until nothing is left.
    let moved = || async {
        let keys: Vec<Vec<u8>> = group.ask(from, &["CLUSTER", "GETKEYSINSLOT", &slot, "10"]).await.unwrap_or_default();
        for key in &keys {
            let (host, port) = (address.ip().to_string(), address.port().to_string());
            let words = [b"MIGRATE".as_slice(), host.as_bytes(), port.as_bytes(), key, b"0", b"1000", b"REPLACE"];
            let _ = group.ask::<redis::Value>(from, &words).await;
            // Between two keys there are some here and some there.
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        keys.is_empty()
    };
    ensure!(eventually(Duration::from_secs(10), moved).await, "the keys did not move");
    for node in [to, from] {
        let () = group.ask(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]).await?;
    }
    tokio::time::sleep(ttl).await;
    ensure!(guard.is_held() && !waiting.is_finished(), "it is held where it is now");
    ensure!(group.ask::<u32>(to, &["EXISTS", &name]).await? == 1, "it stands at the new node");
    let token = guard.fencing_token();
    guard.release().await?;
    let next = tokio::time::timeout(Duration::from_secs(10), waiting).await.map_err(|_| "nobody got in")???;
    ensure!(next.fencing_token() > token, "tokens rise");
    next.release().await?;
    Ok(())
}
