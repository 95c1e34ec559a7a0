//! A backend whose every answer a test writes down beforehand, over a store that knows the truth.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use lock_core::testing::ManualClock;
use lock_core::*;
use tokio_util::sync::CancellationToken;

/// What the backend does with one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Carries it out and answers after so many milliseconds.
    Well(u64),
    /// Carries it out and never answers.
    DeafAfter,
    /// Never carries it out and never answers.
    DeafBefore,
    /// Fails at once, in a way that may pass, without carrying it out.
    Fails,
    /// Fails at once, in a way that does not pass, without carrying it out.
    Denies,
    /// Panics.
    Panics,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Acquire,
    Renew,
    Release,
    Abandon,
}

#[derive(Debug, Default)]
pub struct World {
    /// Who holds the name, and until when.
    pub entry: Option<(Owner, Deadline)>,
    pub acquires: VecDeque<Act>,
    pub renewals: VecDeque<Act>,
    pub releases: VecDeque<Act>,
    /// What came in, and when.
    pub log: Vec<(Deadline, Call)>,
    pub tokens: u64,
    pub closed: bool,
}

#[derive(Clone, Debug)]
pub struct Puppet {
    pub world: Arc<Mutex<World>>,
    pub clock: ManualClock,
    pub loss: CancellationToken,
    capabilities: Capabilities,
}

impl Puppet {
    pub fn new(clock: &ManualClock) -> Self {
        let mut capabilities = Capabilities::new("puppet");
        capabilities.reach = Reach::Process;
        Self { world: Arc::default(), clock: clock.clone(), loss: CancellationToken::new(), capabilities }
    }

    /// Inside a paused runtime: a puppet and a manager that lives on that runtime.
    pub fn managed() -> (Self, LockManager) {
        let clock = ManualClock::following_tokio();
        let puppet = Self::new(&clock);
        let manager = LockManager::builder()
            .clock(clock.clock())
            .runtime(tokio::runtime::Handle::current())
            .build(Arc::new(puppet.clone()))
            .unwrap();
        (puppet, manager)
    }

    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    pub fn now(&self) -> Deadline {
        self.clock.clock().now()
    }

    pub fn calls(&self, call: Call) -> usize {
        self.world().log.iter().filter(|(_, c)| *c == call).count()
    }

    /// Whether the store holds a live entry of this owner.
    pub fn is_live(&self, owner: Owner) -> bool {
        let now = self.now();
        self.world().entry.is_some_and(|(o, until)| o == owner && until > now)
    }

    pub fn steal(&self) {
        self.world().entry = Some((Owner::random().unwrap(), Deadline::NEVER));
    }

    fn take_note(&self, call: Call) -> Act {
        let now = self.now();
        let mut world = self.world();
        world.log.push((now, call));
        let plan = match call {
            Call::Acquire => &mut world.acquires,
            Call::Renew => &mut world.renewals,
            Call::Release => &mut world.releases,
            Call::Abandon => return Act::Well(0),
        };
        plan.pop_front().unwrap_or(Act::Well(0))
    }

    /// Plays one call: `carry_out` is the one atomic step in the store.
    async fn play<T>(
        &self,
        call: Call,
        carry_out: impl FnOnce(&mut World, Deadline) -> T + Send,
    ) -> Result<T, LockError>
    where
        T: Send,
    {
        match self.take_note(call) {
            Act::Well(delay) => {
                let answer = carry_out(&mut self.world(), self.now());
                if delay > 0 {
                    tokio::time::sleep(Duration::from_millis(delay)).await;
                }
                Ok(answer)
            }
            Act::DeafAfter => {
                carry_out(&mut self.world(), self.now());
                std::future::pending().await
            }
            Act::DeafBefore => std::future::pending().await,
            Act::Fails => Err(LockError::new(ErrorKind::Unavailable, "the line is cut")),
            Act::Denies => Err(LockError::new(ErrorKind::Denied, "a right is missing")),
            Act::Panics => panic!("the puppet panics, as told"),
        }
    }
}

#[async_trait]
impl DistributedLock for Puppet {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition, LockError> {
        loop {
            let sent = self.now();
            let (owner, ttl) = (request.owner, request.ttl.get());
            let granted = self
                .play(Call::Acquire, |world, now| {
                    let free = world.entry.is_none_or(|(o, until)| o == owner || until <= now);
                    free.then(|| {
                        world.entry = Some((owner, now.after(ttl)));
                        world.tokens += 1;
                        world.tokens
                    })
                })
                .await?;
            if let Some(token) = granted {
                let lease = PuppetLease { puppet: self.clone(), owner, ttl, token, sent };
                return Ok(Acquisition::Granted(Box::new(lease)));
            }
            if request.wait == Wait::Never {
                return Ok(Acquisition::Busy(None));
            }
            tokio::select! {
                () = request.over() => return Ok(Acquisition::Busy(None)),
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
            }
        }
    }

    async fn abandon(&self, _: &LockName, owner: &Owner) -> Result<Released, LockError> {
        self.play(Call::Abandon, |world, now| remove(world, *owner, now)).await
    }

    async fn inspect(&self, _: &LockName) -> Result<Option<Holder>, LockError> {
        Ok(None)
    }

    async fn list(&self, _: &str, _: Page) -> Result<Vec<Holder>, LockError> {
        Ok(Vec::new())
    }

    async fn revoke(&self, _: &LockName, _: Option<FencingToken>, _: Revoke) -> Result<Released, LockError> {
        Ok(Released::NotHeld)
    }

    async fn diagnose(&self) -> Result<Diagnosis, LockError> {
        Ok(Diagnosis::new("puppet"))
    }

    async fn close(&self) -> Result<(), LockError> {
        self.world().closed = true;
        Ok(())
    }
}

fn remove(world: &mut World, owner: Owner, now: Deadline) -> Released {
    match world.entry {
        Some((o, until)) if o == owner => {
            world.entry = None;
            if until > now { Released::Released } else { Released::NotHeld }
        }
        _ => Released::NotHeld,
    }
}

#[derive(Debug)]
struct PuppetLease {
    puppet: Puppet,
    owner: Owner,
    ttl: Duration,
    token: u64,
    sent: Deadline,
}

#[async_trait]
impl Lease for PuppetLease {
    fn fencing_token(&self) -> FencingToken {
        FencingToken::new(self.token)
    }

    fn effective_ttl(&self) -> Duration {
        self.ttl
    }

    fn valid_until(&self) -> Deadline {
        Deadline::valid_until(self.sent, self.ttl)
    }

    fn loss(&self) -> BoxFuture<'static, LostReason> {
        let loss = self.puppet.loss.clone();
        Box::pin(async move {
            loss.cancelled().await;
            LostReason::Removed
        })
    }

    async fn renew(&mut self) -> Result<Renewal, LockError> {
        let sent = self.puppet.now();
        let (owner, ttl) = (self.owner, self.ttl);
        let answer = self
            .puppet
            .play(Call::Renew, |world, now| match &mut world.entry {
                Some((o, until)) if *o == owner && *until > now => {
                    *until = now.after(ttl);
                    Renewal::Renewed
                }
                Some((o, _)) if *o != owner => Renewal::Lost(LostReason::TakenOver),
                Some(_) => Renewal::Lost(LostReason::Expired),
                None => Renewal::Lost(LostReason::Removed),
            })
            .await?;
        if answer == Renewal::Renewed {
            self.sent = sent;
        }
        Ok(answer)
    }

    async fn release(&mut self) -> Result<Released, LockError> {
        let owner = self.owner;
        self.puppet.play(Call::Release, |world, now| remove(world, owner, now)).await
    }
}

pub fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}
