//! A MariaDB server of the test's own, and helpers around it.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lock_core::{AcquireRequest, Acquisition, DistributedLock, Lease, LockError, LockName, Owner, Ttl, Wait};
use lock_mysql::{MysqlConfig, MysqlLock};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, MySqlConnection};
use tempfile::TempDir;
use tokio::sync::OnceCell;

const SETUP: &str = "CREATE USER IF NOT EXISTS 'admin'@'%' IDENTIFIED BY 'admin';
GRANT ALL ON *.* TO 'admin'@'%' WITH GRANT OPTION;
";

/// A running server, killed when it is dropped.
pub(crate) struct Server {
    child: Child,
    port: u16,
    folder: TempDir,
}

/// A database of its own for a test, with a user that has all rights in it and none beyond.
pub(crate) struct Database {
    pub(crate) port: u16,
    pub(crate) name: String,
}

/// One server serves all tests of a binary: starting one takes seconds. Those that stop or change it start their own.
static SHARED: OnceCell<(u16, i32)> = OnceCell::const_new();

impl Server {
    pub(crate) async fn start(options: &[&str]) -> Self {
        for _ in 0..5 {
            let folder = TempDir::new().unwrap();
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            install(&folder.path().join("data"));
            std::fs::write(folder.path().join("setup.sql"), SETUP).unwrap();
            let mut server = Self { child: spawn(port, folder.path(), options), port, folder };
            if server.answers().await {
                return server;
            }
        }
        panic!("mariadbd does not come up with {options:?}");
    }

    async fn answers(&mut self) -> bool {
        let until = Instant::now() + Duration::from_secs(30);
        while Instant::now() < until && self.child.try_wait().unwrap().is_none() {
            if admin(self.port).await.is_ok() {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        false
    }

    pub(crate) async fn database(&self) -> Database {
        Database::new(self.port).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn as_root() -> Option<&'static str> {
    nix::unistd::getuid().is_root().then_some("--user=root")
}

fn install(data: &Path) {
    let made = Command::new("mariadb-install-db")
        .args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"])
        .arg("--innodb-log-file-size=8M")
        .arg(format!("--datadir={}", data.display()))
        .args(as_root())
        .output()
        .expect("mariadb-install-db is missing: apt-get install mariadb-server");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn spawn(port: u16, folder: &Path, options: &[&str]) -> Child {
    let mut command = Command::new("mariadbd");
    command.arg("--no-defaults");
    for (option, file) in [
        ("datadir", "data"),
        ("socket", "socket"),
        ("pid-file", "pid"),
        ("log-error", "log"),
        ("init-file", "setup.sql"),
    ] {
        command.arg(format!("--{option}={}", folder.join(file).display()));
    }
    command
        .args([format!("--port={port}"), "--bind-address=127.0.0.1".into(), "--skip-name-resolve".into()])
        .args(["--innodb-log-file-size=8M", "--innodb-buffer-pool-size=32M", "--max-connections=500"])
        .args(as_root())
        .args(options)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().expect("mariadbd is missing: apt-get install mariadb-server")
}

async fn admin(port: u16) -> sqlx::Result<MySqlConnection> {
    let options = MySqlConnectOptions::new().host("127.0.0.1").port(port).username("admin").password("admin");
    options.connect().await
}

impl Database {
    /// In a server that all tests of the binary share, and that ends with it.
    pub(crate) async fn shared() -> Self {
        let (port, _) = SHARED
            .get_or_init(|| async {
                let server = Server::start(&[]).await;
                let (port, pid) = (server.port, server.child.id() as i32);
                watch_over(pid, &server);
                std::mem::forget(server);
                (port, pid)
            })
            .await;
        Self::new(*port).await
    }

    async fn new(port: u16) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("db{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let it = Self { port, name };
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
        MysqlLock::connect(MysqlConfig::from_url(&self.url().parse().unwrap())?).await
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

    /// A counter of the server's.
    pub(crate) async fn status(&self, name: &str) -> i64 {
        self.number(&format!(
            "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = '{name}'"
        ))
        .await
    }
}

/// Ends the server when this process has ended, however it ends.
#[allow(clippy::zombie_processes, reason = "it outlives this process")]
fn watch_over(pid: i32, server: &Server) {
    let script = format!(
        "while kill -0 {} 2>/dev/null; do sleep 0.2; done; kill -9 {pid}; rm -rf '{}'",
        std::process::id(),
        server.folder.path().display()
    );
    let mut command = Command::new("setsid");
    command.args(["sh", "-c", &script]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap();
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
