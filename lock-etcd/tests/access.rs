//! Logins, rights, and clusters of several members.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::{Duration, Instant};

use lock_core::{ErrorKind, LockManager};
use lock_etcd::{EtcdConfig, EtcdLock};
use support::{Cluster, QUICK, ask, eventually, give_back, request, take, waiting};

const S: fn(u64) -> Duration = Duration::from_secs;

async fn guarded() -> Cluster {
    guarded_with(&["--auth-token-ttl", "2"]).await
}

async fn guarded_with(options: &[&str]) -> Cluster {
    let cluster = Cluster::start_with(1, &[&QUICK[..], options].concat()).await;
    for arguments in [
        &["user", "add", "root:secret"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "app:p@ss"],
        &["role", "add", "locks"],
        &["role", "grant-permission", "locks", "readwrite", "--prefix", "jobs/"],
        &["user", "grant-role", "app", "locks"],
    ] {
        cluster.ctl(arguments);
    }
    // An argument of a command is no UTF-8 here.
    cluster
        .client()
        .await
        .auth_client()
        .role_grant_permission("locks", etcd_client::Permission::read_write(b"\xffdistlock/".to_vec()).with_prefix())
        .await
        .unwrap();
    cluster.ctl(&["auth", "enable"]);
    cluster
}

fn at(cluster: &Cluster, login: &str) -> EtcdConfig {
    EtcdConfig::from_url(cluster.url().replacen("://", &format!("://{login}@"), 1)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_that_runs_out_is_made_anew() {
    let cluster = guarded().await;
    let lock = EtcdLock::connect(at(&cluster, "app:p%40ss")).await.unwrap();
    let other = lock.clone();
    let mut held = take(&lock, "jobs/a").await;
    let asked = waiting("jobs/a", S(20), S(30));
    let next = tokio::spawn(async move { ask(&other, &asked).await.unwrap() });
    // Past the token's time, which use prolongs.
    tokio::time::sleep(S(5)).await;
    held.renew().await.unwrap();
    // A change of users makes every login old.
    cluster.ctl(&["--user", "root:secret", "user", "add", "another:x"]);
    give_back(take(&lock, "jobs/b").await).await;
    give_back(held).await;
    give_back(tokio::time::timeout(S(2), next).await.expect("the waiter was not woken").unwrap()).await;
}

/// A signed token bears the revision of the list of users, and is refused in other words than one that has run out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_older_than_the_last_change_of_users_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (private, public) = (path("private"), path("public"));
    for arguments in [&["genrsa", "-out", &private, "2048"][..], &["rsa", "-in", &private, "-pubout", "-out", &public]]
    {
        let made = std::process::Command::new("openssl").args(arguments).output();
        assert!(made.expect("openssl is missing: apt-get install openssl").status.success());
    }
    let option = format!("jwt,pub-key={public},priv-key={private},sign-method=RS256,ttl=10m");
    let cluster = guarded_with(&["--auth-token", &option]).await;
    let lock = EtcdLock::connect(at(&cluster, "app:p%40ss")).await.unwrap();
    let (locks, waiter) = (LockManager::new(std::sync::Arc::new(lock.clone())).unwrap(), lock);
    let guard = locks.lock("jobs/a").ttl(S(3)).acquire().await.unwrap();
    let asked = waiting("jobs/a", S(20), S(30));
    let next = tokio::spawn(async move { ask(&waiter, &asked).await.unwrap() });
    for user in ["one:x", "two:x"] {
        cluster.ctl(&["--user", "root:secret", "user", "add", user]);
        tokio::time::sleep(S(2)).await;
        assert!(guard.is_held(), "a change of users cost the lock: {:?}", guard.lost_reason());
        locks.lock("jobs/b").acquire().await.unwrap().release().await.unwrap();
    }
    guard.release().await.unwrap();
    give_back(tokio::time::timeout(S(2), next).await.expect("the waiter was not woken").unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_allowed_is_denied_at_once() {
    let cluster = guarded().await;
    let start = Instant::now();
    for login in ["app:hunter2", "nobody:hunter2"] {
        let error = EtcdLock::connect(at(&cluster, login)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(!format!("{error:?}").contains("hunter2"));
    }
    let lock = EtcdLock::connect(at(&cluster, "app:p%40ss")).await.unwrap();
    let locks = LockManager::new(std::sync::Arc::new(lock)).unwrap();
    let error = locks.lock("other/a").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    let anonymous = EtcdLock::connect(EtcdConfig::from_url(cluster.url()).unwrap()).await;
    let error = match anonymous {
        Err(error) => error,
        Ok(lock) => {
            LockManager::new(std::sync::Arc::new(lock)).unwrap().lock("jobs/a").try_acquire().await.unwrap_err()
        }
    };
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(start.elapsed() < S(4), "it took {:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_for_a_cluster_without_users_is_a_mistake() {
    let cluster = Cluster::start().await;
    let error = EtcdLock::connect(at(&cluster, "app:hunter2")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_server_in_the_list_is_passed_over() {
    let cluster = Cluster::start().await;
    let url = cluster.url().replacen("://", "://127.0.0.1:1,", 1);
    let lock = EtcdLock::connect(EtcdConfig::from_url(url).unwrap()).await.unwrap();
    give_back(take(&lock, "x").await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_dies_is_not_noticed_by_who_holds_or_waits() {
    let mut cluster = Cluster::start_with(3, &["--heartbeat-interval", "100", "--election-timeout", "1000"]).await;
    let lock = cluster.lock().await;
    let locks = LockManager::new(std::sync::Arc::new(lock)).unwrap();
    let guard = locks.lock("x").ttl(S(9)).acquire().await.unwrap();
    let waiter = tokio::spawn(locks.lock("x").ttl(S(9)).wait(S(60)).acquire());
    assert!(
        eventually(S(5), || async { locks.inspect("x").await.is_ok_and(|h| h.is_some_and(|h| h.waiters == Some(1))) })
            .await
    );
    // The one that is connected to, which may be the leader.
    drop(cluster.0.remove(0));
    tokio::time::sleep(S(12)).await;
    assert!(guard.is_held(), "a member's death was a loss: {:?}", guard.lost_reason());
    let token = guard.fencing_token();
    let start = Instant::now();
    guard.release().await.unwrap();
    let next = tokio::time::timeout(S(5), waiter).await.expect("the waiter was not woken").unwrap().unwrap();
    assert!(next.fencing_token() > token);
    eprintln!("handed over in {:?}", start.elapsed());
    next.release().await.unwrap();
    assert!(
        ask(&EtcdLock::connect(EtcdConfig::from_url(cluster.url()).unwrap()).await.unwrap(), &request("x", S(5)))
            .await
            .is_some()
    );
}
