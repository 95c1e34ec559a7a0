//! Acquire, renew, release, abandon, inspect, list, revoke on a real server.

mod support;

use std::time::Duration;

use lock_core::{
    Acquisition, DistributedLock, ErrorKind, HolderState, LostReason, Owner, Page, Promise, Released, Renewal, Revoke,
    Verdict,
};
use support::{Server, grant, granted, is_busy, name, request, until, waiting};

const DELETE_OWN: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

#[tokio::test]
async fn a_lock_is_a_plain_key_with_a_time_to_live() {
    let server = Server::start().await;
    let lock = server.connect().await;
    let request = request("order:42", 5000);
    let mut lease = grant(&lock, &request).await;
    let mut raw = server.raw().await;
    assert_eq!(raw.run::<String>(&["GET", "order:42"]).await, request.owner.to_string());
    let ttl: u64 = raw.run(&["PTTL", "order:42"]).await;
    assert!((4000..=5000).contains(&ttl));
    assert_eq!(lease.release().await.unwrap(), Released::Released);
    assert_eq!(lease.release().await.unwrap(), Released::NotHeld);
    assert_eq!(raw.run::<u32>(&["EXISTS", "order:42"]).await, 0);
    for (key, ttl) in raw.ttls().await {
        assert!(ttl > 0, "{key:?} would stay for ever");
    }
}

#[tokio::test]
async fn plain_clients_exclude_with_us_both_ways() {
    let server = Server::start().await;
    let lock = server.connect().await;
    let mut raw = server.raw().await;
    let mut lease = grant(&lock, &request("n", 5000)).await;
    assert_eq!(raw.run::<Option<String>>(&["SET", "n", "token", "NX", "PX", "5000"]).await, None);
    assert_eq!(raw.run::<i32>(&["EVAL", DELETE_OWN, "1", "n", "token"]).await, 0);
    assert_eq!(lease.release().await.unwrap(), Released::Released);
    assert_eq!(raw.run::<Option<String>>(&["SET", "n", "token", "NX", "PX", "5000"]).await.as_deref(), Some("OK"));
    assert!(is_busy(&lock, &request("n", 5000)).await);
    assert_eq!(lease.release().await.unwrap(), Released::NotHeld);
    assert_eq!(lease.renew().await.unwrap(), Renewal::Lost(LostReason::TakenOver));
    let holder = lock.inspect(&name("n")).await.unwrap().unwrap();
    assert_eq!((holder.state, holder.owner.as_str()), (HolderState::Foreign, "token"));
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { granted(lock.acquire(&waiting("n", 5000, Duration::from_secs(5))).await.unwrap()) }
    });
    assert_eq!(raw.run::<i32>(&["EVAL", DELETE_OWN, "1", "n", "token"]).await, 1);
    waiter.await.unwrap();
}

#[tokio::test]
async fn tokens_rise_through_release_deletion_loss_of_data_and_expiry() {
    let server = Server::start().await;
    let lock = server.connect().await;
    let mut raw = server.raw().await;
    let mut last = 0;
    for (round, cut) in [&["PING"][..], &["DEL", "n"], &["FLUSHALL"], &["SCRIPT", "FLUSH"], &["FLUSHALL"]]
        .iter()
        .cycle()
        .take(20)
        .enumerate()
    {
        let mut lease = grant(&lock, &request("n", 5000)).await;
        assert!(lease.fencing_token().get() > last, "round {round}");
        last = lease.fencing_token().get();
        let _: redis::Value = raw.run(cut).await;
        lease.release().await.unwrap();
    }
    grant(&lock, &request("n", 400)).await;
    let after_expiry = grant(&lock, &waiting("n", 5000, Duration::from_secs(2))).await;
    assert!(after_expiry.fencing_token().get() > last);
}

#[tokio::test]
async fn a_retry_recognises_itself() {
    let server = Server::start().await;
    let lock = server.connect().await;
    let request = waiting("n", 5000, Duration::from_secs(2));
    let first = grant(&lock, &request).await;
    let second = grant(&lock, &request).await;
    assert_eq!(first.fencing_token(), second.fencing_token());
}

