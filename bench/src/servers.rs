//! A server of this run's own for each backend, as the conformance suite starts them.

use std::sync::Arc;

use conformance_tests::harnesses::etcd::EtcdHarness;
use conformance_tests::harnesses::memory::MemoryHarness;
use conformance_tests::harnesses::mysql::MysqlHarness;
use conformance_tests::harnesses::redis::RedisHarness;
use conformance_tests::harnesses::sqlite::SqliteHarness;
use conformance_tests::harnesses::zk::ZkHarness;
use conformance_tests::{Harness, Instance, Stop};

use crate::rows::Backend;

/// A running backend. It ends with this handle.
pub struct Running {
    instance: Arc<dyn Instance>,
    backend: Backend,
}

impl Running {
    pub fn url(&self) -> String {
        match self.backend {
            Backend::Memory => "memory:".into(),
            _ => self.instance.url(),
        }
    }
}

/// Starts one.
///
/// # Errors
/// What to install.
pub async fn start(backend: Backend) -> Result<Running, Stop> {
    let harness: Box<dyn Harness> = match backend {
        Backend::Memory => Box::new(MemoryHarness::default()),
        Backend::Sqlite => Box::new(SqliteHarness),
        Backend::Redis => Box::new(RedisHarness),
        Backend::Mysql => Box::new(MysqlHarness),
        Backend::Zk => Box::new(ZkHarness { members: 1 }),
        Backend::Etcd => Box::new(EtcdHarness { members: 1 }),
    };
    let started = harness.start().await;
    let instance = started
        .map_err(|stop| format!("{} cannot be measured: {stop:?}; it needs {}", backend.label(), packages(backend)))?;
    Ok(Running { instance, backend })
}

/// What its server is installed with.
fn packages(backend: Backend) -> &'static str {
    match backend {
        Backend::Memory | Backend::Sqlite => "nothing but a temporary folder",
        Backend::Redis => "redis-server; on Debian: apt-get install redis-server",
        Backend::Mysql => "mariadbd; on Debian: apt-get install mariadb-server",
        Backend::Zk => "java and ZooKeeper; on Debian: apt-get install zookeeper default-jre-headless",
        Backend::Etcd => "etcd; on Debian: apt-get install etcd-server",
    }
}
