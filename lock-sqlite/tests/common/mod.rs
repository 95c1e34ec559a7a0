//! A lock file in a folder of its own, and short words for the requests.
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]
#![allow(unreachable_pub, reason = "a module of several test binaries")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use lock_core::{AcquireRequest, Acquisition, DistributedLock, Lease, LockName, Owner, Ttl, Wait};
use lock_sqlite::{SqliteConfig, SqliteLock};
use sqlx::{Connection, SqliteConnection};

pub struct Bench {
    pub folder: tempfile::TempDir,
    pub path: PathBuf,
    pub lock: SqliteLock,
}

impl Bench {
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks.db");
        let lock = open(&path).await;
        Self { folder, path, lock }
    }

    /// A connection for looking into the file past the library.
    pub async fn raw(&self) -> SqliteConnection {
        raw(&self.path).await
    }

    /// How many rows the file holds besides its counter.
    pub async fn rows(&self) -> i64 {
        let mut raw = self.raw().await;
        let sql = "SELECT (SELECT count(*) FROM locks) + (SELECT count(*) FROM next)";
        let rows = sqlx::query_scalar(sql).fetch_one(&mut raw).await.unwrap();
        raw.close().await.unwrap();
        rows
    }
}

pub async fn open(path: &Path) -> SqliteLock {
    SqliteLock::connect(SqliteConfig::from_path(path).unwrap()).await.unwrap()
}

pub async fn raw(path: &Path) -> SqliteConnection {
    SqliteConnection::connect_with(&sqlx::sqlite::SqliteConnectOptions::new().filename(path)).await.unwrap()
}

pub fn request(name: &str) -> AcquireRequest {
    AcquireRequest::new(LockName::new(name).unwrap(), Owner::random().unwrap())
}

pub fn with_ttl(mut request: AcquireRequest, ttl: Duration) -> AcquireRequest {
    request.ttl = Ttl::new(ttl).unwrap();
    request
}

/// The lease, or `None` when the answer is busy.
pub async fn acquire(lock: &impl DistributedLock, request: &AcquireRequest) -> Option<Box<dyn Lease>> {
    match lock.acquire(request).await.unwrap() {
        Acquisition::Granted(lease) => Some(lease),
        Acquisition::Busy(_) => None,
    }
}

pub async fn execute(path: &Path, sql: &'static str) {
    let mut raw = raw(path).await;
    sqlx::raw_sql(sql).execute(&mut raw).await.unwrap();
    raw.close().await.unwrap();
}

impl Bench {
    /// Until a request of any process has its place as the next one.
    pub async fn wait_for_waiter(&self) {
        let mut raw = self.raw().await;
        let deadline = Instant::now() + Duration::from_secs(10);
        while sqlx::query_scalar::<_, i64>("SELECT count(*) FROM next").fetch_one(&mut raw).await.unwrap() == 0 {
            assert!(Instant::now() < deadline, "nobody waits");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Microseconds of the boot-time clock.
pub fn boot_time() -> u64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).unwrap();
    Duration::from(time).as_micros() as u64
}

/// The numbers of a line.
pub fn numbers<const N: usize>(line: &str) -> [u64; N] {
    let numbers: Vec<_> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

/// This test binary once more, in one of the roles below.
pub struct Child {
    process: std::process::Child,
    said: Option<BufReader<ChildStdout>>,
}

impl Child {
    pub fn spawn(role: &str, path: &Path, argument: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["common::child", "--exact", "--nocapture"])
            .env("LOCK_SQLITE_CHILD", format!("{role}|{}|{argument}", path.display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = process.stdout.take().map(BufReader::new);
        Self { process, said }
    }

    /// What the child says next.
    pub async fn line(&mut self) -> String {
        let mut said = self.said.take().unwrap();
        let read = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            // What the test harness says itself has no mark.
            while !line.contains(MARK) {
                line.clear();
                assert!(said.read_line(&mut line).unwrap() > 0, "the child ended and said nothing");
            }
            (said, line.split_once(MARK).unwrap().1.trim().to_owned())
        });
        let (said, line) = tokio::time::timeout(Duration::from_secs(30), read).await.unwrap().unwrap();
        self.said = Some(said);
        line
    }

    /// Kills it without warning.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const MARK: &str = "child says: ";

/// The child's side of [`Child`]; in the test run itself it does nothing.
#[test]
fn child() {
    let Ok(task) = std::env::var("LOCK_SQLITE_CHILD") else { return };
    let [role, path, argument] = task.split('|').collect::<Vec<_>>().try_into().unwrap();
    if role == "connect_as_nobody" && nix::unistd::geteuid().is_root() {
        nix::unistd::setgid(nix::unistd::Gid::from_raw(65534)).unwrap();
        nix::unistd::setuid(nix::unistd::Uid::from_raw(65534)).unwrap();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let said = runtime.block_on(play(role, Path::new(path), argument));
    println!("{MARK}{said}");
    if role == "hold" {
        std::thread::sleep(Duration::from_secs(60));
    }
}

async fn play(role: &str, path: &Path, argument: &str) -> String {
    if role == "connect_as_nobody" {
        let err = SqliteLock::connect(SqliteConfig::from_path(path).unwrap()).await.unwrap_err();
        return format!("{:?} {:?} {err}", err.kind(), err.effect());
    }
    let lock = open(path).await;
    let patient = || {
        let mut request = request("a");
        request.wait = Wait::Forever;
        request
    };
    match role {
        "hold" => {
            let request = with_ttl(patient(), Duration::from_millis(argument.parse().unwrap()));
            let sent = boot_time();
            let lease = acquire(&lock, &request).await.unwrap();
            format!("{sent} {}", lease.fencing_token())
        }
        "take_once" => {
            let mut lease = acquire(&lock, &patient()).await.unwrap();
            lease.release().await.unwrap();
            lock.close().await.unwrap();
            lease.fencing_token().to_string()
        }
        "contend" => {
            let end = Instant::now() + Duration::from_millis(argument.parse().unwrap());
            let witness = path.with_extension("witness");
            let mut turns = 0;
            while Instant::now() < end {
                let mut lease = acquire(&lock, &patient()).await.unwrap();
                // Fails if another process is in here too.
                std::fs::OpenOptions::new().write(true).create_new(true).open(&witness).expect("alone");
                tokio::time::sleep(Duration::from_millis(1)).await;
                std::fs::remove_file(&witness).unwrap();
                lease.release().await.unwrap();
                turns += 1;
            }
            turns.to_string()
        }
        other => panic!("no role {other}"),
    }
}
