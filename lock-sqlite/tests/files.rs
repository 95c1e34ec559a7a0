//! What may be in place of a good file, and what a file lives through.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use common::{Bench, Child, acquire, execute, open, request, with_ttl};
use lock_core::{DistributedLock, Effect, ErrorKind, LockError, LostReason, Page, Released, Renewal, Verdict};
use lock_sqlite::{SqliteConfig, SqliteLock};

async fn refused(path: &Path) -> LockError {
    let err = SqliteLock::connect(SqliteConfig::from_path(path).unwrap()).await.unwrap_err();
    assert!(err.to_string().contains(path.file_name().unwrap().to_str().unwrap()), "names the path: {err}");
    assert_eq!(err.backend_name(), Some("sqlite"));
    err
}

#[tokio::test]
async fn a_missing_folder_is_made_for_this_user_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b/locks.db");
    let lock = open(&path).await;
    acquire(&lock, &request("a")).await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&path.with_extension("db-wal")), 0o600);
}

#[tokio::test]
async fn a_file_of_another_program_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mail.db");
    fs::write(&path, "").unwrap();
    execute(&path, "CREATE TABLE mail (subject TEXT); PRAGMA user_version = 1").await;
    let before = fs::read(&path).unwrap();
    assert_eq!(refused(&path).await.kind(), ErrorKind::Foreign);
    assert_eq!(fs::read(&path).unwrap(), before);

    let path = folder.path().join("letter.txt");
    fs::write(&path, "Dear Sir or Madam, this is no database at all.\n".repeat(100)).unwrap();
    let before = fs::read(&path).unwrap();
    assert_eq!(refused(&path).await.kind(), ErrorKind::Foreign);
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_later_layout_is_refused() {
    let bench = Bench::new().await;
    bench.lock.close().await.unwrap();
    execute(&bench.path, "PRAGMA user_version = 2").await;
    let err = refused(&bench.path).await;
    assert_eq!(err.kind(), ErrorKind::Config);
    assert!(err.to_string().contains("upgrade"), "{err}");
}

#[tokio::test]
async fn what_is_no_file_is_a_matter_of_configuration() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(refused(folder.path()).await.kind(), ErrorKind::Config);
    assert_eq!(refused(Path::new("/dev/null")).await.kind(), ErrorKind::Config);
    fs::write(folder.path().join("file"), "").unwrap();
    assert_eq!(refused(&folder.path().join("file/locks.db")).await.kind(), ErrorKind::Config);
}

#[tokio::test]
async fn an_empty_file_of_the_administrator_keeps_its_mode() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o660)).unwrap();
    let before = fs::metadata(&path).unwrap();
    acquire(&open(&path).await, &request("a")).await.unwrap();
    let after = fs::metadata(&path).unwrap();
    assert_eq!((after.ino(), after.mode()), (before.ino(), before.mode()));
}

/// A right that root does not need is tried by a child that is somebody else.
#[tokio::test]
async fn a_missing_right_is_denied() {
    let bench = Bench::new().await;
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let folder = bench.folder.path();
    // A foreign file that may be read, a file in a folder that may not be written, and a new file in such a folder.
    for (folder_mode, file_mode, file) in
        [(0o777, 0o644, "locks.db"), (0o755, 0o666, "locks.db"), (0o755, 0o666, "new.db"), (0o700, 0o666, "locks.db")]
    {
        set(folder, folder_mode);
        set(&bench.path, file_mode);
        let said = Child::spawn("connect_as_nobody", &folder.join(file), "-").line().await;
        assert!(said.starts_with("Denied NotApplied"), "{folder_mode:o} {file_mode:o}: {said}");
        assert!(said.contains("of user"), "names the users: {said}");
    }
}

#[tokio::test]
async fn tokens_rise_through_deleted_rows_and_files() {
    let bench = Bench::new().await;
    let mut last = 0;
    let mut rises = async |lock: &SqliteLock, what: &str| {
        let token = acquire(lock, &request("a")).await.expect(what).fencing_token().get();
        assert!(token > last && token < 1 << 53, "{what}: {token} after {last}");
        last = token;
    };
    rises(&bench.lock, "first").await;
    execute(&bench.path, "DELETE FROM locks").await;
    rises(&bench.lock, "row deleted").await;
    execute(&bench.path, "DELETE FROM locks; DELETE FROM counter").await;
    rises(&bench.lock, "counter deleted").await;
    execute(&bench.path, "UPDATE locks SET boot = 'another'").await;
    rises(&bench.lock, "another boot").await;
    execute(&bench.path, "DELETE FROM locks; UPDATE counter SET boot = 'another', token = 7").await;
    rises(&open(&bench.path).await, "last commits lost with the power").await;
    fs::remove_file(&bench.path).unwrap();
    rises(&bench.lock, "file deleted, its log left").await;
    for suffix in ["db", "db-wal", "db-shm"] {
        let _ = fs::remove_file(bench.path.with_extension(suffix));
    }
    rises(&bench.lock, "all files deleted").await;
    bench.lock.close().await.unwrap();
    execute(&bench.path, "DELETE FROM locks").await;
    rises(&open(&bench.path).await, "opened again").await;
    // The old and the new connection agree on the new file.
    assert!(acquire(&open(&bench.path).await, &request("a")).await.is_none());
}

