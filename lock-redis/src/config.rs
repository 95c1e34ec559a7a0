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
    parameters: &[],
    shape: "give redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE], or rediss:// for TLS",
};

/// How to reach a Redis server.
///
/// From a URL: `redis://[user[:password]@]host[:port][/database]`, with `rediss://` for TLS. User and password may be
/// percent-encoded. There are no parameters.
///
/// ```
/// use lock_redis::RedisConfig;
/// let config = RedisConfig::from_url("redis://app:p%40ss@[::1]:6380/2")?;
/// assert_eq!(format!("{config:?}"), "RedisConfig(redis://app:***@[::1]:6380/2)");
/// # Ok::<(), lock_core::LockError>(())
/// ```
#[derive(Clone)]
pub struct RedisConfig {
    url: ServerUrl,
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
    /// [`ErrorKind::Config`](lock_core::ErrorKind::Config) for whatever [`UrlForm::read`] refuses, a database that is no number, and `rediss` where the
    /// feature `tls` is off.
    pub fn from_url(url: impl AsRef<str>) -> Result<Self, LockError> {
        let url = FORM.read(url.as_ref())?;
        if url.scheme == "rediss" && !cfg!(feature = "tls") {
            return Err(FORM
                .wrong("rediss:// needs TLS, which is not built in")
                .advice("build with the feature `tls`"));
        }
        let database = match url.path.trim_start_matches('/') {
            "" => 0,
            text => text.parse().map_err(|_| {
                FORM.wrong(format!("the database '{text}' is not a number"))
                    .advice("give redis://HOST/NUMBER, or no path for database 0")
            })?,
        };
        Ok(Self { url, database, connect_timeout: Self::CONNECT_TIMEOUT, operation_timeout: Self::OPERATION_TIMEOUT })
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
        self.url.hosts.concat()
    }

    pub(crate) fn client(&self) -> Result<redis::Client, LockError> {
        let mut login = RedisConnectionInfo::default().set_db(self.database.into());
        if let Some(user) = &self.url.user {
            login = login.set_username(user);
        }
        if let Some(password) = &self.url.password {
            login = login.set_password(password);
        }
        let info = self.address().into_connection_info().map(|info| info.set_redis_settings(login));
        info.and_then(redis::Client::open)
            .map_err(|e| FORM.wrong("the server's address cannot be used").source(e.to_string()))
    }

    fn address(&self) -> ConnectionAddr {
        let (host, port) = self.url.first_host();
        #[cfg(feature = "tls")]
        if self.url.scheme == "rediss" {
            // The process may have chosen another one before; then that one serves.
            let _ = rustls::crypto::ring::default_provider().install_default();
            return ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None };
        }
        ConnectionAddr::Tcp(host, port)
    }
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
        assert_eq!(short.url.first_host(), ("::1".into(), 6379));
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
        ] {
            let err = RedisConfig::from_url(url).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::Config, "{url}");
            assert!(err.to_string().contains(named), "{url}: {err}");
        }
    }
}
