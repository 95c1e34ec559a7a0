//! One attempt and one hold, written down.

use std::time::Duration;

use futures_util::FutureExt;
use lock_core::{LockError, LockGuard, Released, Revoke};
use tokio::time::{sleep, timeout};

use super::history::{Answer, Nanos, What, nanos, span};
use super::worker::Hand;
use crate::Stop;

/// How a lock is asked for.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) name: String,
    pub(super) ttl: Duration,
    /// `None` does not wait.
    pub(super) limit: Option<Duration>,
    pub(super) renewed: bool,
    /// After so long the future is dropped.
    pub(super) cancel: Option<Duration>,
}

/// A guard with the number of its attempt.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) id: u64,
    pub(super) guard: LockGuard,
}

/// How a hold ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Release,
    Drop,
    /// Looked at until it is lost.
    Lapse,
    /// Revoked by a mark, then looked at until it is lost.
    Mark,
}

/// Looks are this far apart.
const LOOK: Duration = Duration::from_millis(1);
/// How many looks in a row are left out of the history while nothing can happen: the next one tells of them all.
const QUIET: Nanos = 5_000_000;
/// Near the end of its validity each look is written down.
const NEAR: Nanos = 20_000_000;

impl Hand {
    /// Asks for a lock, and writes down what came of it.
    pub(super) async fn ask(&mut self, request: Request) -> Result<Taken, Answer> {
        let id = self.log.attempt();
        let Request { name, ttl, limit, renewed, cancel } = request;
        let lock = self.locks.lock(&*name).ttl(ttl).auto_renew(renewed);
        self.log.write(What::Ask { id, name, ttl: span(ttl), limit: limit.map(span), renewed });
        let asking = async {
            match limit {
                None => lock.try_acquire().await,
                Some(limit) => lock.wait(limit).acquire().await.map(Some),
            }
        };
        let answer = match cancel {
            None => Some(asking.await),
            Some(after) => timeout(after, asking).await.ok(),
        };
        let at = self.log.now();
        let (answer, guard) = match answer {
            None => (Answer::Cancelled, None),
            Some(Ok(None)) => (Answer::Busy, None),
            Some(Err(error)) => (failed(&error), None),
            Some(Ok(Some(guard))) => {
                let (token, owner) = (guard.fencing_token().get(), guard.owner().to_string());
                (Answer::Granted { token, owner, ttl: span(guard.ttl()) }, Some(guard))
            }
        };
        self.log.write_at(at, What::Answer { id, answer: answer.clone() });
        let taken = Taken { id, guard: guard.ok_or(answer)? };
        self.look(&taken);
        Ok(taken)
    }

    /// Looks once, and writes it down. Whether it is held.
    pub(super) fn look(&self, taken: &Taken) -> bool {
        let (at, held, until) = self.glance(taken);
        self.note(taken, at, held, until);
        held
    }

    fn glance(&self, taken: &Taken) -> (Nanos, bool, Option<Nanos>) {
        let at = self.log.now();
        let until = taken.guard.valid_until().map(nanos);
        (at, taken.guard.is_held(), until)
    }

    fn note(&self, taken: &Taken, at: Nanos, held: bool, until: Option<Nanos>) {
        self.log.write_at(at, What::Look { id: taken.id, held, until, after: self.log.now() });
    }

    /// Holds for a while, looking again and again. Whether it is held still.
    pub(super) async fn stay(&mut self, taken: &Taken, stay: Duration) -> bool {
        let end = self.log.now().saturating_add(span(stay));
        let mut noted = self.log.now();
        loop {
            let (at, held, until) = self.glance(taken);
            let near = until.is_none_or(|until| until < at + NEAR);
            let over = at >= end;
            if !held || near || over || at >= noted + QUIET {
                noted = at;
                self.note(taken, at, held, until);
            }
            if !held || over {
                return held;
            }
            let left = Duration::from_nanos(end.saturating_sub(at));
            sleep(if near { LOOK / 5 } else { LOOK }.min(left)).await;
        }
    }

