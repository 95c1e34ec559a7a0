//! From the request to the grant.

use std::time::Duration;

use super::keep::WAKE;
use super::{Keeper, Reply, abandon};
use crate::retry::Backoff;
use crate::{Acquisition, Deadline, Effect, ErrorKind, Holder, Lease, LockError, Wait};

/// How long past its limit a backend may take to say so, before the user is answered without it.
const GRACE: Duration = Duration::from_millis(200);

/// How many grants in a row may come too late before the user is told that the way to the backend is too slow.
const LATE_GRANTS: u32 = 3;

enum Outcome {
    Granted(Box<dyn Lease>),
    Busy(Option<Holder>),
    Failed(LockError),
}

impl Keeper {
    /// Asks until the name is granted, the wait is over or an error stays. What was in doubt is cleaned up after the user has
    /// been answered.
    pub(super) async fn obtain(&self, mut reply: Reply) -> Option<(Box<dyn Lease>, Reply)> {
        let mut doubt = false;
        let outcome = self.try_until_over(&mut reply, &mut doubt).await;
        let answer = match outcome {
            Outcome::Granted(lease) => return Some((lease, reply)),
            Outcome::Busy(_) if self.request.wait == Wait::Never => Ok(None),
            Outcome::Busy(holder) => Err(self.timed_out(holder)),
            Outcome::Failed(error) => Err(self.in_context(error)),
        };
        // Nobody waits for it any more where the send fails.
        let _ = reply.send(answer.map_err(|e| if self.shared.closing.is_cancelled() { self.closed() } else { e }));
        if doubt {
            abandon(&self.shared, &self.request.name, &self.request.owner, self.request.ttl.get()).await;
        }
        None
    }

    async fn try_until_over(&self, reply: &mut Reply, doubt: &mut bool) -> Outcome {
        let request = &self.request;
        let limit = self.limit();
        let mut backoff = Backoff::default();
        let mut late = 0;
        let mut earlier = None;
        loop {
            let error = match self.attempt(reply, limit, doubt, earlier.take()).await {
                Ok(Acquisition::Granted(lease)) if !request.clock.has_passed(lease.valid_until().before(WAKE)) => {
                    return Outcome::Granted(lease);
                }
                Ok(Acquisition::Granted(_)) => {
                    // The entry may live on: the next request recognises it, or it is abandoned at the end.
                    late += 1;
                    *doubt = true;
                    LockError::new(ErrorKind::Unavailable, "the grant arrived after its time was over")
                        .with_retryable(late < LATE_GRANTS)
                        .with_effect(Effect::NotApplied)
                        .advice("use a longer TTL, or look for what delays the way to the backend")
                }
                Ok(Acquisition::Busy(holder)) => return Outcome::Busy(holder),
                Err(error) => {
                    *doubt |= error.effect() != Effect::NotApplied || request.wait != Wait::Never;
                    error
                }
            };
            let pause = backoff.next();
            let over = reply.is_closed() || self.shared.closing.is_cancelled() || request.cancel.is_cancelled();
            if over || !error.is_retryable() || request.clock.until(limit) <= pause {
                return Outcome::Failed(error);
            }
            tracing::debug!(lock = %request.name, %error, "acquire is tried again");
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = reply.closed() => return Outcome::Failed(error),
                () = self.shared.closing.cancelled() => return Outcome::Failed(error),
            }
            earlier = Some(error);
        }
    }

    /// One call of the backend. It is told to give up when nobody waits any more, and left alone when it does not listen.
    ///
    /// What an earlier call answered says more than that the last one had no time.
    async fn attempt(
        &self,
        reply: &mut Reply,
        limit: Deadline,
        doubt: &mut bool,
        earlier: Option<LockError>,
    ) -> Result<Acquisition, LockError> {
        let request = &self.request;
        let mut call = self.shared.backend.acquire(request);
        let abandoned = tokio::select! {
            biased;
            answer = &mut call => return answer,
            () = reply.closed() => true,
            () = self.shared.closing.cancelled() => true,
            () = tokio::time::sleep(request.clock.until(limit).saturating_add(GRACE)) => false,
        };
        request.cancel.cancel();
        if abandoned && let Ok(answer) = tokio::time::timeout(request.operation_timeout * 2, &mut call).await {
            return answer;
        }
        *doubt = true;
        Err(earlier.unwrap_or_else(|| {
            LockError::new(ErrorKind::Unavailable, "no answer within the time to wait")
                .advice("check that the server is up and reachable")
        }))
    }

    /// When the user must be answered.
    fn limit(&self) -> Deadline {
        match self.request.wait {
            Wait::Never => self.request.clock.now().after(self.request.operation_timeout.saturating_sub(GRACE)),
            Wait::Until(deadline) => deadline,
            Wait::Forever => Deadline::NEVER,
        }
    }

    fn timed_out(&self, holder: Option<Holder>) -> LockError {
        let error = LockError::new(ErrorKind::Timeout, "another held it until the wait limit");
        self.in_context(error.with_holder(holder).advice("try again, or wait longer"))
    }

    fn closed(&self) -> LockError {
        self.in_context(LockError::new(ErrorKind::Closed, "the lock manager was closed").advice("connect anew"))
    }

    pub(super) fn in_context(&self, error: LockError) -> LockError {
        error.backend(self.shared.backend.capabilities().backend).operation("acquire").name(&self.request.name)
    }
}
