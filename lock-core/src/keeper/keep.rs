//! From the grant to its end: renewing, watching for loss, obeying the guard.

use std::pin::Pin;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{oneshot, watch};
use tokio::time::Sleep;

use super::Keeper;
use super::release::ReleaseReply;
use crate::hold::Hold;
use crate::mailbox::{Command, Mailbox};
use crate::retry::Backoff;
use crate::{Clock, Deadline, ErrorKind, Lease, LockError, LostReason, Released, Renewal, telemetry};

/// How long before the end of validity the loss is raised, so that whoever waits for it is awake in time (rule L2).
/// Timers tick in milliseconds.
pub(super) const WAKE: Duration = Duration::from_millis(2);

/// No renewal is cut shorter than this, however short the TTL.
const LEAST_LIMIT: Duration = Duration::from_millis(5);

type RenewReply = oneshot::Sender<Result<(), LockError>>;

/// What the keeper is told while it holds.
enum Event {
    /// The guard was dropped.
    Dropped,
    Release(ReleaseReply),
    Renew(RenewReply),
    Lost(LostReason),
    /// A timer rang, or the clock jumped: look at the time again.
    Time,
}

/// All that can interrupt the keeper, in one place, so that it is watched during a renewal as well as between two.
struct Watch<'a> {
    inbox: &'a Mailbox,
    guard_alive: bool,
    loss: BoxFuture<'static, LostReason>,
    alarms: watch::Receiver<u64>,
    closing: &'a tokio_util::sync::CancellationToken,
    timer: Pin<Box<Sleep>>,
    clock: &'a Clock,
}

impl Watch<'_> {
    /// The next thing that happens, at `wake_at` at the latest. Dropping it loses nothing.
    async fn event(&mut self, wake_at: Deadline) -> Event {
        let now = tokio::time::Instant::now();
        // A sleep of more than a month is as good as none; the jump watch and the next event set it anew.
        let span = self.clock.until(wake_at).min(Duration::from_secs(30 * 24 * 60 * 60));
        if self.timer.deadline() != now + span {
            self.timer.as_mut().reset(now + span);
        }
        tokio::select! {
            biased;
            reason = &mut self.loss => Event::Lost(reason),
            command = self.inbox.next(), if self.guard_alive => match command {
                None => Event::Dropped,
                Some(Command::Release(reply)) => Event::Release(Some(reply)),
                Some(Command::Renew(reply)) => Event::Renew(reply),
            },
            // An error means that the manager is gone; timers still ring.
            Ok(()) = self.alarms.changed() => match self.closing.is_cancelled() {
                true => Event::Lost(LostReason::Closed),
                false => Event::Time,
            },
            () = self.timer.as_mut() => Event::Time,
        }
    }
}

/// Where the keeper stands between two events.
struct Course {
    granted: Deadline,
    last_reply: Deadline,
    renew_at: Deadline,
    backoff: Backoff,
    end_hold_at: Deadline,
    /// The guard is gone, but the least hold may not be over: release then, and answer there.
    leaving: Option<(Deadline, ReleaseReply)>,
}

impl Course {
    /// Until when the lease may be trusted. While the guard lives its own word counts, which the user's thread may have ended. A release ends it,
    /// too, a moment before the keeper is told: that is no loss (rule L3).
    fn valid_until(&self, hold: &Hold, lease: &dyn Lease) -> Deadline {
        match self.leaving {
            None if hold.lost_reason().is_some() => Deadline::PAST,
            None => hold.valid_until().unwrap_or_else(|| lease.valid_until()),
            Some(_) => lease.valid_until(),
        }
    }
}

