//! Rows that refuse an older fencing token, in a SQLite database of the user's own.
//!
//! [`admit`] checks and remembers a token inside the user's transaction, so it stands or falls with the user's writes:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use lock_core::FencingToken;
//! use lock_sqlite::fence;
//! use sqlx::{Connection, SqliteConnection};
//!
//! let mut database = SqliteConnection::connect("sqlite::memory:").await?;
//! fence::create_table(&mut database).await?;
//! sqlx::raw_sql("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER); INSERT INTO account VALUES (7, 100)")
//!     .execute(&mut database)
//!     .await?;
//!
//! let token = FencingToken::new(42); // of `LockGuard::fencing_token`
//! let mut work = database.begin_with("BEGIN IMMEDIATE").await?;
//! fence::admit(&mut work, "account:7", token).await?; // an older token ends the work here
//! sqlx::query("UPDATE account SET balance = 130 WHERE id = 7").execute(&mut *work).await?;
//! work.commit().await?;
//! # Ok(()) }
//! ```
//!
//! # In a row of one's own
//! A row with a column for the token needs no table beside it. The comparison must stand in the statement that writes:
//!
//! ```sql
//! UPDATE account SET balance = ?1, token = ?2 WHERE id = 7 AND token <= ?2
//! ```
//!
//! No row changed means that the token was older, or that there is no such row. [`number`] makes the token a number that SQLite can compare.
//!
//! # What to mind
//! A transaction that has read before it calls [`admit`] sees the database as it was then. If another has written since, SQLite refuses the call as busy, whatever
//! the token, and only a new transaction can go on; `BEGIN IMMEDIATE` lets it wait in the beginning instead.

use lock_core::fence::{FenceError, StaleToken};
use lock_core::{Effect, ErrorKind, FencingToken, LockError};
use sqlx::{Sqlite, SqliteConnection, Transaction};

use crate::errors;

/// The table in which [`admit`] remembers tokens: one row a resource.
pub const CREATE_TABLE: &str = "CREATE TABLE IF NOT EXISTS distlock_fence (resource TEXT NOT NULL PRIMARY KEY, token INTEGER NOT NULL) WITHOUT ROWID";

/// Creates the table, if it is not there.
///
/// # Errors
/// As [`admit`], without `Stale`.
///
/// # Cancel safety
/// Dropping it leaves the table created or not; the connection stays usable.
pub async fn create_table(connection: &mut SqliteConnection) -> Result<(), FenceError> {
    sqlx::raw_sql(CREATE_TABLE).execute(connection).await.map(drop).map_err(failed)
}

/// Remembers the token for the resource if it has seen no newer one, within this transaction.
///
/// One token may be admitted often. From here to the transaction's end no other can write to this database, and a rollback also forgets the token. A resource is
/// any text; give each lock its own, such as the lock's name, since tokens of different locks do not compare.
///
/// # Errors
/// [`FenceError::Stale`] for an older token: nothing was changed; roll back and stop. [`FenceError::Failed`] with
/// - [`ErrorKind::Unavailable`] when another transaction has written since this one began to read, or keeps the database locked: roll back and begin anew;
/// - [`ErrorKind::Foreign`] when the table is missing or of another form;
/// - [`ErrorKind::Unsupported`] for a token above 2^63 - 1, which SQLite cannot compare.
///
/// # Cancel safety
/// Dropping it leaves it unknown whether the token was admitted: roll the transaction back.
pub async fn admit(work: &mut Transaction<'_, Sqlite>, resource: &str, token: FencingToken) -> Result<(), FenceError> {
    // The write comes first, so that no snapshot from before can answer. Read to its end, where SQLite tells a failure.
    let rows = sqlx::query_scalar::<_, i64>(
        "INSERT INTO distlock_fence (resource, token) VALUES (?1, ?2)
         ON CONFLICT (resource) DO UPDATE SET token = max(token, excluded.token) RETURNING token",
    )
    .bind(resource)
    .bind(number(token)?)
    .fetch_all(&mut **work)
    .await
    .map_err(failed)?;
    match rows.first().map(|newest| u64::try_from(*newest)) {
        Some(Ok(newest)) if newest > token.get() => {
            Err(StaleToken { offered: token, newest: FencingToken::new(newest) }.into())
        }
        Some(Ok(_)) => Ok(()),
        _ => Err(LockError::new(ErrorKind::Foreign, "the fence's row holds no token").backend(crate::BACKEND).into()),
    }
}

/// The token as SQLite stores it.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for a token above 2^63 - 1. No backend's counter comes near it; a `fence_base` could.
pub fn number(token: FencingToken) -> Result<i64, FenceError> {
    i64::try_from(token.get()).map_err(|_| {
        LockError::new(ErrorKind::Unsupported, format!("SQLite cannot compare the token {token}: it is above 2^63 - 1"))
            .backend(crate::BACKEND)
            .advice("choose a smaller fence_base")
            .into()
    })
}

fn failed(error: sqlx::Error) -> FenceError {
    // It is the user's database and the user's transaction: what failed is one statement in it.
    let meaning = errors::meaning(&error);
    let detail = if is_table_missing(&error) { "the fence's table is missing" } else { meaning.detail };
    let advice = match meaning.kind {
        ErrorKind::Foreign => "create the table by fence::create_table",
        _ => "roll the transaction back, and begin anew if this can pass",
    };
    let effect = if meaning.kind == ErrorKind::Unavailable { Effect::NotApplied } else { meaning.effect };
    LockError::new(meaning.kind, detail)
        .backend(crate::BACKEND)
        .operation("fence")
        .with_effect(effect)
        .with_retryable(meaning.retryable)
        .advice(advice)
        .source(error)
        .into()
}

fn is_table_missing(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|e| e.message().starts_with("no such table"))
}
