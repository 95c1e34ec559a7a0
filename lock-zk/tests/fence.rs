//! Nodes that refuse an older token, on a real server.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};

use lock_core::fence::FenceError;
use lock_core::{Effect, ErrorKind, FencingToken};
use lock_zk::fence;
use support::Server;
use zookeeper_client::{Acls, Client, MultiWriteResult};

const FENCE: &str = "/accounts/7/fence";
const ACCOUNT: &str = "/accounts/7";

async fn ready(server: &Server) -> Client {
    let client = server.raw().await;
    fence::create(&client, FENCE, &Acls::anyone_all()).await.unwrap();
    fence::create(&client, FENCE, &Acls::anyone_all()).await.unwrap();
    client
}

async fn write(client: &Client, token: u64, value: &str) -> Result<Vec<MultiWriteResult>, FenceError> {
    let token = FencingToken::new(token);
    fence::commit(client, FENCE, token, |multi| multi.add_set_data(ACCOUNT, value.as_bytes(), None)).await
}

async fn value(client: &Client, node: &str) -> String {
    client.sync(node).await.unwrap();
    String::from_utf8(client.get_data(node).await.unwrap().0).unwrap()
}

fn stale<T: std::fmt::Debug>(answer: Result<T, FenceError>) -> (u64, u64) {
    let answer = answer.unwrap_err();
    let stale = answer.stale().unwrap_or_else(|| panic!("{answer}"));
    (stale.offered.get(), stale.newest.get())
}

fn failed<T: std::fmt::Debug>(answer: Result<T, FenceError>) -> (ErrorKind, Effect) {
    let Err(FenceError::Failed(error)) = answer else { panic!("{answer:?}") };
    assert!(error.to_string().starts_with("zk: fence: "), "{error}");
    (error.kind(), error.effect())
}

#[tokio::test]
async fn a_newer_token_and_the_same_again_are_taken_and_an_older_one_changes_nothing() {
    let server = Server::start().await;
    let client = ready(&server).await;
    let tokens = [0, 7, 9, 10, 99, 100, u64::MAX - 1, u64::MAX];
    for (i, token) in tokens.into_iter().enumerate() {
        let answers = write(&client, token, "first").await.unwrap();
        assert!(matches!(&answers[..], [MultiWriteResult::SetData { .. }]), "{answers:?}");
        write(&client, token, "second").await.unwrap();
        for older in &tokens[..i] {
            assert_eq!(stale(write(&client, *older, "late").await), (*older, token));
        }
        assert_eq!((value(&client, ACCOUNT).await, value(&client, FENCE).await), ("second".into(), token.to_string()));
    }
}

#[tokio::test]
async fn all_is_done_or_nothing() {
    let server = Server::start().await;
    let client = ready(&server).await;
    write(&client, 5, "here").await.unwrap();
    let refused = fence::commit(&client, FENCE, FencingToken::new(6), |multi| {
        multi.add_set_data(ACCOUNT, b"there", None)?;
        multi.add_delete("/accounts/8", None)
    });
    assert_eq!(failed(refused.await), (ErrorKind::Config, Effect::NotApplied));
    assert_eq!((value(&client, ACCOUNT).await, value(&client, FENCE).await), ("here".into(), "5".into()));
}

#[tokio::test]
async fn a_fence_that_is_missing_or_foreign_lets_nobody_in() {
    let server = Server::start().await;
    let client = ready(&server).await;
    client.set_data(FENCE, b"data", None).await.unwrap();
    assert_eq!(failed(write(&client, 1, "late").await), (ErrorKind::Foreign, Effect::NotApplied));
    client.delete(FENCE, None).await.unwrap();
    assert_eq!(failed(write(&client, 1, "late").await), (ErrorKind::Config, Effect::NotApplied));
    // Also where it goes between the look and the write.
    fence::create(&client, FENCE, &Acls::anyone_all()).await.unwrap();
    let raced = fence::commit(&client, FENCE, FencingToken::new(1), |multi| {
        let (other, path) = (client.clone(), FENCE);
        // The multi is sent after this; requests of one session are done in their order.
        drop(other.delete(path, None));
        multi.add_set_data(ACCOUNT, b"late", None)
    });
    assert_eq!(failed(raced.await), (ErrorKind::Config, Effect::NotApplied));
    assert_eq!(value(&client, ACCOUNT).await, "");
}

/// Each of the first tries loses to another writer, who is older or newer.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_race_is_run_again_and_judged_anew() {
    let server = Server::start().await;
    let (client, other) = (ready(&server).await, server.raw().await);
    for (rival, races, expected) in [(10, 3, None), (12, 1, Some((11, 12))), (11, 1000, None)] {
        client.set_data(FENCE, b"9", None).await.unwrap();
        let tries = AtomicUsize::new(0);
        let answer = fence::commit(&client, FENCE, FencingToken::new(11), |multi| {
            if tries.fetch_add(1, Ordering::SeqCst) < races {
                let rival = write(&other, rival, "rival");
                tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(rival)).unwrap();
            }
            multi.add_set_data(ACCOUNT, b"ours", None)
        })
        .await;
        match expected {
            Some(expected) => assert_eq!(stale(answer), expected),
            None if races == 1000 => assert_eq!(failed(answer), (ErrorKind::Unavailable, Effect::NotApplied)),
            None => assert_eq!((answer.unwrap().len(), tries.into_inner()), (1, races + 1)),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_writers_never_leave_an_older_value() {
    let server = Server::start().await;
    let client = ready(&server).await;
    let mut writers = Vec::new();
    for writer in 0..2 {
        let client = server.raw().await;
        writers.push(tokio::spawn(async move {
            for round in 0..200u64 {
                let token = 1 + round * 2 + writer;
                if let Err(error) = write(&client, token, &token.to_string()).await {
                    assert!(error.stale().unwrap_or_else(|| panic!("{error}")).newest.get() > token);
                }
                let found: u64 = value(&client, ACCOUNT).await.parse().unwrap();
                assert!(found >= token, "an older value came after");
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(value(&client, ACCOUNT).await, "400");
}

#[tokio::test]
async fn the_node_gets_the_rights_that_are_given() {
    let server = Server::start().await;
    let client = Client::connector().with_auth("digest", b"owner:s3cret");
    let client = client.connect(&format!("127.0.0.1:{}", server.port)).await.unwrap();
    fence::create(&client, "/mine/fence", &Acls::creator_all()).await.unwrap();
    let stranger = server.raw().await;
    let answer = fence::commit(&stranger, "/mine/fence", FencingToken::new(1), |_| Ok(())).await;
    assert_eq!(failed(answer), (ErrorKind::Denied, Effect::NotApplied));
}
