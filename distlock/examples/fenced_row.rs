//! A table row that refuses a writer who woke up too late.
//!
//! ```sh
//! cargo run -p distlock --example fenced_row
//! cargo run -p distlock --example fenced_row --features etcd -- etcd://127.0.0.1:2379
//! ```
//!
//! Process A takes the lock, reads a balance, and is stopped (SIGSTOP) right before it writes, longer than its lock lives. B gets the lock and
//! writes. When A is continued it has no way to know how long it stood still: it writes too, and the row refuses it, because a greater
//! fencing token has written since. The exit code is 0 only if B's write was accepted and A's refused.

mod common;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Parser;
use distlock::fence::{FenceError, sqlite as fence};
use distlock::{FencingToken, Reach};
use nix::sys::signal::{Signal, kill, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use tokio::task::spawn_blocking;

const LOCK: &str = "fenced-row:account-7";
const TTL: Duration = Duration::from_secs(2);

/// A table row that refuses a writer who woke up too late.
#[derive(Parser)]
struct Args {
    /// The backend, such as redis://host/ [default: DISTLOCK_URL, else a SQLite file]
    url: Option<String>,
    /// Be process A, and write to this database
    #[arg(long, hide = true)]
    late: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let result = match args.late {
        Some(database) => be_late(args.url, &database).await,
        None => tell(args.url).await,
    };
    common::ended("fenced_row", result)
}

/// A row that only the holder of the lock may change, in a database that has nothing to do with the lock's.
struct Account(SqlitePool);

impl Account {
    async fn open(database: &Path) -> Result<Self, Box<dyn Error>> {
        let options = SqliteConnectOptions::new().filename(database).create_if_missing(true);
        let pool = SqlitePool::connect_with(options).await?;
        fence::create_table(&mut *pool.acquire().await?).await?;
        sqlx::query("CREATE TABLE IF NOT EXISTS account (id INTEGER PRIMARY KEY, balance INTEGER)")
            .execute(&pool)
            .await?;
        sqlx::query("INSERT INTO account VALUES (7, 100) ON CONFLICT DO NOTHING").execute(&pool).await?;
        Ok(Self(pool))
    }

    async fn read(&self) -> sqlx::Result<i64> {
        sqlx::query_scalar("SELECT balance FROM account WHERE id = 7").fetch_one(&self.0).await
    }

    /// Writes, unless somebody with a greater token has written; whether it did. The database decides, not the writer: the check and the write
    /// are one transaction. (In one statement: `UPDATE account SET balance = ?1, token = ?2 WHERE id = 7 AND token <= ?2`.)
    async fn write(&self, balance: i64, token: FencingToken) -> Result<bool, Box<dyn Error>> {
        let mut work = self.0.begin_with("BEGIN IMMEDIATE").await?;
        match fence::admit(&mut work, LOCK, token).await {
            Err(FenceError::Stale(_)) => return Ok(false),
            admitted => admitted?,
        }
        sqlx::query("UPDATE account SET balance = ? WHERE id = 7").bind(balance).execute(&mut *work).await?;
        work.commit().await?;
        Ok(true)
    }
}

/// Process B, which also starts, stops and continues A.
async fn tell(url: Option<String>) -> Result<bool, Box<dyn Error>> {
    let locks = common::connect(url.clone(), None).await?;
    if locks.manager.capabilities().reach == Reach::Process {
        return Err(
            "A and B are two processes; give the URL of a backend that both reach, such as sqlite:///tmp/l.db".into()
        );
    }
    let folder = tempfile::tempdir()?;
    let database = folder.path().join("accounts.db");
    let account = Account::open(&database).await?;
    println!("B: the balance is {}, and the lock is at {}", account.read().await?, locks.url);

    let mut late = Command::new(std::env::current_exe()?);
    late.arg("--late").arg(&database);
    if let Some(url) = url {
        late.arg(url);
    }
    let mut late = late.spawn()?;
    let pid = Pid::from_raw(late.id().cast_signed());
    let status = spawn_blocking(move || waitpid(pid, Some(WaitPidFlag::WUNTRACED))).await??;
    if !matches!(status, WaitStatus::Stopped(..)) {
        return Err(format!("process A should have been stopped before its write, and was not: {status:?}").into());
    }
    println!("B: A stands still; waiting for the lock, which nobody renews any more");
    let guard = match locks.manager.lock(LOCK).ttl(TTL).wait(TTL * 5).acquire().await {
        Ok(guard) => guard,
        Err(error) => {
            // It cannot die of itself while it is stopped.
            late.kill()?;
            return Err(error.into());
        }
    };
    let balance = account.read().await? + 50;
    let fresh = account.write(balance, guard.fencing_token()).await?;
    println!("B: wrote {balance} with token {}: {}", guard.fencing_token(), verdict(fresh));
    guard.release().await?;

    println!("B: A goes on");
    kill(pid, Signal::SIGCONT)?;
    let refused = spawn_blocking(move || late.wait()).await??.success();
    let found = account.read().await?;
    let right = fresh && refused && found == balance;
    println!("B: the balance is {found}: {}", if right { "nothing was lost" } else { "WRONG" });
    locks.manager.close().await?;
    Ok(right)
}

/// Process A; whether its write was refused.
async fn be_late(url: Option<String>, database: &Path) -> Result<bool, Box<dyn Error>> {
    let locks = common::connect(url, None).await?;
    let account = Account::open(database).await?;
    let guard = locks.manager.lock(LOCK).ttl(TTL).acquire().await?;
    let balance = account.read().await? - 30;
    println!(
        "A: holds the lock with token {}, held: {}; about to write {balance}",
        guard.fencing_token(),
        guard.is_held()
    );
    // The worst moment to be suspended: the guard has been looked at, and the write comes next.
    raise(Signal::SIGSTOP)?;
    let accepted = account.write(balance, guard.fencing_token()).await?;
    println!("A: wrote {balance} with token {}: {}", guard.fencing_token(), verdict(accepted));
    match guard.lost_reason() {
        Some(reason) => println!("A: now sees that its lock is lost: {reason}"),
        None => println!("A: held: {}", guard.is_held()),
    }
    drop(guard);
    locks.manager.close().await?;
    Ok(!accepted)
}

fn verdict(accepted: bool) -> &'static str {
    if accepted { "accepted" } else { "refused, a greater token has written" }
}
