//! A backend that somebody else runs, by its URL.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{DistributedLock, ErrorKind, LockError, LockName};
#[cfg(feature = "etcd")]
use lock_etcd::{EtcdConfig, EtcdLock};
use lock_mysql::{MysqlConfig, MysqlLock};
use lock_redis::{RedisConfig, RedisLock};
use lock_sqlite::{SqliteConfig, SqliteLock};
use lock_zk::{ZkConfig, ZkLock};
use sqlx::mysql::MySqlConnectOptions;
use url::Url;

#[cfg(feature = "etcd")]
use super::etcd::EtcdStore;
use super::mysql::MysqlStore;
use super::redis::RedisStore;
use super::sqlite::SqliteStore;
use super::zk::ZkStore;
use crate::{Entry, Harness, Instance, Need, Stop};

/// The backend at a URL. It is not the suite's own, so nothing is stopped, wiped or made read-only.
#[derive(Clone)]
pub struct Attached {
    url: Option<Parts>,
}

impl std::fmt::Debug for Attached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URL may hold a password.
        write!(f, "Attached({})", self.name())
    }
}

/// A URL in its parts. Not a [`Url`], which has one host.
#[derive(Clone)]
struct Parts {
    scheme: String,
    /// Up to and with the `@`.
    login: String,
    hosts: String,
    /// From the slash on.
    path: String,
}

impl Parts {
    fn new(url: &str) -> Result<Self, Stop> {
        let (scheme, rest) = url.split_once(':').ok_or("not a URL")?;
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let (login, rest) = rest.rfind('@').map_or(("", rest), |at| rest.split_at(at + 1));
        let (hosts, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let own = str::to_owned;
        Ok(Self { scheme: scheme.to_ascii_lowercase(), login: own(login), hosts: own(hosts), path: own(path) })
    }

    fn with_hosts(&self, hosts: &str) -> String {
        format!("{}://{}{hosts}{}", self.scheme, self.login, self.path)
    }

    fn url(&self) -> String {
        self.with_hosts(&self.hosts)
    }

    fn as_url(&self) -> Result<Url, Stop> {
        // The reason would show the text.
        self.url().parse().map_err(|_| "not a URL".into())
    }

    /// User and password.
    fn credentials(&self) -> Option<(String, String)> {
        let (user, password) = self.login.strip_suffix('@')?.split_once(':')?;
        let decoded = |text| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
        Some((decoded(user), decoded(password)))
    }

    /// Each host with its port.
    fn hosts(&self, port: u16) -> Vec<String> {
        let has_port = |host: &str| host.rsplit(':').next().is_some_and(|port| port.parse::<u16>().is_ok());
        let whole = |host: &str| if has_port(host) { host.to_owned() } else { format!("{host}:{port}") };
        self.hosts.split(',').map(whole).collect()
    }

    fn default_port(&self) -> u16 {
        match &*self.scheme {
            "mysql" => 3306,
            "zk" => 2181,
            "etcd" => 2379,
            _ => 6379,
        }
    }
}

impl Attached {
    /// The backend at this URL.
    ///
    /// # Errors
    /// What is wrong with the URL; the text shows no part of it that may be secret.
    pub fn new(url: &str) -> Result<Self, Stop> {
        let url = Parts::new(url)?;
        match &*url.scheme {
            "sqlite" | "redis" | "rediss" | "mysql" => drop(url.as_url()?),
            "zk" => {}
            "etcd" if cfg!(feature = "etcd") => {}
            "etcd" => return Err("build with --features etcd for etcd URLs".into()),
            scheme => {
                let known = "sqlite:///path, redis://host, mysql://user:password@host/database, zk://host/folder or etcd://host";
                return Err(format!("there is no harness for '{scheme}'; give {known}").into());
            }
        }
        Ok(Self { url: Some(url) })
    }

    /// For a child process, which is told the URL by its parent.
    pub fn unnamed() -> Self {
        Self { url: None }
    }
}

#[async_trait]
impl Harness for Attached {
    fn name(&self) -> &str {
        self.url.as_ref().map_or("unnamed", |url| &url.scheme)
    }

    fn lacks(&self, need: Need) -> Option<&'static str> {
        let is_file = self.name() == "sqlite";
        match need {
            Need::Processes => None,
            Need::Network if is_file => Some("the store is a file, with no line that could fail"),
            Need::Network if self.name() == "rediss" => Some("a proxy cannot stand in a line with TLS"),
            Need::Network => None,
            Need::Foreign if is_file => Some("the file holds nothing but locks"),
            Need::Foreign if self.name() == "mysql" => Some("the table holds nothing but locks"),
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
        let store = match &*url.scheme {
            "sqlite" => Store::Sqlite(SqliteStore(SqliteConfig::from_url(&url.as_url()?)?.path().to_owned())),
            "mysql" => Store::Mysql(MysqlStore(mysql_options(&url)?)),
            "zk" => {
                let root = url.path.trim_end_matches('/').to_owned();
                Store::Zk(ZkStore::new(url.hosts(2181).join(","), root, url.credentials())?)
            }
            #[cfg(feature = "etcd")]
            "etcd" => Store::Etcd(EtcdStore { hosts: url.hosts(2379), login: url.credentials() }),
            _ => Store::Redis(RedisStore(url.url())),
        };
        // Makes the file and its tables, where they are missing.
        self.connect(&url.url()).await?.close().await?;
        Ok(Arc::new(AttachedInstance { url, store }))
    }

