//! The life of a lease in one process.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::time::Duration;

use common::{Bench, acquire, request};
use lock_core::{Acquisition, DistributedLock, HolderState, LostReason, Page, Released, Renewal, Revoke};

#[tokio::test]
async fn a_lease_is_taken_renewed_and_released() {
    let bench = Bench::new().await;
    let first = request("a");
    let mut lease = acquire(&bench.lock, &first).await.unwrap();
    assert!(acquire(&bench.lock, &request("a")).await.is_none(), "taken");
    assert_eq!(lease.renew().await.unwrap(), Renewal::Renewed);
    let holder = bench.lock.inspect(&first.name).await.unwrap().unwrap();
    assert_eq!((holder.state, holder.owner), (HolderState::Held, first.owner.to_string()));
    assert_eq!(holder.token, Some(lease.fencing_token()));
    assert_eq!(lease.release().await.unwrap(), Released::Released);
    assert_eq!(lease.release().await.unwrap(), Released::NotHeld);
    assert_eq!(lease.renew().await.unwrap(), Renewal::Lost(LostReason::Removed));
    let second = acquire(&bench.lock, &request("a")).await.unwrap();
    assert!(second.fencing_token() > lease.fencing_token());
}

#[tokio::test]
async fn a_retry_recognises_its_own_entry() {
    let bench = Bench::new().await;
    let request = request("a");
    let first = acquire(&bench.lock, &request).await.unwrap();
    let again = acquire(&bench.lock, &request).await.unwrap();
    assert_eq!(again.fencing_token(), first.fencing_token());
}

#[tokio::test]
async fn the_loser_learns_why() {
    let bench = Bench::new().await;
    let mut short = request("expired");
    short.ttl = lock_core::Ttl::new(Duration::from_millis(30)).unwrap();
    let mut expired = acquire(&bench.lock, &short).await.unwrap();
    let mut revoked = acquire(&bench.lock, &request("revoked")).await.unwrap();
    let mut removed = acquire(&bench.lock, &request("removed")).await.unwrap();
    let token = revoked.fencing_token();
    let revoke = async |name: &str, token, how| bench.lock.revoke(&request(name).name, token, how).await.unwrap();
    assert_eq!(revoke("revoked", Some(lock_core::FencingToken::new(1)), Revoke::Mark).await, Released::NotHeld);
    assert_eq!(revoke("revoked", Some(token), Revoke::Mark).await, Released::Released);
    assert_eq!(revoke("removed", None, Revoke::Now).await, Released::Released);
    assert_eq!(revoke("free", None, Revoke::Now).await, Released::NotHeld);
    assert!(acquire(&bench.lock, &request("revoked")).await.is_none(), "its time runs on");
    let shown = bench.lock.inspect(&request("revoked").name).await.unwrap().unwrap();
    assert_eq!(shown.state, HolderState::Revoked);
    assert_eq!(revoked.renew().await.unwrap(), Renewal::Lost(LostReason::ForceReleased));
    assert_eq!(revoked.release().await.unwrap(), Released::NotHeld);
    assert_eq!(removed.renew().await.unwrap(), Renewal::Lost(LostReason::Removed));

    short.owner = lock_core::Owner::random().unwrap();
    short.wait = lock_core::Wait::Forever;
    let _successor = acquire(&bench.lock, &short).await.unwrap();
    assert_eq!(expired.renew().await.unwrap(), Renewal::Lost(LostReason::TakenOver));
    drop(_successor);
    let mut alone = acquire(&bench.lock, &{
        let mut r = request("alone");
        r.ttl = short.ttl;
        r
    })
    .await
    .unwrap();
    tokio::time::sleep(Duration::from_millis(40)).await;
    assert_eq!(alone.renew().await.unwrap(), Renewal::Lost(LostReason::Expired), "never revived");
    assert_eq!(alone.release().await.unwrap(), Released::NotHeld);
}

#[tokio::test]
async fn odd_names_are_different_names() {
    let bench = Bench::new().await;
    let long = "x".repeat(512);
    let names = [
        "a",
        "A",
        "a ",
        " a",
        "a\0",
        "a\0b",
        "%",
        "_",
        "é",
        "e\u{301}",
        "'; DROP TABLE locks; --",
        &long,
        "\u{10FFFF}",
    ];
    for name in names {
        assert!(acquire(&bench.lock, &request(name)).await.is_some(), "{name:?}");
    }
    let mut sorted: Vec<_> = names.into();
    sorted.sort_unstable();
    let mut listed = Vec::new();
    let mut page = Page::first(5);
    loop {
        let holders = bench.lock.list("", page).await.unwrap();
        let last = holders.last().map(|holder| holder.name.clone());
        listed.extend(holders.into_iter().map(|holder| holder.name));
        match last {
            Some(last) if listed.len() % 5 == 0 => page = Page::after(last, 5),
            _ => break,
        }
    }
    assert_eq!(listed.iter().map(|name| name.as_str()).collect::<Vec<_>>(), sorted);
    let found = async |prefix: &str| bench.lock.list(prefix, Page::first(100)).await.unwrap().len();
    assert_eq!((found("%").await, found("_").await, found("a").await, found("\u{10FFFF}").await), (1, 1, 4, 1));
}

#[tokio::test]
async fn an_abandoned_owner_leaves_nothing() {
    let bench = Bench::new().await;
    let request = request("a");
    // Dropped at its first await, a little later, and so on: some before the statement was sent, some after it.
    for polls in 0..40 {
        let mut acquire = Box::pin(bench.lock.acquire(&request));
        for _ in 0..polls {
            if let std::task::Poll::Ready(done) = futures_util::poll!(&mut acquire) {
                assert!(matches!(done, Ok(Acquisition::Granted(_))), "{done:?}");
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(acquire);
        bench.lock.abandon(&request.name, &request.owner).await.unwrap();
        assert_eq!(bench.lock.inspect(&request.name).await.unwrap(), None, "after {polls} polls");
    }
    assert_eq!(bench.rows().await, 0);
}
