//! Nodes that refuse an older fencing token, in a ZooKeeper ensemble of the user's own.
//!
//! [`commit`] does the user's operations in one multi with a write to a node that holds the newest token, by that node's version:
//!
//! ```no_run
//! # async fn example(client: &zookeeper_client::Client, token: lock_core::FencingToken) -> Result<(), Box<dyn std::error::Error>> {
//! use lock_zk::fence;
//! use zookeeper_client::Acls;
//!
//! fence::create(client, "/accounts/7/fence", &Acls::creator_all()).await?; // once
//! // An older token is refused, and nothing is written.
//! fence::commit(client, "/accounts/7/fence", token, |multi| multi.add_set_data("/accounts/7", b"130", None)).await?;
//! # Ok(()) }
//! ```
//!
//! The node holds the newest token in decimal digits, and nothing before the first write. A node that was deleted forgets its token; [`commit`] refuses then, rather
//! than begin anew.

use lock_core::fence::{FenceError, StaleToken};
use lock_core::{Effect, ErrorKind, FencingToken, LockError};
use zookeeper_client::{Acls, Client, CreateMode, Error, MultiWriteError, MultiWriteResult, MultiWriter};

use crate::BACKEND;
use crate::errors;

/// How often a multi is sent again because another one came first. Each time another writer got through, so more means a crowd, not a race.
const TRIES: usize = 32;

/// Creates the fence's node, and the nodes above it, with these rights, if it is not there.
///
/// # Errors
/// [`FenceError::Failed`] with the kind of what failed; [`ErrorKind::Denied`] where the user may not create nodes there.
///
/// # Cancel safety
/// Dropping it leaves some of the nodes made.
pub async fn create(client: &Client, fence: &str, acls: &Acls<'_>) -> Result<(), FenceError> {
    client.mkdir(fence, &CreateMode::Persistent.with_acls(*acls)).await.map_err(|e| failed(e).into())
}

/// Does the operations and remembers the token, unless a newer token has done so, in one multi; answers what the operations answered.
///
/// One token may write often. `operations` adds to the multi, and is called once for each try. None of them may touch the fence, a node of its own for each lock. They are
/// done together or not at all. The session's own limits bound the time that it takes.
///
/// # Errors
/// [`FenceError::Stale`] for an older token: nothing was changed, stop. [`FenceError::Failed`] with [`ErrorKind::Config`] when the fence's node is missing or one of the
/// operations was refused, such as a set of a node that is not there, [`ErrorKind::Foreign`] when the node holds no token, [`ErrorKind::Unavailable`] after 32 lost races or without an
/// answer; where its effect is unknown, the same call may be made again if the operations may be.
///
/// # Cancel safety
/// Dropping it leaves it unknown whether the operations were done.
pub async fn commit(
    client: &Client,
    fence: &str,
    token: FencingToken,
    operations: impl Fn(&mut MultiWriter<'_>) -> Result<(), Error>,
) -> Result<Vec<MultiWriteResult>, FenceError> {
    for _ in 0..TRIES {
        // What a server that lags behind says of the version is refused by the leader; what it says of a newer token stays true.
        let (data, stat) = match client.get_data(fence).await {
            Err(Error::NoNode) => return Err(missing(fence).into()),
            read => read.map_err(failed)?,
        };
        if let Some(newest) = parsed(&data)?.filter(|newest| *newest > token) {
            return Err(StaleToken { offered: token, newest }.into());
        }
        let mut multi = client.new_multi_writer();
        multi.add_set_data(fence, token.to_string().as_bytes(), Some(stat.version)).map_err(failed)?;
        operations(&mut multi).map_err(failed)?;
        match multi.commit().await {
            Ok(mut results) => return Ok(results.split_off(1.min(results.len()))),
            Err(MultiWriteError::OperationFailed { index: 0, source: Error::BadVersion }) => {
                client.sync(fence).await.map_err(failed)?;
            }
            Err(MultiWriteError::OperationFailed { index: 0, source: Error::NoNode }) => {
                return Err(missing(fence).into());
            }
            Err(MultiWriteError::OperationFailed { index, source }) if index > 0 => {
                return Err(refused(index, source).into());
            }
            Err(error) => return Err(failed(error.into()).into()),
        }
    }
    let crowd = LockError::new(ErrorKind::Unavailable, format!("other writers came first {TRIES} times"));
    Err(named(crowd.with_effect(Effect::NotApplied).advice("try again, and let one holder write one thing at a time"))
        .into())
}

/// The token in a node; `None` before the first one.
pub(crate) fn parsed(data: &[u8]) -> Result<Option<FencingToken>, LockError> {
    if data.is_empty() {
        return Ok(None);
    }
    let number = std::str::from_utf8(data).ok().and_then(|digits| digits.parse().ok());
    number.map(|number| Some(FencingToken::new(number))).ok_or_else(|| {
        named(LockError::new(ErrorKind::Foreign, "the fence's node holds no token"))
            .advice("choose another node for the fence")
    })
}

fn missing(fence: &str) -> LockError {
    named(LockError::new(ErrorKind::Config, format!("the fence's node {fence} is missing")))
        .advice("create it by fence::create; if it was there before, find out who removes it")
}

fn refused(index: usize, error: Error) -> LockError {
    named(LockError::new(ErrorKind::Config, format!("operation {index} was refused, so that none was done")))
        .source(error.to_string())
        .advice("check its node and its version")
}

fn failed(error: Error) -> LockError {
    named(errors::failed(error))
}

fn named(error: LockError) -> LockError {
    error.backend(BACKEND).operation("fence")
}
