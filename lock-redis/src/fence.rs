//! Values that refuse an older fencing token, in a Redis or Valkey server of the user's own.
//!
//! A guarded value is a hash with the fields `token` and `value`, so both are in one key: in one slot of a cluster, and gone together if they go.
//! The server compares and writes in one script:
//!
//! ```no_run
//! # async fn example(redis: &mut redis::aio::MultiplexedConnection, token: lock_core::FencingToken) -> Result<(), Box<dyn std::error::Error>> {
//! use lock_redis::fence;
//!
//! fence::set(redis, "account:7", "130", token).await?; // an older token is refused, and nothing is written
//! let (token, value) = fence::get(redis, "account:7").await?.expect("it was just written");
//! # let _ = (token, value); Ok(()) }
//! ```
//!
//! # In a script of one's own
//! [`ADMIT`] is the Lua function that compares. A script that begins with it checks before it writes anything else, and its fence must lie in the slot of its other
//! keys, by a hash tag:
//!
//! ```no_run
//! # async fn example(redis: &mut redis::aio::MultiplexedConnection, token: lock_core::FencingToken) -> redis::RedisResult<()> {
//! let take_one = redis::Script::new(&format!(
//!     "{}
//!      local newest = admit(KEYS[1], ARGV[1])
//!      if newest then return redis.error_reply('STALE ' .. newest) end
//!      return redis.call('DECRBY', KEYS[2], ARGV[2])",
//!     lock_redis::fence::ADMIT
//! ));
//! let left: i64 = take_one
//!     .key("{item:7}:fence")
//!     .key("{item:7}:stock")
//!     .arg(token.get())
//!     .arg(1)
//!     .invoke_async(redis)
//!     .await?;
//! # let _ = left; Ok(()) }
//! ```
//!
//! # What to mind
//! The fence is as durable as the server: a restart without persistence, a failover to a replica that lags behind, and an eviction forget the token together with the value. Give a fence no
//! time to live, and keep it where `maxmemory-policy` evicts nothing, or only keys with one.

use std::sync::LazyLock;

use lock_core::fence::{FenceError, StaleToken};
use lock_core::{Effect, ErrorKind, FencingToken, LockError};
use redis::aio::ConnectionLike;
use redis::{Cmd, RedisError, Value};

use crate::BACKEND;
use crate::connection::Script;
use crate::errors::{meaning_of, unexpected};

/// A Lua function for scripts of one's own: `admit(key, token)` remembers the token in the hash at `key` and answers `false`, or changes nothing and answers the newest token that it has seen.
///
/// The token is given in decimal digits, as [`FencingToken::get`] shows it.
pub const ADMIT: &str = include_str!("lua/fence.lua");

static SET: LazyLock<Script> =
    LazyLock::new(|| Script::new(concat!(include_str!("lua/fence.lua"), include_str!("lua/fence_set.lua"))));

/// Writes value and token, unless a newer token has written. One token may write often.
///
/// The user needs the rights for `EVALSHA`, `EVAL`, `HGET` and `HSET` on the key. The connection's own limits bound the time that it takes.
///
/// # Errors
/// [`FenceError::Stale`] for an older token: nothing was changed, stop. [`FenceError::Failed`] with [`ErrorKind::Foreign`] when something else than a hash stands
/// there, and with the kind of what failed else; where its effect is unknown, the same call may be made again.
///
/// # Cancel safety
/// Dropping it leaves it unknown whether the value was written.
pub async fn set(
    connection: &mut impl ConnectionLike,
    key: impl AsRef<[u8]>,
    value: impl AsRef<[u8]>,
    token: FencingToken,
) -> Result<(), FenceError> {
    let (digits, keys) = (token.to_string(), [key.as_ref()]);
    let args = [digits.as_bytes(), value.as_ref()];
    let mut answer = send(connection, &SET.command("EVALSHA", &keys, &args)).await;
    if answer.as_ref().is_err_and(|e| e.code() == Some("NOSCRIPT")) {
        answer = send(connection, &SET.command("EVAL", &keys, &args)).await;
    }
    match answer.map_err(failed)? {
        // Lua's false, by the older protocol and by the newer one.
        Value::Nil | Value::Boolean(false) => Ok(()),
        Value::BulkString(newest) => Err(StaleToken { offered: token, newest: parsed(&newest)? }.into()),
        other => Err(unexpected(&other).operation("fence").into()),
    }
}

/// The newest token and its value; `None` when nothing was written.
///
/// # Errors
/// [`FenceError::Failed`], with [`ErrorKind::Foreign`] for a key that [`set`] did not write.
///
/// # Cancel safety
/// Dropping it loses nothing.
pub async fn get(
    connection: &mut impl ConnectionLike,
    key: impl AsRef<[u8]>,
) -> Result<Option<(FencingToken, Vec<u8>)>, FenceError> {
    let mut cmd = Cmd::new();
    cmd.arg("HMGET").arg(key.as_ref()).arg("token").arg("value");
    let Value::Array(fields) = send(connection, &cmd).await.map_err(failed)? else { return Err(foreign().into()) };
    match &fields[..] {
        [Value::Nil, Value::Nil] => Ok(None),
        [Value::BulkString(token), Value::BulkString(value)] => Ok(Some((parsed(token)?, value.clone()))),
        _ => Err(foreign().into()),
    }
}

async fn send(connection: &mut impl ConnectionLike, cmd: &Cmd) -> Result<Value, RedisError> {
    connection.req_packed_command(cmd).await.and_then(Value::extract_error)
}

pub(crate) fn parsed(token: &[u8]) -> Result<FencingToken, LockError> {
    let number = std::str::from_utf8(token).ok().and_then(|digits| digits.parse().ok());
    number.map(FencingToken::new).ok_or_else(foreign)
}

fn foreign() -> LockError {
    LockError::new(ErrorKind::Foreign, "the key holds no token and value of this library")
        .backend(BACKEND)
        .operation("fence")
        .advice("choose another key")
}

fn failed(error: RedisError) -> FenceError {
    let meaning = meaning_of(&error);
    // The one script that writes reads first: the wrong type is met before anything is written.
    let effect = if meaning.kind == ErrorKind::Foreign { Effect::NotApplied } else { meaning.effect };
    let advice = if meaning.advice.is_empty() { "see the server's answer" } else { meaning.advice };
    LockError::new(meaning.kind, "the server did not take the guarded request")
        .backend(BACKEND)
        .operation("fence")
        .with_effect(effect)
        .with_retryable(meaning.retryable)
        .advice(advice)
        .source(error)
        .into()
}
