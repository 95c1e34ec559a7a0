//! A line on which each answer takes a while, though not as long as a limit leaves for it.

use conformance_tests::harnesses::{etcd::EtcdHarness, redis::RedisHarness, zk::ZkHarness};
use conformance_tests::proxy::Proxy;
use conformance_tests::{Harness, Stop, ensure};
use lock_core::ErrorKind;

use crate::ms;

/// Two of them are longer than the 200 ms that a backend has for its last word.
const DELAY: u64 = 120;

/// Whoever waited for a held name until its limit is told so, and not that the server did not answer: to leave takes one round trip.
async fn is_told_of_the_limit(harness: impl Harness) -> Result<(), Stop> {
    let instance = harness.start().await?;
    let line = Proxy::start(instance.address().ok_or("the server has no address")?).await?;
    let url = instance.url_via(line.address()).ok_or("no URL through a proxy")?;
    let locks = crate::manager(harness, url).await?;
    let guard = locks.lock("slow").ttl(ms(20_000)).acquire().await?;
    for renewed in [true, false] {
        let mut told = Vec::new();
        // Once without a delay, since the first may open connections; then again where the machine had no time for it.
        for delay in [0, DELAY, DELAY, DELAY, DELAY] {
            line.delay_replies(ms(delay));
            let waited = locks.lock("slow").ttl(ms(5_000)).auto_renew(renewed).wait(ms(2_000)).acquire().await;
            let error = waited.err().ok_or("a held name was granted")?;
            if error.kind() == ErrorKind::Timeout && delay > 0 {
                told.clear();
                break;
            }
            told.push(error.to_string());
        }
        ensure!(told.is_empty(), "renewed: {renewed}: {told:?}");
    }
    line.delay_replies(ms(0));
    guard.release().await?;
    Ok(locks.close().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_tells_of_a_limit_on_a_slow_line() -> Result<(), Stop> {
    is_told_of_the_limit(RedisHarness).await
}

#[tokio::test(flavor = "multi_thread")]
async fn zookeeper_tells_of_a_limit_on_a_slow_line() -> Result<(), Stop> {
    is_told_of_the_limit(ZkHarness { members: 1 }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_tells_of_a_limit_on_a_slow_line() -> Result<(), Stop> {
    is_told_of_the_limit(EtcdHarness { members: 1 }).await
}
