//! Renewals that travel together.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use futures_util::future::join_all;
use lock_core::{Lease, Renewal};
use support::{Server, grant, request};

#[tokio::test]
async fn what_is_renewed_at_once_takes_few_scripts() {
    const LEASES: usize = 200;
    let server = Server::start().await;
    let (lock, mut raw) = (server.connect().await, server.raw().await);
    let mut leases: Vec<Box<dyn Lease>> = Vec::new();
    for number in 0..LEASES {
        leases.push(grant(&lock, &request(&format!("n{number}"), 30_000)).await);
    }
    for number in 0..LEASES {
        raw.run::<()>(&["PEXPIRE", &format!("n{number}"), "20000"]).await;
    }
    raw.run::<()>(&["CONFIG", "RESETSTAT"]).await;
    let renewed = join_all(leases.iter_mut().map(|lease| lease.renew())).await;
    assert!(renewed.into_iter().all(|renewed| renewed.unwrap() == Renewal::Renewed));
    for number in 0..LEASES {
        let left: i64 = raw.run(&["PTTL", &format!("n{number}")]).await;
        assert!(left > 20_000, "n{number} has {left} ms left");
    }
    let stats: String = raw.run(&["INFO", "commandstats"]).await;
    let scripts = stats.lines().filter(|line| line.starts_with("cmdstat_eval"));
    let calls: usize = scripts.filter_map(|line| line.split(['=', ',']).nth(1)?.parse::<usize>().ok()).sum();
    // Four of 64; the first goes alone where the others come a moment later. A script that is not known is sent twice.
    assert!((1..=8).contains(&calls), "{calls} scripts: {stats}");
}

#[tokio::test]
async fn one_that_cannot_be_renewed_costs_the_others_nothing() {
    let server = Server::start().await;
    let (lock, mut raw) = (server.connect().await, server.raw().await);
    let (mut good, mut bad) =
        (grant(&lock, &request("good", 30_000)).await, grant(&lock, &request("bad", 30_000)).await);
    // Another's entry, and beside it something that a script cannot read.
    raw.run::<()>(&["SET", "bad", "stranger", "PX", "60000"]).await;
    let helpers: Vec<Vec<u8>> = raw.run(&["KEYS", "bad?*"]).await;
    assert!(!helpers.is_empty());
    for helper in &helpers {
        raw.bytes::<()>(&[b"SET", helper, b"no hash"]).await;
    }
    let (good, bad) = tokio::join!(good.renew(), bad.renew());
    assert_eq!(good.unwrap(), Renewal::Renewed);
    assert!(bad.is_err(), "{bad:?}");
}
