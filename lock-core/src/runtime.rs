//! The thread on which drivers, heart-beats and keepers live, where no user code can block them.

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::{ErrorKind, LockError};

/// The runtime of a manager: its own thread, which ends when this is dropped, or one that the user lent.
#[derive(Debug)]
pub(crate) struct Runtime {
    pub(crate) handle: Handle,
    // Never sent on: the thread ends when it is dropped.
    alive: Option<oneshot::Sender<()>>,
}

impl Runtime {
    pub(crate) fn own_thread() -> Result<Self, LockError> {
        let failed = |what: &str, e: std::io::Error| LockError::new(ErrorKind::Internal, what).source(e);
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| failed("the runtime of the lock manager could not be built", e))?;
        let handle = runtime.handle().clone();
        let (alive, ended) = oneshot::channel::<()>();
        std::thread::Builder::new()
            .name("distlock".into())
            .spawn(move || {
                let _ = runtime.block_on(ended);
                // Tasks are dropped, work of the blocking pool is left to end by itself.
                runtime.shutdown_background();
            })
            .map_err(|e| failed("the thread of the lock manager could not be started", e))?;
        Ok(Self { handle, alive: Some(alive) })
    }

    /// Whether it is a thread that goes on while the caller blocks.
    pub(crate) fn is_own(&self) -> bool {
        self.alive.is_some()
    }

    pub(crate) fn lent(handle: Handle) -> Self {
        Self { handle, alive: None }
    }
}
