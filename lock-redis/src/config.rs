//! Where the server is, and how to log in.

use std::fmt;
use std::time::Duration;

use lock_core::{LockError, Login, ServerUrl, UrlForm};
use redis::{ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};

use crate::BACKEND;

const FORM: UrlForm = UrlForm {
    backend: BACKEND,
    schemes: &["redis", "rediss"],
    port: 6379,
    many_hosts: false,
    login: Login::PasswordAlone,
    parameters: &["min_replicas"],
    shape: "give redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE], or rediss:// for TLS",
};

const SENTINEL: UrlForm = UrlForm {
    schemes: &["redis+sentinel", "rediss+sentinel"],
    port: 26379,
    many_hosts: true,
    parameters: &["min_replicas", "sentinel_user", "sentinel_password"],
    shape: "give redis+sentinel://[[USER]:PASSWORD@]SENTINEL[:PORT][,SENTINEL[:PORT]...]/SERVICE[/DATABASE]",
    ..FORM
};

const CLUSTER: UrlForm = UrlForm {
    schemes: &["redis+cluster", "rediss+cluster"],
    many_hosts: true,
    shape: "give redis+cluster://[[USER]:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]",
    ..FORM
};

/// What stands behind the hosts of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    /// The server itself.
    Single,
    /// Sentinels, which watch a primary under this name.
    Sentinel(String),
    /// Nodes of a cluster.
    Cluster,
}

/// How to reach a Redis server, the primary that sentinels watch, or a Redis Cluster.
///
/// From a URL, with `rediss` for TLS; user and password may be percent-encoded:
/// - `redis://[user[:password]@]host[:port][/database]`
/// - `redis+sentinel://[user[:password]@]host[:port],host[:port].../service[/database]`: the hosts are sentinels, the login is for the server.
///   Sentinels that ask for a login get `sentinel_user` and `sentinel_password`, which are parameters.
/// - `redis+cluster://[user[:password]@]host[:port],host[:port]...`: any of the nodes; the others are learnt from them.
///
/// The parameter `min_replicas=N` lets a grant or renewal count only when so many replicas have it (`WAIT`).
///
/// ```
/// use lock_redis::RedisConfig;
/// let config = RedisConfig::from_url("redis://app:p%40ss@[::1]:6380/2")?;
/// assert_eq!(format!("{config:?}"), "RedisConfig(redis://app:***@[::1]:6380/2)");
/// let config = RedisConfig::from_url("redis+sentinel://s1,s2,s3/orders?min_replicas=1")?;
/// assert_eq!(format!("{config:?}"), "RedisConfig(redis+sentinel://s1:26379,s2:26379,s3:26379/orders?min_replicas=1)");
/// # Ok::<(), lock_core::LockError>(())
/// ```
#[derive(Clone)]
pub struct RedisConfig {
    form: &'static UrlForm,
    url: ServerUrl,
    topology: Topology,
    database: u32,
    min_replicas: u32,
    connect_timeout: Duration,
    operation_timeout: Duration,
}

impl RedisConfig {
    /// The default bound on opening a connection: 5 s.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
    /// The default bound on a request that no [`AcquireRequest`](lock_core::AcquireRequest) bounds: 2 s.
    pub const OPERATION_TIMEOUT: Duration = Duration::from_secs(2);

    /// Reads a URL. Nothing is sent.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](lock_core::ErrorKind::Config) for whatever [`UrlForm::read`] refuses, a database that is no number or of a cluster, a
    /// missing service, a `min_replicas` that is no number, and `rediss` where the feature `tls` is off.
    pub fn from_url(url: impl AsRef<str>) -> Result<Self, LockError> {
        let form = form(url.as_ref());
        let url = form.read(url.as_ref())?;
        if url.scheme.starts_with("rediss") && !cfg!(feature = "tls") {
            return Err(form
                .wrong(format!("{}:// needs TLS, which is not built in", url.scheme))
                .advice("build with the feature `tls`"));
        }
        let path = url.path.strip_prefix('/').unwrap_or_default();
        let (topology, database) = if form.schemes == SENTINEL.schemes {
            let (service, database) = path.split_once('/').unwrap_or((path, ""));
            let service = form.decoded(service, "service")?;
            if service.is_empty() {
                return Err(form.wrong("the service, which the sentinels watch, is missing"));
            }
            (Topology::Sentinel(service), database)
        } else if form.schemes == CLUSTER.schemes {
            (Topology::Cluster, path)
        } else {
            (Topology::Single, path)
        };
        let database = number(form, database, "database", "give its number, or no path for database 0")?;
        if topology == Topology::Cluster && database != 0 {
            return Err(form.wrong("a cluster has no database but 0"));
        }
        let advice = "give the number of replicas that must have a grant";
        let replicas = url.parameter("min_replicas").unwrap_or_default();
        let min_replicas = number(form, replicas, "min_replicas", advice)?;
        if url.parameter("sentinel_user").is_some() && url.parameter("sentinel_password").is_none() {
            return Err(form.wrong("there is a sentinel_user without a sentinel_password"));
        }
        let (connect_timeout, operation_timeout) = (Self::CONNECT_TIMEOUT, Self::OPERATION_TIMEOUT);
        Ok(Self { form, url, topology, database, min_replicas, connect_timeout, operation_timeout })
    }

