//! Which URL scheme is served by which backend. A value, not a global: a program may bring its own.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use lock_core::{DistributedLock, ErrorKind, LockError};

/// A connection that is being made.
pub type Opening = BoxFuture<'static, Result<Arc<dyn DistributedLock>, LockError>>;

/// Makes a connection from a URL, from which `fence_base` has been taken. It refuses parameters that it does not know.
pub type Open = fn(url: &str) -> Opening;

/// The backends that [`Options::connect`](crate::Options::connect) chooses from.
///
/// ```
/// use distlock::Registry;
/// let known = Registry::builtin();
/// assert!(known.schemes().any(|scheme| scheme == "sqlite"));
/// ```
#[derive(Clone)]
pub struct Registry(Vec<Entry>);

#[derive(Clone)]
struct Entry {
    scheme: &'static str,
    source: Source,
}

#[derive(Clone)]
enum Source {
    Built(Open),
    /// Known, and left out of this build.
    #[cfg_attr(
        all(feature = "sqlite", feature = "redis", feature = "mysql", feature = "zk", feature = "etcd"),
        expect(dead_code, reason = "every feature is on")
    )]
    Feature(&'static str),
}

impl Registry {
    /// No backend at all.
    pub fn empty() -> Self {
        Self(Vec::new())
    }

    /// The backends of this library, as far as features build them in.
    pub fn builtin() -> Self {
        let mut known = Self::empty().with("memory", open_memory);
        known.add("sqlite", SQLITE);
        for scheme in ["redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"] {
            known.add(scheme, REDIS);
        }
        known.add("mysql", MYSQL);
        known.add("zk", ZK);
        known.add("etcd", ETCD);
        known.add("etcds", ETCD);
        known
    }

    /// Adds a backend, or replaces the one of that scheme. A scheme is written in lower case.
    #[must_use]
    pub fn with(mut self, scheme: &'static str, open: Open) -> Self {
        self.0.retain(|entry| entry.scheme != scheme);
        self.add(scheme, Source::Built(open));
        self
    }

    /// The schemes that are known, built in or not.
    pub fn schemes(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|entry| entry.scheme)
    }

    fn add(&mut self, scheme: &'static str, source: Source) {
        self.0.push(Entry { scheme, source });
    }

    /// Finds the backend of a scheme, and the scheme as the registry writes it.
    pub(crate) fn find(&self, scheme: &str) -> Result<(&'static str, Open), LockError> {
        let config = |text: String| LockError::new(ErrorKind::Config, text).operation("connect");
        let Some(entry) = self.0.iter().find(|entry| entry.scheme.eq_ignore_ascii_case(scheme)) else {
            let known: Vec<_> = self.schemes().collect();
            return Err(config(format!("no backend has the URL scheme '{scheme}'"))
                .advice(format!("the known ones are {}", known.join(", "))));
        };
        match entry.source {
            Source::Built(open) => Ok((entry.scheme, open)),
            Source::Feature(feature) => Err(config(format!("the backend for {scheme} URLs is not built in"))
                .advice(format!("build distlock with the feature '{feature}'"))),
        }
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::builtin()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.schemes()).finish()
    }
}

fn open_memory(url: &str) -> Opening {
    let rest = url.split_once(':').map_or("", |(_, rest)| rest).to_owned();
    Box::pin(async move {
        if let Some((_, query)) = rest.split_once('?') {
            let name = query.split(['=', '&']).next().unwrap_or_default();
            return Err(LockError::new(ErrorKind::Config, format!("unknown URL parameter '{name}'"))
                .backend("memory")
                .advice("a memory: URL has no parameters but fence_base"));
        }
        if !matches!(&*rest, "" | "//" | "///") {
            return Err(LockError::new(ErrorKind::Config, "a memory: URL has no host and no path")
                .backend("memory")
                .advice("write it as memory:"));
        }
        Ok(Arc::new(lock_core::memory::MemoryLock::new()) as Arc<dyn DistributedLock>)
    })
}

#[cfg(feature = "sqlite")]
const SQLITE: Source = Source::Built(|url| {
    let config = crate::url::parse(url).and_then(|url| lock_sqlite::SqliteConfig::from_url(&url));
    Box::pin(async move { Ok(Arc::new(lock_sqlite::SqliteLock::connect(config?).await?) as Arc<dyn DistributedLock>) })
});
#[cfg(not(feature = "sqlite"))]
const SQLITE: Source = Source::Feature("sqlite");

#[cfg(feature = "redis")]
const REDIS: Source = Source::Built(|url| {
    let config = lock_redis::RedisConfig::from_url(url);
    Box::pin(async move { Ok(Arc::new(lock_redis::RedisLock::connect(config?).await?) as Arc<dyn DistributedLock>) })
});
#[cfg(not(feature = "redis"))]
const REDIS: Source = Source::Feature("redis");

#[cfg(feature = "mysql")]
const MYSQL: Source = Source::Built(|url| {
    let config = lock_mysql::MysqlConfig::from_url(url);
    Box::pin(async move { Ok(Arc::new(lock_mysql::MysqlLock::connect(config?).await?) as Arc<dyn DistributedLock>) })
});
#[cfg(not(feature = "mysql"))]
const MYSQL: Source = Source::Feature("mysql");
#[cfg(feature = "etcd")]
const ETCD: Source = Source::Built(|url| {
    let config = lock_etcd::EtcdConfig::from_url(url);
    Box::pin(async move { Ok(Arc::new(lock_etcd::EtcdLock::connect(config?).await?) as Arc<dyn DistributedLock>) })
});
#[cfg(not(feature = "etcd"))]
const ETCD: Source = Source::Feature("etcd");
#[cfg(feature = "zk")]
const ZK: Source = Source::Built(|url| {
    let config = lock_zk::ZkConfig::from_url(url);
    Box::pin(async move { Ok(Arc::new(lock_zk::ZkLock::connect(config?).await?) as Arc<dyn DistributedLock>) })
});
#[cfg(not(feature = "zk"))]
const ZK: Source = Source::Feature("zk");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_scheme_lists_the_known_ones() {
        let err = Registry::builtin().find("mongo").unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Config);
        let text = err.to_string();
        for scheme in ["'mongo'", "memory", "sqlite", "redis", "rediss", "mysql", "zk", "etcd"] {
            assert!(text.contains(scheme), "{text}");
        }
    }

    #[test]
    fn a_known_scheme_names_its_feature() {
        for (scheme, feature, built) in [
            ("rediss", "redis", cfg!(feature = "redis")),
            ("redis+sentinel", "redis", cfg!(feature = "redis")),
            ("rediss+cluster", "redis", cfg!(feature = "redis")),
            ("mysql", "mysql", cfg!(feature = "mysql")),
            ("ZK", "zk", cfg!(feature = "zk")),
            ("etcds", "etcd", cfg!(feature = "etcd")),
        ] {
            match Registry::builtin().find(scheme) {
                Ok(_) => assert!(built, "{scheme}"),
                Err(err) => {
                    assert!(!built && err.to_string().contains(&format!("with the feature '{feature}'")), "{err}");
                }
            }
        }
    }

    #[test]
    fn a_backend_of_ones_own_takes_its_place() {
        let mine = Registry::builtin().with("zk", open_memory);
        assert!(mine.find("ZK").is_ok());
        assert_eq!(mine.schemes().filter(|scheme| *scheme == "zk").count(), 1);
    }
}