#[tokio::test]
async fn renewal_sets_the_time_and_tells_why_it_cannot() {
    let server = Server::start().await;
    let lock = server.connect().await;
    let mut raw = server.raw().await;
    let request_n = request("n", 5000);
    let mut lease = grant(&lock, &request_n).await;
    let before = lease.valid_until();
    assert_eq!(lease.renew().await.unwrap(), Renewal::Renewed);
    assert!(lease.valid_until() >= before);
    assert!(raw.run::<u64>(&["PTTL", "n"]).await <= 5000, "it never adds");
    raw.run::<i32>(&["DEL", "n"]).await;
    assert_eq!(lease.renew().await.unwrap(), Renewal::Lost(LostReason::Removed));
    assert_eq!(raw.run::<u32>(&["EXISTS", "n"]).await, 0, "it never creates");
    raw.run::<i32>(&["HSET", "n", "a", "1"]).await;
    assert_eq!(lease.renew().await.unwrap(), Renewal::Lost(LostReason::TakenOver));
    assert_eq!(lease.release().await.unwrap(), Released::NotHeld);
    assert_eq!(lock.acquire(&request("n", 5000)).await.unwrap_err().kind(), ErrorKind::Foreign);
    let mut short = grant(&lock, &request("short", 400)).await;
    until(Duration::from_secs(5), "expired", || {
        let mut raw = raw.clone();
        async move { raw.run::<u32>(&["EXISTS", "short"]).await == 0 }
    })
    .await;
    assert_eq!(short.renew().await.unwrap(), Renewal::Lost(LostReason::Expired));
}

#[tokio::test]
async fn a_renewal_puts_back_a_counter_that_was_removed() {
    let server = Server::start().await;
    let lock = server.connect().await;
    let mut raw = server.raw().await;
    let mut request_n = request("n", 5000);
    request_n.label = "me".into();
    let mut lease = grant(&lock, &request_n).await;
    let _: redis::Value =
        raw.run(&["EVAL", "for _, k in ipairs(redis.call('KEYS', 'n\\255m*')) do redis.call('DEL', k) end", "0"]).await;
    assert_eq!(lock.inspect(&name("n")).await.unwrap().unwrap().token, None);
    assert_eq!(lease.renew().await.unwrap(), Renewal::Renewed);
    let holder = lock.inspect(&name("n")).await.unwrap().unwrap();
    assert_eq!((holder.token, holder.label.as_deref()), (Some(lease.fencing_token()), Some("me")));
}

#[tokio::test]
async fn an_abandoned_owner_takes_nothing_any_more() {
    let server = Server::start().await;
    let lock = server.connect().await;
    let request_n = request("n", 5000);
    grant(&lock, &request_n).await;
    // By another process, as after a crash of the first.
    let other = server.connect().await;
    assert_eq!(other.abandon(&name("n"), &request_n.owner).await.unwrap(), Released::Released);
    assert_eq!(other.abandon(&name("n"), &request_n.owner).await.unwrap(), Released::NotHeld);
    assert_eq!(lock.acquire(&request_n).await.unwrap_err().kind(), ErrorKind::Internal);
    grant(&lock, &request("n", 5000)).await;
}

#[tokio::test]
async fn a_revoked_holder_learns_of_it_and_nobody_enters_beside_it() {
    let server = Server::start().await;
    let lock = server.connect().await;
    let mut lease = grant(&lock, &request("n", 1000)).await;
    let token = lease.fencing_token();
    let wrong = lock_core::FencingToken::new(token.get() + 1);
    assert_eq!(lock.revoke(&name("n"), Some(wrong), Revoke::Mark).await.unwrap(), Released::NotHeld);
    let other = server.connect().await;
    // The subscription may still be on its way up; the renewal tells in any case.
    assert_eq!(other.revoke(&name("n"), Some(token), Revoke::Mark).await.unwrap(), Released::Released);
    assert!(is_busy(&other, &request("n", 1000)).await);
    let holder = other.inspect(&name("n")).await.unwrap().unwrap();
    assert_eq!(holder.state, HolderState::Revoked);
    assert!(holder.remaining.is_some_and(|left| left <= Duration::from_secs(1)));
    assert_eq!(lease.renew().await.unwrap(), Renewal::Lost(LostReason::ForceReleased));
    assert_eq!(lease.release().await.unwrap(), Released::NotHeld);
    let mut next = grant(&other, &waiting("n", 5000, Duration::from_secs(3))).await;
    assert!(next.fencing_token() > token);
    assert_eq!(lock.revoke(&name("n"), None, Revoke::Now).await.unwrap(), Released::Released);
    assert_eq!(next.renew().await.unwrap(), Renewal::Lost(LostReason::ForceReleased));
    assert_eq!(lock.revoke(&name("n"), None, Revoke::Now).await.unwrap(), Released::NotHeld);
}

