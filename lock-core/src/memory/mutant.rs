//! The memory backend with one promise broken. Each arm breaks the one that its fault names, and nothing else.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use super::lease::MemoryLease;
use super::store::{Entry, Place, Turn, Waiter};
use super::{Fault, MemoryLock};
use crate::{
    AcquireRequest, Acquisition, Capabilities, Deadline, Diagnosis, DistributedLock, ErrorKind, FencingToken, Holder,
    HolderState, Lease, LockError, LockName, LostReason, Owner, Page, Released, Renewal, Revoke, Ttl, Wait,
};

/// A sound store behind a client that breaks one promise.
#[derive(Debug)]
pub(super) struct Mutant {
    pub(super) fault: Fault,
    sound: MemoryLock,
    /// What [`Fault::ReleasedStaysVisible`] still shows, and until when.
    ghosts: Arc<Mutex<Vec<(Holder, Deadline)>>>,
}

const GHOST_LIFE: Duration = Duration::from_secs(5);

impl Mutant {
    pub(super) fn new(sound: MemoryLock, fault: Fault) -> Self {
        Self { fault, sound, ghosts: Arc::default() }
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn now(&self) -> Deadline {
        self.sound.store.clock.now()
    }

    fn name(&self, name: &LockName) -> LockName {
        let text = name.as_str();
        let broken = match self.fault {
            Fault::NameFolded => text.to_lowercase(),
            Fault::NameCut => text
                .chars()
                .scan(0, |len, c| {
                    Some((c, {
                        *len += c.len_utf8();
                        *len
                    }))
                })
                .take_while(|(_, len)| *len <= 255)
                .map(|(c, _)| c)
                .collect(),
            Fault::NameTrimmed => text.trim().to_owned(),
            Fault::NameEndsAtNul => text.split('\0').next().unwrap_or(text).to_owned(),
            _ => return name.clone(),
        };
        LockName::new(broken).unwrap_or_else(|_| name.clone())
    }

    /// Lets a change loose on the entry of a name.
    fn tamper(&self, name: &LockName, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.sound.store.inner().entries.get_mut(name) {
            change(entry);
        }
    }

    fn stand_for_ever(&self, name: &LockName, owner: Owner) {
        let waiter = Waiter { owner, wake: Arc::new(Notify::new()) };
        self.sound.store.inner().queues.entry(name.clone()).or_default().push_back(waiter);
    }

    /// The sound way to wait, less what the fault leaves out.
    async fn wait(&self, request: &AcquireRequest) -> Result<Acquisition, LockError> {
        let store = &self.sound.store;
        let mut place = Place::new(store, request);
        loop {
            let seen = match store.take(request, &mut place) {
                Turn::Granted(entry) => {
                    return Ok(Acquisition::Granted(Box::new(MemoryLease::new(store, entry))));
                }
                Turn::Busy(holder) => holder,
            };
            if request.wait == Wait::Never {
                return Ok(Acquisition::Busy(Some(seen)));
            }
            if self.is(Fault::LastComeFirst)
                && let Some(queue) = store.inner().queues.get_mut(&request.name)
                && queue.back().is_some_and(|waiter| waiter.owner == request.owner)
            {
                queue.rotate_right(1);
            }
            let expiry = store.until_free(&request.name);
            tokio::select! {
                () = place.woken(), if !self.is(Fault::WakeUpForgotten) => {}
                () = tokio::time::sleep(expiry), if !self.is(Fault::ExpiryWakesNobody) => {}
                () = request.over() => return Ok(Acquisition::Busy(Some(seen))),
            }
        }
    }

    async fn granted(&self, mut lease: Box<dyn Lease>, request: &AcquireRequest) -> Box<dyn Lease> {
        let ttl = lease.effective_ttl();
        let store = &self.sound.store;
        let Some(mut entry) = store.inner().entries.get(&request.name).cloned() else {
            return lease;
        };
        match self.fault {
            Fault::ValidityFromReply => {
                tokio::time::sleep(Duration::from_millis(500)).await;
                entry.sent = self.now();
            }
            Fault::LateGrant => {
                tokio::time::sleep(ttl + Duration::from_millis(200)).await;
                entry.sent = self.now();
            }
            Fault::TokenRepeats if entry.token % 2 == 0 => {
                entry.token -= 1;
                self.tamper(&request.name, |e| e.token -= 1);
            }
            _ => {}
        }
        lease = Box::new(MutantLease {
            mutant: Self { fault: self.fault, sound: self.sound.clone(), ghosts: self.ghosts.clone() },
            inner: MemoryLease::new(store, entry),
            renewals: 0,
        });
        self.set_expiry(&request.name, ttl);
        lease
    }

    fn set_expiry(&self, name: &LockName, ttl: Duration) {
        self.tamper(name, |entry| {
            entry.expires = match self.fault {
                Fault::NeverExpires => entry.sent.after(Ttl::MAX * 2),
                Fault::ExpiresEarly => entry.sent.after(ttl / 2),
                Fault::ExpiresLate => entry.sent.after(ttl + Duration::from_secs(2)),
                _ => entry.expires,
            };
        });
    }
}

#[async_trait]
impl DistributedLock for Mutant {
    fn capabilities(&self) -> &Capabilities {
        self.sound.capabilities()
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition, LockError> {
        let mut request = AcquireRequest { name: self.name(&request.name), ..request.clone() };
        let store = &self.sound.store;
        let present = store.inner().entries.get(&request.name).cloned();
        match (self.fault, &present) {
            (Fault::TtlRoundedDown, _) => {
                let whole = Duration::from_secs(request.ttl.get().as_secs());
                request.ttl = Ttl::new(whole.max(Ttl::MIN))?;
            }
            (Fault::LimitIgnored, _) if request.wait != Wait::Never => request.wait = Wait::Forever,
            (Fault::NeverWaits, _) => request.wait = Wait::Never,
            (Fault::TryWaits, Some(_)) if request.wait == Wait::Never => {
                tokio::time::sleep(Duration::from_secs(3)).await
            }
            (Fault::RetryIsStranger, Some(entry)) if entry.owner == request.owner => request.owner = Owner::random()?,
            (Fault::TokenRestartsAfterExpiry, Some(entry)) if entry.expires <= self.now() => {
                store.inner().last_token = 0
            }
            (Fault::DoubleGrant, Some(entry)) if entry.expires > self.now() => {
                let entry = Entry { owner: request.owner, token: entry.token + 1, sent: self.now(), ..entry.clone() };
                return Ok(Acquisition::Granted(Box::new(MemoryLease::new(store, entry))));
            }
            _ => {}
        }
        // Whoever is dropped or told to give up leaves his place where the fault says so.
        let mut quitter = Quitter { mutant: self, request: &request, armed: self.is(Fault::AbandonLeavesPlace) };
        let answer = self.wait(&request).await;
        quitter.armed = false;
        match answer? {
            Acquisition::Granted(lease) => Ok(Acquisition::Granted(self.granted(lease, &request).await)),
            Acquisition::Busy(holder) => {
                let cancelled = request.cancel.is_cancelled();
                match self.fault {
                    Fault::BusyIsError => {
                        return Err(LockError::new(ErrorKind::Unavailable, "another holds it"));
                    }
                    Fault::CancelLeavesPlace if cancelled => self.stand_for_ever(&request.name, request.owner),
                    Fault::LimitLeavesPlace if !cancelled && request.wait != Wait::Never => {
                        self.stand_for_ever(&request.name, request.owner);
                    }
                    Fault::ContenderProlongs => {
                        let now = self.now();
                        self.tamper(&request.name, |entry| entry.expires = now.after(entry.ttl));
                    }
                    _ => {}
                }
                Ok(Acquisition::Busy(holder))
            }
        }
    }

    async fn abandon(&self, name: &LockName, owner: &Owner) -> Result<Released, LockError> {
        let name = self.name(name);
        match self.fault {
            Fault::AbandonDoesNothing => Ok(Released::Released),
            Fault::AbandonIgnoresOwner => {
                let present = self.sound.store.inner().entries.get(&name).map(|entry| entry.owner);
                self.sound.abandon(&name, &present.unwrap_or(*owner)).await
            }
            Fault::AbandonLeavesPlace => {
                let mut inner = self.sound.store.inner();
                match inner.entries.get(&name).map(|entry| entry.owner == *owner) {
                    Some(true) => inner.entries.remove(&name),
                    _ => None,
                };
                Ok(Released::NotHeld)
            }
            _ => self.sound.abandon(&name, owner).await,
        }
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<Holder>, LockError> {
        let name = self.name(name);
        let holder = self.sound.inspect(&name).await?;
        Ok(match self.fault {
            Fault::InspectShowsNothing => None,
            Fault::InspectShowsExpired if holder.is_none() => {
                let entry = self.sound.store.inner().entries.get(&name).cloned();
                entry.map(|entry| Holder::new(name, entry.owner.to_string(), HolderState::Held))
            }
            Fault::ReleasedStaysVisible if holder.is_none() => {
                let ghosts = self.ghosts.lock().unwrap_or_else(PoisonError::into_inner);
                ghosts
                    .iter()
                    .find(|(ghost, until)| ghost.name == name && *until > self.now())
                    .map(|(ghost, _)| ghost.clone())
            }
            _ => holder,
        })
    }

    async fn list(&self, prefix: &str, page: Page) -> Result<Vec<Holder>, LockError> {
        match self.fault {
            Fault::ListIgnoresPrefix => self.sound.list("", page).await,
            Fault::ListRepeatsPage => self.sound.list(prefix, Page { after: None, ..page }).await,
            _ => self.sound.list(prefix, page).await,
        }
    }

    async fn revoke(&self, name: &LockName, expect: Option<FencingToken>, how: Revoke) -> Result<Released, LockError> {
        let name = self.name(name);
        match self.fault {
            Fault::MarkDeletes => self.sound.revoke(&name, expect, Revoke::Now).await,
            Fault::RevokeIgnoresToken => self.sound.revoke(&name, None, how).await,
            Fault::RevokeUnnoticed if how == Revoke::Mark => {
                self.tamper(&name, |entry| entry.revoked = true);
                Ok(Released::Released)
            }
            Fault::TokenRestartsAfterRemoval if how == Revoke::Now => {
                let answer = self.sound.revoke(&name, expect, how).await;
                self.sound.store.inner().last_token = 0;
                answer
            }
            Fault::KindsBlurred => match self.sound.revoke(&name, expect, how).await? {
                Released::NotHeld => Err(LockError::new(ErrorKind::Internal, "something went wrong")),
                released => Ok(released),
            },
            _ => self.sound.revoke(&name, expect, how).await,
        }
    }

    async fn diagnose(&self) -> Result<Diagnosis, LockError> {
        self.sound.diagnose().await
    }

    async fn close(&self) -> Result<(), LockError> {
        self.sound.close().await
    }
}

struct Quitter<'a> {
    mutant: &'a Mutant,
    request: &'a AcquireRequest,
    armed: bool,
}

impl Drop for Quitter<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.mutant.stand_for_ever(&self.request.name, self.request.owner);
        }
    }
}

