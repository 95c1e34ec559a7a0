//! One fault, from its begin to its end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{Clock, Durability, LockName};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::faults::{Blow, Fault};
use super::ground::Ground;
use super::hands;
use super::history::{Nanos, nanos, span};
use super::plan::{Dice, Strike};
use super::record::{Scope, Struck};
use super::strays::Stray;
use super::worker::{Command, Order, Worker};
use crate::proxy::Proxy;
use crate::{Server, Stop};

/// How long an entry lives that was put in the place of another.
const PUT_TTL: Duration = Duration::from_secs(2);

/// How slow a line becomes.
const DELAY: Duration = Duration::from_millis(150);

/// How long a write to a file may take, beside those of others.
const WRITE: Duration = Duration::from_millis(300);

/// How long a hand may take that reaches into the store.
const HAND: Duration = Duration::from_secs(10);

/// All that can be struck.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) ground: Ground,
    pub(super) names: Vec<String>,
    pub(super) quiet: String,
    pub(super) slots: Vec<Mutex<Slot>>,
    /// Whoever does something to the server, or reaches into the store, has it: a hand needs a server that answers.
    pub(super) server: Mutex<()>,
    /// The same for strays, which need a store of which nothing but memory is asked.
    pub(super) strays: Mutex<()>,
    pub(super) folder: PathBuf,
    pub(super) register: String,
    pub(super) seed: u64,
    pub(super) clock: Clock,
    pub(super) forgets_on_restart: bool,
}

/// The place of a worker: whoever holds it may do something to it.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) number: usize,
    pub(super) generation: usize,
    pub(super) worker: Worker,
    pub(super) lines: Vec<Proxy>,
}

impl Field {
    pub(super) fn now(&self) -> Nanos {
        nanos(self.clock.now())
    }

    pub(super) fn history(&self, slot: usize, generation: usize) -> PathBuf {
        self.folder.join(format!("worker-{slot}-{generation}.jsonl"))
    }

    /// Starts a worker in a place.
    pub(super) fn worker(&self, slot: usize, generation: usize, lines: &[Proxy]) -> Result<Worker, Stop> {
        let instance = self.ground.instance();
        let addresses: Vec<_> = lines.iter().map(Proxy::address).collect();
        let url = instance.url_via_all(&addresses).filter(|_| !lines.is_empty()).unwrap_or_else(|| instance.url());
        let mut dice = Dice::new(self.seed ^ ((slot as u64 + 1) << 32) ^ (generation as u64 + 1));
        let order = Order {
            url,
            history: self.history(slot, generation),
            register: self.register.clone(),
            names: self.names.clone(),
            quiet: format!("{}-false", self.quiet),
            prefix: format!("{}own-{slot}-{generation}-", self.ground.prefix()),
            seed: dice.roll(u64::MAX),
        };
        if self.ground.has_processes() {
            Worker::process(&order)
        } else {
            Ok(Worker::thread(order, Arc::clone(self.ground.harness())))
        }
    }

    /// Strikes, and undoes it at its end. What cannot be done is told in what it answers.
    pub(super) async fn strike(&self, fault: &'static Fault, strike: Strike) -> Struck {
        let victim = strike.victim;
        let scope = if fault.is_of_a_worker() {
            Scope::Worker(victim)
        } else if fault.is_of_a_name() {
            Scope::Name(self.name_of(fault, strike))
        } else {
            Scope::All
        };
        let mut struck = Struck { fault: fault.name.to_owned(), scope, ..Struck::default() };
        let done = if fault.is_of_a_worker() {
            self.hit_worker(fault, strike, self.slots[victim].lock().await, &mut struck).await
        } else {
            let _lock = match fault.blow {
                // It takes seconds; those that came meanwhile would go on long after the run.
                Blow::Frozen => match self.strays.try_lock() {
                    Ok(lock) => lock,
                    Err(_) => {
                        (struck.from, struck.to) = (self.now(), self.now());
                        struck.missed = Some("another is frozen still".into());
                        return struck;
                    }
                },
                _ => self.server.lock().await,
            };
            struck.from = self.now();
            if fault.is_of_a_name() {
                self.hit_name(fault, strike, &mut struck).await
            } else {
                self.hit_server(fault, strike, &mut struck).await
            }
        };
        struck.to = struck.to.max(struck.from);
        if struck.to == struck.from {
            struck.to = self.now();
        }
        struck.missed = done.err().map(|stop| format!("{stop:?}"));
        struck
    }

