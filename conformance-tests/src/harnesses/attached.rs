//! A backend that somebody else runs, by its URL.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{DistributedLock, ErrorKind, LockError, LockName};
use lock_redis::{RedisConfig, RedisLock};
use lock_sqlite::{SqliteConfig, SqliteLock};
use url::Url;

use super::redis::RedisStore;
use super::sqlite::SqliteStore;
use crate::{Entry, Harness, Instance, Need, Stop};

/// The backend at a URL. It is not the suite's own, so nothing is stopped, wiped or made read-only.
#[derive(Clone, Debug)]
pub struct Attached {
    url: Option<Url>,
}

impl Attached {
    /// The backend at this URL.
    ///
    /// # Errors
    /// What is wrong with the URL; the text shows no part of it that may be secret.
    pub fn new(url: &str) -> Result<Self, Stop> {
        let url: Url = url.parse().map_err(|e| format!("not a URL: {e}"))?;
        match url.scheme() {
            "sqlite" | "redis" | "rediss" => Ok(Self { url: Some(url) }),
            scheme => Err(format!("there is no harness for '{scheme}'; give sqlite:///path or redis://host").into()),
        }
    }

    /// For a child process, which is told the URL by its parent.
    pub fn unnamed() -> Self {
        Self { url: None }
    }
}

#[async_trait]
impl Harness for Attached {
    fn name(&self) -> &str {
        self.url.as_ref().map_or("unnamed", Url::scheme)
    }

    fn lacks(&self, need: Need) -> Option<&'static str> {
        let is_file = self.name() == "sqlite";
        match need {
            Need::Processes => None,
            Need::Network if is_file => Some("the store is a file, with no line that could fail"),
            Need::Network if self.name() == "rediss" => Some("a proxy cannot stand in a line with TLS"),
            Need::Network => None,
            Need::Foreign if is_file => Some("the file holds nothing but locks"),
            Need::Foreign => None,
            Need::Freeze | Need::Server | Need::Wipe | Need::Refusal => {
                Some("the store is not the suite's to stop or to wipe")
            }
        }
    }

    fn is_partial(&self) -> bool {
        true
    }

    async fn start(&self) -> Result<Arc<dyn Instance>, Stop> {
        let url = self.url.clone().ok_or("there is no URL")?;
        let store = match url.scheme() {
            "sqlite" => Store::Sqlite(SqliteStore(SqliteConfig::from_url(&url)?.path().to_owned())),
            _ => Store::Redis(RedisStore(url.to_string())),
        };
        // Makes the file and its tables, where they are missing.
        self.connect(url.as_str()).await?.close().await?;
        Ok(Arc::new(AttachedInstance { url, store }))
    }

    async fn connect(&self, url: &str) -> Result<Arc<dyn DistributedLock>, LockError> {
        let url: Url = url.parse().map_err(|e| LockError::new(ErrorKind::Config, "not a URL").source(e))?;
        Ok(match url.scheme() {
            "sqlite" => Arc::new(SqliteLock::connect(SqliteConfig::from_url(&url)?).await?),
            _ => Arc::new(RedisLock::connect(RedisConfig::from_url(&url)?).await?),
        })
    }
}

#[derive(Debug)]
enum Store {
    Redis(RedisStore),
    Sqlite(SqliteStore),
}

struct AttachedInstance {
    url: Url,
    store: Store,
}

impl std::fmt::Debug for AttachedInstance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URL may hold a password.
        write!(f, "AttachedInstance({})", self.url.scheme())
    }
}

#[async_trait]
impl Instance for AttachedInstance {
    fn url(&self) -> String {
        self.url.to_string()
    }

    async fn peek(&self, name: &LockName) -> Result<Option<Entry>, Stop> {
        match &self.store {
            Store::Redis(store) => store.peek(name).await,
            Store::Sqlite(store) => store.peek(name).await,
        }
    }

    async fn remove(&self, name: &LockName) -> Result<(), Stop> {
        match &self.store {
            Store::Redis(store) => store.remove(name).await,
            Store::Sqlite(store) => store.remove(name).await,
        }
    }

    async fn replace_owner(&self, name: &LockName, ttl: Duration) -> Result<String, Stop> {
        match &self.store {
            Store::Redis(store) => store.replace_owner(name, ttl).await,
            Store::Sqlite(store) => store.replace_owner(name, ttl).await,
        }
    }

    async fn residue(&self, name: &LockName) -> Result<Vec<String>, Stop> {
        match &self.store {
            Store::Redis(store) => store.residue(name).await,
            Store::Sqlite(store) => store.residue(name).await,
        }
    }

    fn address(&self) -> Option<SocketAddr> {
        (self.url.host_str()?, self.url.port().unwrap_or(6379)).to_socket_addrs().ok()?.next()
    }

    fn url_via(&self, address: SocketAddr) -> Option<String> {
        let mut url = self.url.clone();
        url.set_ip_host(address.ip()).ok()?;
        url.set_port(Some(address.port())).ok()?;
        Some(url.to_string())
    }

    async fn put_foreign(&self, name: &LockName, kind: usize) -> Result<bool, Stop> {
        match &self.store {
            Store::Redis(store) => store.put_foreign(name, kind).await,
            Store::Sqlite(_) => Ok(false),
        }
    }
}
