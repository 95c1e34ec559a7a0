//! A MariaDB server and its asynchronous replica (GTID), which takes over when it is told to.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sqlx::mysql::MySqlConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, MySqlConnection, Row};

use super::mysql::MysqlServer;
use crate::proxy::Proxy;
use crate::{Stop, ensure, eventually};

/// Two servers, both read-only when they start; whoever does the failover opens one of them, here the suite.
#[derive(Debug)]
pub struct MysqlPair {
    servers: [MysqlServer; 2],
    /// Over which a server follows the other one.
    lines: [Proxy; 2],
    primary: AtomicUsize,
}

impl MysqlPair {
    /// Starts them, and waits until one follows the other.
    ///
    /// # Errors
    /// When they are not installed, which says how to install them, or do not come to rest in time.
    ///
    /// # Cancel safety
    /// Dropping it ends the servers.
    pub async fn start() -> Result<Self, Stop> {
        let first = MysqlServer::start(&Self::settings("--server-id=1")).await?;
        let second = MysqlServer::start(&Self::settings("--server-id=2")).await?;
        let lines = [Proxy::start(address(&first)).await?, Proxy::start(address(&second)).await?];
        let pair = Self { servers: [first, second], lines, primary: AtomicUsize::new(0) };
        pair.ready().await?;
        Ok(pair)
    }

    /// What one has seen and the other has not is no reason to stop: the last moment before a failover.
    fn settings(id: &str) -> [&str; 8] {
        let log = ["--log-bin=log", "--log-slave-updates", "--binlog-format=ROW", "--read-only"];
        [
            id,
            log[0],
            log[1],
            log[2],
            log[3],
            "--slave-exec-mode=IDEMPOTENT",
            "--slave-net-timeout=4",
            "--relay-log=relay",
        ]
    }

    /// The number of the one that takes writes.
    pub fn primary(&self) -> usize {
        self.primary.load(Ordering::SeqCst)
    }

    /// Where a server is to be dialled.
    pub fn address(&self, server: usize) -> SocketAddr {
        address(&self.servers[server])
    }

    /// A server.
    pub fn server(&self, server: usize) -> &MysqlServer {
        &self.servers[server]
    }

    /// Cuts the two off from each other, or joins them.
    pub fn cut(&self, off: bool) {
        self.lines.iter().for_each(|line| line.black_hole(off));
    }

    /// Makes the replica the primary, as a failover does. The old one is told to refuse writes where it can be reached.
    ///
    /// # Errors
    /// When the replica does not obey.
    ///
    /// # Cancel safety
    /// Dropping it may leave the failover undone.
    pub async fn promote(&self, reachable: bool) -> Result<(), Stop> {
        let (old, new) = (self.primary(), 1 - self.primary());
        if reachable {
            self.run(old, "SET GLOBAL read_only=1").await?;
        }
        self.run(new, "STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only=0").await?;
        self.primary.store(new, Ordering::SeqCst);
        Ok(())
    }

    /// Sees to it that the primary takes writes, and that the other one refuses them and follows.
    ///
    /// # Errors
    /// When it does not in time.
    ///
    /// # Cancel safety
    /// Dropping it may leave a server that does not follow.
    pub async fn ready(&self) -> Result<(), Stop> {
        let (primary, other) = (self.primary(), 1 - self.primary());
        for server in [other, primary] {
            let answers = || async { self.run(server, "SELECT 1").await.is_ok() };
            ensure!(eventually(super::START_LIMIT, answers).await, "server {server} does not answer");
        }
        self.run(other, "SET GLOBAL read_only=1").await?;
        self.run(primary, "SET GLOBAL read_only=0").await?;
        if !self.in_step(primary, other, 2).await {
            let at = self.text(primary, "SELECT @@global.gtid_binlog_pos").await?;
            let port = self.lines[primary].address().port();
            let follow = format!(
                "STOP SLAVE; RESET SLAVE ALL; SET GLOBAL gtid_slave_pos='{at}'; CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={port},
                 MASTER_USER='admin', MASTER_PASSWORD='admin', MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1, MASTER_HEARTBEAT_PERIOD=1;
                 START SLAVE"
            );
            self.run(other, &follow).await?;
        }
        ensure!(
            self.in_step(primary, other, 30).await,
            "server {other} does not follow: {}",
            self.servers[other].log()
        );
        Ok(())
    }

    /// Whether the replica gets what the primary writes now, within so many seconds.
    async fn in_step(&self, primary: usize, other: usize, seconds: u32) -> bool {
        let mark = format!(
            "CREATE DATABASE IF NOT EXISTS mark; CREATE OR REPLACE TABLE mark.t (n INT); INSERT INTO mark.t VALUES ({})",
            fresh()
        );
        if self.run(primary, &mark).await.is_err() {
            return false;
        }
        let Ok(wanted) = self.text(primary, "SELECT CAST(n AS CHAR) FROM mark.t").await else { return false };
        let got = || async { self.text(other, "SELECT CAST(n AS CHAR) FROM mark.t").await.is_ok_and(|n| n == wanted) };
        eventually(Duration::from_secs(seconds.into()), got).await
    }

    /// Runs statements on a server as its administrator.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Cancel safety
    /// Dropping it leaves open what has been run.
    pub async fn run(&self, server: usize, statements: &str) -> Result<(), Stop> {
        let mut connection = self.connection(server).await?;
        sqlx::raw_sql(AssertSqlSafe(statements.to_owned())).execute(&mut connection).await?;
        Ok(())
    }

    async fn text(&self, server: usize, query: &str) -> Result<String, Stop> {
        let mut connection = self.connection(server).await?;
        Ok(sqlx::raw_sql(AssertSqlSafe(query.to_owned())).fetch_one(&mut connection).await?.try_get(0)?)
    }

    async fn connection(&self, server: usize) -> Result<MySqlConnection, Stop> {
        let port = self.servers[server].port();
        let options = MySqlConnectOptions::new().host("127.0.0.1").port(port).username("admin").password("admin");
        let connected = tokio::time::timeout(Duration::from_secs(10), options.connect()).await;
        Ok(connected.map_err(|_| "the server does not answer")??)
    }
}

fn address(server: &MysqlServer) -> SocketAddr {
    ([127, 0, 0, 1], server.port()).into()
}

/// Another number each time.
fn fresh() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
