//! What a grant costs the server while many wait, by the server's own count; and that nothing of what spares requests is relied on for
//! exclusion or order.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lock_core::{AcquireRequest, DistributedLock, Lease, LockError, LockName, Released};
use lock_zk::{ZkConfig, ZkLock};
use support::{Server, Tap, ask, eventually, put, request, take};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use zookeeper_client::{Acls, Client, CreateMode};

const SECOND: Duration = Duration::from_secs(1);

/// Packets that the server got.
fn requests(server: &Server) -> u64 {
    let said = server.says("mntr");
    let line = said.lines().find_map(|line| line.strip_prefix("zk_packets_received\t"));
    line.unwrap().trim().parse().unwrap()
}

/// Grants in strict turns: each of the tasks asks again as soon as it has given back, so that all others stand before it. Answers the requests for each.
async fn per_grant(server: &Server, clients: &[ZkLock], name: &str, tasks: usize, turns: usize) -> f64 {
    let (last, holders) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let run = async |turns: usize| {
        let running: Vec<_> = (0..tasks)
            .map(|task| {
                let (lock, name) = (clients[task % clients.len()].clone(), name.to_owned());
                let (last, holders) = (last.clone(), holders.clone());
                tokio::spawn(async move {
                    for _ in 0..turns {
                        let mut lease = take(&lock, &name, 20_000, 60_000).await;
                        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
                        let token = lease.fencing_token().get();
                        assert!(last.swap(token, Ordering::SeqCst) < token, "a token does not rise");
                        sleep(Duration::from_millis(5)).await;
                        holders.fetch_sub(1, Ordering::SeqCst);
                        assert_eq!(lease.release().await.unwrap(), Released::Released);
                    }
                })
            })
            .collect();
        for task in running {
            timeout(SECOND * 60, task).await.unwrap().unwrap();
        }
    };
    // Sessions are opened, and all know that the name is contended.
    run(2).await;
    let before = requests(server);
    run(turns).await;
    (requests(server) - before) as f64 / (tasks * turns) as f64
}

#[tokio::test(flavor = "multi_thread")]
async fn a_contended_grant_costs_five_requests_in_one_process_and_six_across() {
    let server = Server::start().await;
    let mut clients = Vec::new();
    for _ in 0..16 {
        clients.push(server.lock().await);
    }
    for (many, tasks, limit) in [(1, 2, 5.5), (1, 16, 5.5), (1, 64, 5.5), (2, 16, 6.6), (16, 16, 6.6)] {
        let turns = 320 / tasks;
        let cost = per_grant(&server, &clients[..many], &format!("{many}-{tasks}"), tasks, turns).await;
        println!("{cost:.2} requests for a grant, {tasks} tasks of {many} clients");
        assert!(cost < limit, "{cost} requests for a grant, {tasks} tasks of {many} clients");
    }
}

type Waiter = JoinHandle<Result<Option<Box<dyn Lease>>, LockError>>;

/// The nodes of the lock `a`, in order.
async fn nodes(raw: &Client) -> Vec<String> {
    let mut nodes = raw.list_children("/locks/a").await.unwrap();
    nodes.sort_by_key(|node| node.rsplit('-').next().map(str::to_owned));
    nodes.iter().map(|node| format!("/locks/a/{node}")).collect()
}

/// Begins to wait for `a`, and returns once the node stands in the queue and says that it waits.
async fn stand(lock: &ZkLock, raw: &Client, request: &AcquireRequest) -> Waiter {
    let already = nodes(raw).await;
    let waiter = tokio::spawn({
        let (lock, request) = (lock.clone(), request.clone());
        async move { ask(&lock, &request).await }
    });
    eventually(SECOND * 5, async || {
        let now = nodes(raw).await;
        let Some(new) = now.iter().find(|node| !already.contains(node)) else { return false };
        raw.get_data(new).await.is_ok_and(|(data, _)| data.starts_with(b"1\nwaiting:"))
    })
    .await;
    waiter
}

fn waiting() -> AcquireRequest {
    request("a", 20_000, 60_000)
}

/// The waiter is granted the name now, and shows the token of its node.
async fn granted(lock: &ZkLock, waiter: Waiter) -> Box<dyn Lease> {
    let lease = timeout(SECOND, waiter).await.expect("not within a second").unwrap().unwrap().expect("it is busy");
    let shown = lock.inspect(&LockName::new("a").unwrap()).await.unwrap().unwrap();
    assert_eq!(shown.token, Some(lease.fencing_token()));
    lease
}

