//! What a case works with.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_core::{
    AcquireRequest, Acquisition, Capabilities, DistributedLock, Lease, LockManager, LockName, ManagerBuilder, Owner,
    Released, Renewal, Ttl, Wait,
};
use tokio::time::{Instant, sleep};

use crate::proxy::Proxy;
use crate::{Entry, Harness, Instance, Server, Stop, ensure};

/// The slack that a busy machine with two cores is given.
pub(crate) const SLACK: Duration = Duration::from_millis(500);

/// A number of milliseconds.
pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Looks again and again until the condition holds; whether it did within `bound`.
///
/// # Cancel safety
/// Dropping it loses nothing.
pub async fn eventually<F: Future<Output = bool>>(bound: Duration, mut condition: impl FnMut() -> F) -> bool {
    let end = Instant::now() + bound;
    loop {
        if condition().await {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        sleep(ms(5)).await;
    }
}

/// An instance of the backend, and fresh names on it.
#[derive(Debug)]
pub(crate) struct Bench {
    harness: Arc<dyn Harness>,
    instance: Arc<dyn Instance>,
    capabilities: Capabilities,
    /// The names that the case was given, to be looked at when it has ended.
    names: Mutex<Vec<LockName>>,
    prefix: String,
}

impl Bench {
    /// A bench on an instance.
    pub(crate) async fn new(harness: Arc<dyn Harness>, instance: Arc<dyn Instance>) -> Result<Self, Stop> {
        let client = harness.connect(&instance.url()).await?;
        let capabilities = client.capabilities().clone();
        client.close().await?;
        let prefix = Owner::random()?.to_string()[..12].to_owned();
        Ok(Self { harness, instance, capabilities, names: Mutex::default(), prefix })
    }

    /// A bench on an instance of its own, for faults that hit a whole server. It is checked when the case calls [`Bench::finish`].
    pub(crate) async fn own(&self) -> Result<Self, Stop> {
        Self::new(Arc::clone(&self.harness), self.harness.start().await?).await
    }

    /// What the backend declares.
    pub(crate) fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// The harness.
    pub(crate) fn harness(&self) -> &Arc<dyn Harness> {
        &self.harness
    }

    /// Where clients reach the instance.
    pub(crate) fn url(&self) -> String {
        self.instance.url()
    }

    /// A TTL of so many milliseconds, or the least one that the backend grants as it is.
    pub(crate) fn ttl(&self, milliseconds: u64) -> Duration {
        ms(milliseconds).max(self.capabilities.min_ttl)
    }

    /// When an abandoned lease of this TTL must be free at the latest.
    pub(crate) fn end_of(&self, ttl: Duration) -> Duration {
        ttl + Duration::from_secs(1) + self.capabilities.expiry_grain
    }

    /// A name that nobody uses.
    pub(crate) fn name(&self) -> LockName {
        let count = self.names().len();
        // Short and plain, so that it is a name everywhere.
        self.name_of(&count.to_string()).unwrap_or_else(|_| unreachable!())
    }

    /// A name of this case that ends with `text`.
    pub(crate) fn name_of(&self, text: &str) -> Result<LockName, Stop> {
        self.own_name(&format!("{}-{text}", self.prefix))
    }

    /// The very name, to be checked for residue like the others.
    pub(crate) fn own_name(&self, name: &str) -> Result<LockName, Stop> {
        let name = LockName::new(name)?;
        self.names().push(name.clone());
        Ok(name)
    }

    /// What all names of this case start with.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A fresh client, as another process would have it.
    pub(crate) async fn client(&self) -> Result<Client, Stop> {
        self.client_at(&self.url()).await
    }

    /// A fresh client behind a proxy.
    pub(crate) async fn client_via(&self, proxy: &Proxy) -> Result<Client, Stop> {
        self.client_at(&self.url_via(proxy)?).await
    }

    async fn client_at(&self, url: &str) -> Result<Client, Stop> {
        Ok(Client { lock: self.harness.connect(url).await? })
    }

    /// A manager with the defaults over a fresh client, as a program would have it.
    pub(crate) async fn manager(&self) -> Result<LockManager, Stop> {
        self.manager_at(self.url(), LockManager::builder()).await
    }

    /// A manager behind a proxy.
    pub(crate) async fn manager_via(&self, proxy: &Proxy) -> Result<LockManager, Stop> {
        self.manager_at(self.url_via(proxy)?, LockManager::builder()).await
    }

    /// A manager with settings, at a URL.
    pub(crate) async fn manager_at(&self, url: String, settings: ManagerBuilder) -> Result<LockManager, Stop> {
        let harness = Arc::clone(&self.harness);
        Ok(settings.connect(async move { harness.connect(&url).await }).await?)
    }

    /// A proxy before the instance.
    pub(crate) async fn proxy(&self) -> Result<Proxy, Stop> {
        self.instance.proxy().await
    }

    /// The URL that leads through a proxy.
    pub(crate) fn url_via(&self, proxy: &Proxy) -> Result<String, Stop> {
        Ok(self.instance.url_via(proxy.address()).ok_or("the harness has no URL through a proxy")?)
    }

    /// The server's process.
    pub(crate) fn server(&self) -> Result<&dyn Server, Stop> {
        Ok(self.instance.server().ok_or("the harness has no server to control")?)
    }

    /// Loses all data.
    pub(crate) async fn wipe(&self) -> Result<(), Stop> {
        self.instance.wipe().await
    }

    /// What the store shows under the name.
    pub(crate) async fn peek(&self, name: &LockName) -> Result<Option<Entry>, Stop> {
        self.instance.peek(name).await
    }

    /// Removes the entry by hand.
    pub(crate) async fn remove(&self, name: &LockName) -> Result<(), Stop> {
        self.instance.remove(name).await
    }

    /// Puts another owner's entry there by hand.
    pub(crate) async fn replace_owner(&self, name: &LockName, ttl: Duration) -> Result<String, Stop> {
        self.instance.replace_owner(name, ttl).await
    }

    /// Puts something there that is no lock's; `false` when there is no such kind.
    pub(crate) async fn put_foreign(&self, name: &LockName, kind: usize) -> Result<bool, Stop> {
        self.instance.put_foreign(name, kind).await
    }

    /// Makes the server refuse writes, or take them again.
    pub(crate) async fn refuse_writes(&self, refuse: bool) -> Result<(), Stop> {
        self.instance.refuse_writes(refuse).await
    }

    /// What the store holds under the name, in words.
    pub(crate) async fn residue(&self, name: &LockName) -> Result<Vec<String>, Stop> {
        self.instance.residue(name).await
    }

    /// Whether the name is free in the store within `bound`.
    pub(crate) async fn is_free_within(&self, name: &LockName, bound: Duration) -> bool {
        eventually(bound, || async { matches!(self.peek(name).await, Ok(None)) }).await
    }

    /// Looks for what the case has left behind under its names (rule R1).
    pub(crate) async fn finish(&self) -> Result<(), Stop> {
        let names = std::mem::take(&mut *self.names());
        for name in names {
            let mut left = Vec::new();
            for _ in 0..150 {
                left = self.instance.residue(&name).await?;
                if left.is_empty() {
                    break;
                }
                sleep(ms(20)).await;
            }
            ensure!(left.is_empty(), "left behind under '{name}': {left:?}");
        }
        Ok(())
    }

    /// Leaves what stands under the names of this case out of the check at its end, where the case itself put it there.
    pub(crate) async fn sweep(&self) -> Result<(), Stop> {
        let names = self.names().clone();
        for name in names {
            self.remove(&name).await?;
        }
        Ok(())
    }

    fn names(&self) -> std::sync::MutexGuard<'_, Vec<LockName>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client of the backend, used as the keeper uses it, with what a case needs around.
#[derive(Clone)]
pub(crate) struct Client {
    lock: Arc<dyn DistributedLock>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock.fmt(f)
    }
}

impl Deref for Client {
    type Target = dyn DistributedLock;

    fn deref(&self) -> &Self::Target {
        &*self.lock
    }
}

impl Client {
    /// A request of a new owner that does not wait.
    pub(crate) fn request(&self, name: &LockName, ttl: Duration) -> Result<AcquireRequest, Stop> {
        let mut request = AcquireRequest::new(name.clone(), Owner::random()?);
        request.ttl = Ttl::new(ttl)?;
        request.renewed = false;
        request.label = "conformance".into();
        Ok(request)
    }

    /// A request of a new owner that waits so long.
    pub(crate) fn waiting_request(
        &self,
        name: &LockName,
        ttl: Duration,
        wait: Duration,
    ) -> Result<AcquireRequest, Stop> {
        let mut request = self.request(name, ttl)?;
        request.wait = Wait::Until(request.clock.now().after(wait));
        Ok(request)
    }

    /// Makes a request; `None` when the name is busy.
    pub(crate) async fn ask(&self, request: &AcquireRequest) -> Result<Option<Box<dyn Lease>>, Stop> {
        Ok(match self.lock.acquire(request).await? {
            Acquisition::Granted(lease) => Some(lease),
            Acquisition::Busy(_) => None,
        })
    }

    /// Acquires without waiting; `None` when the name is busy.
    pub(crate) async fn try_take(&self, name: &LockName, ttl: Duration) -> Result<Option<Box<dyn Lease>>, Stop> {
        self.ask(&self.request(name, ttl)?).await
    }

    /// Acquires a name that must be free.
    pub(crate) async fn take(&self, name: &LockName, ttl: Duration) -> Result<Box<dyn Lease>, Stop> {
        Ok(self.try_take(name, ttl).await?.ok_or_else(|| format!("'{name}' is busy, and should be free"))?)
    }

    /// Acquires within `wait`.
    pub(crate) async fn wait_take(
        &self,
        name: &LockName,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Box<dyn Lease>, Stop> {
        let lease = self.ask(&self.waiting_request(name, ttl, wait)?).await?;
        Ok(lease.ok_or_else(|| format!("'{name}' did not become free within {wait:?}"))?)
    }

    /// Whether somebody holds the name, by asking for it: a grant is given back at once.
    pub(crate) async fn is_busy(&self, name: &LockName) -> Result<bool, Stop> {
        match self.try_take(name, Duration::from_secs(5)).await? {
            None => Ok(true),
            // What the release says is another case's matter.
            Some(mut lease) => Ok(lease.release().await.map(|_| false)?),
        }
    }
}

/// Releases a lease that must still be held.
pub(crate) async fn give_back(mut lease: Box<dyn Lease>) -> Result<(), Stop> {
    let answer = lease.release().await?;
    ensure!(answer == Released::Released, "the release of a living lease answered {answer:?}");
    Ok(())
}

/// Renews a lease that must still be held.
pub(crate) async fn keep(lease: &mut Box<dyn Lease>) -> Result<(), Stop> {
    let answer = lease.renew().await?;
    ensure!(answer == Renewal::Renewed, "the renewal of a living lease answered {answer:?}");
    Ok(())
}
