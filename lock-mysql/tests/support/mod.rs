//! A MariaDB server of the test's own, and helpers around it.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use conformance_tests::servers::mysql::MysqlServer;
use lock_core::{AcquireRequest, Acquisition, DistributedLock, Lease, LockError, LockName, Owner, Ttl, Wait};
use lock_mysql::{MysqlConfig, MysqlLock};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, MySqlConnection};
use tokio::sync::Mutex;

/// A database of its own for a test, with a user that has all rights in it and none beyond.
pub(crate) struct Database {
    pub(crate) server: Arc<MysqlServer>,
    pub(crate) port: u16,
    pub(crate) name: String,
}

/// One server serves all tests that run at a time: starting one takes seconds. Those that stop or change it start their own.
static SHARED: Mutex<Weak<MysqlServer>> = Mutex::const_new(Weak::new());

async fn admin(port: u16) -> sqlx::Result<MySqlConnection> {
    let options = MySqlConnectOptions::new().host("127.0.0.1").port(port).username("admin").password("admin");
    options.connect().await
}

impl Database {
    /// In a server that the tests of the binary share.
    pub(crate) async fn shared() -> Self {
        let mut shared = SHARED.lock().await;
        let server = match shared.upgrade() {
            Some(server) => server,
            None => Arc::new(MysqlServer::start(&[]).await.unwrap()),
        };
        *shared = Arc::downgrade(&server);
        Self::new(server).await
    }

    /// In a server with these options.
    pub(crate) async fn with_options(options: &[&str]) -> Self {
        Self::new(Arc::new(MysqlServer::start(options).await.unwrap())).await
    }

    async fn new(server: Arc<MysqlServer>) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("db{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let it = Self { port: server.port(), server, name };
        it.run(&format!("CREATE DATABASE {}", it.name)).await;
        it.run(&format!("CREATE USER {0}@'%' IDENTIFIED BY 'hunter2'", it.name)).await;
        it.run(&format!("GRANT ALL ON {0}.* TO {0}@'%'", it.name)).await;
        it
    }

    pub(crate) fn url(&self) -> String {
        format!("mysql://{0}:hunter2@127.0.0.1:{1}/{0}", self.name, self.port)
    }

    pub(crate) async fn connect(&self) -> MysqlLock {
        self.try_connect().await.unwrap()
    }

    pub(crate) async fn try_connect(&self) -> Result<MysqlLock, LockError> {
        MysqlLock::connect(MysqlConfig::from_url(self.url())?).await
    }

    pub(crate) async fn run(&self, statement: &str) {
        let mut conn = admin(self.port).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut conn).await.unwrap();
    }

    /// The one number that a statement answers; `{t}` in it is the table.
    pub(crate) async fn number(&self, statement: &str) -> i64 {
        let statement = statement.replace("{t}", &format!("{}.distributed_lock", self.name));
        let mut conn = admin(self.port).await.unwrap();
        let statement = format!("SELECT CAST(({statement}) AS SIGNED)");
        sqlx::query_scalar(AssertSqlSafe(statement)).fetch_one(&mut conn).await.unwrap()
    }

    /// Ends all sessions of this database's user.
    pub(crate) async fn end_sessions(&self) {
        let sessions =
            format!("SELECT CAST(id AS SIGNED) FROM information_schema.PROCESSLIST WHERE user = '{}'", self.name);
        let mut conn = admin(self.port).await.unwrap();
        let ids: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(sessions)).fetch_all(&mut conn).await.unwrap();
        assert!(!ids.is_empty(), "there are no sessions to end");
        for id in ids {
            let ended = sqlx::raw_sql(AssertSqlSafe(format!("KILL {id}"))).execute(&mut conn).await;
            // One may have ended by itself since.
            let gone = |e: &sqlx::Error| e.to_string().contains("1094");
            assert!(ended.as_ref().err().is_none_or(gone), "{ended:?}");
        }
    }

    /// A counter of the server's.
    pub(crate) async fn status(&self, name: &str) -> i64 {
        let table = if self.server.is_mysql() {
            "performance_schema.global_status"
        } else {
            "information_schema.GLOBAL_STATUS"
        };
        self.number(&format!("SELECT VARIABLE_VALUE FROM {table} WHERE VARIABLE_NAME = '{name}'")).await
    }

    /// How many deadlocks the server has ended.
    pub(crate) async fn deadlocks(&self) -> i64 {
        if !self.server.is_mysql() {
            return self.status("Innodb_deadlocks").await;
        }
        self.number("SELECT COUNT FROM information_schema.INNODB_METRICS WHERE NAME = 'lock_deadlocks'").await
    }
}

pub(crate) fn request(name: &str) -> AcquireRequest {
    let mut request = AcquireRequest::new(LockName::new(name).unwrap(), Owner::random().unwrap());
    request.ttl = Ttl::new(Duration::from_secs(10)).unwrap();
    request
}

pub(crate) fn waiting(name: &str, span: Duration) -> AcquireRequest {
    let mut request = request(name);
    request.wait = Wait::Until(request.clock.now().after(span));
    request
}

pub(crate) fn with_ttl(mut request: AcquireRequest, milliseconds: u64) -> AcquireRequest {
    request.ttl = Ttl::new(Duration::from_millis(milliseconds)).unwrap();
    request
}

pub(crate) async fn acquire(lock: &MysqlLock, request: &AcquireRequest) -> Option<Box<dyn Lease>> {
    match lock.acquire(request).await.unwrap() {
        Acquisition::Granted(lease) => Some(lease),
        Acquisition::Busy(_) => None,
    }
}