#[tokio::test]
async fn revocation_is_pushed_to_the_holder() {
    let server = Server::start().await;
    let lock = server.connect().await;
    let mut raw = server.raw().await;
    until(Duration::from_secs(5), "subscribed", || {
        let mut raw = raw.clone();
        async move { !raw.run::<Vec<String>>(&["PUBSUB", "CHANNELS"]).await.is_empty() }
    })
    .await;
    let lease = grant(&lock, &request("n", 60_000)).await;
    let loss = tokio::spawn(lease.loss());
    lock.revoke(&name("n"), None, Revoke::Mark).await.unwrap();
    let reason = tokio::time::timeout(Duration::from_secs(1), loss).await.unwrap().unwrap();
    assert_eq!(reason, LostReason::ForceReleased);
    let _: redis::Value = raw.run(&["PING"]).await;
}

#[tokio::test]
async fn foreign_data_stays_as_it_is() {
    let server = Server::start().await;
    let lock = server.connect().await;
    let mut raw = server.raw().await;
    let _: redis::Value = raw.run(&["SET", "n", "data"]).await;
    let Acquisition::Busy(Some(holder)) = lock.acquire(&waiting("n", 500, Duration::from_millis(300))).await.unwrap()
    else {
        panic!("it is busy")
    };
    assert_eq!((holder.state, holder.remaining), (HolderState::Foreign, None));
    assert_eq!(lock.revoke(&name("n"), None, Revoke::Now).await.unwrap_err().kind(), ErrorKind::Foreign);
    assert_eq!(lock.abandon(&name("n"), &Owner::random().unwrap()).await.unwrap(), Released::NotHeld);
    assert_eq!(raw.run::<String>(&["GET", "n"]).await, "data");
    let _: redis::Value = raw.run(&["DEL", "n"]).await;
    let _: redis::Value = raw.run(&["HSET", "n", "a", "1"]).await;
    assert_eq!(lock.inspect(&name("n")).await.unwrap().unwrap().state, HolderState::Foreign);
    assert_eq!(lock.abandon(&name("n"), &Owner::random().unwrap()).await.unwrap(), Released::NotHeld);
    assert_eq!(raw.run::<i32>(&["HLEN", "n"]).await, 1);
}

#[tokio::test]
async fn a_list_is_sorted_paged_and_shows_locks_only() {
    let server = Server::start().await;
    let lock = server.connect().await;
    let mut raw = server.raw().await;
    let mut leases = Vec::new();
    for text in ["a*b/3", "a*b/1", "a*b/2", "a*b/{x", "axb/1", "é"] {
        leases.push(grant(&lock, &request(text, 60_000)).await);
    }
    let _: redis::Value = raw.run(&["SET", "a*b/data", "x"]).await;
    let _: redis::Value = raw.run(&["SET", "a*b/plain", "token", "PX", "60000"]).await;
    let names =
        |holders: Vec<lock_core::Holder>| holders.iter().map(|h| h.name.as_str().to_owned()).collect::<Vec<_>>();
    let all = lock.list("a*b/", Page::first(100)).await.unwrap();
    assert_eq!(names(all), ["a*b/1", "a*b/2", "a*b/3", "a*b/plain", "a*b/{x"]);
    assert_eq!(names(lock.list("a*b/", Page::first(2)).await.unwrap()), ["a*b/1", "a*b/2"]);
    assert_eq!(names(lock.list("a*b/", Page::after(name("a*b/2"), 2)).await.unwrap()), ["a*b/3", "a*b/plain"]);
    assert_eq!(lock.list("none", Page::first(2)).await.unwrap(), []);
    assert_eq!(lock.list("", Page::first(100)).await.unwrap().len(), 7);
}

#[tokio::test]
async fn a_closed_backend_says_so_and_leaves_no_connection() {
    let server = Server::start().await;
    let lock = server.connect().await;
    let raw = server.raw().await;
    grant(&lock, &request("n", 60_000)).await;
    lock.close().await.unwrap();
    assert_eq!(lock.acquire(&request("m", 1000)).await.unwrap_err().kind(), ErrorKind::Closed);
    until(Duration::from_secs(5), "only this connection is left", || {
        let mut raw = raw.clone();
        async move { raw.run::<String>(&["CLIENT", "LIST"]).await.lines().count() == 1 }
    })
    .await;
}

#[tokio::test]
async fn the_diagnosis_names_the_server_and_what_threatens_locks() {
    let server = Server::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]).await;
    let diagnosis = server.connect().await.diagnose().await.unwrap();
    assert!(diagnosis.server.starts_with("Redis ") || diagnosis.server.starts_with("Valkey "), "{}", diagnosis.server);
    assert_eq!(diagnosis.verdict(Promise::Exclusion), Verdict::NotKept);
    assert!(diagnosis.findings.iter().any(|f| f.verdict == Verdict::NotKept && f.value.contains("allkeys-lru")));
}
