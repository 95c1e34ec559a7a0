//! Where the cluster is, and how to log in.

use std::fmt;
use std::time::Duration;

use etcd_client::ConnectOptions;
use lock_core::{LockError, Login, ServerUrl, UrlForm};

use crate::BACKEND;

const FORM: UrlForm = UrlForm {
    backend: BACKEND,
    schemes: &["etcd", "etcds"],
    port: 2379,
    many_hosts: true,
    login: Login::Whole,
    parameters: &[],
    shape: "give etcd://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...], or etcds:// for TLS",
};

/// The server refuses pings that come more often than every 5 s.
const PING_EVERY: Duration = Duration::from_secs(10);
const PONG_WITHIN: Duration = Duration::from_secs(3);

/// How to reach an etcd cluster.
///
/// From a URL: `etcd://[user:password@]host[:port][,host[:port]...]`, with `etcds://` for TLS. User and password may be
/// percent-encoded. There are no parameters.
///
/// ```
/// use lock_etcd::EtcdConfig;
/// let config = EtcdConfig::from_url("etcd://app:p%40ss@db1,[::1]:22379")?;
/// assert_eq!(format!("{config:?}"), "EtcdConfig(etcd://app:***@db1:2379,[::1]:22379)");
/// # Ok::<(), lock_core::LockError>(())
/// ```
#[derive(Clone)]
pub struct EtcdConfig {
    url: ServerUrl,
    connect_timeout: Duration,
    operation_timeout: Duration,
}

impl EtcdConfig {
    /// The default bound on opening a connection: 5 s.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
    /// The default bound on a request that no [`AcquireRequest`](lock_core::AcquireRequest) bounds: 2 s.
    pub const OPERATION_TIMEOUT: Duration = Duration::from_secs(2);

    /// Reads a URL. Nothing is sent.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](lock_core::ErrorKind::Config) for whatever [`UrlForm::read`] refuses, a path, and `etcds` where the feature `tls` is off.
    pub fn from_url(url: impl AsRef<str>) -> Result<Self, LockError> {
        let mut url = FORM.read(url.as_ref())?;
        if url.scheme == "etcds" && !cfg!(feature = "tls") {
            return Err(FORM.wrong("etcds:// needs TLS, which is not built in").advice("build with the feature `tls`"));
        }
        if !url.path.trim_start_matches('/').is_empty() {
            return Err(FORM
                .wrong("an etcd URL has no path")
                .advice("put a prefix of names into the namespace instead"));
        }
        url.path.clear();
        Ok(Self { url, connect_timeout: Self::CONNECT_TIMEOUT, operation_timeout: Self::OPERATION_TIMEOUT })
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

    /// Host and port of each server, as a message names them.
    pub(crate) fn servers(&self) -> &[String] {
        &self.url.hosts
    }

    /// The driver's form of a server's address.
    pub(crate) fn endpoint(&self, server: &str) -> String {
        format!("{}://{server}", if self.url.scheme == "etcds" { "https" } else { "http" })
    }

    pub(crate) fn options(&self) -> ConnectOptions {
        // A member that has lost its leader refuses, instead of answering from the past.
        let options = ConnectOptions::new()
            .with_require_leader(true)
            .with_connect_timeout(self.connect_timeout)
            .with_keep_alive(PING_EVERY, PONG_WITHIN)
            .with_keep_alive_while_idle(true);
        let options = match (&self.url.user, &self.url.password) {
            (Some(user), Some(password)) => options.with_user(user, password),
            _ => options,
        };
        self.trust(options)
    }

    #[cfg(feature = "tls")]
    fn trust(&self, options: ConnectOptions) -> ConnectOptions {
        if self.url.scheme == "etcds" {
            options.with_tls(etcd_client::TlsOptions::new().with_enabled_roots())
        } else {
            options
        }
    }

    #[cfg(not(feature = "tls"))]
    fn trust(&self, options: ConnectOptions) -> ConnectOptions {
        options
    }
}

/// The password is not shown.
impl fmt::Debug for EtcdConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EtcdConfig({:?})", self.url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lock_core::ErrorKind;

    #[test]
    fn a_url_is_read_in_all_its_parts() {
        let full = EtcdConfig::from_url("etcd://us%2Fer:p%23a%40s@db.example:7000,h2,[::1]:3/").unwrap();
        assert_eq!(full.servers(), ["db.example:7000", "h2:2379", "[::1]:3"]);
        assert_eq!(full.endpoint("h2:2379"), "http://h2:2379");
        assert_eq!(format!("{full:?}"), "EtcdConfig(etcd://us/er:***@db.example:7000,h2:2379,[::1]:3)");
        assert_eq!(EtcdConfig::from_url("etcds://h").is_ok(), cfg!(feature = "tls"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (url, named) in [
            ("mysql://h/", "mysql"),
            ("etcd:h", "no URL"),
            ("etcd://h/?timeout=3", "timeout"),
            ("etcd://h/x", "path"),
            ("etcd://user@h/", "without a password"),
            ("etcd://:p@h/", "without a user"),
        ] {
            let err = EtcdConfig::from_url(url).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::Config, "{url}");
            assert!(err.to_string().contains(named), "{url}: {err}");
        }
    }
}