    /// Of those that must be alone the name is one that no worker takes; and every third that dies does so there, where nobody hides what is left.
    fn name_of(&self, fault: &Fault, strike: Strike) -> String {
        let alone = fault.blow == Blow::Frozen || fault.blow == Blow::Abandon && strike.span.is_zero();
        if alone { format!("{}-{}", self.quiet, fault.blow == Blow::Frozen) } else { self.names[strike.victim].clone() }
    }

    async fn hit_worker(
        &self,
        fault: &Fault,
        strike: Strike,
        mut slot: MutexGuard<'_, Slot>,
        struck: &mut Struck,
    ) -> Result<(), Stop> {
        struck.from = self.now();
        let milliseconds = u64::try_from(strike.span.as_millis())?;
        match fault.blow {
            Blow::Kill => {
                slot.worker.kill().await?;
                struck.to = self.now();
                slot.generation += 1;
                slot.worker = self.worker(slot.number, slot.generation, &slot.lines)?;
            }
            Blow::Halt => {
                struck.halts = true;
                let process = slot.worker.as_process().ok_or("it is no process")?;
                process.stop()?;
                let end = Instant::now() + strike.span;
                struck.bars = self.is_barred(strike.span.min(WRITE)).await;
                sleep_until(end).await;
                process.resume()?;
            }
            Blow::Block | Blow::Starve => {
                struck.halts = fault.blow == Blow::Block;
                slot.worker.tell(if struck.halts {
                    Command::Block(milliseconds)
                } else {
                    Command::Starve(milliseconds)
                })?;
                sleep(strike.span).await;
            }
            _ => {
                for line in &slot.lines {
                    disturb(line, fault.blow, true);
                }
                sleep(strike.span).await;
                for line in &slot.lines {
                    disturb(line, fault.blow, false);
                }
            }
        }
        Ok(())
    }

    /// Whether nobody can write, since whoever was stopped is in the midst of it. A server goes on without its clients.
    async fn is_barred(&self, limit: Duration) -> bool {
        let Ok(nobody) = LockName::new(format!("{}-nobody", self.quiet)) else { return false };
        let write = self.ground.instance().remove(&nobody);
        self.ground.addresses().is_empty() && !matches!(timeout(limit, write).await, Ok(Ok(())))
    }

    async fn hit_name(&self, fault: &Fault, strike: Strike, struck: &mut Struck) -> Result<(), Stop> {
        let name = LockName::new(self.name_of(fault, strike))?;
        match fault.blow {
            Blow::Abandon | Blow::Frozen => {
                let lock = self.ground.connect().await?;
                let mut stray = Stray { lock: &*lock, instance: &**self.ground.instance(), struck };
                if fault.blow == Blow::Abandon { stray.dies(name).await } else { stray.wakes(&name).await }
            }
            Blow::Queues => within(hands::delete_queue(&self.ground, &name)).await,
            _ => {
                struck.forgets = true;
                within(self.lay_hand(fault.blow == Blow::Replace, &name, struck)).await
            }
        }
    }

