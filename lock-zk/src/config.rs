//! Where the servers are, and how to log in.

use std::fmt;
use std::time::Duration;

use lock_core::{ErrorKind, LockError};
use percent_encoding::percent_decode_str;
use zookeeper_client::{Acls, Client, Connector};

use crate::BACKEND;

/// The driver doubles its pause after each round over its list of servers, without a bound. In a longer list the pauses stay short:
/// so the list is repeated until it has at least this many entries, and an outage of 10 s is noticed to be over within 1 s.
const LEAST_LIST: usize = 20;

/// How to reach an ensemble.
///
/// From a URL: `zk://[user:password@]host[:port][,host[:port]...][/folder]`. The folder, in which the locks' own folders stand, is made where it is
/// missing; without one they stand at the root. User and password may be percent-encoded and log in by the scheme `digest`. There
/// are no parameters.
///
/// ```
/// use lock_zk::ZkConfig;
/// let config = ZkConfig::from_url("zk://app:p%40ss@h1:2181,[::1]/prod/locks")?;
/// assert_eq!(format!("{config:?}"), "ZkConfig(zk://app:***@h1:2181,[::1]:2181/prod/locks)");
/// # Ok::<(), lock_core::LockError>(())
/// ```
#[derive(Clone)]
pub struct ZkConfig {
    servers: Vec<String>,
    root: String,
    login: Option<(String, String)>,
    connect_timeout: Duration,
    operation_timeout: Duration,
}

impl ZkConfig {
    /// The default bound on opening a connection: 5 s.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
    /// The default bound on a request that no [`AcquireRequest`](lock_core::AcquireRequest) bounds: 2 s.
    pub const OPERATION_TIMEOUT: Duration = Duration::from_secs(2);

