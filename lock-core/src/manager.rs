//! The entrance for users: a backend, its runtime and the defaults of its locks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::decorators::{FenceBase, Instrumented, Namespaced};
use crate::runtime::Runtime;
use crate::shared::Shared;
use crate::{
    AcquireRequest, Capabilities, Clock, Diagnosis, DistributedLock, ErrorKind, FencingToken, Holder, LockError,
    LockName, LockRequest, Namespace, Page, Released, Revoke, Ttl,
};

/// Hands out locks of one backend. A clone is cheap and stands for the same manager.
///
/// Its futures need no particular executor: drivers and keepers live on a thread of the manager's own, unless
/// [`ManagerBuilder::runtime`] says otherwise. When the last clone and the last guard are gone, the thread ends. The drop of the last clone
/// waits up to 100 ms for releases of guards that were dropped just before, since at the end of `main` nobody else would; to be certain of them,
/// [`close`](Self::close).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
/// use std::sync::Arc;
/// use lock_core::{LockManager, memory::MemoryLock};
/// let locks = LockManager::new(Arc::new(MemoryLock::new()))?;
/// if let Some(guard) = locks.lock("nightly").try_acquire().await? {
///     println!("token {}", guard.fencing_token());
/// }
/// locks.close().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct LockManager {
    // Before `shared`, so that it goes first.
    _last: Arc<LastClone>,
    shared: Arc<Shared>,
    defaults: Defaults,
}

/// Goes with the last clone of a manager. Where `main` ends with a guard in its hands, that is the last moment at which the release can
/// still be sent, so a short while is given to it.
#[derive(Debug)]
struct LastClone(Arc<Shared>);

/// How long the last clone of a manager waits in its drop for releases that are under way.
const FAREWELL: Duration = Duration::from_millis(100);

impl Drop for LastClone {
    fn drop(&mut self) {
        let start = std::time::Instant::now();
        while self.0.runtime.is_own()
            && self.0.departures.load(Ordering::Acquire) > 0
            && start.elapsed() < FAREWELL
            && !self.0.closing.is_cancelled()
        {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

/// What a request starts with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    pub(crate) ttl: Ttl,
    pub(crate) wait: Option<Duration>,
}

impl LockManager {
    /// A manager with the defaults over a backend that needs no runtime to be connected.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when the thread cannot be started.
    pub fn new(backend: Arc<dyn DistributedLock>) -> Result<Self, LockError> {
        Self::builder().build(backend)
    }

    /// A manager with settings.
    pub fn builder() -> ManagerBuilder {
        ManagerBuilder::default()
    }

    /// Starts a request for a name; nothing is checked or sent before it is awaited.
    pub fn lock(&self, name: impl Into<String>) -> LockRequest {
        LockRequest::new(self.shared.clone(), self.defaults, name.into())
    }

    /// What the backend declares.
    pub fn capabilities(&self) -> &Capabilities {
        self.shared.backend.capabilities()
    }

    /// Who holds a name now; `None` when it is free.
    ///
    /// # Errors
    /// `InvalidName`, `Unavailable`, `Denied`, `Foreign`, `Closed`, `Internal`.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub async fn inspect(&self, name: &str) -> Result<Option<Holder>, LockError> {
        let name = LockName::new(name).map_err(|e| e.operation("inspect"))?;
        self.call("inspect", Some(name.clone()), move |backend| async move { backend.inspect(&name).await }).await
    }

    /// The held names that start with `prefix`, sorted, a page at a time.
    ///
    /// # Errors
    /// `Unavailable`, `Denied`, `Unsupported`, `Closed`, `Internal`.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub async fn list(&self, prefix: &str, page: Page) -> Result<Vec<Holder>, LockError> {
        let prefix = prefix.to_owned();
        self.call("list", None, move |backend| async move { backend.list(&prefix, page).await }).await
    }

