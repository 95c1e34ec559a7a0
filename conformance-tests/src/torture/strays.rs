//! Clients that are frozen, or die, with a lease or a request of theirs: played through the backend's own contract, since the keeper of a program
//! that lives would not let it happen.

use std::time::Duration;

use lock_core::{
    AcquireRequest, Acquisition, Clock, DistributedLock, FencingToken, Lease, LockName, Owner, Released, Renewal, Ttl,
    Wait,
};
use tokio::time::{sleep, timeout};

use super::SLACK;
use super::history::{nanos, span};
use super::record::Struck;
use crate::{Instance, Stop};

/// How long an entry lives that nobody renews.
pub(super) const TTL: Duration = Duration::from_secs(2);

/// One that is so short that the client sleeps through it.
const SHORT: Duration = Duration::from_millis(300);

/// A client of the backend, and what it may look at.
pub(super) struct Stray<'a> {
    pub(super) lock: &'a dyn DistributedLock,
    pub(super) instance: &'a dyn Instance,
    pub(super) struck: &'a mut Struck,
}

impl Stray<'_> {
    /// Takes a name, renews often, and is never heard of again.
    pub(super) async fn dies(&mut self, name: LockName) -> Result<(), Stop> {
        let (mut lease, owner) = self.takes(&name, TTL).await?;
        // Renewing sets the remaining time and adds nothing.
        let token = lease.fencing_token();
        for _ in 0..3 {
            lease.renew().await?;
        }
        self.odd(lease.fencing_token() != token, "F1", "a renewal gave the lease another token");
        self.struck.put = Some((owner.to_string(), nanos(Clock::system().now()) + span(TTL)));
        // A process that is killed drops nothing.
        std::mem::forget(lease);
        Ok(())
    }

    /// All that can happen to somebody who wakes too late, with a name that nobody else takes.
    pub(super) async fn wakes(&mut self, name: &LockName) -> Result<(), Stop> {
        for part in 0..7 {
            match part {
                0 => self.loses_its_entry(name).await?,
                1 => self.asks_again(name).await?,
                2 => self.waits_and_is_gone(name).await?,
                3 => self.sleeps_too_long(name).await?,
                4 => self.is_replaced(name).await?,
                5 => self.is_followed(name, false).await?,
                _ => self.is_followed(name, true).await?,
            }
            // Something broken is known at once, and what it has left would only be in the way of the rest.
            if !self.struck.saw.is_empty() {
                break;
            }
        }
        Ok(())
    }

    fn odd(&mut self, is: bool, rule: &str, text: &str) {
        if is {
            self.struck.saw.push((rule.to_owned(), text.to_owned()));
        }
    }

    async fn takes(&self, name: &LockName, ttl: Duration) -> Result<(Box<dyn Lease>, Owner), Stop> {
        let mut request = AcquireRequest::new(name.clone(), Owner::random()?);
        request.ttl = Ttl::new(ttl)?;
        request.wait = Wait::Until(request.clock.now().after(Duration::from_secs(3)));
        match self.lock.acquire(&request).await? {
            Acquisition::Granted(lease) => Ok((lease, request.owner)),
            Acquisition::Busy(_) => Err("somebody held it".into()),
        }
    }

    async fn sleeps_too_long(&mut self, name: &LockName) -> Result<(), Stop> {
        let (mut lease, _) = self.takes(name, SHORT).await?;
        sleep(lease.effective_ttl() + Duration::from_millis(100)).await;
        let renewed = matches!(lease.renew().await?, Renewal::Renewed);
        self.odd(renewed, "T4", "a renewal after the end of the TTL revived the lease");
        lease.release().await?;
        Ok(())
    }

    async fn loses_its_entry(&mut self, name: &LockName) -> Result<(), Stop> {
        let (mut lease, _) = self.takes(name, TTL).await?;
        self.instance.remove(name).await?;
        let renewed = matches!(lease.renew().await?, Renewal::Renewed);
        self.odd(renewed, "T4", "a renewal after the removal of the entry was confirmed");
        let released = lease.release().await? == Released::Released;
        self.odd(released, "O2", "a release after the removal of the entry says 'released'");
        Ok(())
    }

    async fn is_replaced(&mut self, name: &LockName) -> Result<(), Stop> {
        let (mut lease, _) = self.takes(name, TTL).await?;
        let other = self.instance.replace_owner(name, SHORT * 2).await?;
        let renewed = matches!(lease.renew().await?, Renewal::Renewed);
        self.odd(renewed, "O1", "the lease of another owner was renewed");
        let prolonged = self.instance.peek(name).await?.is_some_and(|entry| entry.remaining > Some(SHORT * 2));
        self.odd(prolonged, "O1", "a renewal prolonged the lease of another owner");
        let released = lease.release().await? == Released::Released;
        self.odd(released, "O2", "a release of the lease of another owner says 'released'");
        let there = self.instance.peek(name).await?;
        // Its time is short on a busy machine: then nobody can know.
        self.odd(there.is_some_and(|entry| entry.owner != other), "O1", "another owner's entry was changed");
        sleep(SHORT * 2).await;
        Ok(())
    }

    /// Its answer was lost, so it asks again; later it gives up what it cannot know.
    async fn asks_again(&mut self, name: &LockName) -> Result<(), Stop> {
        let (lease, owner) = self.takes(name, TTL).await?;
        let token = lease.fencing_token();
        std::mem::forget(lease);
        let mut again = AcquireRequest::new(name.clone(), owner);
        again.ttl = Ttl::new(TTL)?;
        let granted: Option<FencingToken> = match self.lock.acquire(&again).await? {
            Acquisition::Granted(lease) => {
                let token = lease.fencing_token();
                std::mem::forget(lease);
                Some(token)
            }
            Acquisition::Busy(_) => None,
        };
        self.odd(granted != Some(token), "U2", "a second request of the holder was not recognised");
        self.lock.abandon(name, &Owner::random()?).await?;
        let gone = self.instance.peek(name).await?.is_none();
        self.odd(gone, "U1", "giving up a request removed the entry of another owner");
        self.lock.abandon(name, &owner).await?;
        let left = self.instance.peek(name).await?.is_some();
        self.odd(left, "U1", "giving up a request left its entry");
        Ok(())
    }

    /// It dies, and another comes: one that waits, or one that asks again and again.
    async fn is_followed(&mut self, name: &LockName, waits: bool) -> Result<(), Stop> {
        let (mut lease, _) = self.takes(name, SHORT * 3).await?;
        for _ in 0..2 {
            lease.renew().await?;
        }
        let end = Clock::system().now().after(lease.effective_ttl() + Duration::from_secs(1) + SLACK);
        std::mem::forget(lease);
        loop {
            let mut next = AcquireRequest::new(name.clone(), Owner::random()?);
            next.ttl = Ttl::new(SHORT)?;
            next.wait = if waits { Wait::Until(end) } else { Wait::Never };
            if let Acquisition::Granted(mut lease) = self.lock.acquire(&next).await? {
                lease.release().await?;
                return Ok(());
            }
            if next.clock.has_passed(end) {
                self.odd(true, "T1", "a dead holder's name was not free a second after its TTL");
                return Ok(());
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn waits_and_is_gone(&mut self, name: &LockName) -> Result<(), Stop> {
        let (mut lease, _) = self.takes(name, TTL).await?;
        let mut waiter = AcquireRequest::new(name.clone(), Owner::random()?);
        waiter.wait = Wait::Until(waiter.clock.now().after(Duration::from_secs(3)));
        let waited = timeout(Duration::from_millis(50), self.lock.acquire(&waiter)).await;
        if waited.is_ok() {
            return Err("it did not wait".into());
        }
        self.lock.abandon(name, &waiter.owner).await?;
        lease.release().await?;
        let mut next = AcquireRequest::new(name.clone(), Owner::random()?);
        next.ttl = Ttl::new(SHORT)?;
        match self.lock.acquire(&next).await? {
            Acquisition::Granted(mut lease) => drop(lease.release().await?),
            Acquisition::Busy(_) => self.odd(true, "W3", "who gave up waiting left its place in the queue"),
        }
        Ok(())
    }
}
