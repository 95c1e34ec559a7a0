//! Rows that refuse an older fencing token, in a database of the user's own.
//!
//! [`admit`] checks and remembers a token inside the user's transaction, so it stands or falls with the user's writes:
//!
//! ```no_run
//! # async fn example(database: &mut sqlx::MySqlConnection, token: lock_core::FencingToken) -> Result<(), Box<dyn std::error::Error>> {
//! use lock_mysql::fence;
//! use sqlx::Connection;
//!
//! fence::create_table(database).await?; // once
//! let mut work = database.begin().await?;
//! fence::admit(&mut work, "account:7", token).await?; // an older token ends the work here
//! sqlx::query("UPDATE account SET balance = 130 WHERE id = 7").execute(&mut *work).await?;
//! work.commit().await?;
//! # Ok(()) }
//! ```
//!
//! # In a row of one's own
//! A row with a column for the token (`BIGINT UNSIGNED`) needs no table beside it. The comparison must stand in the statement that writes:
//!
//! ```sql
//! UPDATE account SET balance = ?, token = ? WHERE id = 7 AND token <= ?
//! ```
//!
//! No row *found* (which is what sqlx counts) means that the token was older, or that there is no such row. A signed `BIGINT` ends at 2^63 - 1: no
//! backend's counter comes near it, a `fence_base` could.
//!
//! # What to mind
//! Never compare with what a plain `SELECT` read: in `REPEATABLE READ`, the default, it answers from the moment of the transaction's first read, however long ago. An
//! `UPDATE` and a `SELECT ... FOR UPDATE` see the row as it is now, on every level of isolation; [`admit`] uses these alone. Call it first, so that what the transaction
//! reads after it is no older than the check.

use lock_core::fence::{FenceError, StaleToken};
use lock_core::{ErrorKind, FencingToken, LockError};
use sqlx::{MySql, MySqlConnection, Transaction};

use crate::BACKEND;
use crate::errors::{self, NO_TABLE, meaning_of};

/// The table in which [`admit`] remembers tokens: one row a resource, compared byte by byte, with the whole range of tokens.
pub const CREATE_TABLE: &str = "CREATE TABLE IF NOT EXISTS distlock_fence (
    resource VARBINARY(640) NOT NULL PRIMARY KEY,
    token BIGINT UNSIGNED NOT NULL
) ENGINE = InnoDB";

/// How long a resource may be: as long as the longest name with its namespace.
const MAX_BYTES: usize = 640;

/// Creates the table, if it is not there. Not within a transaction: the server commits it first.
///
/// # Errors
/// As [`admit`], without `Stale`; `Denied` where the user may not create tables: run [`CREATE_TABLE`] as one who may.
///
/// # Cancel safety
/// Dropping it leaves the table created or not; the connection is of no more use.
pub async fn create_table(connection: &mut MySqlConnection) -> Result<(), FenceError> {
    sqlx::raw_sql(CREATE_TABLE).execute(connection).await.map(drop).map_err(failed)
}

/// Remembers the token for the resource if it has seen no newer one, within this transaction.
///
/// One token may be admitted often. From here to the transaction's end others that ask about this resource wait, and a rollback also forgets the token. A resource
/// is any text of up to 640 bytes; give each lock its own, such as the lock's name, since tokens of different locks do not compare.
///
/// # Errors
/// [`FenceError::Stale`] for an older token: nothing was changed; roll back and stop. [`FenceError::Failed`] with
/// [`ErrorKind::Unavailable`] after a deadlock, or where another transaction keeps the row longer than `innodb_lock_wait_timeout`, or
/// has changed it since this one began (with `innodb_snapshot_isolation`): roll back and begin anew. A missing table is
/// [`ErrorKind::Config`], as is a resource that is too long.
///
/// # Cancel safety
/// Dropping it leaves it unknown whether the token was admitted: drop the transaction, too.
pub async fn admit(work: &mut Transaction<'_, MySql>, resource: &str, token: FencingToken) -> Result<(), FenceError> {
    if resource.len() > MAX_BYTES {
        // A server that is not strict would cut it, and make two resources one.
        let detail = format!("a resource of {} bytes is too long", resource.len());
        return Err(LockError::new(ErrorKind::Config, detail).backend(BACKEND).advice("give at most 640 bytes").into());
    }
    // Locks the row, or the place where it will be, and sees what is committed now and not what this transaction saw before.
    sqlx::query(
        "INSERT INTO distlock_fence (resource, token) VALUES (?, ?) ON DUPLICATE KEY UPDATE token = GREATEST(token, ?)",
    )
    .bind(resource.as_bytes())
    .bind(token.get())
    .bind(token.get())
    .execute(&mut **work)
    .await
    .map_err(failed)?;
    let newest: u64 = sqlx::query_scalar("SELECT token FROM distlock_fence WHERE resource = ? FOR UPDATE")
        .bind(resource.as_bytes())
        .fetch_one(&mut **work)
        .await
        .map_err(failed)?;
    if newest > token.get() {
        return Err(StaleToken { offered: token, newest: FencingToken::new(newest) }.into());
    }
    Ok(())
}

fn failed(error: sqlx::Error) -> FenceError {
    let (meaning, missing) = (meaning_of(&error), errors::code(&error) == Some(NO_TABLE));
    let advice = if missing { "create the table by fence::create_table" } else { meaning.advice };
    LockError::new(meaning.kind, if missing { "the fence's table is missing" } else { "the token was not admitted" })
        .backend(BACKEND)
        .operation("fence")
        .with_effect(meaning.effect)
        .with_retryable(meaning.retryable)
        .advice(if advice.is_empty() { "roll the transaction back" } else { advice })
        .source(error)
        .into()
}