    /// Breaks a lock: its holder is told that it has lost it (rule O3). With `expect`, only if its token is that one.
    ///
    /// # Errors
    /// `InvalidName`, `Unavailable`, `Denied`, `Foreign`, `Unsupported`, `Closed`, `Internal`.
    ///
    /// # Cancel safety
    /// Dropping it loses the answer only.
    pub async fn revoke(&self, name: &str, expect: Option<FencingToken>, how: Revoke) -> Result<Released, LockError> {
        let name = LockName::new(name).map_err(|e| e.operation("revoke"))?;
        self.call("revoke", Some(name.clone()), move |backend| async move { backend.revoke(&name, expect, how).await })
            .await
    }

    /// Whether the backend can keep its promises as it is configured.
    ///
    /// # Errors
    /// `Unavailable`, `Denied`, `Closed`, `Internal`.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub async fn diagnose(&self) -> Result<Diagnosis, LockError> {
        let mut found = self.call("diagnose", None, |backend| async move { backend.diagnose().await }).await?;
        found.declared(self.capabilities());
        Ok(found)
    }

    /// Ends the manager, for all its clones: later requests are `Closed`, those that wait get `Closed`, living guards are lost with
    /// [`LostReason::Closed`](crate::LostReason::Closed). Then it waits for all pending releases: a lock whose guard still lives is
    /// released when the guard goes or its TTL has passed. Connections are closed last.
    ///
    /// # Errors
    /// `Unavailable` or `Internal` when a connection does not close in order; the manager is closed all the same.
    ///
    /// # Cancel safety
    /// Dropping it stops the waiting only; releases go on while the process lives, and it may be called again.
    pub async fn close(&self) -> Result<(), LockError> {
        self.shared.closing.cancel();
        self.shared.alarm();
        self.shared.keepers.close();
        self.shared.keepers.wait().await;
        self.on_runtime("close", None, |backend| async move { backend.close().await }).await
    }

    async fn call<T, F, Fut>(&self, operation: &'static str, name: Option<LockName>, call: F) -> Result<T, LockError>
    where
        T: Send + 'static,
        F: FnOnce(Arc<dyn DistributedLock>) -> Fut,
        Fut: Future<Output = Result<T, LockError>> + Send + 'static,
    {
        if self.shared.closing.is_cancelled() {
            let error = LockError::new(ErrorKind::Closed, "the lock manager was closed").advice("connect anew");
            return Err(error.backend(self.capabilities().backend).operation(operation));
        }
        self.on_runtime(operation, name, call).await
    }

    /// Runs one call where the drivers live, bounded like any request.
    async fn on_runtime<T, F, Fut>(
        &self,
        operation: &'static str,
        name: Option<LockName>,
        call: F,
    ) -> Result<T, LockError>
    where
        T: Send + 'static,
        F: FnOnce(Arc<dyn DistributedLock>) -> Fut,
        Fut: Future<Output = Result<T, LockError>> + Send + 'static,
    {
        let shared = &self.shared;
        let call = crate::bounded(shared.operation_timeout * 2, call(Arc::clone(&shared.backend)));
        let answer = joined(shared.runtime.handle.spawn(call)).await;
        answer.map_err(|error| {
            let error = error.backend(self.capabilities().backend).operation(operation);
            match &name {
                Some(name) => error.name(name),
                None => error,
            }
        })
    }
}

async fn joined<T>(task: tokio::task::JoinHandle<Result<T, LockError>>) -> Result<T, LockError> {
    task.await.unwrap_or_else(|e| {
        let what = if e.is_panic() { "the backend panicked" } else { "the runtime of the lock manager has ended" };
        Err(LockError::new(ErrorKind::Internal, what).source(e))
    })
}

/// The settings of a [`LockManager`].
#[derive(Debug)]
#[must_use]
pub struct ManagerBuilder {
    clock: Clock,
    runtime: Option<Handle>,
    namespace: Namespace,
    fence_base: u64,
    defaults: Defaults,
    operation_timeout: Duration,
    connect_timeout: Duration,
}

