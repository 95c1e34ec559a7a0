//! MariaDB with a replica that is promoted.

use std::sync::Arc;
use std::time::Duration;

use conformance_tests::proxy::Proxy;
use conformance_tests::servers::mysql_pair::MysqlPair;
use conformance_tests::{Server, Stop, ensure};
use lock_core::{DistributedLock, LockError, LockManager, LostReason};
use lock_mysql::{MysqlConfig, MysqlLock};

use super::failover::{Fault, Group, besiege};

struct Pair {
    pair: MysqlPair,
    /// The holder's lines.
    lines: [Proxy; 2],
}

impl Pair {
    async fn start() -> Result<Self, Stop> {
        let pair = MysqlPair::start().await?;
        let lines = [Proxy::start(pair.address(0)).await?, Proxy::start(pair.address(1)).await?];
        Ok(Self { pair, lines })
    }
}

async fn open(url: String) -> Result<Arc<dyn DistributedLock>, LockError> {
    Ok(Arc::new(MysqlLock::connect(MysqlConfig::from_url(url)?).await?))
}

impl Group for Pair {
    const NAME: &'static str = "mysql";

    async fn primary(&self) -> Result<usize, Stop> {
        Ok(self.pair.primary())
    }

    async fn client(&self, holder: bool, _min_replicas: u32) -> Result<LockManager, Stop> {
        let at = |server: usize| if holder { self.lines[server].address() } else { self.pair.address(server) };
        let url = format!("mysql://app:se%3Acret%2F1@{},{}/locks", at(0), at(1));
        Ok(LockManager::builder().connect(open(url)).await?)
    }

    fn servers(&self) -> usize {
        2
    }

    fn kill(&self, server: usize) -> Result<(), Stop> {
        self.pair.server(server).kill()
    }

    async fn start_again(&self, server: usize) -> Result<(), Stop> {
        self.pair.server(server).restart().await
    }

    fn freeze(&self, server: usize, frozen: bool) -> Result<(), Stop> {
        if frozen { self.pair.server(server).stop() } else { self.pair.server(server).resume() }
    }

    fn cut_off(&self, _server: usize, off: bool) {
        self.pair.cut(off);
    }

    fn cut_holder(&self, server: usize, off: bool) {
        self.lines[1 - server].black_hole(off);
    }

    /// Whoever does the failover needs a while to be sure. It reaches the old primary where clients of its side do.
    async fn take_over(&self, _from: usize, fault: Fault) -> Result<(), Stop> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.pair.promote(fault == Fault::CutOff).await
    }

    async fn ready(&self) -> Result<(), Stop> {
        self.pair.ready().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_is_failed_over_and_locks_go_on() -> Result<(), Stop> {
    let all = [Fault::Killed, Fault::Stopped, Fault::CutOff, Fault::WrongSide, Fault::Rolling];
    let few = [Fault::Killed, Fault::CutOff];
    let asked = std::env::var_os("CLUSTER_ROUNDS").is_some();
    besiege(&Pair::start().await?, if asked { &all } else { &few }, |_| false).await
}

/// What was granted had not reached the replica that takes over: the token tells the two holders apart, and the first is told.
#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_grant_has_the_lower_token_and_its_holder_is_told() -> Result<(), Stop> {
    let (group, ttl) = (Pair::start().await?, Duration::from_secs(6));
    let (first, second) = (group.client(false, 0).await?, group.client(false, 0).await?);
    // The row is there, and the replica has it.
    first.lock("n").ttl(ttl).acquire().await?.release().await?;
    group.ready().await?;
    group.pair.cut(true);
    let guard = first.lock("n").ttl(ttl).acquire().await?;
    group.kill(0)?;
    group.pair.promote(false).await?;
    let next = second.lock("n").ttl(ttl).wait_forever().acquire().await?;
    ensure!(next.fencing_token() > guard.fencing_token(), "{} {}", next.fencing_token(), guard.fencing_token());
    let told = tokio::time::timeout(ttl + Duration::from_secs(1), guard.lost()).await;
    ensure!(matches!(told, Ok(LostReason::TakenOver | LostReason::Removed | LostReason::Expired)), "{told:?}");
    next.release().await?;
    Ok(())
}