impl Keeper {
    pub(super) async fn keep(&self, mut lease: Box<dyn Lease>, hold: &Hold) {
        let clock = &self.request.clock;
        let granted = clock.now();
        let mut watch = Watch {
            inbox: &hold.mailbox,
            guard_alive: true,
            loss: lease.loss(),
            alarms: self.shared.alarms.subscribe(),
            closing: &self.shared.closing,
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            clock,
        };
        if watch.closing.is_cancelled() {
            // It was, before this could be told of it.
            watch.alarms.mark_changed();
        }
        let mut course = Course {
            granted,
            last_reply: granted,
            renew_at: self.next_renewal(lease.as_ref()),
            backoff: self.renewal_backoff(),
            end_hold_at: self.plan.max_hold.map_or(Deadline::NEVER, |span| granted.after(span)),
            leaving: None,
        };
        let reason = loop {
            let now = clock.now();
            let leave_at = course.leaving.as_ref().map_or(Deadline::NEVER, |(at, _)| *at);
            let raise_at = course.valid_until(hold, lease.as_ref()).before(WAKE);
            if now >= leave_at {
                break None;
            }
            if now >= raise_at {
                break Some(LostReason::Expired);
            }
            if now >= course.end_hold_at {
                break Some(LostReason::MaxHold);
            }
            let event = if now >= course.renew_at {
                // Boxed, as below: ten thousand locks would have the room for it all the time, and need it a hundredth of it.
                Box::pin(self.renew(&mut lease, hold, &mut watch, &mut course, Vec::new())).await
            } else {
                watch.event(course.renew_at.min(raise_at).min(course.end_hold_at).min(leave_at)).await
            };
            let event = match event {
                Event::Renew(asked) => {
                    Box::pin(self.renew(&mut lease, hold, &mut watch, &mut course, vec![asked])).await
                }
                event => event,
            };
            match event {
                Event::Time | Event::Renew(_) => {}
                Event::Lost(reason) => break Some(reason),
                Event::Dropped => self.leave(hold, &mut watch, &mut course, None),
                Event::Release(reply) => self.leave(hold, &mut watch, &mut course, reply),
            }
        };
        if let Some(reason) = reason {
            self.lost(hold, reason, watch.guard_alive);
        }
        let reply = match course.leaving.take() {
            Some((_, reply)) => reply,
            None => self.outlive(&mut watch, hold, course.last_reply.after(lease.effective_ttl())).await,
        };
        Box::pin(self.release(lease, reply, course.last_reply)).await;
        // A guard that outlived its lease may have spoken meanwhile; from here on it is told that nobody listens.
        for command in hold.mailbox.close() {
            match command {
                Command::Release(reply) => drop(reply.send(Ok(Released::NotHeld))),
                Command::Renew(reply) => {
                    drop(reply.send(Err(self.lost_error(hold.lost_reason().unwrap_or(LostReason::Expired)))))
                }
            }
        }
    }

    /// The guard is gone: the entry follows as soon as the least hold is over.
    fn leave(&self, hold: &Hold, watch: &mut Watch<'_>, course: &mut Course, reply: ReleaseReply) {
        hold.release();
        watch.guard_alive = false;
        course.end_hold_at = Deadline::NEVER;
        course.leaving = Some((course.granted.after(self.plan.min_hold), reply));
    }