    async fn connect(&self, url: &str) -> Result<Arc<dyn DistributedLock>, LockError> {
        match url.split(':').next() {
            Some("zk") => return Ok(Arc::new(ZkLock::connect(ZkConfig::from_url(url)?).await?)),
            #[cfg(feature = "etcd")]
            Some("etcd") => return Ok(Arc::new(EtcdLock::connect(EtcdConfig::from_url(url)?).await?)),
            _ => {}
        }
        let url: Url = url.parse().map_err(|e| LockError::new(ErrorKind::Config, "not a URL").source(e))?;
        Ok(match url.scheme() {
            "sqlite" => Arc::new(SqliteLock::connect(SqliteConfig::from_url(&url)?).await?),
            "mysql" => Arc::new(MysqlLock::connect(MysqlConfig::from_url(&url)?).await?),
            _ => Arc::new(RedisLock::connect(RedisConfig::from_url(&url)?).await?),
        })
    }
}

/// How to log in at a MySQL URL.
pub(crate) fn mysql_options_of(url: &str) -> Result<MySqlConnectOptions, Stop> {
    mysql_options(&Parts::new(url)?)
}

/// The port of a URL's first host.
pub(crate) fn first_port(url: &str) -> Result<u16, Stop> {
    let url = Parts::new(url)?;
    let first = url.hosts(url.default_port()).remove(0);
    Ok(first.rsplit(':').next().unwrap_or_default().parse()?)
}

fn mysql_options(url: &Parts) -> Result<MySqlConnectOptions, Stop> {
    if url.path.contains("table=") {
        return Err("the suite looks into the default table; leave table= out".into());
    }
    let parsed = url.as_url()?;
    let host = parsed.host_str().ok_or("the URL has no host")?.trim_matches(['[', ']']);
    let (user, password) = url.credentials().ok_or("the URL has no user and password")?;
    let options = MySqlConnectOptions::new().host(host).port(parsed.port().unwrap_or(3306));
    Ok(options.username(&user).password(&password).database(parsed.path().trim_start_matches('/')))
}

#[derive(Debug)]
enum Store {
    Redis(RedisStore),
    Sqlite(SqliteStore),
    Mysql(MysqlStore),
    Zk(ZkStore),
    #[cfg(feature = "etcd")]
    Etcd(EtcdStore),
}

/// The same of whichever store it is.
macro_rules! ask {
    ($store:expr, $it:ident => $call:expr) => {
        match $store {
            Store::Redis($it) => $call,
            Store::Sqlite($it) => $call,
            Store::Mysql($it) => $call,
            Store::Zk($it) => $call,
            #[cfg(feature = "etcd")]
            Store::Etcd($it) => $call,
        }
    };
}

struct AttachedInstance {
    url: Parts,
    store: Store,
}

impl std::fmt::Debug for AttachedInstance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URL may hold a password.
        write!(f, "AttachedInstance({})", self.url.scheme)
    }
}

#[async_trait]
impl Instance for AttachedInstance {
    fn url(&self) -> String {
        self.url.url()
    }

    async fn peek(&self, name: &LockName) -> Result<Option<Entry>, Stop> {
        ask!(&self.store, it => it.peek(name).await)
    }

    async fn remove(&self, name: &LockName) -> Result<(), Stop> {
        ask!(&self.store, it => it.remove(name).await)
    }

    async fn replace_owner(&self, name: &LockName, ttl: Duration) -> Result<String, Stop> {
        ask!(&self.store, it => it.replace_owner(name, ttl).await)
    }

    async fn residue(&self, name: &LockName) -> Result<Vec<String>, Stop> {
        ask!(&self.store, it => it.residue(name).await)
    }

    fn address(&self) -> Option<SocketAddr> {
        self.url.hosts(self.url.default_port()).first()?.to_socket_addrs().ok()?.next()
    }

    fn url_via(&self, address: SocketAddr) -> Option<String> {
        Some(self.url.with_hosts(&address.to_string()))
    }

    async fn put_foreign(&self, name: &LockName, kind: usize) -> Result<bool, Stop> {
        match &self.store {
            Store::Redis(store) => store.put_foreign(name, kind).await,
            Store::Zk(store) => store.put_foreign(name, kind).await,
            #[cfg(feature = "etcd")]
            Store::Etcd(store) => store.put_foreign(name, kind).await,
            Store::Sqlite(_) | Store::Mysql(_) => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_come_apart_and_show_nothing() {
        let url = Parts::new("zk://u:p%40x@a:1,b/x/y").map_err(|_| ()).expect("a URL");
        assert_eq!(url.hosts(2181), ["a:1", "b:2181"]);
        assert_eq!(url.credentials(), Some(("u".into(), "p@x".into())));
        assert_eq!(url.with_hosts("c:3"), "zk://u:p%40x@c:3/x/y");
        let attached = Attached::new("mysql://u:hunter2@h/db").map_err(|_| ()).expect("a URL");
        assert!(!format!("{attached:?}").contains("hunter2"));
        let sqlite = Parts::new("sqlite:///tmp/x.db").map_err(|_| ()).expect("a URL");
        assert_eq!(sqlite.url(), "sqlite:///tmp/x.db");
    }
}
