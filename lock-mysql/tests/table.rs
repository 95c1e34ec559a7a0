//! The table: who makes it, what is in it, and what becomes of it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use lock_core::{DistributedLock, ErrorKind, LostReason, Page, Released, Renewal};
use support::{Database, acquire, request, with_ttl};

#[tokio::test(flavor = "multi_thread")]
async fn many_may_create_the_table_at_once() {
    let db = Database::shared().await;
    let mut tasks = Vec::new();
    for i in 0..20 {
        let lock = db.connect().await;
        tasks.push(tokio::spawn(async move { acquire(&lock, &request(&format!("n{i}"))).await.is_some() }));
    }
    for task in tasks {
        assert!(task.await.unwrap());
    }
    assert_eq!(db.number("SELECT COUNT(*) FROM {t}").await, 20);
}

#[tokio::test]
async fn who_may_not_create_it_is_told_how_and_goes_on_when_it_is_there() {
    let db = Database::shared().await;
    let (name, rights) = (db.name.clone(), "SELECT, INSERT, UPDATE, DELETE");
    db.run(&format!("REVOKE ALL ON {name}.* FROM {name}@'%'; GRANT {rights} ON {name}.* TO {name}@'%'")).await;
    let lock = db.connect().await;
    assert_eq!(lock.inspect(&request("a").name).await.unwrap(), None);
    assert_eq!(lock.list("", Page::first(9)).await.unwrap(), []);
    assert_eq!(lock.abandon(&request("a").name, &request("a").owner).await.unwrap(), Released::NotHeld);
    let error = lock.acquire(&request("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    let text = error.to_string();
    assert!(!error.is_retryable() && !text.contains("hunter2"), "{text}");
    let (_, statement) = text.split_once("create the table by: ").unwrap();
    let (statement, _) = statement.split_once("; and grant").unwrap();
    db.run(&format!("USE {name}; {statement}")).await;
    let mut lease = acquire(&lock, &request("a")).await.unwrap();
    db.run(&format!("DROP TABLE {name}.distributed_lock")).await;
    assert_eq!(lease.renew().await.unwrap(), Renewal::Lost(LostReason::Removed));
    assert_eq!(lease.release().await.unwrap(), Released::NotHeld);
}

#[tokio::test]
async fn a_table_of_another_program_is_refused_and_left_alone() {
    let db = Database::shared().await;
    let name = &db.name;
    db.run(&format!("CREATE TABLE {name}.distributed_lock (a INT); INSERT INTO {name}.distributed_lock VALUES (7)"))
        .await;
    let error = db.connect().await.acquire(&request("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert_eq!(db.number("SELECT SUM(a) FROM {t}").await, 7);
}

#[tokio::test]
async fn tokens_rise_through_removal_by_hand_lost_data_and_a_table_that_was_restored() {
    let db = Database::shared().await;
    let lock = db.connect().await;
    let mut last = 0;
    for harm in
        ["DELETE FROM {t}", "DROP TABLE {t}", "UPDATE {t} SET token = 5, owner = ''", "UPDATE {t} SET expires = 1"]
    {
        let lease = acquire(&lock, &request("a")).await.unwrap();
        assert!(lease.fencing_token().get() > last, "{harm}");
        last = lease.fencing_token().get();
        db.run(&harm.replace("{t}", &format!("{}.distributed_lock", db.name))).await;
    }
    assert!(acquire(&lock, &request("a")).await.unwrap().fencing_token().get() > last);
}

#[tokio::test]
async fn a_retry_keeps_its_token_and_an_expired_row_is_taken_over() {
    let db = Database::shared().await;
    let lock = db.connect().await;
    let short = with_ttl(request("a"), 300);
    let first = acquire(&lock, &short).await.unwrap();
    let again = acquire(&lock, &short).await.unwrap();
    assert_eq!(again.fencing_token(), first.fencing_token());
    assert!(acquire(&lock, &request("a")).await.is_none());
    tokio::time::sleep(Duration::from_millis(320)).await;
    let second = acquire(&lock, &request("a")).await.unwrap();
    assert!(second.fencing_token() > first.fencing_token());
    let mut first = first;
    assert_eq!(first.renew().await.unwrap(), Renewal::Lost(LostReason::TakenOver));
    assert_eq!(first.release().await.unwrap(), Released::NotHeld);
    assert_eq!(db.number("SELECT COUNT(*) FROM {t}").await, 1);
}

/// Whoever decides by the number of rows fails here: the driver asks for rows that were found, not for rows that were changed.
#[tokio::test]
async fn the_loser_of_an_upsert_that_changes_nothing_knows_it() {
    let db = Database::shared().await;
    let (one, two) = (db.connect().await, db.connect().await);
    let mut lease = acquire(&one, &request("a")).await.unwrap();
    // Each as fast as it can, so that many renewals write what stands there already.
    let asking = async {
        for _ in 0..1_000 {
            assert!(acquire(&two, &request("a")).await.is_none());
        }
    };
    let renewing = async {
        for _ in 0..1_000 {
            assert_eq!(lease.renew().await.unwrap(), Renewal::Renewed);
        }
    };
    tokio::join!(asking, renewing);
}

/// A column without parts of a second would end some of these up to a second early, or late.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_and_a_half_is_that_at_every_phase_of_the_second() {
    let db = Database::shared().await;
    let (one, two) = (Arc::new(db.connect().await), Arc::new(db.connect().await));
    let ttl = Duration::from_millis(1_500);
    let phases = (0..20).map(|phase| {
        let (one, two, name) = (one.clone(), two.clone(), format!("phase-{phase}"));
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(phase * 50)).await;
            let sent = std::time::Instant::now();
            let _lease = acquire(&one, &with_ttl(request(&name), 1_500)).await.unwrap();
            let granted = std::time::Instant::now();
            while acquire(&two, &request(&name)).await.is_none() {
                assert!(granted.elapsed() < ttl * 2, "{name} is still there");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            assert!(sent.elapsed() >= ttl, "{name} ended after {:?}", sent.elapsed());
            assert!(granted.elapsed() <= ttl + Duration::from_millis(800), "{name} took {:?}", granted.elapsed());
        })
    });
    let phases: Vec<_> = phases.collect();
    // What stands in the row is exact.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let odd = "SELECT COUNT(*) FROM {t} WHERE name LIKE 'phase-%' AND expires - since NOT IN (1500000, 10000000)";
    assert_eq!(db.number(odd).await, 0);
    for phase in phases {
        phase.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_rows_go_and_used_ones_stay() {
    let db = Database::shared().await;
    let lock = Arc::new(db.connect().await);
    let mut held = acquire(&lock, &request("held")).await.unwrap();
    for i in 0..40 {
        acquire(&lock, &request(&format!("once-{i}"))).await.unwrap().release().await.unwrap();
    }
    assert_eq!(db.number("SELECT COUNT(*) FROM {t}").await, 41);
    let table = format!("{}.distributed_lock", db.name);
    db.run(&format!(
        "UPDATE {table} SET expires = expires - 601000000, token = token - 601000000 WHERE name <> 'held'"
    ))
    .await;
    // One request in 64 sweeps.
    for _ in 0..1500 {
        assert!(acquire(&lock, &request("held")).await.is_none());
        if db.number("SELECT COUNT(*) FROM {t}").await == 1 {
            assert_eq!(held.renew().await.unwrap(), Renewal::Renewed);
            return;
        }
    }
    panic!("{} rows are left", db.number("SELECT COUNT(*) FROM {t}").await);
}

#[tokio::test]
async fn names_are_bytes_and_a_prefix_is_no_pattern() {
    let db = Database::shared().await;
    let lock = db.connect().await;
    let names = ["a", "A", "a ", "á", "a%", "a_", "ab", "a'; DROP TABLE x; --", "a\u{0}"];
    let mut leases = Vec::new();
    for name in names.iter().filter(|name| lock_core::LockName::new(name).is_ok()) {
        leases.push(acquire(&lock, &request(name)).await.unwrap());
    }
    let listed = async |prefix: &str| {
        let found = lock.list(prefix, Page::first(99)).await.unwrap();
        found.iter().map(|holder| holder.name.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed("a%").await, ["a%"]);
    assert_eq!(listed("a_").await, ["a_"]);
    assert_eq!(listed("A").await, ["A"]);
    assert_eq!(listed("").await.len(), leases.len());
}

#[tokio::test]
async fn a_diagnosis_names_server_and_table() {
    let db = Database::shared().await;
    let lock = db.connect().await;
    acquire(&lock, &request("a")).await.unwrap();
    let found = lock.diagnose().await.unwrap();
    let product = if db.server.is_mysql() { "MySQL " } else { "MariaDB " };
    assert!(found.server.starts_with(product), "{}", found.server);
    let text: Vec<_> = found.findings.iter().map(|finding| format!("{}: {}", finding.topic, finding.value)).collect();
    let text = text.join("\n");
    for word in
        ["layout 1, InnoDB", "READ-COMMITTED", "round trip", "read_only: off", "a grant is on it", "SELECT, INSERT"]
    {
        assert!(text.contains(word), "{word}: {text}");
    }
}
