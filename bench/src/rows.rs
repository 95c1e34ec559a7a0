//! What is measured: ours, the floors and the peers.

pub mod etcd;
pub mod memory;
pub mod mysql;
pub mod ours;
pub mod redis;
pub mod sqlite;
pub mod zk;

use std::sync::Arc;

use clap::ValueEnum;
use conformance_tests::Stop;
use serde::{Deserialize, Serialize};

use crate::program::Program;
use crate::programs;
use crate::workers::{Client, Runner, Tasks};
use ours::{Home, Ours};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    Memory,
    Sqlite,
    Redis,
    Mysql,
    Zk,
    Etcd,
}

impl Backend {
    pub const ALL: [Self; 6] = [Self::Memory, Self::Sqlite, Self::Redis, Self::Mysql, Self::Zk, Self::Etcd];

    /// As in the report.
    pub fn label(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "SQLite",
            Self::Redis => "Redis",
            Self::Mysql => "MySQL",
            Self::Zk => "ZooKeeper",
            Self::Etcd => "etcd",
        }
    }

    /// Whether its server counts requests.
    pub fn counts(self) -> bool {
        !matches!(self, Self::Memory | Self::Sqlite)
    }

    /// Whether other processes can contend.
    pub fn is_shared(self) -> bool {
        self != Self::Memory
    }

    /// What is measured of it.
    pub fn rows(self) -> &'static [Row] {
        match self {
            Self::Memory => &[Row::Ours, Row::OwnThread, Row::Floor],
            Self::Sqlite => &[Row::Ours, Row::OwnThread, Row::Floor],
            Self::Redis => &[
                Row::Ours,
                Row::OwnThread,
                Row::Floor,
                Row::Rslock,
                Row::DistributedLock,
                Row::RedisPy,
                Row::PythonRedisLock,
                Row::NodeRedlock,
            ],
            Self::Mysql => &[Row::Ours, Row::OwnThread, Row::Floor, Row::GetLock, Row::DistributedLock],
            Self::Zk => &[Row::Ours, Row::OwnThread, Row::Floor, Row::Recipe, Row::Kazoo, Row::Curator],
            Self::Etcd => &[Row::Ours, Row::OwnThread, Row::Floor, Row::LockService, Row::GoMutex],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Row {
    Ours,
    OwnThread,
    Floor,
    Rslock,
    DistributedLock,
    RedisPy,
    PythonRedisLock,
    NodeRedlock,
    GetLock,
    Recipe,
    Kazoo,
    Curator,
    LockService,
    GoMutex,
}

impl Row {
    /// As in the report.
    pub fn label(self) -> &'static str {
        match self {
            Self::Ours => "ours, user's runtime",
            Self::OwnThread => "ours, own thread",
            Self::Floor => "raw floor",
            Self::Rslock => "rslock",
            Self::DistributedLock => "distributed-lock",
            Self::RedisPy => "redis-py",
            Self::PythonRedisLock => "python-redis-lock",
            Self::NodeRedlock => "node-redlock",
            Self::GetLock => "GET_LOCK",
            Self::Recipe => "zookeeper-client's recipe",
            Self::Kazoo => "kazoo",
            Self::Curator => "Curator",
            Self::LockService => "etcd's Lock call",
            Self::GoMutex => "Go concurrency.Mutex",
        }
    }

    /// Whether it can wait for a name; the floors of servers only take and give.
    pub fn waits(self, backend: Backend) -> bool {
        self != Self::Floor || backend == Backend::Memory
    }

    /// Whether it is a program in another language.
    pub fn is_program(self) -> bool {
        use Row::{Curator, GoMutex, Kazoo, NodeRedlock, PythonRedisLock, RedisPy};
        matches!(self, RedisPy | PythonRedisLock | NodeRedlock | Kazoo | Curator | GoMutex)
    }

    /// Whether sixteen and more of its processes start in little time and memory.
    pub fn is_light(self) -> bool {
        !matches!(self, Self::Curator | Self::NodeRedlock)
    }

    /// As a value of the command line.
    pub fn argument(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// In this process, or as a program. With `clients` of them, where it is a library of this process.
    pub async fn open(self, backend: Backend, url: &str, clients: usize) -> Result<Box<dyn Runner>, Stop> {
        if self.is_program() {
            return Ok(Box::new(Program::start(programs::command(self)?, url).await?));
        }
        // Two managers of the memory backend would be two backends.
        let clients = if backend == Backend::Memory { 1 } else { clients };
        match (self, backend) {
            (Self::Ours, _) => tasks(clients, || Ours::connect(url, Home::Runtime)).await,
            (Self::OwnThread, _) => tasks(clients, || Ours::connect(url, Home::Thread)).await,
            (Self::Floor, Backend::Memory) => tasks(1, async || Ok(memory::InProcess::default())).await,
            (Self::Floor, Backend::Sqlite) => tasks(clients, || sqlite::Floor::connect(url)).await,
            (Self::Floor, Backend::Redis) => tasks(clients, || redis::Floor::connect(url)).await,
            (Self::Floor, Backend::Mysql) => tasks(clients, || mysql::Floor::connect(url)).await,
            (Self::Floor, Backend::Zk) => tasks(clients, || zk::Floor::connect(url)).await,
            (Self::Floor, Backend::Etcd) => tasks(clients, || etcd::Floor::connect(url)).await,
            (Self::Rslock, _) => tasks(clients, async || Ok(redis::Rslock::connect(url))).await,
            (Self::DistributedLock, Backend::Mysql) => tasks(clients, || mysql::DistributedLock::connect(url)).await,
            (Self::DistributedLock, _) => tasks(clients, || redis::DistributedLock::connect(url)).await,
            (Self::GetLock, _) => tasks(clients, || mysql::GetLock::connect(url)).await,
            (Self::Recipe, _) => tasks(clients, || zk::Recipe::connect(url)).await,
            (Self::LockService, _) => tasks(clients, || etcd::LockService::connect(url)).await,
            _ => Err(format!("{} is a program", self.label()).into()),
        }
    }
}

async fn tasks<C: Client>(count: usize, connect: impl AsyncFn() -> Result<C, Stop>) -> Result<Box<dyn Runner>, Stop> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(Arc::new(connect().await?));
    }
    Ok(Box::new(Tasks(clients)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_backend_has_ours_and_a_floor() {
        for backend in Backend::ALL {
            for row in [Row::Ours, Row::OwnThread, Row::Floor] {
                assert!(backend.rows().contains(&row), "{backend:?} has no {row:?}");
            }
        }
    }
}
