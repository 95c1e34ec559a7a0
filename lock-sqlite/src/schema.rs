//! Opening the file: what must be in it, and who may put it there.

use std::path::Path;
use std::time::Duration;

use lock_core::{Effect, ErrorKind, LockError};
use sqlx::sqlite::{SqliteConnectOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, SqliteConnection};

use crate::clock::{BootClock, utc};
use crate::errors;
use crate::file::{self, FileId};

/// `PRAGMA application_id` of our files: the letters `dlck`.
const APPLICATION_ID: i64 = 0x646c_636b;
/// `PRAGMA user_version` of the layout that this code reads and writes.
const VERSION: i64 = 1;

/// How long SQLite itself waits for another process that is just writing.
const BUSY_TIMEOUT: Duration = Duration::from_millis(1000);

/// Opens the file, and creates it where it is missing.
pub(crate) async fn open(path: &Path, clock: &BootClock) -> Result<(SqliteConnection, FileId), LockError> {
    for _ in 0..4 {
        let for_check = path.to_owned();
        // Disks can be slow, and a dead mount can block for minutes.
        tokio::task::spawn_blocking(move || file::prepare(&for_check))
            .await
            .map_err(|e| LockError::new(ErrorKind::Internal, "the look at the file failed").source(e))??;
        let before = FileId::of(path);
        let conn = connect(path, clock).await?;
        // Equal on both sides of the opening, so it is the one that was opened.
        match before {
            Some(id) if FileId::of(path) == Some(id) => return Ok((conn, id)),
            _ => drop(conn.close().await),
        }
    }
    Err(LockError::new(ErrorKind::Unavailable, format!("{}: the file is replaced again and again", path.display()))
        .backend(crate::BACKEND)
        .with_effect(Effect::NotApplied)
        .advice("leave the file in place"))
}

async fn connect(path: &Path, clock: &BootClock) -> Result<SqliteConnection, LockError> {
    let failed = |e| errors::from_sqlx(e, path).0;
    // No waiting for the disk where a loss of power ends all leases anyway: see docs/adr/0201-sqlite-synchronous.md.
    let synchronous = if BootClock::NAMES_BOOTS { SqliteSynchronous::Off } else { SqliteSynchronous::Normal };
    let options = SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(BUSY_TIMEOUT)
        .foreign_keys(false)
        .synchronous(synchronous)
        .disable_statement_logging();
    let mut conn = options.connect().await.map_err(failed)?;
    for _ in 0..2 {
        let (application, version, objects): (i64, i64, i64) = sqlx::query_as(
            "SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version),
                    (SELECT count(*) FROM sqlite_schema)",
        )
        .fetch_one(&mut conn)
        .await
        .map_err(failed)?;
        match (application, version, objects) {
            (APPLICATION_ID, VERSION, _) => {
                adopt(&mut conn, clock).await.map_err(failed)?;
                return Ok(conn);
            }
            (0, 0, 0) => create(&mut conn).await.map_err(failed)?,
            (APPLICATION_ID, newer, _) if newer > VERSION => {
                return Err(LockError::new(
                    ErrorKind::Config,
                    format!("{}: the file is of layout {newer}, and this program knows {VERSION}", path.display()),
                )
                .backend(crate::BACKEND)
                .advice("upgrade this program, or name another file"));
            }
            _ => break,
        }
    }
    Err(LockError::new(ErrorKind::Foreign, format!("{}: the file is a database of another program", path.display()))
        .backend(crate::BACKEND)
        .advice("name another file; this one was left as it is"))
}

/// Makes the file this boot's, if it is not yet: sees to it that a loss of power has not damaged it, and that tokens rise above whatever the
/// last moments before it may have lost.
async fn adopt(conn: &mut SqliteConnection, clock: &BootClock) -> sqlx::Result<()> {
    let boot: Option<(String,)> =
        sqlx::query_as("SELECT boot FROM counter WHERE id = 1").fetch_optional(&mut *conn).await?;
    if boot.is_some_and(|(boot,)| boot == clock.boot()) {
        return Ok(());
    }
    let (found,): (String,) = sqlx::query_as("PRAGMA quick_check(1)").fetch_one(&mut *conn).await?;
    if found != "ok" {
        return Err(sqlx::Error::Decode(found.into()));
    }
    sqlx::query(include_str!("sql/adopt.sql")).bind(clock.boot().to_owned()).bind(utc()).execute(conn).await.map(drop)
}

/// Puts the tables into an empty file. Two processes may do it at once.
async fn create(conn: &mut SqliteConnection) -> sqlx::Result<()> {
    // SQLite does not wait for others here, whatever the time-out, so this is the one place where we do: a few milliseconds, once a file.
    let mut tries = 0;
    loop {
        tries += 1;
        match sqlx::query("PRAGMA journal_mode = WAL").execute(&mut *conn).await {
            Err(sqlx::Error::Database(e)) if tries < 500 && e.code().as_deref() == Some("5") => {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            done => {
                done?;
                break;
            }
        }
    }
    sqlx::raw_sql(include_str!("sql/schema.sql")).execute(conn).await.map(drop)
}
