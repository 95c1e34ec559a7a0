//! Opening the file: what must be in it, and who may put it there.

use std::path::Path;
use std::time::Duration;

use lock_core::{Effect, ErrorKind, LockError};
use sqlx::sqlite::{SqliteConnectOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, SqliteConnection};

use crate::errors;
use crate::file::{self, FileId};

/// `PRAGMA application_id` of our files: the letters `dlck`.
const APPLICATION_ID: i64 = 0x646c_636b;
/// `PRAGMA user_version` of the layout that this code reads and writes.
const VERSION: i64 = 1;

/// How long SQLite itself waits for another process that is just writing.
const BUSY_TIMEOUT: Duration = Duration::from_millis(1000);

/// Opens the file, and creates it where it is missing.
pub(crate) async fn open(path: &Path) -> Result<(SqliteConnection, FileId), LockError> {
    for _ in 0..4 {
        let for_check = path.to_owned();
        // Disks can be slow, and a dead mount can block for minutes.
        tokio::task::spawn_blocking(move || file::prepare(&for_check)).await.map_err(|e| {
            LockError::new(ErrorKind::Internal, "the look at the file failed").source(e)
        })??;
        let before = FileId::of(path);
        let conn = connect(path).await?;
        // Equal on both sides of the opening, so it is the one that was opened.
        match before {
            Some(id) if FileId::of(path) == Some(id) => return Ok((conn, id)),
            _ => drop(conn.close().await),
        }
    }
    Err(LockError::new(
        ErrorKind::Unavailable,
        format!("{}: the file is replaced again and again", path.display()),
    )
    .backend(crate::BACKEND)
    .with_effect(Effect::NotApplied)
    .advice("leave the file in place"))
}

async fn connect(path: &Path) -> Result<SqliteConnection, LockError> {
    let failed = |e| errors::from_sqlx(e, path).0;
    // NORMAL: no wait for the disk on each grant. See docs/adr/0201.
    let options = SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(BUSY_TIMEOUT)
        .foreign_keys(false)
        .synchronous(SqliteSynchronous::Normal)
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
            (APPLICATION_ID, VERSION, _) => return Ok(conn),
            (0, 0, 0) => create(&mut conn).await.map_err(failed)?,
            (APPLICATION_ID, newer, _) if newer > VERSION => {
                return Err(LockError::new(
                    ErrorKind::Config,
                    format!(
                        "{}: the file is of layout {newer}, and this program knows {VERSION}",
                        path.display()
                    ),
                )
                .backend(crate::BACKEND)
                .advice("upgrade this program, or name another file"));
            }
            _ => break,
        }
    }
    Err(LockError::new(
        ErrorKind::Foreign,
        format!("{}: the file is a database of another program", path.display()),
    )
    .backend(crate::BACKEND)
    .advice("name another file; this one was left as it is"))
}

/// Puts the tables into an empty file. Two processes may do it at once.
async fn create(conn: &mut SqliteConnection) -> sqlx::Result<()> {
    // SQLite does not wait for others here, whatever the time-out, so this is the one place where we do: a few milliseconds, once a file.
    for _ in 0..500 {
        match sqlx::query("PRAGMA journal_mode = WAL").execute(&mut *conn).await {
            Err(sqlx::Error::Database(e)) if e.code().as_deref() == Some("5") => {
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
