//! Keys that refuse an older fencing token, in an etcd cluster of the user's own.
//!
//! [`commit`] runs the user's operations in one transaction with the check, which compares a key that holds the newest token:
//!
//! ```no_run
//! # async fn example(client: &etcd_client::Client, token: lock_core::FencingToken) -> Result<(), Box<dyn std::error::Error>> {
//! use etcd_client::TxnOp;
//! use lock_etcd::fence;
//!
//! let write = TxnOp::put("accounts/7", "130", None);
//! fence::commit(client, "fences/accounts/7", token, [write]).await?; // an older token is refused, and nothing is written
//! # Ok(()) }
//! ```
//!
//! # In a transaction of one's own
//! The fence's value is [`text`] of its token: 20 digits, which compare as the numbers do. So `Compare::value(fence, CompareOp::Less, text(next))`, with `next` the token plus
//! one, holds where no newer token has written. A comparison of a value fails where there is no key yet: put `text` of token 0 there first.

use etcd_client::{Client, Compare, CompareOp, Error, Txn, TxnOp, TxnOpResponse};
use lock_core::fence::{FenceError, StaleToken};
use lock_core::{ErrorKind, FencingToken, LockError};

use crate::BACKEND;
use crate::errors::{meaning_of, unexpected};

/// The fence's value for a token: its decimal digits, 20 of them, so that texts compare as the numbers do.
///
/// ```
/// use lock_core::FencingToken;
/// use lock_etcd::fence::text;
/// assert_eq!(text(FencingToken::new(42)), "00000000000000000042");
/// assert!(text(FencingToken::new(9)) < text(FencingToken::new(10)));
/// ```
pub fn text(token: FencingToken) -> String {
    format!("{:020}", token.get())
}

/// Runs the operations and remembers the token, unless a newer token has done so, in one transaction; answers what the operations answered.
///
/// One token may write often. The fence is a key of its own for each lock, on no lease, and none of the operations may touch it. They are on the server together or not at
/// all. There is no race to be lost: the first write, to a fence that is not there, is part of the same transaction. The client's own limits bound the time that it takes.
///
/// # Errors
/// [`FenceError::Stale`] for an older token: nothing was changed, stop. [`FenceError::Failed`] with [`ErrorKind::Foreign`] when the fence holds no token, and with the
/// kind of what failed else; where its effect is unknown, the same call may be made again if the operations may be.
///
/// # Cancel safety
/// Dropping it leaves it unknown whether the operations were done.
pub async fn commit(
    client: &Client,
    fence: impl Into<Vec<u8>>,
    token: FencingToken,
    operations: impl IntoIterator<Item = TxnOp>,
) -> Result<Vec<TxnOpResponse>, FenceError> {
    let fence = fence.into();
    let mut writes = vec![TxnOp::put(fence.clone(), text(token), None)];
    writes.extend(operations);
    // The least text above the token's, which exists for the greatest token, too.
    let bound = text(token) + "\0";
    let first = Txn::new()
        .when([Compare::version(fence.clone(), CompareOp::Equal, 0)])
        .and_then(writes.clone())
        .or_else([TxnOp::get(fence.clone(), None)]);
    let txn = Txn::new()
        // What is no text of a token sorts outside, unless it begins with as many noughts as one, and is then met by the read.
        .when([
            Compare::value(fence.clone(), CompareOp::Greater, "0000000000000000000"),
            Compare::value(fence, CompareOp::Less, bound),
        ])
        .and_then(writes)
        .or_else([TxnOp::txn(first)]);
    let answer = client.kv_client().txn(txn).await.map_err(failed)?;
    let answer = if answer.succeeded() {
        answer
    } else {
        match answer.op_responses().pop() {
            Some(TxnOpResponse::Txn(first)) => first,
            _ => return Err(unexpected("a transaction within a transaction").into()),
        }
    };
    let mut answers = answer.op_responses();
    if answer.succeeded() {
        return Ok(answers.split_off(1.min(answers.len())));
    }
    let Some(TxnOpResponse::Get(found)) = answers.pop() else { return Err(unexpected("the fence").into()) };
    let newest = found.kvs().first().and_then(|kv| parsed(kv.value()));
    match newest {
        Some(newest) if newest > token => Err(StaleToken { offered: token, newest }.into()),
        _ => Err(LockError::new(ErrorKind::Foreign, "the fence's key holds no token of this library")
            .backend(BACKEND)
            .operation("fence")
            .advice("choose another key for the fence")
            .into()),
    }
}

pub(crate) fn parsed(value: &[u8]) -> Option<FencingToken> {
    let digits = std::str::from_utf8(value).ok().filter(|digits| digits.len() == 20)?;
    digits.parse().ok().map(FencingToken::new)
}

fn failed(error: Error) -> FenceError {
    let meaning = meaning_of(&error);
    let advice = if meaning.advice.is_empty() { "see the server's answer" } else { meaning.advice };
    LockError::new(meaning.kind, "the cluster did not take the guarded transaction")
        .backend(BACKEND)
        .operation("fence")
        .with_effect(meaning.effect)
        .with_retryable(meaning.retryable)
        .advice(advice)
        .source(error)
        .into()
}
