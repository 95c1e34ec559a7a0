//! Servers at an address that stands in brackets.

use std::net::SocketAddr;

use conformance_tests::harnesses::{etcd::EtcdHarness, mysql::MysqlHarness, redis::RedisHarness, zk::ZkHarness};
use conformance_tests::{Harness, Stop};
use lock_core::Released;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

/// Takes a lock at a server that is reached by IPv6 alone.
async fn over_ipv6(harness: impl Harness) -> Result<(), Stop> {
    let instance = harness.start().await?;
    let server = instance.address().ok_or("the server has no address")?;
    let listener = TcpListener::bind("[::1]:0").await.map_err(|e| format!("no IPv6 on the loopback interface: {e}"))?;
    let address: SocketAddr = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                if let Ok(mut server) = TcpStream::connect(server).await {
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                }
            });
        }
    });
    let url = instance.url().replacen(&server.to_string(), &address.to_string(), 1);
    assert!(url.contains("@[::1]:") || url.contains("//[::1]:"), "{url}");
    let locks = crate::manager(harness, url).await?;
    let guard = locks.lock("ipv6").acquire().await?;
    assert!(locks.lock("ipv6").try_acquire().await?.is_none());
    assert_eq!(guard.release().await?, Released::Released);
    Ok(locks.close().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_answers_at_an_ipv6_address() -> Result<(), Stop> {
    over_ipv6(RedisHarness).await
}

#[tokio::test(flavor = "multi_thread")]
async fn mysql_answers_at_an_ipv6_address() -> Result<(), Stop> {
    over_ipv6(MysqlHarness).await
}

#[tokio::test(flavor = "multi_thread")]
async fn zookeeper_answers_at_an_ipv6_address() -> Result<(), Stop> {
    over_ipv6(ZkHarness { members: 1 }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_answers_at_an_ipv6_address() -> Result<(), Stop> {
    over_ipv6(EtcdHarness { members: 1 }).await
}
