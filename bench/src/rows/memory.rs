//! The floor of one process: a mutex of the runtime for each name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use conformance_tests::Stop;
use tokio::sync::{Mutex as Queue, OwnedMutexGuard};

use crate::workers::Client;

#[derive(Default)]
pub struct InProcess(Mutex<HashMap<String, Arc<Queue<()>>>>);

impl Client for InProcess {
    type Held = OwnedMutexGuard<()>;

    async fn acquire(&self, name: &str) -> Result<Self::Held, Stop> {
        let queue = {
            let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(names.entry(name.to_owned()).or_default())
        };
        Ok(queue.lock_owned().await)
    }

    async fn release(&self, held: Self::Held) -> Result<(), Stop> {
        drop(held);
        Ok(())
    }
}