/// The waiter goes on waiting for as long as a wrong grant would need many times over.
async fn is_kept_out(waiter: &Waiter) {
    sleep(SECOND / 3).await;
    assert!(!waiter.is_finished(), "it was granted out of turn, or failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_leaves_the_middle_of_the_queue_lets_nobody_in_early_and_delays_nobody() {
    let server = Server::start().await;
    let (lock, raw) = (server.lock().await, server.raw().await);
    for by_hand in [false, true] {
        let mut held = take(&lock, "a", 20_000, 0).await;
        let (second, name) = (waiting(), LockName::new("a").unwrap());
        let first_waiter = stand(&lock, &raw, &waiting()).await;
        let leaves = stand(&lock, &raw, &second).await;
        let last = stand(&lock, &raw, &waiting()).await;
        if by_hand {
            raw.delete(&nodes(&raw).await[2], None).await.unwrap();
        } else {
            leaves.abort();
            assert_eq!(lock.abandon(&name, &second.owner).await.unwrap(), Released::Released);
        }
        is_kept_out(&last).await;
        held.release().await.unwrap();
        let mut lease = granted(&lock, first_waiter).await;
        is_kept_out(&last).await;
        lease.release().await.unwrap();
        granted(&lock, last).await.release().await.unwrap();
        if by_hand {
            let err = timeout(SECOND, leaves).await.unwrap().unwrap().unwrap_err();
            assert!(err.is_retryable(), "{err}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_removed_by_hand_is_followed_at_once() {
    let server = Server::start().await;
    let (lock, raw) = (server.lock().await, server.raw().await);
    let held = take(&lock, "a", 20_000, 0).await;
    let (next, last) = (stand(&lock, &raw, &waiting()).await, stand(&lock, &raw, &waiting()).await);
    raw.delete(&nodes(&raw).await[0], None).await.unwrap();
    let mut lease = granted(&lock, next).await;
    // Its contender goes, and nobody takes that for the end of the one who holds now.
    drop(held);
    is_kept_out(&last).await;
    lease.release().await.unwrap();
    granted(&lock, last).await.release().await.unwrap();
}

/// As a retry after an error does it.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_asks_again_keeps_its_place_before_those_of_its_process() {
    let server = Server::start().await;
    let (lock, raw) = (server.lock().await, server.raw().await);
    let mut held = take(&lock, "a", 20_000, 0).await;
    let again = waiting();
    let given_up = stand(&lock, &raw, &again).await;
    let last = stand(&lock, &raw, &waiting()).await;
    given_up.abort();
    let _ = given_up.await;
    let retry = tokio::spawn({
        let lock = lock.clone();
        async move { ask(&lock, &again).await }
    });
    is_kept_out(&last).await;
    eventually(SECOND, async || nodes(&raw).await.len() == 3).await;
    held.release().await.unwrap();
    let mut lease = granted(&lock, retry).await;
    is_kept_out(&last).await;
    lease.release().await.unwrap();
    granted(&lock, last).await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_whose_process_dies_in_the_middle_is_waited_for_until_its_session_ends() {
    let server = Server::start().await;
    let (lock, raw) = (server.lock().await, server.raw().await);
    let mut held = take(&lock, "a", 20_000, 0).await;
    // Its runtime ends without a word, as that of a process does that is killed.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let url = server.url();
    runtime.spawn(async move {
        let lock = ZkLock::connect(ZkConfig::from_url(url).unwrap()).await.unwrap();
        take(&lock, "a", 20_000, 60_000).await
    });
    let says_waiting = async |at: usize| {
        let nodes = nodes(&raw).await;
        let Some(node) = nodes.get(at) else { return false };
        raw.get_data(node).await.is_ok_and(|(data, _)| data.starts_with(b"1\nwaiting:"))
    };
    eventually(SECOND * 5, async || says_waiting(1).await).await;
    let next = stand(&lock, &raw, &waiting()).await;
    let last = stand(&lock, &raw, &waiting()).await;
    runtime.shutdown_background();
    held.release().await.unwrap();
    let limit = lock.capabilities().min_ttl + lock.capabilities().expiry_grain + SECOND;
    let freed = Instant::now();
    eventually(limit, async || next.is_finished()).await;
    assert!(freed.elapsed() < limit);
    let mut lease = granted(&lock, next).await;
    is_kept_out(&last).await;
    lease.release().await.unwrap();
    granted(&lock, last).await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn those_whose_session_is_ended_are_told_and_let_nobody_in() {
    let server = Server::start().await;
    let line = Tap::before(server.port).await;
    let ended = ZkLock::connect(ZkConfig::from_url(line.url()).unwrap()).await.unwrap();
    let (lock, raw) = (server.lock().await, server.raw().await);
    let mut held = take(&lock, "a", 20_000, 0).await;
    let (one, two) = (stand(&ended, &raw, &waiting()).await, stand(&ended, &raw, &waiting()).await);
    let last = stand(&lock, &raw, &waiting()).await;
    tokio::task::spawn_blocking(move || line.end_sessions()).await.unwrap();
    for waiter in [one, two] {
        let err = timeout(SECOND * 3, waiter).await.unwrap().unwrap().unwrap_err();
        assert!(err.is_retryable(), "{err}");
    }
    is_kept_out(&last).await;
    let retried = stand(&ended, &raw, &waiting()).await;
    held.release().await.unwrap();
    let mut lease = granted(&lock, last).await;
    is_kept_out(&retried).await;
    lease.release().await.unwrap();
    granted(&lock, retried).await.release().await.unwrap();
}

/// A node may be told to be gone that was made again under its name, as by a client that moves its own with two operations alone.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_takes_itself_for_the_first_is_refused_while_the_one_before_it_stands() {
    let server = Server::start().await;
    let (lock, raw) = (server.lock().await, server.raw().await);
    let holder = put(&raw, "a", "_c_6c5b5d1e-0c2b-4c53-9d5e-bb7a5be9e9c5-lock-", CreateMode::EphemeralSequential).await;
    let waiter = stand(&lock, &raw, &waiting()).await;
    for _ in 0..5 {
        let mut writer = raw.new_multi_writer();
        writer.add_delete(&holder, None).unwrap();
        writer.add_create(&holder, b"moved", &CreateMode::Ephemeral.with_acls(Acls::anyone_all())).unwrap();
        writer.commit().await.unwrap();
        is_kept_out(&waiter).await;
    }
    raw.delete(&holder, None).await.unwrap();
    granted(&lock, waiter).await.release().await.unwrap();
}
