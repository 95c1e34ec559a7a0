//! Values that refuse an older token, on a real server.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use lock_core::fence::FenceError;
use lock_core::{Effect, ErrorKind, FencingToken};
use lock_redis::fence;
use redis::aio::MultiplexedConnection;
use support::Server;

async fn open(server: &Server) -> MultiplexedConnection {
    support::patient(&server.url()).await
}

async fn set(redis: &mut MultiplexedConnection, token: u64, value: &str) -> Result<(), FenceError> {
    fence::set(redis, "account:7", value, FencingToken::new(token)).await
}

async fn get(redis: &mut MultiplexedConnection) -> (u64, String) {
    let (token, value) = fence::get(redis, "account:7").await.unwrap().unwrap();
    (token.get(), String::from_utf8(value).unwrap())
}

fn stale(answer: Result<(), FenceError>) -> (u64, u64) {
    let answer = answer.unwrap_err();
    let stale = answer.stale().unwrap_or_else(|| panic!("{answer}"));
    (stale.offered.get(), stale.newest.get())
}

#[tokio::test]
async fn a_newer_token_and_the_same_again_are_taken_and_an_older_one_changes_nothing() {
    let server = Server::start().await;
    let mut redis = open(&server).await;
    assert_eq!(fence::get(&mut redis, "account:7").await.unwrap(), None);
    // Also where numbers of different lengths meet, and where Lua's own numbers have long lost the last digits.
    let tokens =
        [0, 7, 9, 10, 99, 100, (1 << 53) + 1, (1 << 53) + 2, 10_000_000_000_000_000_000, u64::MAX - 1, u64::MAX];
    for (i, token) in tokens.into_iter().enumerate() {
        set(&mut redis, token, "first").await.unwrap();
        set(&mut redis, token, "second").await.unwrap();
        for older in &tokens[..i] {
            assert_eq!(stale(set(&mut redis, *older, "late").await), (*older, token));
        }
        assert_eq!(get(&mut redis).await, (token, "second".into()));
    }
}

#[tokio::test]
async fn a_server_that_has_lost_its_scripts_is_told_them_again() {
    let server = Server::start().await;
    let mut redis = open(&server).await;
    set(&mut redis, 2, "a").await.unwrap();
    server.raw().await.run::<String>(&["SCRIPT", "FLUSH"]).await;
    assert_eq!(stale(set(&mut redis, 1, "b").await), (1, 2));
}

#[tokio::test]
async fn keys_and_values_are_taken_by_the_letter() {
    let server = Server::start().await;
    let mut redis = open(&server).await;
    let odd: [&[u8]; 5] = [b"", b"'..redis.call('FLUSHALL')..'", b"]]\n--", b"\0\xff\x1b[2J", b"*"];
    for (i, odd) in odd.iter().enumerate() {
        fence::set(&mut redis, odd, odd, FencingToken::new(i as u64)).await.unwrap();
    }
    for (i, odd) in odd.iter().enumerate() {
        let found = fence::get(&mut redis, odd).await.unwrap();
        assert_eq!(found, Some((FencingToken::new(i as u64), odd.to_vec())));
    }
}

#[tokio::test]
async fn what_is_no_fence_is_left_alone() {
    let server = Server::start().await;
    let (mut redis, mut raw) = (open(&server).await, server.raw().await);
    raw.run::<String>(&["SET", "account:7", "another's"]).await;
    for answer in [set(&mut redis, 1, "a").await, fence::get(&mut redis, "account:7").await.map(|_| ())] {
        let Err(FenceError::Failed(error)) = answer else { panic!("taken for a fence") };
        let seen = (error.kind(), error.effect(), error.is_retryable());
        assert_eq!(seen, (ErrorKind::Foreign, Effect::NotApplied, false), "{error}");
    }
    assert_eq!(raw.run::<String>(&["GET", "account:7"]).await, "another's");
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_writers_never_leave_an_older_value() {
    let server = Server::start().await;
    let mut writers = Vec::new();
    for writer in 0..2 {
        let mut redis = open(&server).await;
        writers.push(tokio::spawn(async move {
            for round in 0..1000u64 {
                let token = 1 + round * 2 + writer;
                if let Err(error) = set(&mut redis, token, &token.to_string()).await {
                    assert!(error.stale().unwrap_or_else(|| panic!("{error}")).newest.get() > token);
                }
                let (newest, value) = get(&mut redis).await;
                assert_eq!(newest.to_string(), value);
                assert!(newest >= token, "an older value came after");
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(get(&mut open(&server).await).await, (2000, "2000".into()));
}

#[tokio::test]
async fn a_script_of_ones_own_checks_first() {
    let server = Server::start().await;
    let mut redis = open(&server).await;
    let take_one = redis::Script::new(&format!(
        "{}
         local newest = admit(KEYS[1], ARGV[1])
         if newest then return redis.error_reply('STALE ' .. newest) end
         return redis.call('DECRBY', KEYS[2], ARGV[2])",
        fence::ADMIT
    ));
    let mut take = async |token: u64| -> redis::RedisResult<i64> {
        let mut call = take_one.key("{item:7}:fence");
        call.key("{item:7}:stock").arg(token).arg(1).invoke_async(&mut redis).await
    };
    assert_eq!(take(5).await.unwrap(), -1);
    assert_eq!(take(5).await.unwrap(), -2);
    let refused = take(4).await.unwrap_err();
    assert_eq!((refused.code(), refused.detail()), (Some("STALE"), Some("5")));
    assert_eq!(take(6).await.unwrap(), -3);
}
