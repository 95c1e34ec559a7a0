//! Ours, as a user has it: a guard with a keeper, a fencing token and a label.

use conformance_tests::Stop;
use distlock::{LockGuard, LockManager, Options, Released};

use crate::workers::Client;

pub struct Ours(LockManager);

/// Where drivers and keepers live.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// On the runtime of the one who locks.
    Runtime,
    /// On the manager's own thread, as without any option.
    Thread,
}

impl Ours {
    pub async fn connect(url: &str, home: Home) -> Result<Self, Stop> {
        let mut options = Options::new();
        if home == Home::Runtime {
            options = options.runtime(tokio::runtime::Handle::current());
        }
        Ok(Self(options.connect(url).await?))
    }
}

impl Client for Ours {
    type Held = LockGuard;

    async fn acquire(&self, name: &str) -> Result<LockGuard, Stop> {
        Ok(self.0.lock(name).acquire().await?)
    }

    async fn release(&self, held: LockGuard) -> Result<(), Stop> {
        match held.release().await? {
            Released::Released => Ok(()),
            Released::NotHeld => Err("the lock was lost on the way".into()),
        }
    }
}
