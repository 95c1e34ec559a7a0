//! From when on the leader surely knows that a session lives.

use std::collections::VecDeque;
use std::time::Duration;

use lock_core::Deadline;

/// What the answers to a session's requests have proved so far.
///
/// The server that a client speaks to notes each request as a sign of life, but it is the leader that ends sessions, and it learns of such
/// signs only when it next pings that server. A server that was cut off from its leader goes on answering reads and pings; and a leader that
/// was cut off or stopped goes on answering `sync` for a while. So a sign of life counts once a *later* write, sent at least one such
/// ping after it, was answered: a majority took part in that. A server without an ensemble is its own leader: there each sign counts at once.
#[derive(Debug)]
pub(crate) struct Pulse {
    /// The last sign of life that surely reached the leader.
    proved: Deadline,
    /// Signs that are not proved.
    signs: VecDeque<Sign>,
    tempo: Tempo,
    timeout: Duration,
    alone: Option<bool>,
}

/// A request that was answered.
#[derive(Clone, Copy, Debug)]
struct Sign {
    sent: Deadline,
    answered: Deadline,
}

/// How often the leader asks its followers whom they have heard of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tempo {
    /// Between two such pings.
    ping: Duration,
    /// How long after a sign a write proves it.
    pub(crate) gap: Duration,
}

impl Tempo {
    /// The leader pings twice in a tick. A busy one is late at times.
    pub(crate) fn of_tick(tick: Duration) -> Self {
        Self { ping: tick / 2, gap: (tick * 2 / 3).max(tick / 2 + Duration::from_millis(50)) }
    }
}

/// Signs closer together than this part of the gap are noted as one.
const GRAIN: u32 = 8;

impl Pulse {
    /// A session that was opened by a request sent at `opened`: the leader itself opens sessions.
    pub(crate) fn new(opened: Deadline, timeout: Duration, tempo: Tempo) -> Self {
        Self { proved: opened, signs: VecDeque::new(), tempo, timeout, alone: None }
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

    /// A request, sent at that moment, was answered now.
    pub(crate) fn sign(&mut self, sent: Deadline, now: Deadline) {
        if self.is_alone() {
            self.proved = self.proved.max(sent);
            return;
        }
        if self.signs.back().is_none_or(|last| sent.saturating_since(last.sent) * GRAIN >= self.tempo.gap) {
            self.signs.push_back(Sign { sent, answered: now });
            // More than a few gaps' worth stand here only while nothing can be proved.
            self.signs.drain(..self.signs.len().saturating_sub(4 * GRAIN as usize));
        }
    }

    /// A write, sent at that moment, was answered now.
    pub(crate) fn write(&mut self, sent: Deadline, now: Deadline) {
        // A leader that was stopped may have the session's end before it and its next ping behind that: then nothing is proved any more.
        let in_time = now.saturating_since(self.proved) + self.tempo.ping < self.timeout;
        while in_time && self.signs.front().is_some_and(|sign| sent.saturating_since(sign.answered) >= self.tempo.gap) {
            self.proved = self.signs.pop_front().map_or(self.proved, |sign| sign.sent.max(self.proved));
        }
        self.sign(sent, now);
    }

    /// The last sign of life that surely reached the leader.
    pub(crate) fn proved(&self) -> Deadline {
        self.proved
    }

    /// How long after a sign that was answered now a write should be sent. Where a renewal has no time to wait so long, the write proves an earlier
    /// sign, as soon as it can.
    pub(crate) fn pause(&self, now: Deadline) -> Duration {
        // A renewal may take a sixth of the TTL.
        if self.tempo.gap * 8 <= self.timeout {
            return self.tempo.gap;
        }
        let ripe = self.signs.front().map_or(now, |sign| sign.answered.after(self.tempo.gap));
        ripe.saturating_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Deadline {
        Deadline::PAST.after(Duration::from_millis(ms))
    }

    /// Opened at 100, with 15 s and a gap of one second.
    fn pulse() -> Pulse {
        Pulse::new(at(100), Duration::from_secs(15), Tempo::of_tick(Duration::from_millis(1500)))
    }

    #[test]
    fn a_sign_counts_once_a_later_write_is_answered() {
        let mut pulse = pulse();
        pulse.sign(at(3000), at(3010));
        pulse.sign(at(3500), at(3510));
        assert_eq!(pulse.proved(), at(100), "reads prove nothing");
        pulse.write(at(4000), at(4020));
        assert_eq!(pulse.proved(), at(100), "too soon after the answer: the leader may not have pinged in between");
        pulse.write(at(4010), at(4020));
        assert_eq!(pulse.proved(), at(3000));
        // 4010 was too near to 4000 to be noted.
        pulse.write(at(9000), at(9010));
        assert_eq!(pulse.proved(), at(4000));
    }

    #[test]
    fn a_proof_that_comes_a_ping_before_the_end_is_none() {
        let mut pulse = pulse();
        pulse.sign(at(13_000), at(13_001));
        pulse.write(at(14_300), at(14_350));
        assert_eq!(pulse.proved(), at(100));
        let mut pulse = self::pulse();
        pulse.sign(at(13_000), at(13_001));
        pulse.write(at(14_300), at(14_349));
        assert_eq!(pulse.proved(), at(13_000));
    }

    #[test]
    fn alone_a_sign_counts_at_once() {
        let mut pulse = pulse();
        pulse.set_alone(Some(true));
        pulse.sign(at(3000), at(3010));
        assert_eq!(pulse.proved(), at(3000));
        pulse.set_alone(None);
        pulse.sign(at(3500), at(3510));
        assert_eq!(pulse.proved(), at(3000));
    }

    #[test]
    fn a_renewal_waits_for_its_own_sign_only_where_it_has_the_time() {
        let mut pulse = pulse();
        assert_eq!(pulse.pause(at(5000)), Duration::from_secs(1));
        pulse.timeout = Duration::from_secs(7);
        assert_eq!(pulse.pause(at(5000)), Duration::ZERO);
        pulse.sign(at(4000), at(4400));
        pulse.sign(at(5000), at(5000));
        assert_eq!(pulse.pause(at(5000)), Duration::from_millis(400));
        assert_eq!(pulse.pause(at(6000)), Duration::ZERO);
    }

    #[test]
    fn many_signs_take_little_room() {
        let mut pulse = pulse();
        for ms in 0..10_000 {
            pulse.write(at(1000 + ms), at(1000 + ms));
            assert!(pulse.signs.len() <= GRAIN as usize + 2);
        }
        assert!(pulse.proved() >= at(9500), "{:?}", pulse.proved());
    }
}