    /// One renewal. A guard that goes meanwhile waits for its answer: a renewal cut short would look like a server that is slow.
    async fn renew(
        &self,
        lease: &mut Box<dyn Lease>,
        hold: &Hold,
        watch: &mut Watch<'_>,
        course: &mut Course,
        mut asked: Vec<RenewReply>,
    ) -> Event {
        let clock = &self.request.clock;
        let ttl = lease.effective_ttl();
        let give_up_at = course.valid_until(hold, lease.as_ref()).before(WAKE).min(course.end_hold_at);
        let limit = self.request.operation_timeout.min(ttl / 6).max(LEAST_LIMIT);
        telemetry::renewing(self.backend(), clock.until(lease.valid_until()));
        let mut event = Event::Time;
        let answer = {
            let mut call = std::pin::pin!(crate::bounded(limit, lease.renew()));
            loop {
                tokio::select! {
                    biased;
                    now = watch.event(give_up_at) => match now {
                        Event::Renew(reply) => asked.push(reply),
                        Event::Dropped | Event::Release(_) => {
                            hold.release();
                            watch.guard_alive = false;
                            event = now;
                        }
                        Event::Time if clock.has_passed(give_up_at) => break None,
                        Event::Time => {}
                        Event::Lost(reason) => {
                            event = Event::Lost(reason);
                            break None;
                        }
                    },
                    answer = &mut call => break Some(answer),
                }
            }
        };
        let failure = match answer {
            // The loop above finds the loss by the clock.
            None => Some(self.lost_error(LostReason::Expired)),
            Some(Ok(Renewal::Renewed)) => {
                course.last_reply = clock.now();
                course.backoff = self.renewal_backoff();
                course.renew_at = self.next_renewal(lease.as_ref());
                let held = hold.extend(lease.valid_until());
                (!held).then(|| self.lost_error(LostReason::Expired))
            }
            Some(Ok(Renewal::Lost(reason))) => {
                if !matches!(event, Event::Dropped | Event::Release(_)) {
                    event = Event::Lost(reason);
                }
                Some(self.lost_error(reason))
            }
            Some(Err(error)) => {
                tracing::debug!(lock = %self.request.name, %error, "a renewal failed and is tried again");
                if self.plan.auto_renew {
                    course.renew_at = clock.now().after(course.backoff.next());
                }
                Some(error.backend(self.backend()).operation("renew").name(&self.request.name))
            }
        };
        for reply in asked {
            let _ = reply.send(failure.clone().map_or(Ok(()), Err));
        }
        event
    }

    /// After a loss nothing is removed under the holder's feet: waits until the guard is gone or the whole TTL has passed
    /// since the last reply (rule L6).
    async fn outlive(&self, watch: &mut Watch<'_>, hold: &Hold, lease_end: Deadline) -> ReleaseReply {
        loop {
            tokio::select! {
                command = watch.inbox.next() => match command {
                    None => return None,
                    Some(Command::Release(reply)) => return Some(reply),
                    Some(Command::Renew(reply)) => {
                        let _ = reply.send(Err(self.lost_error(hold.lost_reason().unwrap_or(LostReason::Expired))));
                    }
                },
                () = tokio::time::sleep(watch.clock.until(lease_end)) => return None,
                Ok(()) = watch.alarms.changed() => {}
            }
        }
    }

    fn lost(&self, hold: &Hold, reason: LostReason, guard_alive: bool) {
        hold.lose(reason);
        if guard_alive {
            let reason = hold.lost_reason().unwrap_or(reason);
            tracing::warn!(lock = %self.request.name, token = %hold.token, %reason, "a lock was lost");
            telemetry::lost(self.backend(), reason);
        }
    }

    pub(super) fn lost_error(&self, reason: LostReason) -> LockError {
        LockError::new(ErrorKind::Lost, format!("the lock was lost: {reason}"))
            .with_lost_reason(reason)
            .backend(self.backend())
            .operation("renew")
            .name(&self.request.name)
            .advice("stop what it guarded and acquire anew")
    }

    pub(super) fn backend(&self) -> &'static str {
        self.shared.backend.capabilities().backend
    }

    /// A third of the TTL after the send of the last confirmed request, or up to a tenth of that earlier: at the next of the moments at which this
    /// manager renews, so that a backend can renew many locks with one request.
    fn next_renewal(&self, lease: &dyn Lease) -> Deadline {
        if !self.plan.auto_renew {
            return Deadline::NEVER;
        }
        let (ttl, third) = (lease.effective_ttl(), lease.effective_ttl() / 3);
        let latest = Deadline::sent_at(lease.valid_until(), ttl).after(third);
        self.shared.rhythm.at_or_before(latest, third / 10)
    }

    fn renewal_backoff(&self) -> Backoff {
        let ttl = self.request.ttl.get();
        let least = Duration::from_millis(1);
        Backoff::new((ttl / 60).clamp(least, Backoff::LAST), (ttl / 12).clamp(least, Duration::from_secs(1)))
    }
}
