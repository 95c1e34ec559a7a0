//! Redis with a replica and sentinels, and Redis Cluster.

use std::sync::Arc;

use conformance_tests::Stop;
use conformance_tests::servers::gates::End;
use conformance_tests::servers::redis_group::{Form, RedisGroup};
use lock_core::{DistributedLock, LockError, LockManager};
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

    fn start_again(&self, server: usize) -> Result<(), Stop> {
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

    async fn take_over(&self, _from: usize) -> Result<(), Stop> {
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
