//! Load on each backend: many held names, many waiters, many processes and many cycles. `LOAD=full` takes the sizes that are promised.
#![cfg(all(feature = "etcd", feature = "mysql", feature = "redis", feature = "sqlite", feature = "zk"))]

use std::process::Command;

use conformance_tests::harnesses::etcd::EtcdHarness;
use conformance_tests::harnesses::mysql::MysqlHarness;
use conformance_tests::harnesses::redis::RedisHarness;
use conformance_tests::harnesses::sqlite::SqliteHarness;
use conformance_tests::harnesses::zk::ZkHarness;
use conformance_tests::{Harness, Stop, ensure};

/// What `siege` is asked for, and how much of it.
type Sizes = [(&'static str, &'static [&'static str]); 3];

const SHORT: Sizes = [
    ("turns", &["--processes", "10", "--turns", "5"]),
    ("crowd", &["--held", "300", "--waiters", "100"]),
    ("cycles", &["--cycles", "1500"]),
];
const FULL: Sizes = [("turns", &[]), ("crowd", &[]), ("cycles", &[])];

/// Each kind of load in a process of its own, whose memory, files and tasks nobody else touches.
async fn bear(harness: impl Harness) -> Result<(), Stop> {
    let sizes = if std::env::var("LOAD").is_ok_and(|load| load == "full") { FULL } else { SHORT };
    let instance = harness.start().await?;
    for (kind, options) in sizes {
        let mut siege = Command::new(env!("CARGO_BIN_EXE_siege"));
        siege.args([kind, "--url", &instance.url()]).args(options);
        let output = tokio::task::spawn_blocking(move || siege.output()).await??;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        println!("{} {kind}\n{said}", harness.name());
        ensure!(output.status.success(), "{} under {kind} {options:?}: {said}", harness.name());
    }
    Ok(())
}

#[tokio::test]
async fn sqlite_bears_load() -> Result<(), Stop> {
    bear(SqliteHarness).await
}

#[tokio::test]
async fn redis_bears_load() -> Result<(), Stop> {
    bear(RedisHarness).await
}

#[tokio::test]
async fn mysql_bears_load() -> Result<(), Stop> {
    bear(MysqlHarness).await
}

#[tokio::test]
async fn zk_bears_load() -> Result<(), Stop> {
    bear(ZkHarness { members: 1 }).await
}

#[tokio::test]
async fn etcd_bears_load() -> Result<(), Stop> {
    bear(EtcdHarness { members: 1 }).await
}