    async fn lay_hand(&self, replace: bool, name: &LockName, struck: &mut Struck) -> Result<(), Stop> {
        let instance = self.ground.instance();
        let mut there = None;
        for _ in 0..50 {
            there = instance.peek(name).await?;
            if there.is_some() {
                break;
            }
            sleep(Duration::from_millis(5)).await;
        }
        let Some(there) = there else {
            struck.forgets = false;
            return Err("nobody held it".into());
        };
        struck.from = self.now();
        if replace {
            let owner = instance.replace_owner(name, PUT_TTL).await?;
            struck.put = Some((owner.clone(), self.now() + span(PUT_TTL)));
            struck.to = self.now();
            if self.ground.scheme() == "zk" {
                // There a session carries it, and this one does not end.
                sleep(PUT_TTL).await;
                if instance.peek(name).await?.is_some_and(|entry| entry.owner == owner) {
                    instance.remove(name).await?;
                }
            }
        } else {
            instance.remove(name).await?;
            struck.to = self.now();
        }
        struck.owner = Some(there.owner);
        Ok(())
    }

    async fn hit_server(&self, fault: &Fault, strike: Strike, struck: &mut Struck) -> Result<(), Stop> {
        let instance = self.ground.instance();
        let server = || instance.server().ok_or_else(|| Stop::from("there is no server"));
        match fault.blow {
            Blow::ServerKill => {
                struck.forgets = self.forgets_on_restart;
                server()?.kill()?;
                sleep(strike.span).await;
                server()?.restart().await
            }
            Blow::ServerStop => {
                // Freezing a file waits for its writer.
                tokio::task::block_in_place(|| server()?.stop())?;
                sleep(strike.span).await;
                tokio::task::block_in_place(|| server()?.resume())
            }
            Blow::LeaderKill | Blow::LeaderStop => {
                let struck = server()?.strike_leader(fault.blow == Blow::LeaderKill).await;
                sleep(strike.span).await;
                self.mend(server()?).await?;
                struck
            }
            Blow::ReadOnly => {
                within(instance.refuse_writes(true)).await?;
                sleep(strike.span).await;
                undone(|| instance.refuse_writes(false)).await
            }
            Blow::Memory => {
                within(hands::memory(&self.ground, "1")).await?;
                sleep(strike.span).await;
                undone(|| hands::memory(&self.ground, "0")).await
            }
            Blow::Clients => within(hands::kill_clients(&self.ground)).await,
            Blow::Leases => {
                struck.forgets = true;
                within(hands::revoke_leases(&self.ground)).await
            }
            _ => {
                // Nobody may notice: it explains nothing.
                struck.scope = Scope::Name(String::new());
                within(hands::flush_scripts(&self.ground)).await
            }
        }
    }

    async fn mend(&self, server: &dyn Server) -> Result<(), Stop> {
        server.mend().await
    }
}

fn disturb(line: &Proxy, blow: Blow, on: bool) {
    match blow {
        Blow::Cut if on => line.cut(),
        Blow::Refuse => {
            line.refuse(on);
            if on {
                line.cut();
            }
        }
        Blow::SlowRequests => line.delay_requests(if on { DELAY } else { Duration::ZERO }),
        Blow::SlowReplies => line.delay_replies(if on { DELAY } else { Duration::ZERO }),
        Blow::BlackHole => line.black_hole(on),
        Blow::CutAfterRequest => line.cut_after_request(on),
        Blow::HalfOpen if on => line.forget_open(),
        // The system notices in the end, and resets them.
        Blow::HalfOpen => line.cut(),
        Blow::Trickle => line.trickle(on),
        _ => {}
    }
}

async fn within(hand: impl Future<Output = Result<(), Stop>>) -> Result<(), Stop> {
    timeout(HAND, hand).await.map_err(|_| format!("it took longer than {HAND:?}"))?
}

/// A fault that is not undone would be another fault: tried until it is.
async fn undone<F: Future<Output = Result<(), Stop>>>(undo: impl Fn() -> F) -> Result<(), Stop> {
    let mut last = Ok(());
    for _ in 0..5 {
        last = within(undo()).await;
        if last.is_ok() {
            break;
        }
        sleep(Duration::from_millis(500)).await;
    }
    last
}

/// Whether a restart forgets what was acknowledged.
pub(super) fn forgets_on_restart(capabilities: &lock_core::Capabilities) -> bool {
    !capabilities.leases_survive_restart || capabilities.durability == Durability::Volatile
}
