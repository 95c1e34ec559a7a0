//! Many tasks of several processes on one name and on several: no error of the driver's reaches a caller, a guarded counter is exact.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_core::Released;
use lock_mysql::{MysqlConfig, MysqlLock};
use support::{Database, acquire, request, waiting};

const PROCESSES: usize = 3;
const TASKS: usize = 16;
const NAMES: usize = 4;
const CHILD: &str = "DISTLOCK_CROWD_CHILD";

/// For a longer run: `DISTLOCK_CROWD_SECONDS=60 cargo test -p lock-mysql --test crowd -- --nocapture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_sees_no_error_and_loses_no_turn() {
    let db = Database::shared().await;
    let seconds = std::env::var("DISTLOCK_CROWD_SECONDS").unwrap_or_else(|_| "3".into());
    let folder = tempfile::tempdir().unwrap();
    let before = db.deadlocks().await;
    let children: Vec<_> = (0..PROCESSES)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["one_process_of_the_crowd", "--exact", "--nocapture"])
                .env(CHILD, format!("{} {seconds} {}", db.url(), folder.path().display()))
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut turns = Vec::new();
    for child in children {
        let ended = child.wait_with_output().unwrap();
        let out = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert!(ended.status.success(), "{out}");
        let (_, count) = out.split_once("turns: ").unwrap();
        turns.push(count.split_whitespace().next().unwrap().parse::<u64>().unwrap());
    }
    let counted: u64 = (0..NAMES).map(|n| count(&counter(folder.path(), n))).sum();
    let deadlocks = db.deadlocks().await - before;
    println!("{counted} turns in {seconds} s, by process {turns:?}, {deadlocks} deadlocks in the server");
    assert_eq!(counted, turns.iter().sum::<u64>(), "the guarded counters are not exact");
    let log = db.server.log();
    let noise: Vec<_> = log.lines().filter(|line| line.contains("[ERROR]") || line.contains("Duplicate")).collect();
    assert!(noise.is_empty(), "contention is noise in the server's log: {noise:?}");
    assert!(turns.iter().all(|n| n * PROCESSES as u64 * 4 > counted), "a process starves: {turns:?}");
}

/// A child of the other test, and nothing by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_of_the_crowd() {
    let Ok(orders) = std::env::var(CHILD) else { return };
    let orders: Vec<_> = orders.split(' ').collect();
    let [url, seconds, folder] = orders[..] else { panic!("{orders:?}") };
    let lock = MysqlLock::connect(MysqlConfig::from_url(url).unwrap()).await.unwrap();
    let (lock, until) = (Arc::new(lock), Instant::now() + Duration::from_secs(seconds.parse().unwrap()));
    let tasks = (0..TASKS).map(|task| {
        // Half of all on one name.
        let which = if task % 2 == 0 { 0 } else { task % NAMES };
        tokio::spawn(contend(lock.clone(), which, counter(Path::new(folder), which), until))
    });
    let mut turns = 0;
    for task in tasks.collect::<Vec<_>>() {
        turns += task.await.unwrap();
    }
    println!("turns: {turns}");
}

async fn contend(lock: Arc<MysqlLock>, which: usize, counter: PathBuf, until: Instant) -> u64 {
    let mut turns = 0;
    while Instant::now() < until {
        let request = waiting(&format!("crowd-{which}"), Duration::from_secs(30));
        let mut lease = acquire(&lock, &request).await.expect("no turn within 30 s");
        let seen = count(&counter);
        tokio::task::yield_now().await;
        std::fs::write(&counter, (seen + 1).to_string()).unwrap();
        assert_eq!(lease.release().await.unwrap(), Released::Released);
        turns += 1;
        // Names that are used once come and go beside it.
        let once = request_once();
        acquire(&lock, &once).await.unwrap().release().await.unwrap();
    }
    turns
}

fn request_once() -> lock_core::AcquireRequest {
    request(&lock_core::Owner::random().unwrap().to_string())
}

fn counter(folder: &Path, which: usize) -> PathBuf {
    folder.join(which.to_string())
}

fn count(counter: &Path) -> u64 {
    std::fs::read_to_string(counter).map_or(0, |text| text.parse().unwrap())
}
