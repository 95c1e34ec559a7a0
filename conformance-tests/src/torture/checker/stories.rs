//! Histories made by hand, for the checker's tests.

use super::{Finding, check};
use crate::torture::history::{Answer, Nanos};
use crate::torture::record::{Attempt, Life, Promises, Record, Scope, Struck};

/// A record under construction; times in milliseconds, TTLs of 2 s.
pub(in crate::torture) struct Story {
    pub(in crate::torture) record: Record,
}

impl Story {
    pub(in crate::torture) fn new(workers: usize) -> Self {
        let life = |slot| Life { slot, generation: 0, span: (0, 60_000_000_000), ended: true };
        let promises = Promises { tokens_survive_loss: false, ..Promises::default() };
        let workers = (0..workers).map(life).collect();
        Self { record: Record { workers, promises, span: (0, 60_000_000_000), ..Record::default() } }
    }

    #[allow(clippy::unused_self)]
    pub(in crate::torture) fn ms(&self, ms: u64) -> Nanos {
        ms * 1_000_000
    }

    /// Asked a millisecond before it was granted, held from then to the last look, released a millisecond later.
    pub(in crate::torture) fn hold(&mut self, worker: usize, name: &str, token: u64, from: u64, last: u64) -> usize {
        let ttl = self.ms(2_000);
        let (from, last, tick) = (self.ms(from), self.ms(last), self.ms(1));
        let owner = format!("owner-{}", self.record.attempts.len());
        let until = from + self.ms(1_978);
        self.record.attempts.push(Attempt {
            worker,
            name: name.into(),
            asked: from - tick,
            limit: Some(self.ms(5_000)),
            renewed: true,
            answered: Some(from),
            answer: Some(Answer::Granted { token, owner: owner.clone(), ttl }),
            token,
            owner,
            wanted: ttl,
            ttl,
            held_until: Some(last),
            until,
            looks: vec![(from, true, Some(until), from), (last, true, Some(until), last)],
            gave_up: Some(last),
            released: Some((last + tick, "released".into())),
            ..Attempt::default()
        });
        self.record.attempts.sort_by_key(|attempt| attempt.asked);
        self.record.attempts.iter().position(|a| a.token == token && a.answered == Some(from)).unwrap_or(0)
    }

    /// An attempt that was not granted.
    pub(in crate::torture) fn fail(
        &mut self,
        worker: usize,
        name: &str,
        asked: u64,
        answered: u64,
        answer: Answer,
    ) -> usize {
        let attempt = Attempt {
            worker,
            name: name.into(),
            asked: self.ms(asked),
            limit: Some(self.ms(5_000)),
            answered: Some(self.ms(answered)),
            answer: Some(answer),
            ttl: self.ms(2_000),
            ..Attempt::default()
        };
        self.record.attempts.push(attempt);
        self.record.attempts.len() - 1
    }

    pub(in crate::torture) fn fault(&mut self, fault: &str, scope: Scope, from: u64, to: u64) -> &mut Struck {
        let (from, to) = (self.ms(from), self.ms(to));
        let at = self.record.faults.len();
        self.record.faults.push(Struck { fault: fault.into(), scope, from, to, ..Struck::default() });
        &mut self.record.faults[at]
    }

    pub(in crate::torture) fn removed(&mut self, name: &str, at: u64) -> &mut Struck {
        let fault = self.fault("entry removed by hand", Scope::Name(name.into()), at, at);
        fault.forgets = true;
        fault
    }

    pub(in crate::torture) fn wiped(&mut self, at: u64) {
        self.fault("server killed", Scope::All, at, at).forgets = true;
    }
}

/// What one check finds.
pub(in crate::torture) fn findings(story: &Story, check_name: &str) -> Vec<Finding> {
    check(&story.record).into_iter().filter(|finding| finding.check == check_name).collect()
}