    /// Reads a URL. Nothing is sent.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for another scheme, a missing host, a port that is no number, a folder that ZooKeeper does not allow, or
    /// a parameter.
    pub fn from_url(url: &str) -> Result<Self, LockError> {
        // Nothing of the text is quoted but a plain word: it may hold a password.
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("this is not a zk:// URL"))?;
        if !scheme.eq_ignore_ascii_case("zk") {
            return Err(wrong("the scheme is not ZooKeeper's").advice("give zk://HOST:PORT[,HOST:PORT...][/FOLDER]"));
        }
        if rest.contains('#') {
            return Err(wrong("a zk URL takes no fragment").advice("a '#' in a password is written %23"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let parameter = query.split(['=', '&']).next().unwrap_or_default();
        if query.contains('@') {
            return Err(wrong("there is a '?' in the user or password").advice("write it as %3F"));
        }
        if !query.is_empty() {
            return Err(wrong(format!("unknown parameter '{parameter}'")).advice("a zk URL takes no parameters"));
        }
        let (userinfo, rest) = match rest.rsplit_once('@') {
            Some((userinfo, rest)) => (Some(userinfo), rest),
            None => (None, rest),
        };
        let (hosts, root) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        Ok(Self {
            servers: hosts.split(',').map(server).collect::<Result<_, _>>()?,
            root: folder(root)?,
            login: userinfo.map(login).transpose()?,
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

    /// Host and port of each server.
    pub(crate) fn servers(&self) -> &[String] {
        &self.servers
    }

    /// The folder of all locks; empty for the root itself.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// Who may do what with our nodes: only this user, where there is one.
    pub(crate) fn acls(&self) -> Acls<'static> {
        if self.login.is_some() { Acls::creator_all() } else { Acls::anyone_all() }
    }

    pub(crate) fn connector(&self) -> Connector {
        let connector = Client::connector().with_fail_eagerly();
        match &self.login {
            Some((user, password)) => connector.with_auth("digest", format!("{user}:{password}").as_bytes()),
            None => connector,
        }
    }

    /// The list of servers, as the driver takes it.
    pub(crate) fn cluster(&self) -> String {
        let rounds = LEAST_LIST.div_ceil(self.servers.len());
        let list: Vec<_> = (0..rounds).flat_map(|_| self.servers.iter().map(String::as_str)).collect();
        list.join(",")
    }
}

impl fmt::Debug for ZkConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let login = self.login.as_ref().map(|(user, _)| format!("{user}:***@")).unwrap_or_default();
        write!(f, "ZkConfig(zk://{login}{}{})", self.servers.join(","), self.root)
    }
}

fn server(text: &str) -> Result<String, LockError> {
    let end = if text.starts_with('[') { text.find(']').map_or(text.len(), |at| at + 1) } else { 0 };
    let (host, port) = match text[end..].rfind(':') {
        Some(at) => (&text[..end + at], Some(&text[end + at + 1..])),
        None => (text, None),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let address = |inner: &str| !inner.is_empty() && inner.chars().all(|c| c.is_ascii_hexdigit() || ".:%".contains(c));
    let good = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').is_some_and(address),
        None => !host.is_empty() && host.chars().all(plain),
    };
    if !good {
        return Err(wrong("a host is missing or malformed").advice("give zk://HOST:PORT[,HOST:PORT...][/FOLDER]"));
    }
    let port = port.map_or(Ok(2181), str::parse::<u16>).ok().filter(|port| *port != 0);
    let port = port.ok_or_else(|| wrong("a port is not a number from 1 to 65535"))?;
    Ok(format!("{host}:{port}"))
}

fn folder(text: &str) -> Result<String, LockError> {
    let text = text.strip_suffix('/').unwrap_or(text);
    let good = |part: &str| {
        !matches!(part, "" | "." | "..") && part.bytes().all(|b| b.is_ascii_graphic()) && !part.contains(['%', ','])
    };
    let Some(parts) = text.strip_prefix('/') else { return Ok(String::new()) };
    if !parts.split('/').all(good) || parts == "zookeeper" || parts.starts_with("zookeeper/") {
        return Err(wrong("the folder cannot be used")
            .advice("give names of visible ASCII characters between slashes, such as /prod/locks"));
    }
    Ok(text.to_owned())
}

fn login(userinfo: &str) -> Result<(String, String), LockError> {
    let decoded = |text: &str| {
        let text = percent_decode_str(text).decode_utf8().ok().filter(|text| !text.is_empty());
        text.map(|text| text.into_owned()).ok_or_else(|| wrong("user or password is empty or not UTF-8"))
    };
    let (user, password) = userinfo.split_once(':').ok_or_else(|| wrong("there is a user without a password"))?;
    let user = decoded(user)?;
    if user.contains(':') {
        return Err(wrong("a user must not contain ':'"));
    }
    Ok((user, decoded(password)?))
}

fn wrong(text: impl Into<String>) -> LockError {
    LockError::new(ErrorKind::Config, text).backend(BACKEND).operation("connect")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_in_all_their_parts() {
        for (url, shown) in [
            ("zk://h", "zk://h:2181"),
            ("ZK://h:1/", "zk://h:1"),
            ("zk://a,b:2,c_d.e-f/x/y/", "zk://a:2181,b:2,c_d.e-f:2181/x/y"),
            ("zk://u:a%2Fb@[fe80::1]:2182/x", "zk://u:***@[fe80::1]:2182/x"),
            // A password that should have been escaped is still none of the host.
            ("zk://u:a/b@h/x", "zk://u:***@h:2181/x"),
        ] {
            assert_eq!(format!("{:?}", ZkConfig::from_url(url).unwrap()), format!("ZkConfig({shown})"));
        }
    }

    #[test]
    fn bad_urls_are_refused_without_being_shown() {
        for bad in [
            "zk:hunter2",
            "zk://",
            "zk:///x",
            "zk://h,",
            "zk://h:x",
            "zk://h:0",
            "zk://h:99999",
            "zk://hunter2@h",
            "zk://u:hunter2@",
            "zk://u:@h",
            "zk://u:hunter2@h?nonsense=1",
            "zk://u:p?hunter2@h",
            "zk://u:p#hunter2@h",
            "zk://h//x",
            "zk://h/../x",
            "zk://h/zookeeper/x",
            "zk://[::1/x",
            "redis://u:hunter2@h",
        ] {
            let err = ZkConfig::from_url(bad).err().unwrap_or_else(|| panic!("{bad} was taken"));
            assert_eq!(err.kind(), ErrorKind::Config);
            assert!(!err.to_string().contains("hunter2"), "{err}");
        }
        let err = ZkConfig::from_url("zk://h?nonsense=1").unwrap_err();
        assert!(err.to_string().contains("'nonsense'"), "{err}");
    }

    #[test]
    fn a_short_list_of_servers_is_repeated() {
        let cluster = ZkConfig::from_url("zk://a,b,c").unwrap().cluster();
        assert_eq!(cluster.split(',').count(), 21);
        assert!(cluster.starts_with("a:2181,b:2181,c:2181,a:2181"));
    }
}
