//! Where the cluster is, and how to log in.

use std::fmt;
use std::time::Duration;

use etcd_client::ConnectOptions;
use lock_core::{ErrorKind, LockError};
use percent_encoding::percent_decode_str;

use crate::BACKEND;

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
    tls: bool,
    /// Host and port of each.
    servers: Vec<String>,
    login: Option<(String, String)>,
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
    /// [`ErrorKind::Config`] for another scheme, a missing or malformed host, a path, or a parameter, which is named; for `etcds` where the
    /// feature `tls` is off.
    pub fn from_url(url: &str) -> Result<Self, LockError> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("this is no etcd URL").advice(FORM))?;
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "etcd" => false,
            "etcds" if cfg!(feature = "tls") => true,
            "etcds" => {
                return Err(wrong("etcds:// needs TLS, which is not built in").advice("build with the feature `tls`"));
            }
            other => return Err(wrong(format!("the scheme '{other}' is not etcd")).advice(FORM)),
        };
        if rest.contains('#') {
            return Err(wrong("an etcd URL takes no fragment").advice("a '#' in a password is written %23"));
        }
        let (before, query) = rest.split_once('?').map_or((rest, ""), |(before, query)| (before, query));
        if let Some(parameter) = query.split('&').find(|pair| !pair.is_empty()) {
            // With an '@' it is rather a password that holds a '?'.
            let name = parameter.split('=').next().filter(|_| !query.contains('@')).unwrap_or("***");
            return Err(wrong(format!("unknown parameter '{name}'"))
                .advice("an etcd URL takes no parameters; a '?' in a password is written %3F"));
        }
        // A password may hold an '@' that should have been escaped, so the last one counts.
        let (login, hosts) = before.rsplit_once('@').map_or((None, before), |(login, hosts)| (Some(login), hosts));
        let hosts = hosts.strip_suffix('/').unwrap_or(hosts);
        if hosts.contains('/') {
            return Err(wrong("an etcd URL has no path").advice("put a prefix of names into the namespace instead"));
        }
        Ok(Self {
            tls,
            servers: hosts.split(',').map(server).collect::<Result<_, _>>()?,
            login: login.map(credentials).transpose()?,
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

    /// Host and port of each server, as a message names them.
    pub(crate) fn servers(&self) -> &[String] {
        &self.servers
    }

    /// The driver's form of a server's address.
    pub(crate) fn endpoint(&self, server: &str) -> String {
        format!("{}://{server}", if self.tls { "https" } else { "http" })
    }

    pub(crate) fn options(&self) -> ConnectOptions {
        // A member that has lost its leader refuses, instead of answering from the past.
        let options = ConnectOptions::new()
            .with_require_leader(true)
            .with_connect_timeout(self.connect_timeout)
            .with_keep_alive(PING_EVERY, PONG_WITHIN)
            .with_keep_alive_while_idle(true);
        let options = match &self.login {
            Some((user, password)) => options.with_user(user, password),
            None => options,
        };
        self.trust(options)
    }

    #[cfg(feature = "tls")]
    fn trust(&self, options: ConnectOptions) -> ConnectOptions {
        if self.tls { options.with_tls(etcd_client::TlsOptions::new().with_enabled_roots()) } else { options }
    }

    #[cfg(not(feature = "tls"))]
    fn trust(&self, options: ConnectOptions) -> ConnectOptions {
        options
    }
}

/// The password is not shown.
impl fmt::Debug for EtcdConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "etcds" } else { "etcd" };
        let login = self.login.as_ref().map(|(user, _)| format!("{user}:***@")).unwrap_or_default();
        write!(f, "EtcdConfig({scheme}://{login}{})", self.servers.join(","))
    }
}

const FORM: &str = "give etcd://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...], or etcds:// for TLS";

fn wrong(detail: impl Into<String>) -> LockError {
    LockError::new(ErrorKind::Config, detail).backend(BACKEND)
}

/// Host and port, with the default port where none is given. The text is not shown: it may be part of a password.
fn server(text: &str) -> Result<String, LockError> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => {
            address.parse::<std::net::Ipv6Addr>().map_err(|_| wrong("a host in brackets is no IPv6 address"))?;
            (&text[..address.len() + 2], port.strip_prefix(':').map_or(port, |port| port))
        }
        None => text.split_once(':').unwrap_or((text, "2379")),
    };
    let port = if port.is_empty() { "2379" } else { port };
    let known = |c: char| c.is_alphanumeric() || "-._[]:".contains(c);
    if host.is_empty() || !host.chars().all(known) {
        return Err(wrong("a host is missing or malformed").advice(FORM));
    }
    match port.parse::<u16>() {
        Ok(port) if port > 0 => Ok(format!("{host}:{port}")),
        _ => Err(wrong("a port is no number from 1 to 65535").advice("an IPv6 address stands in brackets")),
    }
}

fn credentials(text: &str) -> Result<(String, String), LockError> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    if user.is_empty() || password.is_empty() {
        return Err(wrong("user and password go together").advice("give etcd://USER:PASSWORD@HOST, or neither"));
    }
    let decoded = |text: &str, what: &str| {
        let decoded = percent_decode_str(text).decode_utf8();
        decoded.map(String::from).map_err(|_| wrong(format!("the {what} is not UTF-8 when it is percent-decoded")))
    };
    Ok((decoded(user, "user")?, decoded(password, "password")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_in_all_its_parts() {
        let full =
            EtcdConfig::from_url("etcd://us%2Fer:p%23a%40s%3As%2Fw%3D%25%2Bd@db.example:7000,h2,[::1]:3/").unwrap();
        assert_eq!(full.login, Some(("us/er".into(), "p#a@s:s/w=%+d".into())));
        assert_eq!(full.servers, ["db.example:7000", "h2:2379", "[::1]:3"]);
        assert_eq!(full.endpoint("h2:2379"), "http://h2:2379");
        let short = EtcdConfig::from_url("ETCD://[::1]").unwrap();
        assert_eq!(short.servers, ["[::1]:2379"]);
        assert_eq!(EtcdConfig::from_url("etcds://h").is_ok(), cfg!(feature = "tls"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (url, named) in [
            ("mysql://h/", "mysql"),
            ("etcd:h", "no etcd URL"),
            ("etcd://h/?timeout=3", "timeout"),
            ("etcd://h?a&b=1", "'a'"),
            ("etcd://h/x", "path"),
            ("etcd://", "host"),
            ("etcd://h,,k", "host"),
            ("etcd://h:x", "port"),
            ("etcd://h:0", "port"),
            ("etcd://::1:2379", "host"),
            ("etcd://[::1]x", "port"),
            ("etcd://[x]:1", "IPv6"),
            ("etcd://h/#insecure", "%23"),
            ("etcd://user@h/", "go together"),
            ("etcd://:p@h/", "go together"),
        ] {
            let err = EtcdConfig::from_url(url).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::Config, "{url}");
            assert!(err.to_string().contains(named), "{url}: {err}");
        }
    }

    #[test]
    fn no_text_shows_the_password() {
        let shown = format!("{:?}", EtcdConfig::from_url("etcd://u:hunter2@h").unwrap());
        assert!(!shown.contains("hunter2"), "{shown}");
        for url in [
            "etcd://u:hunter2%FF@h",
            "etcd://u:hunter2@h/x",
            "etcd://u:hunter2@h?x=1",
            "etcd://u:hunter2/h",
            "etcd://u:?hunter2@h",
        ] {
            let err = EtcdConfig::from_url(url).unwrap_err();
            assert!(!format!("{err} {err:?}").contains("hunter2"), "{err}");
        }
    }
}
