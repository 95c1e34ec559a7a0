//! A process that can open no socket: a dial fails at once then, as it does where there is no route to the servers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lock_core::ErrorKind;
use lock_zk::{ZkConfig, ZkLock};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use support::{Server, ask, eventually, request, take};
use tokio::time::{interval, timeout};

const CHILD: &str = "DISTLOCK_STARVED_CHILD";
const SECOND: Duration = Duration::from_secs(1);

/// Longer than the driver tries to get a session of 1 s back.
const STARVED: Duration = Duration::from_secs(4);

/// The limit is a process's: so it is a process of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_can_open_no_socket_keeps_its_time() {
    let server = Server::start().await;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["one_process_that_can_open_no_socket", "--exact", "--nocapture"])
        .env(CHILD, server.url())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let ended = tokio::task::spawn_blocking(move || {
        for line in said {
            match &*line {
                "starved" => server.signal("STOP"),
                "fed" => server.signal("CONT"),
                _ => {}
            }
        }
        child.wait().unwrap()
    });
    assert!(timeout(SECOND * 30, ended).await.unwrap().unwrap().success());
}

/// A child of the other test, and nothing by itself. It has one thread for all, as a lock manager has for its keepers.
#[tokio::test]
async fn one_process_that_can_open_no_socket() {
    let Ok(url) = std::env::var(CHILD) else { return };
    let lock = ZkLock::connect(ZkConfig::from_url(url).unwrap()).await.unwrap();
    let _held = take(&lock, "a", 1_000, 0).await;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, 3, hard).unwrap();
    // A thread, since the runtime may not get to it.
    let fed = std::thread::spawn(move || {
        std::thread::sleep(STARVED);
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
        println!("\nfed");
    });
    println!("\nstarved");
    let (start, mut ticks) = (Instant::now(), interval(SECOND / 100));
    let (mut last, mut longest) = (start, Duration::ZERO);
    while !fed.is_finished() {
        ticks.tick().await;
        longest = longest.max(last.elapsed());
        last = Instant::now();
    }
    assert!(longest < SECOND / 2, "a timer of 10 ms rang after {longest:?}");
    eventually(SECOND * 5, async || match ask(&lock, &request("b", 1_000, 0)).await {
        Ok(lease) => lease.is_some(),
        Err(e) => {
            assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
            false
        }
    })
    .await;
}
