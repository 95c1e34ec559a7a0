//! etcd: a compaction that a cut watch falls behind, and keys without a lease.

use std::time::{Duration, Instant};

use conformance_tests::harnesses::etcd::EtcdHarness;
use conformance_tests::proxy::Proxy;
use conformance_tests::servers::etcd::EtcdServer;
use conformance_tests::{Stop, ensure};
use etcd_client::{Client, CompactionOptions, EventType, GetOptions, WatchOptions};

use crate::ms;

const HARNESS: EtcdHarness = EtcdHarness { members: 1 };

async fn raw(server: &EtcdServer) -> Result<Client, Stop> {
    Ok(Client::connect([format!("127.0.0.1:{}", server.port())], None).await?)
}

/// The watch would go on from a revision that is no more.
#[tokio::test(flavor = "multi_thread")]
async fn etcd_compacts_and_cuts_the_watch_of_one_who_waits() -> Result<(), Stop> {
    let server = EtcdServer::start(&[]).await?;
    let mut client = raw(&server).await?;
    let line = Proxy::start(([127, 0, 0, 1], server.port()).into()).await?;
    let holder = crate::manager(HARNESS, format!("etcd://127.0.0.1:{}", server.port())).await?;
    let waiter = crate::manager(HARNESS, format!("etcd://{}", line.address())).await?;
    for gives_up in [false, true] {
        let guard = holder.lock("n").acquire().await?;
        let waiting = tokio::spawn(waiter.lock("n").wait(ms(if gives_up { 2_500 } else { 20_000 })).acquire());
        tokio::time::sleep(ms(700)).await;
        line.refuse(true);
        line.cut();
        let mut revision = 0;
        for _ in 0..100 {
            revision = client.put("noise", "", None).await?.header().map_or(0, etcd_client::ResponseHeader::revision);
        }
        client.compact(revision, Some(CompactionOptions::new())).await?;
        line.refuse(false);
        tokio::time::sleep(ms(500)).await;
        if gives_up {
            ensure!(waiting.await?.is_err(), "a held name was granted");
            let left = client.get("n/", Some(GetOptions::new().with_prefix().with_count_only())).await?.count();
            ensure!(left == 1, "{left} entries under a name that one holds and nobody waits for");
            guard.release().await?;
            continue;
        }
        let start = Instant::now();
        guard.release().await?;
        let next =
            tokio::time::timeout(Duration::from_secs(5), waiting).await.map_err(|_| "the waiter sleeps on")???;
        ensure!(start.elapsed() <= ms(1_500), "a freed name reached its waiter after {:?}", start.elapsed());
        next.release().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_never_sees_a_key_without_a_lease() -> Result<(), Stop> {
    let server = EtcdServer::start(&[]).await?;
    let mut client = raw(&server).await?;
    let mut events = client.watch("\0", Some(WatchOptions::new().with_from_key())).await?;
    let locks = crate::manager(HARNESS, format!("etcd://127.0.0.1:{}", server.port())).await?;
    for round in 0..200_u64 {
        let request = locks.lock(format!("n{}", round % 5)).ttl(ms(2_000)).auto_renew(round % 2 == 0).acquire();
        // Some are dropped between two of their steps; what was granted is dropped with its answer.
        let _ = tokio::time::timeout(Duration::from_micros(round * 61 % 6_000), request).await;
    }
    locks.close().await?;
    client.put("end", "", None).await?;
    let mut puts = 0;
    'all: loop {
        let answer = tokio::time::timeout(Duration::from_secs(5), events.message()).await??;
        for event in
            answer.ok_or("the watch ended")?.events().iter().filter(|event| event.event_type() == EventType::Put)
        {
            let entry = event.kv().ok_or("an event without a key")?;
            if entry.key() == b"end" {
                break 'all;
            }
            puts += 1;
            ensure!(entry.lease() != 0, "the key {} has no lease", String::from_utf8_lossy(entry.key()));
        }
    }
    ensure!(puts >= 100, "only {puts} keys were put");
    let end = Instant::now() + Duration::from_secs(6);
    while !client.leases().await?.leases().is_empty() {
        ensure!(Instant::now() < end, "leases are left: {:?}", client.leases().await?.leases());
        tokio::time::sleep(ms(100)).await;
    }
    Ok(())
}