    /// Sets the bound on opening a connection.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// Sets the bound on a request that no acquisition bounds, such as the one of `inspect`.
    #[must_use]
    pub fn operation_timeout(mut self, limit: Duration) -> Self {
        self.operation_timeout = limit;
        self
    }

    pub(crate) fn connect_limit(&self) -> Duration {
        self.connect_timeout
    }

    pub(crate) fn operation_limit(&self) -> Duration {
        self.operation_timeout
    }

    /// Host and port, or several, as a message names the server.
    pub(crate) fn server(&self) -> String {
        self.url.hosts.join(",")
    }

    pub(crate) fn hosts(&self) -> &[String] {
        &self.url.hosts
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// How many replicas must have a grant.
    pub(crate) fn replicas(&self) -> u32 {
        self.min_replicas
    }

    /// Opens connections to the server with this host and port.
    pub(crate) fn client(&self, address: &str) -> Result<redis::Client, LockError> {
        let login = RedisConnectionInfo::default().set_db(self.database.into());
        self.open(address, login, self.url.user.as_deref(), self.url.password.as_deref())
    }

    /// Opens connections to a sentinel.
    pub(crate) fn sentinel_client(&self, address: &str) -> Result<redis::Client, LockError> {
        let (user, password) = (self.url.parameter("sentinel_user"), self.url.parameter("sentinel_password"));
        self.open(address, RedisConnectionInfo::default(), user, password)
    }

    fn open(
        &self,
        address: &str,
        mut login: RedisConnectionInfo,
        user: Option<&str>,
        password: Option<&str>,
    ) -> Result<redis::Client, LockError> {
        if let Some(user) = user {
            login = login.set_username(user);
        }
        if let Some(password) = password {
            login = login.set_password(password);
        }
        let info = self.address(address).into_connection_info().map(|info| info.set_redis_settings(login));
        info.and_then(redis::Client::open)
            .map_err(|e| self.form.wrong("the server's address cannot be used").source(e.to_string()))
    }

    fn address(&self, address: &str) -> ConnectionAddr {
        let (host, port) = lock_core::host_and_port(address);
        #[cfg(feature = "tls")]
        if self.url.scheme.starts_with("rediss") {
            // The process may have chosen another one before; then that one serves.
            let _ = rustls::crypto::ring::default_provider().install_default();
            return ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None };
        }
        ConnectionAddr::Tcp(host, port)
    }
}

/// What the URL may look like, by its scheme alone.
fn form(url: &str) -> &'static UrlForm {
    let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase()).unwrap_or_default();
    [&SENTINEL, &CLUSTER].into_iter().find(|form| form.schemes.contains(&&*scheme)).unwrap_or(&FORM)
}

/// Nothing is 0.
fn number(form: &UrlForm, text: &str, what: &str, advice: &'static str) -> Result<u32, LockError> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| form.wrong(format!("the {what} '{text}' is not a number")).advice(advice))
}

/// The password is not shown.
impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisConfig({:?})", self.url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lock_core::ErrorKind;

    #[test]
    fn a_url_is_read_in_all_its_parts() {
        let full = RedisConfig::from_url("redis://us%2Fer:p%23a%40s@db.example:7000/3").unwrap();
        assert_eq!((full.server().as_str(), full.database), ("db.example:7000", 3));
        let short = RedisConfig::from_url("REDIS://[::1]").unwrap();
        assert_eq!((short.server().as_str(), short.database), ("[::1]:6379", 0));
        let sentinel =
            RedisConfig::from_url("redis+sentinel://u:p@a,b:1/my%2Fservice/4?sentinel_password=x%40y").unwrap();
        assert_eq!(sentinel.topology(), &Topology::Sentinel("my/service".into()));
        assert_eq!((sentinel.server().as_str(), sentinel.database), ("a:26379,b:1", 4));
        let shown = format!("{sentinel:?}");
        assert!(!shown.contains("x@y") && shown.contains("sentinel_password=***"), "{shown}");
        let cluster = RedisConfig::from_url("redis+cluster://a,b/?min_replicas=2").unwrap();
        assert_eq!((cluster.topology(), cluster.replicas()), (&Topology::Cluster, 2));
        assert_eq!(cluster.server(), "a:6379,b:6379");
        assert!(RedisConfig::from_url("redis://:secret@h").is_ok());
        assert_eq!(RedisConfig::from_url("rediss://h").is_ok(), cfg!(feature = "tls"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (url, named) in [
            ("mysql://h/", "mysql"),
            ("redis://h/?timeout=3", "timeout"),
            ("redis://h/x", "'x'"),
            ("redis://h/-1", "'-1'"),
            ("redis://h/1/2", "'1/2'"),
            ("redis://h,k/", "more than one"),
            ("redis://user@h/", "without a password"),
            ("redis://h/?min_replicas=many", "'many'"),
            ("redis+sentinel://h,k", "service"),
            ("redis+sentinel://h/s/x", "'x'"),
            ("redis+sentinel://h/s?sentinel_user=u", "sentinel_password"),
            ("redis+cluster://h/1", "no database but 0"),
            ("redis+cluster://h/?sentinel_user=u", "sentinel_user"),
        ] {
            let err = RedisConfig::from_url(url).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::Config, "{url}");
            assert!(err.to_string().contains(named), "{url}: {err}");
        }
    }
}
