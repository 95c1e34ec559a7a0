//! What guard, views and keeper share about one lease: whether it is held, until when, and why it was lost.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::mailbox::Mailbox;
use crate::{Clock, Deadline, FencingToken, LockName, LostReason, Owner};

/// One word tells all: the nanosecond until which the lease may be trusted, or that it ended and why. So a look by the
/// user's thread and a renewal confirmed by the keeper cannot contradict each other, and lost is final (rules M2, L1).
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) name: LockName,
    pub(crate) owner: Owner,
    pub(crate) token: FencingToken,
    pub(crate) ttl: Duration,
    pub(crate) mailbox: Mailbox,
    clock: Clock,
    word: AtomicU64,
    raised: CancellationToken,
    /// Which of guard and keeper have gone.
    gone: AtomicU8,
    /// How many guards of the manager have gone before their keepers: releases that are not confirmed yet.
    departures: Arc<AtomicIsize>,
}

const GUARD_GONE: u8 = 1;
const KEEPER_GONE: u8 = 2;

const ENDED: u64 = 1 << 63;
const RELEASED: u64 = ENDED | 0xff;

impl Hold {
    pub(crate) fn new(
        name: LockName,
        owner: Owner,
        token: FencingToken,
        ttl: Duration,
        valid_until: Deadline,
        clock: Clock,
        departures: Arc<AtomicIsize>,
    ) -> Self {
        let word = AtomicU64::new(valid_until.to_nanos());
        let (raised, gone) = (CancellationToken::new(), AtomicU8::new(0));
        Self { name, owner, token, ttl, mailbox: Mailbox::default(), clock, word, raised, gone, departures }
    }

    pub(crate) fn guard_goes(&self) {
        if self.gone.fetch_or(GUARD_GONE, Ordering::AcqRel) == 0 {
            self.departures.fetch_add(1, Ordering::AcqRel);
        }
        self.mailbox.guard_goes();
    }

    pub(crate) fn keeper_goes(&self) {
        // The guard may not have counted itself yet: then the sum is below zero for a moment.
        if self.gone.fetch_or(KEEPER_GONE, Ordering::AcqRel) == GUARD_GONE {
            self.departures.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Whether the lease is held now; latches the loss when its time has passed.
    pub(crate) fn is_held(&self) -> bool {
        self.look() & ENDED == 0
    }

    /// Why the lease was lost; `None` while it is held and after a clean release.
    pub(crate) fn lost_reason(&self) -> Option<LostReason> {
        match self.look() {
            RELEASED => None,
            word if word & ENDED != 0 => Some(LostReason::ALL[(word & 0xff) as usize]),
            _ => None,
        }
    }

    /// Until when the lease may be trusted; `None` once it has ended.
    pub(crate) fn valid_until(&self) -> Option<Deadline> {
        Some(self.look()).filter(|word| word & ENDED == 0).map(Deadline::from_nanos)
    }

    pub(crate) fn remaining(&self) -> Duration {
        self.valid_until().map_or(Duration::ZERO, |until| self.clock.until(until))
    }

    /// Moves the end of the lease. `false` when it has ended, or would already be over.
    pub(crate) fn extend(&self, valid_until: Deadline) -> bool {
        let new = valid_until.to_nanos();
        let mut word = self.look();
        while word & ENDED == 0 && new > word {
            match self.word.compare_exchange(word, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(other) => word = other,
            }
        }
        self.is_held()
    }

    /// Raises the loss, unless the lease has ended already. Answers whether it did.
    pub(crate) fn lose(&self, reason: LostReason) -> bool {
        let code = LostReason::ALL.iter().position(|r| *r == reason).unwrap_or(0) as u64;
        let won = self.end(ENDED | code);
        self.raised.cancel();
        won
    }

    /// Ends the lease without a loss (rule L3). Answers whether it was held until now.
    pub(crate) fn release(&self) -> bool {
        self.is_held() && self.end(RELEASED)
    }

    fn end(&self, ended: u64) -> bool {
        self.word.try_update(Ordering::AcqRel, Ordering::Acquire, |word| (word & ENDED == 0).then_some(ended)).is_ok()
    }

    fn look(&self) -> u64 {
        loop {
            let word = self.word.load(Ordering::Acquire);
            if word & ENDED != 0 || !self.clock.has_passed(Deadline::from_nanos(word)) {
                return word;
            }
            // `Expired` is the first of the reasons. A renewal may have been confirmed in between: then look again.
            if self.word.compare_exchange(word, ENDED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return ENDED;
            }
        }
    }
}

/// Ready when the lease is lost, at the first poll after the loss at the latest.
pub(crate) struct Lost {
    hold: Arc<Hold>,
    raised: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Lost {
    pub(crate) fn of(hold: &Arc<Hold>) -> Self {
        Self { hold: hold.clone(), raised: Box::pin(hold.raised.clone().cancelled_owned()) }
    }
}

impl Future for Lost {
    type Output = LostReason;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LostReason> {
        // Registered first, so that a loss raised between the look and the return still wakes the task.
        let raised = self.raised.as_mut().poll(cx);
        match self.hold.lost_reason() {
            Some(reason) => Poll::Ready(reason),
            // Raised, yet no reason: a clean release came first, and that is never a loss.
            None if raised.is_ready() => Poll::Pending,
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ManualClock;

    fn hold(clock: &ManualClock, span: Duration) -> Hold {
        let clock = clock.clock();
        let until = clock.now().after(span);
        let (name, owner) = (LockName::new("x").unwrap(), Owner::random().unwrap());
        Hold::new(name, owner, FencingToken::new(1), span, until, clock, Arc::default())
    }

    #[test]
    fn the_clock_alone_ends_it_and_for_good() {
        let clock = ManualClock::new();
        let hold = hold(&clock, Duration::from_secs(1));
        assert!(hold.is_held());
        clock.advance(Duration::from_millis(999));
        assert!(hold.is_held());
        assert_eq!(hold.remaining(), Duration::from_millis(1));
        clock.advance(Duration::from_millis(1));
        assert!(!hold.is_held());
        assert_eq!(hold.lost_reason(), Some(LostReason::Expired));
        assert!(!hold.extend(clock.clock().now().after(Duration::from_secs(9))), "lost is final");
        assert!(!hold.lose(LostReason::TakenOver), "the first reason stays");
        assert_eq!(hold.lost_reason(), Some(LostReason::Expired));
        assert!(!hold.release());
    }

    #[test]
    fn a_clean_release_is_no_loss_however_late_one_looks() {
        let clock = ManualClock::new();
        let hold = hold(&clock, Duration::from_secs(1));
        assert!(hold.release());
        clock.advance(Duration::from_secs(5));
        assert!(!hold.is_held());
        assert_eq!(hold.lost_reason(), None);
        assert!(!hold.lose(LostReason::Closed));
        assert_eq!(hold.lost_reason(), None);
    }

    #[test]
    fn every_reason_survives_the_word() {
        for reason in LostReason::ALL {
            let hold = hold(&ManualClock::new(), Duration::from_secs(1));
            assert!(hold.lose(reason));
            assert_eq!(hold.lost_reason(), Some(reason));
        }
    }

    #[test]
    fn an_extension_never_shortens() {
        let clock = ManualClock::new();
        let hold = hold(&clock, Duration::from_secs(5));
        assert!(hold.extend(clock.clock().now().after(Duration::from_secs(2))));
        assert_eq!(hold.remaining(), Duration::from_secs(5));
    }
}
