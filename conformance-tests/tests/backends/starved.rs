//! A process that can open no file and no socket while its line is cut.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use conformance_tests::harnesses::attached::Attached;
use conformance_tests::harnesses::{etcd::EtcdHarness, mysql::MysqlHarness, redis::RedisHarness, zk::ZkHarness};
use conformance_tests::proxy::Proxy;
use conformance_tests::{Harness, Stop, ensure, eventually};
use lock_core::AcquireRequest;
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::time::TimeValLike;

use crate::ms;

const CHILD: &str = "DISTLOCK_STARVED_CHILD";
const STARVED: Duration = Duration::from_secs(5);

async fn keeps_its_time(harness: impl Harness) -> Result<(), Stop> {
    let instance = harness.start().await?;
    let line = Proxy::start(instance.address().ok_or("the server has no address")?).await?;
    let url = instance.url_via(line.address()).ok_or("no URL through a proxy")?;
    let locks = crate::manager(harness, instance.url()).await?;
    let guard = locks.lock("held").acquire().await?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(["starved::one_process_that_can_open_nothing", "--exact", "--nocapture"])
        .env(CHILD, url)
        .stdout(Stdio::piped())
        .spawn()?;
    let said = BufReader::new(child.stdout.take().ok_or("no pipe")?).lines().map_while(Result::ok);
    let ended = tokio::task::spawn_blocking(move || {
        said.filter(|line| line == "starved").for_each(|_| line.cut());
        child.wait()
    });
    let ended =
        tokio::time::timeout(Duration::from_secs(40), ended).await.map_err(|_| "the child does not end")???;
    ensure!(ended.success(), "the child failed");
    guard.release().await?;
    Ok(locks.close().await?)
}

/// A child of the other tests, and nothing by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_that_can_open_nothing() -> Result<(), Stop> {
    let Ok(url) = std::env::var(CHILD) else { return Ok(()) };
    let locks = crate::manager(Attached::new(&url)?, url).await?;
    let _own = locks.lock("own").ttl(ms(1_500)).acquire().await?;
    let waiting = tokio::spawn(locks.lock("held").ttl(ms(1_500)).wait(STARVED).acquire());
    tokio::time::sleep(ms(300)).await;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, 3, hard)?;
    println!("\nstarved");
    let busy = || getrusage(UsageWho::RUSAGE_SELF).map(|usage| usage.user_time() + usage.system_time());
    let (start, before, mut longest) = (Instant::now(), busy()?, Duration::ZERO);
    while start.elapsed() < STARVED {
        let asked = Instant::now();
        let _ = locks.lock("free").ttl(ms(1_500)).try_acquire().await;
        longest = longest.max(asked.elapsed());
        tokio::time::sleep(ms(10)).await;
    }
    let used = ms((busy()? - before).num_milliseconds().unsigned_abs());
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?;
    println!("\nthe longest answer took {longest:?}, {used:?} of {:?} were spent", start.elapsed());
    ensure!(longest < AcquireRequest::OPERATION_TIMEOUT + ms(700), "a request was answered after {longest:?}");
    ensure!(used < STARVED / 3, "{used:?} of {:?} were spent on doing nothing", start.elapsed());
    ensure!(waiting.await?.is_err(), "a held name was granted");
    let granted = || async { matches!(locks.lock("free").ttl(ms(1_500)).try_acquire().await, Ok(Some(_))) };
    ensure!(eventually(Duration::from_secs(10), granted).await, "no lock was granted afterwards");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_leaves_a_starved_process_its_time() -> Result<(), Stop> {
    keeps_its_time(RedisHarness).await
}

#[tokio::test(flavor = "multi_thread")]
async fn mysql_leaves_a_starved_process_its_time() -> Result<(), Stop> {
    keeps_its_time(MysqlHarness).await
}

#[tokio::test(flavor = "multi_thread")]
async fn zookeeper_leaves_a_starved_process_its_time() -> Result<(), Stop> {
    keeps_its_time(ZkHarness { members: 1 }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_leaves_a_starved_process_its_time() -> Result<(), Stop> {
    keeps_its_time(EtcdHarness { members: 1 }).await
}
