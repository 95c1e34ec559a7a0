//! What goes wrong between client and server, and between clients.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_core::{DistributedLock, Effect, ErrorKind, Released, Renewal};
use support::{Database, acquire, request, waiting, with_ttl};

/// All that a server may have as its defaults, set the wrong way.
#[tokio::test]
async fn the_servers_defaults_do_not_matter() {
    let db = Database::with_options(&[
        "--sql-mode=ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH",
        "--default-time-zone=-07:00",
        "--transaction-isolation=SERIALIZABLE",
        "--autocommit=0",
        "--innodb-lock-wait-timeout=50",
        "--character-set-server=latin1",
        "--wait-timeout=3600",
    ])
    .await;
    let (one, two) = (db.connect().await, db.connect().await);
    // A server that is not strict cuts what is too long, and these would be one name.
    for end in ["a", "b"] {
        assert!(acquire(&one, &request(&format!("{}{end}", "é".repeat(255)))).await.is_some(), "{end}");
    }
    let mut long = request("é ☃");
    long.label = "ü☃".into();
    let mut lease = acquire(&one, &long).await.unwrap();
    assert!(acquire(&two, &request("é ☃")).await.is_none());
    let holder = two.inspect(&long.name).await.unwrap().unwrap();
    assert_eq!((holder.owner, holder.label.as_deref()), (long.owner.to_string(), Some("ü☃")));
    assert!(holder.remaining.unwrap() > Duration::from_secs(8), "{:?}", holder.remaining);
    assert!(holder.since.unwrap().elapsed().unwrap() < Duration::from_secs(60));
    assert_eq!(lease.renew().await.unwrap(), Renewal::Renewed);
    assert_eq!(lease.release().await.unwrap(), Released::Released);
    assert!(acquire(&two, &request("é ☃")).await.is_some());
}

/// A session that was ended while it was idle costs nobody anything.
#[tokio::test]
async fn connections_that_died_while_they_were_idle_are_not_spoken_of() {
    let db = Database::shared().await;
    let lock = db.connect().await;
    let mut lease = acquire(&lock, &request("a")).await.unwrap();
    lock.inspect(&request("a").name).await.unwrap();
    for _ in 0..3 {
        db.end_sessions().await;
        assert_eq!(lease.renew().await.unwrap(), Renewal::Renewed);
        db.end_sessions().await;
        assert_eq!(lease.release().await.unwrap(), Released::Released);
        db.end_sessions().await;
        lease = acquire(&lock, &request("a")).await.unwrap();
    }
}

/// A session of somebody else's keeps the row locked for a while.
#[tokio::test]
async fn a_lock_wait_time_out_is_absorbed() {
    let db = Database::shared().await;
    let lock = Arc::new(db.connect().await);
    let mut lease = acquire(&lock, &request("a")).await.unwrap();
    let blocker =
        format!("START TRANSACTION; SELECT * FROM {0}.distributed_lock FOR UPDATE; SELECT SLEEP(1.6)", db.name);
    let blocked = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let start = Instant::now();
        assert_eq!(lease.renew().await.unwrap(), Renewal::Renewed);
        assert!(start.elapsed() > Duration::from_secs(1), "it was not blocked: {:?}", start.elapsed());
    };
    tokio::join!(db.run(&blocker), blocked);
    assert_eq!(lease.release().await.unwrap(), Released::Released);
}

/// The request waits on the server behind another's lock while its future is dropped. What it leaves must not outlive `abandon`.
#[tokio::test]
async fn a_request_stuck_in_the_server_is_ended_before_its_clean_up_is_confirmed() {
    let db = Database::shared().await;
    let lock = db.connect().await;
    acquire(&lock, &request("a")).await.unwrap().release().await.unwrap();
    let blocker =
        format!("START TRANSACTION; SELECT * FROM {0}.distributed_lock FOR UPDATE; SELECT SLEEP(0.7)", db.name);
    let stuck = with_ttl(request("a"), 60_000);
    let giving_up = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        tokio::time::timeout(Duration::from_millis(100), lock.acquire(&stuck)).await.unwrap_err();
        lock.abandon(&stuck.name, &stuck.owner).await.unwrap();
        let sessions = format!(
            "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = '{}' AND INFO LIKE 'INSERT%'",
            db.name
        );
        assert_eq!(db.number(&sessions).await, 0, "its statement is still at work");
    };
    tokio::join!(db.run(&blocker), giving_up);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(lock.inspect(&stuck.name).await.unwrap(), None);
    assert!(acquire(&lock, &request("a")).await.is_some());
}

/// Whatever moment a task dies at, nothing of it stays after `abandon`, and connections do not pile up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_tasks_leave_nothing() {
    let db = Database::shared().await;
    let lock = Arc::new(db.connect().await);
    for n in 0..150_u64 {
        let request = with_ttl(waiting("n", Duration::from_secs(5)), 60_000);
        let (mine, theirs) = (lock.clone(), request.clone());
        let task = tokio::spawn(async move {
            let mut lease = acquire(&mine, &theirs).await.unwrap();
            lease.renew().await.unwrap();
        });
        tokio::time::sleep(Duration::from_micros(n * 137 % 9000)).await;
        task.abort();
        let _ = task.await;
        lock.abandon(&request.name, &request.owner).await.unwrap();
        assert_eq!(lock.inspect(&request.name).await.unwrap(), None, "round {n}");
    }
    let sessions = format!("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = '{}'", db.name);
    let until = Instant::now() + Duration::from_secs(5);
    while db.number(&sessions).await > 5 {
        assert!(Instant::now() < until, "{} sessions", db.number(&sessions).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn wrong_logins_have_kinds_of_their_own_and_show_no_password() {
    let db = Database::shared().await;
    let good = db.url();
    for (url, kind) in [
        (good.replace("hunter2", "hunter3"), ErrorKind::Denied),
        (
            good.replace(&format!("/{}", db.name), "/nowhere").replace("//nowhere", &format!("//{}", db.name)),
            ErrorKind::Denied,
        ),
        ("mysql://u:hunter2@127.0.0.1:1/d".into(), ErrorKind::Unavailable),
    ] {
        let config = lock_mysql::MysqlConfig::from_url(url).unwrap();
        let error = lock_mysql::MysqlLock::connect(config).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (kind, Effect::NotApplied), "{error}");
        assert!(!format!("{error:?}").contains("hunter"), "{error:?}");
    }
}
