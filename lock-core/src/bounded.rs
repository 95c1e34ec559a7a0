//! The bound on a single request.

use std::time::Duration;

use crate::{Effect, ErrorKind, LockError};

/// Waits for the answer to one request, and no longer than `limit`.
///
/// # Errors
/// The request's own error, or [`ErrorKind::Unavailable`] with an unknown effect when the limit passes.
///
/// # Cancel safety
/// As that of `answer`, which is dropped at the limit.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use std::time::Duration;
/// use lock_core::{ErrorKind, bounded};
/// let err = bounded(Duration::from_millis(5), std::future::pending::<Result<(), _>>()).await.unwrap_err();
/// assert_eq!(err.kind(), ErrorKind::Unavailable);
/// # }
/// ```
pub async fn bounded<T>(limit: Duration, answer: impl Future<Output = Result<T, LockError>>) -> Result<T, LockError> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(LockError::new(ErrorKind::Unavailable, format!("no answer within {limit:?}"))
            .with_effect(Effect::Unknown)
            .advice("check that the server is up and reachable, and that a cluster has its majority")),
    }
}
