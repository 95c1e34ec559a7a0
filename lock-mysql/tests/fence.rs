//! Rows that refuse an older token, on a real server: in one transaction, and between two that run at once.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use lock_core::fence::FenceError;
use lock_core::{Effect, ErrorKind, FencingToken};
use lock_mysql::fence;
use sqlx::{Connection, MySqlConnection};
use support::Database;

/// A connection to a database with the fence's table and an account of 100.
async fn database() -> (Database, MySqlConnection) {
    let db = Database::shared().await;
    let mut conn = open(&db).await;
    fence::create_table(&mut conn).await.unwrap();
    fence::create_table(&mut conn).await.unwrap();
    run(
        &mut conn,
        "CREATE TABLE account (id INT PRIMARY KEY, balance BIGINT, token BIGINT UNSIGNED NOT NULL DEFAULT 0) ENGINE = InnoDB",
    )
    .await;
    run(&mut conn, "INSERT INTO account (id, balance) VALUES (7, 100)").await;
    (db, conn)
}

async fn open(db: &Database) -> MySqlConnection {
    MySqlConnection::connect(&db.url()).await.unwrap()
}

async fn run(conn: &mut MySqlConnection, statement: &'static str) {
    sqlx::raw_sql(statement).execute(conn).await.unwrap();
}

async fn balance(conn: &mut MySqlConnection) -> i64 {
    sqlx::query_scalar("SELECT balance FROM account").fetch_one(conn).await.unwrap()
}

/// One guarded write in a transaction of its own.
async fn write(conn: &mut MySqlConnection, token: u64, balance: i64) -> Result<(), FenceError> {
    let mut work = conn.begin().await.unwrap();
    fence::admit(&mut work, "account:7", FencingToken::new(token)).await?;
    sqlx::query("UPDATE account SET balance = ?").bind(balance).execute(&mut *work).await.unwrap();
    work.commit().await.unwrap();
    Ok(())
}

fn stale(answer: Result<(), FenceError>) -> (u64, u64) {
    let answer = answer.unwrap_err();
    let stale = answer.stale().unwrap_or_else(|| panic!("{answer}"));
    (stale.offered.get(), stale.newest.get())
}

#[tokio::test]
async fn a_newer_token_and_the_same_again_are_taken_and_an_older_one_changes_nothing() {
    let (_db, mut conn) = database().await;
    write(&mut conn, 7, 1).await.unwrap();
    write(&mut conn, 7, 2).await.unwrap();
    write(&mut conn, 9, 3).await.unwrap();
    assert_eq!(stale(write(&mut conn, 8, 4).await), (8, 9));
    assert_eq!(balance(&mut conn).await, 3);
    write(&mut conn, u64::MAX, 5).await.unwrap();
    assert_eq!(stale(write(&mut conn, u64::MAX - 1, 6).await), (u64::MAX - 1, u64::MAX));
    assert_eq!(balance(&mut conn).await, 5);
}

#[tokio::test]
async fn a_rollback_forgets_the_token() {
    let (_db, mut conn) = database().await;
    write(&mut conn, 7, 1).await.unwrap();
    let mut work = conn.begin().await.unwrap();
    fence::admit(&mut work, "account:7", FencingToken::new(9)).await.unwrap();
    work.rollback().await.unwrap();
    write(&mut conn, 8, 2).await.unwrap();
}

#[tokio::test]
async fn resources_are_told_apart_and_taken_by_the_letter() {
    let (_db, mut conn) = database().await;
    let long = "x".repeat(640);
    let resources = ["a", "A", "a ", "", "é", "e\u{301}", "a'); DROP TABLE account; -- `", "\u{202e}\n\0", &long];
    let mut work = conn.begin().await.unwrap();
    for (i, resource) in resources.iter().enumerate() {
        fence::admit(&mut work, resource, FencingToken::new(100 - i as u64)).await.unwrap();
    }
    let Err(FenceError::Failed(error)) = fence::admit(&mut work, &"x".repeat(641), FencingToken::new(1)).await else {
        panic!("cut to fit")
    };
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    work.commit().await.unwrap();
    assert_eq!(balance(&mut conn).await, 100);
}

#[tokio::test]
async fn a_missing_table_says_how_to_make_it() {
    let db = Database::shared().await;
    let mut conn = open(&db).await;
    let mut work = conn.begin().await.unwrap();
    let error = fence::admit(&mut work, "x", FencingToken::new(1)).await.unwrap_err().to_string();
    assert!(error.contains("fence's table is missing") && error.contains("fence::create_table"), "{error}");
}

/// The late writer's transaction began, and read, before the newer one's was committed: a plain SELECT in it still answers with the old token.
#[tokio::test]
async fn a_late_writer_with_an_old_snapshot_is_refused_on_each_level_of_isolation() {
    for level in ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let (db, mut conn) = database().await;
        let mut other = open(&db).await;
        let set = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(set)).execute(&mut other).await.unwrap();
        write(&mut conn, 1, 100).await.unwrap();
        let mut late = other.begin().await.unwrap();
        // A row of another table opens the snapshot, and locks nothing that the newer writer needs.
        sqlx::query("SELECT COUNT(*) FROM information_schema.tables").execute(&mut *late).await.unwrap();
        if level == "REPEATABLE READ" {
            let seen: u64 = sqlx::query_scalar("SELECT token FROM distlock_fence").fetch_one(&mut *late).await.unwrap();
            assert_eq!(seen, 1);
        }
        write(&mut conn, 2, 150).await.unwrap();
        if level == "REPEATABLE READ" {
            let seen: u64 = sqlx::query_scalar("SELECT token FROM distlock_fence").fetch_one(&mut *late).await.unwrap();
            assert_eq!(seen, 1, "the snapshot hides the newer token, or this proves nothing");
        }
        assert_eq!(stale(fence::admit(&mut late, "account:7", FencingToken::new(1)).await), (1, 2), "{level}");
        late.rollback().await.unwrap();
        assert_eq!(balance(&mut conn).await, 150);
    }
}

