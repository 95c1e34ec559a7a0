//! Keys that refuse an older token, on a real cluster.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use etcd_client::{Client, Compare, CompareOp, Txn, TxnOp, TxnOpResponse};
use lock_core::fence::FenceError;
use lock_core::{ErrorKind, FencingToken};
use lock_etcd::fence;
use support::Cluster;

async fn open(cluster: &Cluster) -> Client {
    Client::connect([format!("127.0.0.1:{}", cluster.0[0].port)], None).await.unwrap()
}

async fn write(client: &Client, token: u64, value: &str) -> Result<Vec<TxnOpResponse>, FenceError> {
    fence::commit(client, "fence", FencingToken::new(token), [TxnOp::put("account", value, None)]).await
}

async fn value(client: &Client, key: &str) -> String {
    let found = client.kv_client().get(key, None).await.unwrap();
    found.kvs().first().map(|kv| kv.value_str().unwrap().to_owned()).unwrap_or_default()
}

fn stale<T: std::fmt::Debug>(answer: Result<T, FenceError>) -> (u64, u64) {
    let answer = answer.unwrap_err();
    let stale = answer.stale().unwrap_or_else(|| panic!("{answer}"));
    (stale.offered.get(), stale.newest.get())
}

#[tokio::test]
async fn a_newer_token_and_the_same_again_are_taken_and_an_older_one_changes_nothing() {
    let cluster = Cluster::start().await;
    let client = open(&cluster).await;
    let tokens = [0, 7, 9, 10, 99, 100, 10_000_000_000_000_000_000, u64::MAX - 1, u64::MAX];
    for (i, token) in tokens.into_iter().enumerate() {
        let answers = write(&client, token, "first").await.unwrap();
        assert!(matches!(&answers[..], [TxnOpResponse::Put(_)]), "{answers:?}");
        write(&client, token, &token.to_string()).await.unwrap();
        for older in &tokens[..i] {
            assert_eq!(stale(write(&client, *older, "late").await), (*older, token));
        }
        assert_eq!(value(&client, "account").await, token.to_string());
        assert_eq!(value(&client, "fence").await, fence::text(FencingToken::new(token)));
    }
}

#[tokio::test]
async fn what_the_operations_answer_comes_back() {
    let cluster = Cluster::start().await;
    let client = open(&cluster).await;
    for round in 0..2 {
        let operations =
            [TxnOp::put(format!("k{round}"), "v", None), TxnOp::delete("k0", None), TxnOp::get("k0", None)];
        let operations = if round == 0 { &operations[2..] } else { &operations[..] };
        let answers = fence::commit(&client, "fence", FencingToken::new(1), operations.to_vec()).await.unwrap();
        assert_eq!(answers.len(), operations.len());
        assert!(matches!(answers.last(), Some(TxnOpResponse::Get(found)) if found.kvs().is_empty()));
    }
    assert!(fence::commit(&client, "fence", FencingToken::new(1), []).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_is_no_fence_is_left_alone() {
    let cluster = Cluster::start().await;
    let client = open(&cluster).await;
    for foreign in ["", "0", "7", "1796077957324891", "data", "\u{10ffff}"] {
        client.kv_client().put("fence", foreign, None).await.unwrap();
        let Err(FenceError::Failed(error)) = write(&client, 1 << 60, "late").await else { panic!("'{foreign}'") };
        assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
        assert_eq!((value(&client, "fence").await, value(&client, "account").await), (foreign.into(), "".into()));
    }
}

/// Over and over from a fence that is not there, which two writers make at once.
#[tokio::test(flavor = "multi_thread")]
async fn racing_writers_never_leave_an_older_value() {
    let cluster = Cluster::start().await;
    for fresh in 0..20u64 {
        let rounds = if fresh == 0 { 100 } else { 2 };
        let mut writers = Vec::new();
        for writer in 0..2 {
            let client = open(&cluster).await;
            writers.push(tokio::spawn(async move {
                for round in 0..rounds {
                    let token = 1 + round * 2 + writer;
                    let write = TxnOp::put(format!("account{fresh}"), token.to_string(), None);
                    let key = format!("fence{fresh}");
                    if let Err(error) = fence::commit(&client, key, FencingToken::new(token), [write]).await {
                        assert!(error.stale().unwrap_or_else(|| panic!("{error}")).newest.get() > token);
                    }
                    let found: u64 = value(&client, &format!("account{fresh}")).await.parse().unwrap();
                    assert!(found >= token, "an older value came after");
                }
            }));
        }
        for writer in writers {
            writer.await.unwrap();
        }
        assert_eq!(value(&open(&cluster).await, &format!("account{fresh}")).await, (rounds * 2).to_string());
    }
}

/// What the documentation says of transactions of one's own.
#[tokio::test]
async fn a_transaction_of_ones_own_compares_the_text() {
    let cluster = Cluster::start().await;
    let client = open(&cluster).await;
    let write = async |token: u64| {
        let next = fence::text(FencingToken::new(token + 1));
        let put = TxnOp::put("fence", fence::text(FencingToken::new(token)), None);
        let txn = Txn::new().when([Compare::value("fence", CompareOp::Less, next)]).and_then([put]);
        client.kv_client().txn(txn).await.unwrap().succeeded()
    };
    assert!(!write(5).await, "no key yet");
    client.kv_client().put("fence", fence::text(FencingToken::new(0)), None).await.unwrap();
    assert!(write(5).await && write(5).await && write(10).await);
    assert!(!write(9).await);
}
