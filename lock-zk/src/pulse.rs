//! From when on the leader surely knows that a session lives.

use std::collections::VecDeque;
use std::time::Duration;

use lock_core::Deadline;

/// What the answers to a session's writes have proved so far.
///
/// The server that a client speaks to notes each request as a sign of life, but it is the leader that ends sessions, and it learns of such
/// signs only when it next pings that server. A server that was cut off from its leader goes on answering reads and pings. So a
/// sign of life counts once a *later* request, sent at least one such ping after it, was answered by way of the leader. A server
/// without an ensemble is its own leader: there each sign counts at once.
#[derive(Debug)]
pub(crate) struct Pulse {
    /// The last sign of life that surely reached the leader.
    proved: Deadline,
    /// Signs that were answered since, and are not proved.
    answered: VecDeque<Deadline>,
    /// How far apart two signs must be.
    gap: Duration,
    alone: Option<bool>,
}

/// Signs closer together than this part of the gap are noted as one.
const GRAIN: u32 = 8;

impl Pulse {
    /// A session that was opened by a request sent at `opened`: the leader itself opens sessions.
    pub(crate) fn new(opened: Deadline, gap: Duration) -> Self {
        Self { proved: opened, answered: VecDeque::new(), gap, alone: None }
    }

    /// Whether the server is one without an ensemble; `None` where that must be asked.
    pub(crate) fn set_alone(&mut self, alone: Option<bool>) {
        self.alone = alone;
    }

    pub(crate) fn alone(&self) -> Option<bool> {
        self.alone
    }

    /// False in doubt.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone == Some(true)
    }

    /// A request that the leader takes part in, sent at that moment, was answered.
    pub(crate) fn answer(&mut self, sent: Deadline) {
        if self.is_alone() {
            self.proved = self.proved.max(sent);
        }
        while self.answered.front().is_some_and(|sign| sent.saturating_since(*sign) >= self.gap) {
            self.proved = self.proved.max(self.answered.pop_front().unwrap_or(sent));
        }
        if self.answered.back().is_none_or(|last| sent.saturating_since(*last) * GRAIN >= self.gap) {
            self.answered.push_back(sent);
        }
    }

    /// The last sign of life that surely reached the leader.
    pub(crate) fn proved(&self) -> Deadline {
        self.proved
    }

    /// When a further request can prove more than the ones before.
    pub(crate) fn ripe(&self) -> Deadline {
        match self.answered.front() {
            Some(first) if !self.is_alone() => first.after(self.gap),
            _ => Deadline::PAST,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Deadline {
        Deadline::PAST.after(Duration::from_millis(ms))
    }

    fn pulse() -> Pulse {
        Pulse::new(at(100), Duration::from_millis(1000))
    }

    #[test]
    fn a_sign_counts_once_a_later_one_is_answered() {
        let mut pulse = pulse();
        pulse.answer(at(3000));
        assert_eq!(pulse.proved(), at(100));
        assert_eq!(pulse.ripe(), at(4000));
        pulse.answer(at(3900));
        assert_eq!(pulse.proved(), at(100), "too soon: the leader may not have pinged in between");
        pulse.answer(at(4000));
        assert_eq!(pulse.proved(), at(3000));
        // 4000 was too near to 3900 to be noted.
        pulse.answer(at(9000));
        assert_eq!(pulse.proved(), at(3900));
    }

    #[test]
    fn alone_a_sign_counts_at_once() {
        let mut pulse = pulse();
        pulse.set_alone(Some(true));
        pulse.answer(at(3000));
        assert_eq!((pulse.proved(), pulse.ripe()), (at(3000), Deadline::PAST));
        pulse.set_alone(None);
        pulse.answer(at(3500));
        assert_eq!(pulse.proved(), at(3000));
    }

    #[test]
    fn many_signs_take_little_room() {
        let mut pulse = pulse();
        for ms in 0..10_000 {
            pulse.answer(at(1000 + ms));
            assert!(pulse.answered.len() <= GRAIN as usize + 2);
        }
        assert!(pulse.proved() >= at(9500), "{:?}", pulse.proved());
    }
}