/// MariaDB can refuse a row that has changed since the snapshot, and its newer releases do so by themselves; MySQL knows no such setting.
#[tokio::test]
async fn a_row_that_changed_since_the_snapshot_ends_in_a_refusal_after_a_new_beginning() {
    let (db, mut conn) = database().await;
    let mut other = open(&db).await;
    run(&mut other, "SET SESSION innodb_lock_wait_timeout = 20 /*M! , SESSION innodb_snapshot_isolation = ON */").await;
    write(&mut conn, 1, 100).await.unwrap();
    let mut late = other.begin().await.unwrap();
    sqlx::query("SELECT token FROM distlock_fence").fetch_all(&mut *late).await.unwrap();
    write(&mut conn, 2, 150).await.unwrap();
    let answer = fence::admit(&mut late, "account:7", FencingToken::new(1)).await;
    late.rollback().await.unwrap();
    match answer {
        Err(FenceError::Failed(error)) => {
            let seen = (error.kind(), error.effect(), error.is_retryable());
            assert_eq!(seen, (ErrorKind::Unavailable, Effect::NotApplied, true), "{error}");
        }
        answer => {
            assert!(db.server.is_mysql(), "the setting does nothing");
            assert_eq!(stale(answer), (1, 2));
        }
    }
    assert_eq!(stale(write(&mut other, 1, 70).await), (1, 2));
    assert_eq!(balance(&mut conn).await, 150);
}

/// The late writer asks while the newer one's transaction is still open: it waits, and then is refused.
#[tokio::test]
async fn a_late_writer_waits_for_the_transaction_that_holds_the_row() {
    let (db, mut conn) = database().await;
    let mut other = open(&db).await;
    for first in [true, false] {
        let newer = FencingToken::new(if first { 2 } else { 4 });
        let late = FencingToken::new(newer.get() - 1);
        let mut work = conn.begin().await.unwrap();
        fence::admit(&mut work, "account:7", newer).await.unwrap();
        let waiting = tokio::spawn(async move {
            let mut transaction = other.begin().await.unwrap();
            let answer = fence::admit(&mut transaction, "account:7", late).await;
            transaction.rollback().await.unwrap();
            (other, answer)
        });
        let waits = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'";
        assert!(
            conformance_tests::eventually(std::time::Duration::from_secs(20), async || db.number(waits).await > 0)
                .await
        );
        work.commit().await.unwrap();
        let answer;
        (other, answer) = waiting.await.unwrap();
        assert_eq!(stale(answer), (late.get(), newer.get()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_writers_never_leave_an_older_value() {
    let (db, mut conn) = database().await;
    let mut writers = Vec::new();
    for writer in 0..2 {
        let mut conn = open(&db).await;
        writers.push(tokio::spawn(async move {
            for round in 0..100u64 {
                let token = 1 + round * 2 + writer;
                // A deadlock's victim begins anew, as the documentation says.
                while let Err(error) = write(&mut conn, token, token as i64).await {
                    match error {
                        FenceError::Stale(stale) => {
                            assert!(stale.newest.get() > token);
                            break;
                        }
                        FenceError::Failed(error) => assert!(error.is_retryable(), "{error}"),
                        other => panic!("{other}"),
                    }
                }
                assert!(balance(&mut conn).await >= token as i64, "an older value came after");
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(balance(&mut conn).await, 200);
}

/// A row that is kept for too long is an error that may pass, and the token is not admitted.
#[tokio::test]
async fn a_row_that_stays_locked_is_an_error_that_may_pass() {
    let (db, mut conn) = database().await;
    let mut other = open(&db).await;
    run(&mut other, "SET SESSION innodb_lock_wait_timeout = 1").await;
    let mut work = conn.begin().await.unwrap();
    fence::admit(&mut work, "account:7", FencingToken::new(1)).await.unwrap();
    let Err(FenceError::Failed(error)) = write(&mut other, 2, 1).await else { panic!("not held") };
    let seen = (error.kind(), error.effect(), error.is_retryable());
    assert_eq!(seen, (ErrorKind::Unavailable, Effect::NotApplied, true), "{error}");
}

#[tokio::test]
async fn a_column_in_the_users_row_does_it_too() {
    let (_db, mut conn) = database().await;
    for (token, balance, taken) in [(5, 1, 1), (5, 1, 1), (4, 3, 0), (u64::MAX, 4, 1), (u64::MAX - 1, 5, 0)] {
        let done = sqlx::query("UPDATE account SET balance = ?, token = ? WHERE id = 7 AND token <= ?")
            .bind(balance)
            .bind(token)
            .bind(token)
            .execute(&mut conn)
            .await
            .unwrap();
        assert_eq!(done.rows_affected(), taken, "{token}");
    }
    assert_eq!(balance(&mut conn).await, 4);
}
