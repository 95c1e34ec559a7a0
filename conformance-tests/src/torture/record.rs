//! All that is known of a run: what the checker judges.

use std::collections::HashMap;
use std::time::Duration;

use lock_core::{Capabilities, Reach};
use serde::{Deserialize, Serialize};

use super::history::{Answer, Nanos, What, span};

/// A run.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// What the backend declares.
    pub promises: Promises,
    /// The workers.
    pub workers: Vec<Life>,
    /// All attempts, in the order in which they were asked.
    pub attempts: Vec<Attempt>,
    /// What workers saw under names.
    pub sights: Vec<Sight>,
    /// Broken promises that a worker saw by itself: worker, time, rule, text.
    pub odd: Vec<(usize, Nanos, String, String)>,
    /// The faults.
    pub faults: Vec<Struck>,
    /// What the register took and refused, in its order.
    pub writes: Vec<Guarded>,
    /// Times in which the machine did not run those who measure.
    pub stalls: Vec<(Nanos, Nanos)>,
    /// Times in which the server took long for a look from the side, whatever the reason.
    pub slow: Vec<(Nanos, Nanos)>,
    /// Times in which the store showed nobody as the holder of the first name.
    pub free: Vec<(Nanos, Nanos)>,
    /// What was left in the store at the end.
    pub left: Vec<String>,
    /// Begin and end.
    pub span: (Nanos, Nanos),
}

/// What a backend declares, as far as it matters here.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Promises {
    pub grain: Nanos,
    pub restart_adds_ttl: bool,
    pub fifo: bool,
    pub pushes_loss: bool,
    pub tokens_survive_loss: bool,
    /// Nothing is between the lock and its users: each answer is there at once.
    pub local: bool,
}

impl Promises {
    /// Those that the checker needs.
    pub fn of(capabilities: &Capabilities) -> Self {
        Self {
            grain: span(capabilities.expiry_grain),
            restart_adds_ttl: capabilities.restart_adds_ttl,
            fifo: capabilities.fifo,
            pushes_loss: capabilities.pushes_loss,
            tokens_survive_loss: capabilities.fencing_survives_data_loss,
            local: capabilities.reach == Reach::Process,
        }
    }

    /// How long after its last word the store may keep a lease (rule T1), when all is well.
    pub fn expiry(&self) -> Nanos {
        span(Duration::from_secs(1)) + self.grain
    }
}

/// One worker from its begin to its end; the next in its place is another.
#[derive(Clone, Debug, Default)]
pub struct Life {
    /// Its place: faults are aimed at it.
    pub slot: usize,
    /// How many were in this place before.
    pub generation: usize,
    /// Its first and last word.
    pub span: (Nanos, Nanos),
    /// Whether it said that it ends in order.
    pub ended: bool,
}

/// Whom a fault reaches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// The worker in this place, or its line.
    Worker(usize),
    /// What stands under this name.
    Name(String),
    /// Everybody.
    #[default]
    All,
}

/// A fault that was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Struck {
    pub fault: String,
    pub scope: Scope,
    pub from: Nanos,
    pub to: Nanos,
    /// The owner whose entry went.
    pub owner: Option<String>,
    /// The owner whose entry was put there, and until when it lives.
    pub put: Option<(String, Nanos)>,
    /// Whether entries went behind the library's back: leases that it had acknowledged are forgotten (outside rule M2).
    pub forgets: bool,
    /// Whether the worker could do nothing meanwhile: its own time stood still.
    pub halts: bool,
    /// Whether the worker was stopped in the midst of a write to what all share, so that nobody else could write.
    pub bars: bool,
    /// Broken promises that showed at once: rule and text.
    pub saw: Vec<(String, String)>,
    /// Why it was not made, if it was not.
    pub missed: Option<String>,
}

impl Struck {
    /// Whether it reached everybody.
    pub fn hits_all(&self) -> bool {
        self.scope == Scope::All || self.bars
    }
}

/// A write that reached the register.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Guarded {
    pub at: Nanos,
    pub name: String,
    pub token: u64,
    pub taken: bool,
}

/// Somebody was seen under a name.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Sight {
    pub worker: usize,
    pub name: String,
    pub asked: Nanos,
    pub answered: Nanos,
    /// The attempt that held the name before and after.
    pub own: Option<usize>,
    pub owner: Option<String>,
    pub token: Option<u64>,
    pub state: String,
}

