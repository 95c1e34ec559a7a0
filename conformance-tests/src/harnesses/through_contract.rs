//! A look into a store through the contract itself, where there is no other way in.
//!
//! A suite that looks through the code under test believes what that code says: a harness that can look past it should.
//! Each function fails as the contract's calls do, and dropping one of them loses its answer only.

use std::time::Duration;

use lock_core::{AcquireRequest, Acquisition, DistributedLock, HolderState, LockName, Owner, Revoke, Ttl};

use crate::{Entry, Stop};

/// [`Instance::peek`](crate::Instance::peek) by `inspect`.
pub async fn peek(lock: &dyn DistributedLock, name: &LockName) -> Result<Option<Entry>, Stop> {
    let holder = lock.inspect(name).await?;
    Ok(holder.map(|holder| Entry { owner: holder.owner, remaining: holder.remaining }))
}

/// [`Instance::remove`](crate::Instance::remove) by `revoke`.
pub async fn remove(lock: &dyn DistributedLock, name: &LockName) -> Result<(), Stop> {
    lock.revoke(name, None, Revoke::Now).await?;
    Ok(())
}

/// [`Instance::replace_owner`](crate::Instance::replace_owner) by `revoke` and `acquire`.
pub async fn replace_owner(lock: &dyn DistributedLock, name: &LockName, ttl: Duration) -> Result<String, Stop> {
    remove(lock, name).await?;
    let mut request = AcquireRequest::new(name.clone(), Owner::random()?);
    request.ttl = Ttl::new(ttl)?;
    request.renewed = false;
    match lock.acquire(&request).await? {
        Acquisition::Granted(_) => Ok(request.owner.to_string()),
        Acquisition::Busy(_) => Err("somebody entered between removing and taking over".into()),
    }
}

/// [`Instance::residue`](crate::Instance::residue) by `inspect`, which shows an entry and how many wait for it.
pub async fn residue(lock: &dyn DistributedLock, name: &LockName) -> Result<Vec<String>, Stop> {
    let Some(holder) = lock.inspect(name).await? else { return Ok(Vec::new()) };
    let state = match holder.state {
        HolderState::Reserved => "reserved for a waiter",
        other => other.as_str(),
    };
    Ok(vec![format!("{state} by '{}', waiters: {:?}", holder.owner, holder.waiters)])
}
