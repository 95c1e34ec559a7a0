//! Rows that refuse an older token: in one transaction, and between two that run at once.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::time::Duration;

use lock_core::fence::FenceError;
use lock_core::{Effect, ErrorKind, FencingToken};
use lock_sqlite::fence;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
use sqlx::{ConnectOptions, Connection, SqliteConnection};

const TOP: u64 = i64::MAX as u64;

async fn open(path: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
    let options = options.journal_mode(SqliteJournalMode::Wal).busy_timeout(Duration::from_secs(30));
    options.connect().await.unwrap()
}

/// A database with the fence's table and an account of 100.
async fn database() -> (tempfile::TempDir, SqliteConnection) {
    let folder = tempfile::tempdir().unwrap();
    let mut database = open(&folder.path().join("data.db")).await;
    fence::create_table(&mut database).await.unwrap();
    fence::create_table(&mut database).await.unwrap();
    sqlx::raw_sql(
        "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER); INSERT INTO account VALUES (7, 100)",
    )
    .execute(&mut database)
    .await
    .unwrap();
    (folder, database)
}

async fn balance(database: &mut SqliteConnection) -> i64 {
    sqlx::query_scalar("SELECT balance FROM account").fetch_one(database).await.unwrap()
}

/// One guarded write in a transaction of its own.
async fn write(database: &mut SqliteConnection, token: u64, balance: i64) -> Result<(), FenceError> {
    let mut work = database.begin_with("BEGIN IMMEDIATE").await.unwrap();
    fence::admit(&mut work, "account:7", FencingToken::new(token)).await?;
    sqlx::query("UPDATE account SET balance = ?").bind(balance).execute(&mut *work).await.unwrap();
    work.commit().await.unwrap();
    Ok(())
}

fn stale(answer: Result<(), FenceError>) -> (u64, u64) {
    let stale = answer.unwrap_err().stale().expect("refused for its age");
    (stale.offered.get(), stale.newest.get())
}

#[tokio::test]
async fn a_newer_token_and_the_same_again_are_taken_and_an_older_one_changes_nothing() {
    let (_folder, mut db) = database().await;
    write(&mut db, 7, 1).await.unwrap();
    write(&mut db, 7, 2).await.unwrap();
    write(&mut db, 9, 3).await.unwrap();
    assert_eq!(stale(write(&mut db, 8, 4).await), (8, 9));
    assert_eq!(balance(&mut db).await, 3);
    write(&mut db, TOP, 5).await.unwrap();
    assert_eq!(stale(write(&mut db, TOP - 1, 6).await), (TOP - 1, TOP));
    assert_eq!(balance(&mut db).await, 5);
}

#[tokio::test]
async fn a_token_that_sqlite_cannot_compare_is_refused_before_it_is_sent() {
    let (_folder, mut db) = database().await;
    let Err(FenceError::Failed(error)) = write(&mut db, TOP + 1, 1).await else { panic!("taken") };
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("2^63"), "{error}");
    assert_eq!(balance(&mut db).await, 100);
}

#[tokio::test]
async fn a_rollback_forgets_the_token() {
    let (_folder, mut db) = database().await;
    write(&mut db, 7, 1).await.unwrap();
    let mut work = db.begin().await.unwrap();
    fence::admit(&mut work, "account:7", FencingToken::new(9)).await.unwrap();
    work.rollback().await.unwrap();
    write(&mut db, 8, 2).await.unwrap();
}

#[tokio::test]
async fn resources_are_told_apart_and_taken_by_the_letter() {
    let (_folder, mut db) = database().await;
    let mut work = db.begin().await.unwrap();
    for (i, resource) in ["a", "A", "", "a'); DROP TABLE account; --", "\u{202e}\n\0"].iter().enumerate() {
        fence::admit(&mut work, resource, FencingToken::new(100 - i as u64)).await.unwrap();
    }
    work.commit().await.unwrap();
    assert_eq!(balance(&mut db).await, 100);
}

