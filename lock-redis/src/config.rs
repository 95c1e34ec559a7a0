//! Where the server is, and how to log in.

use std::fmt;
use std::time::Duration;

use lock_core::{ErrorKind, LockError};
use percent_encoding::percent_decode_str;
use redis::{ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};
use url::Url;

use crate::BACKEND;

/// How to reach a Redis server.
///
/// From a URL: `redis://[user[:password]@]host[:port][/database]`, with `rediss://` for TLS. User and password may be
/// percent-encoded. There are no parameters.
///
/// ```
/// use lock_redis::RedisConfig;
/// let config = RedisConfig::from_url(&"redis://app:p%40ss@[::1]:6380/2".parse()?)?;
/// assert_eq!(format!("{config:?}"), "RedisConfig(redis://app:***@[::1]:6380/2)");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct RedisConfig {
    tls: bool,
    host: String,
    port: u16,
    user: Option<String>,
    password: Option<String>,
    database: u32,
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
    /// [`ErrorKind::Config`] for another scheme, a missing host, a database that is no number, or a parameter, which is named;
    /// for `rediss` where the feature `tls` is off.
    pub fn from_url(url: &Url) -> Result<Self, LockError> {
        let tls = match url.scheme() {
            "redis" => false,
            "rediss" if cfg!(feature = "tls") => true,
            "rediss" => {
                return Err(wrong("rediss:// needs TLS, which is not built in").advice("build with the feature `tls`"));
            }
            other => {
                return Err(wrong(format!("the scheme '{other}' is not Redis")).advice("give redis:// or rediss://"));
            }
        };
        if let Some((parameter, _)) = url.query_pairs().next() {
            return Err(wrong(format!("unknown parameter '{parameter}'")).advice("a Redis URL takes no parameters"));
        }
        if url.fragment().is_some() {
            return Err(wrong("a Redis URL takes no fragment").advice("a '#' in a password is written %23"));
        }
        let host = match url.host() {
            Some(url::Host::Domain(host)) if !host.is_empty() => decoded(host, "host")?,
            Some(url::Host::Ipv4(address)) => address.to_string(),
            Some(url::Host::Ipv6(address)) => address.to_string(),
            _ => return Err(wrong("the host is missing").advice("give redis://HOST[:PORT][/DATABASE]")),
        };
        let database = match url.path().trim_start_matches('/') {
            "" => 0,
            text => text.parse().map_err(|_| {
                wrong(format!("the database '{text}' is not a number"))
                    .advice("give redis://HOST/NUMBER, or no path for database 0")
            })?,
        };
        let user = decoded(url.username(), "user")?;
        let password = url.password().map(|text| decoded(text, "password")).transpose()?;
        if password.is_none() && !user.is_empty() {
            return Err(
                wrong("there is a user without a password").advice("give redis://USER:PASSWORD@HOST, or neither")
            );
        }
        Ok(Self {
            tls,
            host,
            port: url.port().unwrap_or(6379),
            user: (!user.is_empty()).then_some(user),
            password,
            database,
            connect_timeout: Self::CONNECT_TIMEOUT,
            operation_timeout: Self::OPERATION_TIMEOUT,
        })
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

    /// Host and port, as a message names the server.
    pub(crate) fn server(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{host}:{}", self.port)
    }

    pub(crate) fn client(&self) -> Result<redis::Client, LockError> {
        let mut login = RedisConnectionInfo::default().set_db(self.database.into());
        if let Some(user) = &self.user {
            login = login.set_username(user);
        }
        if let Some(password) = &self.password {
            login = login.set_password(password);
        }
        let info = self.address().into_connection_info().map(|info| info.set_redis_settings(login));
        info.and_then(redis::Client::open)
            .map_err(|e| wrong("the server's address cannot be used").source(e.to_string()))
    }

    #[cfg(feature = "tls")]
    fn address(&self) -> ConnectionAddr {
        if !self.tls {
            return ConnectionAddr::Tcp(self.host.clone(), self.port);
        }
        // The process may have chosen another one before; then that one serves.
        let _ = rustls::crypto::ring::default_provider().install_default();
        ConnectionAddr::TcpTls { host: self.host.clone(), port: self.port, insecure: false, tls_params: None }
    }

    #[cfg(not(feature = "tls"))]
    fn address(&self) -> ConnectionAddr {
        ConnectionAddr::Tcp(self.host.clone(), self.port)
    }
}

/// The password is not shown.
impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "rediss" } else { "redis" };
        let login = match (&self.user, &self.password) {
            (Some(user), Some(_)) => format!("{user}:***@"),
            (None, Some(_)) => ":***@".into(),
            _ => String::new(),
        };
        write!(f, "RedisConfig({scheme}://{login}{}/{})", self.server(), self.database)
    }
}

fn wrong(detail: impl Into<String>) -> LockError {
    LockError::new(ErrorKind::Config, detail).backend(BACKEND)
}

/// The text itself is not shown: it may be the password.
fn decoded(text: &str, what: &str) -> Result<String, LockError> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| wrong(format!("the {what} is not UTF-8 when it is percent-decoded")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Result<RedisConfig, LockError> {
        RedisConfig::from_url(&url.parse().unwrap())
    }

    #[test]
    fn a_url_is_read_in_all_its_parts() {
        let full = config("redis://us%2Fer:p%23a%40s%3As%2Fw%3D%25%2Bd@db.example:7000/3").unwrap();
        assert_eq!(full.user.as_deref(), Some("us/er"));
        assert_eq!(full.password.as_deref(), Some("p#a@s:s/w=%+d"));
        assert_eq!((full.host.as_str(), full.port, full.database, full.tls), ("db.example", 7000, 3, false));
        let short = config("REDIS://[::1]").unwrap();
        assert_eq!((short.host.as_str(), short.port, short.database), ("::1", 6379, 0));
        assert_eq!(short.server(), "[::1]:6379");
        assert!(config("redis://:secret@h").unwrap().user.is_none());
        assert_eq!(config("rediss://h").is_ok(), cfg!(feature = "tls"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (url, named) in [
            ("mysql://h/", "mysql"),
            ("redis://h/?timeout=3", "timeout"),
            ("redis://h/x", "'x'"),
            ("redis://h/-1", "'-1'"),
            ("redis://h/1/2", "'1/2'"),
            ("redis:///1", "host"),
            ("redis://h/#insecure", "%23"),
            ("redis://user@h/", "without a password"),
        ] {
            let err = config(url).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::Config, "{url}");
            assert!(err.to_string().contains(named), "{url}: {err}");
        }
    }

    #[test]
    fn no_text_shows_the_password() {
        let shown = format!("{:?}", config("redis://u:hunter2@h").unwrap());
        assert!(!shown.contains("hunter2"), "{shown}");
        for url in ["redis://u:hunter2%FF@h", "redis://u:hunter2@h/x", "redis://u:hunter2@h?x=1"] {
            let err = config(url).unwrap_err();
            assert!(!format!("{err} {err:?}").contains("hunter2"), "{err}");
        }
    }
}
