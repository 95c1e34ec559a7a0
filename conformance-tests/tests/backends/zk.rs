//! ZooKeeper: an outage.

use std::time::{Duration, Instant};

use conformance_tests::harnesses::zk::ZkHarness;
use conformance_tests::proxy::Proxy;
use conformance_tests::servers::zk::ZkServer;
use conformance_tests::{Stop, ensure, eventually};
use lock_core::{ErrorKind, LockError};

use crate::ms;

#[tokio::test(flavor = "multi_thread")]
async fn zookeeper_is_dialled_with_pauses_in_an_outage_and_found_again_after_it() -> Result<(), Stop> {
    let server = ZkServer::start().await?;
    let line = Proxy::start(([127, 0, 0, 1], server.port()).into()).await?;
    let locks = crate::manager(ZkHarness { members: 1 }, format!("zk://{}/locks", line.address())).await?;
    let guard = locks.lock("held").ttl(ms(2_000)).acquire().await?;
    locks.lock("warm").ttl(ms(2_000)).acquire().await?.release().await?;
    let open = line.open();
    line.refuse(true);
    line.cut();
    let (refused, start, mut asked) = (line.refused(), Instant::now(), 0_u32);
    while start.elapsed() < Duration::from_secs(8) {
        asked += 1;
        let error = locks.lock("free").ttl(ms(2_000)).wait(ms(700)).acquire().await.err();
        let kind = error.as_ref().map(LockError::kind);
        ensure!(kind == Some(ErrorKind::Unavailable), "without a server it answered {error:?}");
        tokio::time::sleep(ms(100)).await;
    }
    let dialled = line.refused() - refused;
    println!("{dialled} connections were tried in {:?}, {asked} acquisitions", start.elapsed());
    ensure!(dialled <= 150, "{dialled} connections were tried in {:?}", start.elapsed());
    ensure!(!guard.is_held(), "a lock outlived its session");
    line.refuse(false);
    let back = Instant::now();
    locks.lock("free").ttl(ms(2_000)).wait(ms(5_000)).acquire().await?.release().await?;
    println!("granted {:?} after the server was back", back.elapsed());
    ensure!(line.open() <= open + 1, "{open} connections before the outage, {} after it", line.open());
    drop(guard);
    locks.close().await?;
    ensure!(eventually(ms(3_000), || async { line.open() == 0 }).await, "{} connections are left", line.open());
    Ok(())
}