    /// Writes to the register, and looks again.
    pub(super) async fn write(&mut self, taken: &Taken) -> Result<(), Stop> {
        let at = self.log.now();
        let name = taken.guard.name().as_str().to_owned();
        let taken_in = self.pen.write(&name, taken.guard.fencing_token().get()).await?;
        self.log.write_at(at, What::Write { id: taken.id, taken: taken_in, answered: self.log.now() });
        self.look(taken);
        Ok(())
    }

    pub(super) async fn renew(&mut self, taken: &Taken) {
        let done = taken.guard.renew().await.is_ok();
        self.log.write(What::Renewed { id: taken.id, done });
        self.look(taken);
    }

    /// Looks at who holds the name, while holding it or not.
    pub(super) async fn inspect(&mut self, name: &str, own: Option<&Taken>) {
        let held = own.is_some_and(|taken| self.look(taken));
        let asked = self.log.now();
        let Ok(seen) = self.locks.inspect(name).await else { return };
        let at = self.log.now();
        let still = held && own.is_some_and(|taken| self.look(taken));
        let what = What::Seen {
            name: name.to_owned(),
            asked,
            own: own.filter(|_| still).map(|taken| taken.id),
            owner: seen.as_ref().map(|holder| holder.owner.clone()),
            token: seen.as_ref().and_then(|holder| holder.token).map(lock_core::FencingToken::get),
            state: seen.map_or("free", |holder| holder.state.as_str()).to_owned(),
        };
        self.log.write_at(at, what);
    }

    /// Revokes it by a mark.
    pub(super) async fn mark(&mut self, taken: &Taken) {
        self.look(taken);
        let (asked, token) = (self.log.now(), taken.guard.fencing_token());
        let name = taken.guard.name().as_str();
        if let Ok(Released::Released) = self.locks.revoke(name, Some(token), Revoke::Mark).await {
            self.log.write(What::Marked { id: taken.id, asked });
        }
    }

    /// Ends a hold; whether its release was confirmed.
    pub(super) async fn end(&mut self, taken: Taken, way: Way) -> bool {
        match way {
            Way::Release => {}
            Way::Drop => {
                if self.look(&taken) {
                    self.log.write(What::GaveUp { id: taken.id });
                    drop(taken);
                    return false;
                }
            }
            Way::Mark => {
                self.mark(&taken).await;
                self.stay(&taken, taken.guard.remaining() + Duration::from_millis(10)).await;
            }
            Way::Lapse => {
                self.stay(&taken, taken.guard.remaining() + Duration::from_millis(10)).await;
            }
        }
        if self.look(&taken) {
            return self.release(taken).await;
        }
        self.mourn(&taken).await;
        self.release(taken).await
    }

    /// After a loss: its reason, that it can be awaited, and that it is final.
    async fn mourn(&mut self, taken: &Taken) {
        match taken.guard.lost().now_or_never() {
            Some(reason) => self.log.write(What::Lost { id: taken.id, reason: reason.as_str().to_owned() }),
            None => self.odd("L2", "a guard is not held and its loss cannot be awaited"),
        }
        for _ in 0..3 {
            self.look(taken);
            sleep(LOOK).await;
        }
    }

    async fn release(&mut self, taken: Taken) -> bool {
        let (id, view, held) = (taken.id, taken.guard.held(), taken.guard.is_held());
        self.log.write(What::GaveUp { id });
        let answer = match taken.guard.release().await {
            Ok(Released::Released) => "released".to_owned(),
            Ok(Released::NotHeld) => "not held".to_owned(),
            Err(error) => format!("{:?}", error.kind()),
        };
        if held && answer == "released" && view.lost_reason().is_some() {
            self.odd("L3", "a clean release raised a loss");
        }
        let confirmed = answer == "released";
        self.log.write(What::Released { id, answer });
        confirmed
    }

    pub(super) fn odd(&self, rule: &str, text: impl Into<String>) {
        self.log.write(What::Odd { rule: rule.to_owned(), text: text.into() });
    }
}

fn failed(error: &LockError) -> Answer {
    Answer::Failed { kind: format!("{:?}", error.kind()), text: error.to_string() }
}