#[tokio::test]
async fn a_file_that_is_gone_is_noticed() {
    let bench = Bench::new().await;
    let mut lease = acquire(&bench.lock, &request("a")).await.unwrap();
    fs::remove_file(&bench.path).unwrap();
    assert_eq!(bench.lock.list("", Page::first(10)).await.unwrap(), []);
    assert_eq!(lease.renew().await.unwrap(), Renewal::Lost(LostReason::Removed));
    assert_eq!(lease.release().await.unwrap(), Released::NotHeld);
    assert!(!bench.path.exists(), "neither creates");
    let mut second = acquire(&bench.lock, &request("a")).await.unwrap();
    assert!(bench.path.exists());
    assert_eq!(second.renew().await.unwrap(), Renewal::Renewed);
    // Replaced by another file of ours.
    let other = Bench::new().await;
    other.lock.close().await.unwrap();
    for suffix in ["db-wal", "db-shm"] {
        fs::remove_file(bench.path.with_extension(suffix)).unwrap();
    }
    fs::rename(&other.path, &bench.path).unwrap();
    assert_eq!(second.renew().await.unwrap(), Renewal::Lost(LostReason::Removed));
}

#[tokio::test]
async fn a_file_locked_by_another_program_is_unavailable_and_nothing_is_done() {
    let bench = Bench::new().await;
    let mut raw = bench.raw().await;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut raw).await.unwrap();
    let err = bench.lock.acquire(&request("a")).await.unwrap_err();
    assert_eq!(
        (err.kind(), err.effect(), err.is_retryable()),
        (ErrorKind::Unavailable, Effect::NotApplied, true),
        "{err}"
    );
    sqlx::raw_sql("ROLLBACK").execute(&mut raw).await.unwrap();
    assert!(acquire(&bench.lock, &request("a")).await.is_some());
}

#[tokio::test]
async fn the_wall_clock_decides_nothing() {
    let bench = Bench::new().await;
    let mut lease = acquire(&bench.lock, &with_ttl(request("a"), Duration::from_secs(5))).await.unwrap();
    // A row that was written when the wall clock stood ten years ahead, or behind.
    for shift in ["+", "-"] {
        let sql = format!("UPDATE locks SET since = since {shift} 315360000000000");
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut bench.raw().await).await.unwrap();
        assert!(acquire(&bench.lock, &request("a")).await.is_none());
        assert_eq!(lease.renew().await.unwrap(), Renewal::Renewed);
    }
    let uptime = fs::read_to_string("/proc/uptime").unwrap();
    let uptime: f64 = uptime.split_whitespace().next().unwrap().parse().unwrap();
    let sql = "SELECT expires FROM locks";
    let expires: i64 = sqlx::query_scalar(sql).fetch_one(&mut bench.raw().await).await.unwrap();
    assert!((expires as f64 / 1e6 - uptime - 5.0).abs() < 1.0, "{expires} at {uptime}");
}

#[tokio::test]
async fn damage_by_a_loss_of_power_is_told_by_the_next_boot() {
    let bench = Bench::new().await;
    acquire(&bench.lock, &request("a")).await.unwrap();
    bench.lock.close().await.unwrap();
    execute(&bench.path, "UPDATE counter SET boot = 'another'").await;
    let mut bytes = fs::read(&bench.path).unwrap();
    // The second page, where the table of locks begins.
    bytes[4096..4196].fill(0);
    fs::write(&bench.path, bytes).unwrap();
    let err = refused(&bench.path).await;
    assert_eq!((err.kind(), err.is_retryable()), (ErrorKind::Unavailable, false), "{err}");
    assert!(err.to_string().contains("damaged"), "{err}");
}

#[tokio::test]
async fn the_file_does_not_grow_with_the_names_that_were_used() {
    let bench = Bench::new().await;
    for i in 0..1000 {
        let request = with_ttl(request(&format!("job {i}")), Duration::from_millis(10));
        // On a busy machine a grant of 10 ms may come too late to be handed out (U3). Its row is there all the same.
        if let Err(err) = bench.lock.acquire(&request).await {
            assert!(err.to_string().contains("after its time to live"), "{err}");
        }
    }
    // What came after the last sweep, and what was alive at it.
    let rows = bench.rows().await;
    assert!(rows < 500, "{rows}");
}

#[tokio::test]
async fn a_good_file_has_a_good_diagnosis() {
    let bench = Bench::new().await;
    let diagnosis = bench.lock.diagnose().await.unwrap();
    assert!(diagnosis.server.starts_with("SQLite 3."), "{diagnosis:?}");
    for finding in &diagnosis.findings {
        assert!(matches!(finding.verdict, Verdict::Kept | Verdict::Limited), "{finding:?}");
    }
}