impl Default for ManagerBuilder {
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            runtime: None,
            namespace: Namespace::default(),
            fence_base: 0,
            defaults: Defaults { ttl: Ttl::DEFAULT, wait: None },
            operation_timeout: AcquireRequest::OPERATION_TIMEOUT,
            connect_timeout: Self::CONNECT_TIMEOUT,
        }
    }
}

impl ManagerBuilder {
    /// The default bound on connecting: 5 s.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

    /// The clock by which leases are judged; the machine's own by default.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Puts drivers and keepers on a runtime of the user's instead of a thread of the manager's own.
    ///
    /// Quicker by a hop between threads, but code that blocks that runtime starves renewals, and locks that are still held when it
    /// is shut down stay until their TTL is over.
    pub fn runtime(mut self, handle: Handle) -> Self {
        self.runtime = Some(handle);
        self
    }

    /// What is put before each name; nothing by default.
    pub fn namespace(mut self, namespace: Namespace) -> Self {
        self.namespace = namespace;
        self
    }

    /// What is added to each fencing token, for a swap of backends (rule F3); 0 by default.
    pub fn fence_base(mut self, base: u64) -> Self {
        self.fence_base = base;
        self
    }

    /// The TTL of requests that set none; 30 s by default.
    pub fn ttl(mut self, ttl: Ttl) -> Self {
        self.defaults.ttl = ttl;
        self
    }

    /// The wait limit of requests that set none; without limit by default.
    pub fn default_wait(mut self, limit: Option<Duration>) -> Self {
        self.defaults.wait = limit;
        self
    }

    /// The bound on each request to the server; 2 s by default.
    pub fn operation_timeout(mut self, limit: Duration) -> Self {
        self.operation_timeout = limit.max(Duration::from_millis(10));
        self
    }

    /// The bound on connecting; 5 s by default.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// Connects on the manager's runtime, where the driver's own tasks then live.
    ///
    /// # Errors
    /// Those of the connection; `Unavailable` when it is not made within the time-out.
    ///
    /// # Cancel safety
    /// Dropping it gives the connection up within the connect time-out.
    pub async fn connect(
        self,
        connection: impl Future<Output = Result<Arc<dyn DistributedLock>, LockError>> + Send + 'static,
    ) -> Result<LockManager, LockError> {
        let runtime = self.make_runtime()?;
        let connection = crate::bounded(self.connect_timeout, connection);
        let backend = joined(runtime.handle.spawn(connection)).await.map_err(|e| e.operation("connect"))?;
        Ok(self.assemble(backend, runtime))
    }

    /// Takes a backend that is connected already, or need not be.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when the thread cannot be started.
    pub fn build(self, backend: Arc<dyn DistributedLock>) -> Result<LockManager, LockError> {
        let runtime = self.make_runtime()?;
        Ok(self.assemble(backend, runtime))
    }

    fn make_runtime(&self) -> Result<Runtime, LockError> {
        match &self.runtime {
            Some(handle) => Ok(Runtime::lent(handle.clone())),
            None => Runtime::own_thread(),
        }
    }

    fn assemble(self, backend: Arc<dyn DistributedLock>, runtime: Runtime) -> LockManager {
        let mut backend: Arc<dyn DistributedLock> = Arc::new(Instrumented::new(backend, self.clock.clone()));
        if self.fence_base != 0 {
            backend = Arc::new(FenceBase::new(backend, self.fence_base));
        }
        if !self.namespace.as_str().is_empty() {
            backend = Arc::new(Namespaced::new(backend, self.namespace));
        }
        let shared = Shared::new(backend, self.clock, self.operation_timeout, runtime);
        LockManager { _last: Arc::new(LastClone(shared.clone())), shared, defaults: self.defaults }
    }
}