#[tokio::test]
async fn a_missing_table_says_how_to_make_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut db = open(&folder.path().join("data.db")).await;
    let mut work = db.begin().await.unwrap();
    let error = fence::admit(&mut work, "x", FencingToken::new(1)).await.unwrap_err().to_string();
    assert!(error.contains("fence's table is missing") && error.contains("fence::create_table"), "{error}");
}

/// The late writer's transaction began, and read, before the newer one's was committed.
#[tokio::test]
async fn a_late_writer_with_an_old_snapshot_is_refused() {
    let (folder, mut db) = database().await;
    let mut other = open(&folder.path().join("data.db")).await;
    write(&mut db, 1, 100).await.unwrap();
    let mut late = other.begin().await.unwrap();
    let seen: i64 = sqlx::query_scalar("SELECT balance FROM account").fetch_one(&mut *late).await.unwrap();
    write(&mut db, 2, 150).await.unwrap();
    // Its snapshot still has token 1, which it may not go by: SQLite refuses the upgrade, even for a token that is new.
    for token in [1, 3] {
        let Err(FenceError::Failed(error)) = fence::admit(&mut late, "account:7", FencingToken::new(token)).await
        else {
            panic!("{token} was judged by an old snapshot")
        };
        let seen = (error.kind(), error.effect(), error.is_retryable());
        assert_eq!(seen, (ErrorKind::Unavailable, Effect::NotApplied, true), "{error}");
    }
    late.rollback().await.unwrap();
    assert_eq!(stale(write(&mut other, 1, seen - 30).await), (1, 2));
    assert_eq!(balance(&mut db).await, 150);
}

/// The late writer asks while the newer one's transaction is still open: it waits, and then is refused.
#[tokio::test]
async fn a_late_writer_waits_for_the_transaction_that_holds_the_row() {
    let (folder, mut db) = database().await;
    let mut other = open(&folder.path().join("data.db")).await;
    let mut work = db.begin().await.unwrap();
    fence::admit(&mut work, "account:7", FencingToken::new(2)).await.unwrap();
    let late = tokio::spawn(async move {
        let mut late = other.begin().await.unwrap();
        fence::admit(&mut late, "account:7", FencingToken::new(1)).await
    });
    // Time to be wrong in; a slow machine makes the test easier, and never fail.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!late.is_finished(), "it must wait");
    work.commit().await.unwrap();
    assert_eq!(stale(late.await.unwrap()), (1, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_writers_never_leave_an_older_value() {
    let (folder, mut db) = database().await;
    let mut writers = Vec::new();
    for writer in 0..2 {
        let mut db = open(&folder.path().join("data.db")).await;
        writers.push(tokio::spawn(async move {
            let mut refused = 0;
            for round in 0..150u64 {
                let token = 1 + round * 2 + writer;
                match write(&mut db, token, token as i64).await {
                    Ok(()) => {}
                    Err(e) => refused += u64::from(e.stale().unwrap_or_else(|| panic!("{e}")).newest.get() > token),
                }
                assert!(balance(&mut db).await >= token as i64, "an older value came after");
            }
            refused
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(balance(&mut db).await, 300);
}

#[tokio::test]
async fn a_column_in_the_users_row_does_it_too() {
    let (_folder, mut db) = database().await;
    sqlx::raw_sql("ALTER TABLE account ADD COLUMN token INTEGER NOT NULL DEFAULT 0").execute(&mut db).await.unwrap();
    for (token, balance, taken) in [(5, 1, 1), (5, 2, 1), (4, 3, 0), (6, 4, 1)] {
        let done = sqlx::query("UPDATE account SET balance = ?1, token = ?2 WHERE id = 7 AND token <= ?2")
            .bind(balance)
            .bind(fence::number(FencingToken::new(token)).unwrap())
            .execute(&mut db)
            .await
            .unwrap();
        assert_eq!(done.rows_affected(), taken, "{token}");
    }
    assert_eq!(balance(&mut db).await, 4);
}