/// One attempt from the request to the end of the hold.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct Attempt {
    pub worker: usize,
    pub name: String,
    pub asked: Nanos,
    pub limit: Option<Nanos>,
    pub renewed: bool,
    pub answered: Option<Nanos>,
    pub answer: Option<Answer>,
    pub token: u64,
    pub owner: String,
    /// The TTL that was asked for, and the one that was granted.
    pub wanted: Nanos,
    pub ttl: Nanos,
    /// The last moment at which the guard is known to have said "held"; before the grant where it never did.
    pub held_until: Option<Nanos>,
    /// Until when it was valid, at the last look.
    pub until: Nanos,
    /// Looks: time before, held, validity, time after.
    pub looks: Vec<(Nanos, bool, Option<Nanos>, Nanos)>,
    pub lost: Option<(Nanos, String)>,
    /// Writes: sent, taken, answered.
    pub writes: Vec<(Nanos, bool, Nanos)>,
    pub gave_up: Option<Nanos>,
    pub released: Option<(Nanos, String)>,
    /// Revoked by a mark: between these moments.
    pub marked: Option<(Nanos, Nanos)>,
}

impl Attempt {
    /// When the guard was handed out.
    pub fn granted(&self) -> Option<Nanos> {
        matches!(self.answer, Some(Answer::Granted { .. })).then_some(self.answered?)
    }

    /// The stretch for which it believed that it held the name: at each moment of it, it could have looked and seen so.
    pub fn belief(&self) -> Option<(Nanos, Nanos)> {
        Some((self.granted()?, self.held_until?))
    }
}

impl Record {
    /// Puts the attempts of all workers into the order in which they were asked.
    pub fn sort(&mut self) {
        let mut order: Vec<usize> = (0..self.attempts.len()).collect();
        order.sort_by_key(|number| self.attempts[*number].asked);
        let mut place = vec![0; order.len()];
        for (new, old) in order.iter().enumerate() {
            place[*old] = new;
        }
        for sight in &mut self.sights {
            sight.own = sight.own.map(|own| place[own]);
        }
        self.attempts.sort_by_key(|attempt| attempt.asked);
    }

    /// Takes a worker's history in.
    pub fn add(&mut self, slot: usize, generation: usize, events: Vec<(Nanos, What)>) {
        let worker = self.workers.len();
        let span = (events.first().map_or(0, |e| e.0), events.iter().map(|e| e.0).max().unwrap_or(0));
        let ended = matches!(events.last(), Some((_, What::End)));
        self.workers.push(Life { slot, generation, span, ended });
        let mut known: HashMap<u64, usize> = HashMap::new();
        for (at, what) in events {
            let mut with = |id: u64, change: &mut dyn FnMut(&mut Attempt)| {
                if let Some(number) = known.get(&id) {
                    change(&mut self.attempts[*number]);
                }
            };
            match what {
                What::Begin | What::End => {}
                What::Ask { id, name, ttl, limit, renewed } => {
                    known.insert(id, self.attempts.len());
                    let (wanted, asked) = (ttl, at);
                    let attempt = Attempt { worker, name, asked, limit, renewed, wanted, ttl, ..Attempt::default() };
                    self.attempts.push(attempt);
                }
                What::Answer { id, answer } => with(id, &mut |a| {
                    a.answered = Some(at);
                    if let Answer::Granted { token, owner, ttl } = &answer {
                        (a.token, a.owner, a.ttl) = (*token, owner.clone(), *ttl);
                    }
                    a.answer = Some(answer.clone());
                }),
                What::Look { id, held, until, after } => with(id, &mut |a| {
                    a.looks.push((at, held, until, after));
                    if held {
                        a.held_until = Some(at.max(a.held_until.unwrap_or(0)));
                    }
                    a.until = a.until.max(until.unwrap_or(0));
                }),
                What::Lost { id, reason } => with(id, &mut |a| a.lost = Some((at, reason.clone()))),
                What::Write { id, taken, answered } => with(id, &mut |a| a.writes.push((at, taken, answered))),
                What::Renewed { .. } => {}
                What::GaveUp { id } => with(id, &mut |a| a.gave_up = Some(at)),
                What::Released { id, answer } => with(id, &mut |a| a.released = Some((at, answer.clone()))),
                What::Marked { id, asked } => with(id, &mut |a| a.marked = Some((asked, at))),
                What::Odd { rule, text } => self.odd.push((worker, at, rule, text)),
                What::Seen { name, asked, own, owner, token, state } => {
                    let own = own.and_then(|id| known.get(&id).copied());
                    self.sights.push(Sight { worker, name, asked, answered: at, own, owner, token, state });
                }
            }
        }
    }
}
