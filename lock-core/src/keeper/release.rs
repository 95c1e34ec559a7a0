//! From the end of the hold to the confirmed release.

use tokio::sync::oneshot;

use super::Keeper;
use crate::retry::Backoff;
use crate::{Deadline, Lease, LockError, Released};

/// Where the answer to `release()` goes; `None` when the guard was dropped.
pub(super) type ReleaseReply = Option<oneshot::Sender<Result<Released, LockError>>>;

impl Keeper {
    /// Releases until it is confirmed or the TTL has run out (rule O2). Whoever waits is answered after one operation time-out
    /// at the latest; the attempts go on.
    pub(super) async fn release(&self, mut lease: Box<dyn Lease>, mut reply: ReleaseReply, last_reply: Deadline) {
        let clock = &self.request.clock;
        let answer_by = clock.now().after(self.request.operation_timeout);
        let lease_end = last_reply.after(lease.effective_ttl());
        let mut backoff = Backoff::default();
        loop {
            let error = match crate::bounded(self.request.operation_timeout, lease.release()).await {
                Ok(released) => {
                    if let Some(reply) = reply.take() {
                        let _ = reply.send(Ok(released));
                    }
                    return;
                }
                Err(error) => error.backend(self.backend()).operation("release").name(&self.request.name),
            };
            let over = clock.has_passed(lease_end);
            if (over || !error.is_retryable() || clock.has_passed(answer_by))
                && let Some(reply) = reply.take()
            {
                let left = clock.until(lease_end);
                let error = error.clone().advice(format!("it is tried again until its time runs out in {left:.1?}"));
                let _ = reply.send(Err(error));
            }
            if over {
                tracing::warn!(lock = %self.request.name, %error, "a release was not confirmed within the TTL");
                return;
            }
            backoff.sleep().await;
        }
    }
}