#[derive(Debug)]
struct MutantLease {
    mutant: Mutant,
    inner: MemoryLease,
    renewals: u64,
}

#[async_trait]
impl Lease for MutantLease {
    fn fencing_token(&self) -> FencingToken {
        let changed = if self.mutant.is(Fault::TokenChangesOnRenew) { self.renewals } else { 0 };
        FencingToken::new(self.inner.fencing_token().get() + changed)
    }

    fn effective_ttl(&self) -> Duration {
        self.inner.effective_ttl()
    }

    fn valid_until(&self) -> Deadline {
        match self.mutant.fault {
            Fault::ValidityWithoutMargin => self.inner.entry.sent.after(self.inner.entry.ttl),
            _ => self.inner.valid_until(),
        }
    }

    fn loss(&self) -> BoxFuture<'static, LostReason> {
        let loss = self.inner.loss();
        match self.mutant.fault {
            Fault::LossNeverPushed => Box::pin(std::future::pending()),
            Fault::ReasonAlwaysExpired => Box::pin(async move {
                loss.await;
                LostReason::Expired
            }),
            _ => loss,
        }
    }

    async fn renew(&mut self) -> Result<Renewal, LockError> {
        let now = self.mutant.now();
        let (name, ttl) = (self.inner.entry.name.clone(), self.inner.entry.ttl);
        let before = self.mutant.sound.store.inner().entries.get(&name).map(|entry| entry.expires);
        let confirmed = match self.mutant.fault {
            Fault::RenewLies => true,
            Fault::RevokeUnnoticed => {
                let entry = self.mutant.sound.store.inner().entries.get(&name).cloned();
                entry.is_some_and(|entry| entry.owner == self.inner.entry.owner && entry.revoked)
            }
            Fault::RenewIgnoresOwner if before.is_some() => {
                self.mutant.tamper(&name, |entry| entry.expires = now.after(ttl));
                true
            }
            _ => false,
        };
        if confirmed {
            self.inner.entry.sent = now;
            return Ok(Renewal::Renewed);
        }
        let answer = self.inner.renew().await?;
        self.renewals += 1;
        let again = match answer {
            Renewal::Lost(LostReason::Removed) => self.mutant.is(Fault::RenewCreates),
            Renewal::Lost(LostReason::Expired) => self.mutant.is(Fault::RenewRevives),
            _ => false,
        };
        if again {
            self.inner.entry.sent = now;
            let entry = Entry { expires: now.after(ttl), lost: Arc::default(), ..self.inner.entry.clone() };
            self.mutant.sound.store.inner().entries.insert(name, entry);
            return Ok(Renewal::Renewed);
        }
        if let (Fault::RenewAdds, Some(before)) = (self.mutant.fault, before) {
            self.mutant.tamper(&name, |entry| entry.expires = before.after(ttl));
        }
        self.mutant.set_expiry(&name, ttl);
        Ok(match answer {
            Renewal::Lost(_) if self.mutant.is(Fault::ReasonAlwaysExpired) => Renewal::Lost(LostReason::Expired),
            answer => answer,
        })
    }

    async fn release(&mut self) -> Result<Released, LockError> {
        let store = &self.mutant.sound.store;
        let name = &self.inner.entry.name;
        match self.mutant.fault {
            Fault::ReleaseLies => return Ok(Released::Released),
            Fault::ReleaseIgnoresOwner => {
                let present = store.inner().entries.get(name).map(|entry| entry.owner);
                return Ok(store.release(name, &present.unwrap_or(self.inner.entry.owner)));
            }
            Fault::ReleasedStaysVisible => {
                let mut ghosts = self.mutant.ghosts.lock().unwrap_or_else(PoisonError::into_inner);
                ghosts.extend(store.holder(name).map(|holder| (holder, self.mutant.now().after(GHOST_LIFE))));
            }
            Fault::TokenRestartsAfterRelease => store.inner().last_token = 0,
            _ => {}
        }
        let answer = self.inner.release().await?;
        Ok(if self.mutant.is(Fault::ReleaseAlwaysReleased) { Released::Released } else { answer })
    }
}
