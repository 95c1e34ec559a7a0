//! How to connect, beyond the URL.

use std::time::Duration;

use lock_core::{LockError, LockManager, ManagerBuilder, Namespace, Ttl};
use tokio::runtime::Handle;

use crate::Registry;
use crate::url::BackendUrl;

/// Settings for a connection; what is not set keeps its default.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::LockError> {
/// use std::time::Duration;
/// use distlock::{Namespace, Options, Ttl};
///
/// let locks = Options::new()
///     .namespace(Namespace::new("prod/")?)
///     .ttl(Ttl::new(Duration::from_secs(10))?)
///     .wait(Duration::from_secs(5))
///     .connect("memory:")
///     .await?;
/// # locks.close().await
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "options do nothing until `connect` is called"]
pub struct Options {
    namespace: Namespace,
    ttl: Option<Ttl>,
    wait: Option<Duration>,
    operation_timeout: Option<Duration>,
    connect_timeout: Option<Duration>,
    runtime: Option<Handle>,
    registry: Registry,
}

impl Options {
    /// The defaults: no namespace, a TTL of 30 s, waiting without limit, 5 s to connect, 2 s for an operation,
    /// keepers on a thread of their own, the backends that features build in.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a prefix before each name.
    pub fn namespace(mut self, namespace: Namespace) -> Self {
        self.namespace = namespace;
        self
    }

    /// The TTL of requests that set none.
    pub fn ttl(mut self, ttl: Ttl) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// The wait limit of requests that set none.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = Some(limit);
        self
    }

    /// The bound on one request to the server.
    pub fn operation_timeout(mut self, bound: Duration) -> Self {
        self.operation_timeout = Some(bound);
        self
    }

    /// The bound on connecting.
    pub fn connect_timeout(mut self, bound: Duration) -> Self {
        self.connect_timeout = Some(bound);
        self
    }

    /// Runs connections and keepers on this runtime instead of on a thread of their own. User code that blocks it then delays renewals.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Chooses among these backends.
    pub fn registry(mut self, registry: Registry) -> Self {
        self.registry = registry;
        self
    }

    /// Connects to the backend that `url` names.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for a malformed URL, an unknown scheme (the text lists the known ones), one whose feature is not
    /// built in (the text names it), or an unknown parameter; [`Denied`](crate::ErrorKind::Denied) for wrong credentials;
    /// [`Unavailable`](crate::ErrorKind::Unavailable) when the server cannot be reached within the connect time-out. No text holds a secret.
    ///
    /// # Cancel safety
    /// Dropping it drops the connection; nothing is left behind.
    pub async fn connect(self, url: &str) -> Result<LockManager, LockError> {
        let url = BackendUrl::parse(url)?;
        let (scheme, open) = self.registry.find(&url.scheme)?;
        let mut builder = LockManager::builder().namespace(self.namespace);
        builder = set(builder, self.ttl, ManagerBuilder::ttl);
        builder = set(builder, self.wait.map(Some), ManagerBuilder::default_wait);
        builder = set(builder, self.operation_timeout, ManagerBuilder::operation_timeout);
        builder = set(builder, self.connect_timeout, ManagerBuilder::connect_timeout);
        builder = set(builder, self.runtime, ManagerBuilder::runtime);
        builder = set(builder, url.fence_base, ManagerBuilder::fence_base);
        builder.connect(open(&url.rest)).await.map_err(|e| e.backend(scheme))
    }
}

fn set<T>(builder: ManagerBuilder, value: Option<T>, with: fn(ManagerBuilder, T) -> ManagerBuilder) -> ManagerBuilder {
    match value {
        Some(value) => with(builder, value),
        None => builder,
    }
}
