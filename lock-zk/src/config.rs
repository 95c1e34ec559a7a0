//! Where the servers are, and how to log in.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use lock_core::{LockError, Login, ServerUrl, UrlForm};
use zookeeper_client::{Acls, Client, Connector};

use crate::BACKEND;

const FORM: UrlForm = UrlForm {
    backend: BACKEND,
    schemes: &["zk"],
    port: 2181,
    many_hosts: true,
    login: Login::Whole,
    parameters: &[],
    shape: "give zk://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][/FOLDER]",
};

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
    /// Its path is the folder of all locks; empty for the root itself.
    url: ServerUrl,
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
    /// [`ErrorKind::Config`](lock_core::ErrorKind::Config) for whatever [`UrlForm::read`] refuses, a folder that ZooKeeper does not allow, and a user with a
    /// colon.
    pub fn from_url(url: impl AsRef<str>) -> Result<Self, LockError> {
        let mut url = FORM.read(url.as_ref())?;
        url.path = folder(&url.path)?;
        if url.user.as_ref().is_some_and(|user| user.contains(':')) {
            return Err(FORM.wrong("a user must not contain ':'"));
        }
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

    /// Host and port of each server.
    pub(crate) fn servers(&self) -> &[String] {
        &self.url.hosts
    }

    /// The folder of all locks; empty for the root itself.
    pub(crate) fn root(&self) -> &str {
        &self.url.path
    }

    /// Who may do what with our nodes: only this user, where there is one.
    pub(crate) fn acls(&self) -> Acls<'static> {
        if self.url.user.is_some() { Acls::creator_all() } else { Acls::anyone_all() }
    }

    pub(crate) fn connector(&self) -> Connector {
        let connector = Client::connector().with_fail_eagerly();
        match (&self.url.user, &self.url.password) {
            (Some(user), Some(password)) => connector.with_auth("digest", format!("{user}:{password}").as_bytes()),
            _ => connector,
        }
    }

    /// The list of servers, each once, as the driver takes it.
    pub(crate) fn each_once(&self) -> String {
        let list: Vec<_> = self.url.hosts.iter().map(|host| looked_up(host)).collect();
        list.join(",")
    }

    /// The list of servers over which the driver goes on and on.
    pub(crate) fn cluster(&self) -> String {
        vec![self.each_once(); LEAST_LIST.div_ceil(self.url.hosts.len())].join(",")
    }
}

/// The same server, by an address that only the system's resolver can read.
///
/// When its time for a session is over and a dial fails at once (no route, no files left), the driver (0.11.2) dials again and again without ever
/// looking at its clock, and its thread does nothing else. It looks only while it waits for a dial, as it does for the resolver.
fn looked_up(server: &str) -> String {
    let Some((host, port)) = server.rsplit_once(':') else { return server.to_owned() };
    match host.trim_start_matches('[').trim_end_matches(']').parse() {
        Ok(IpAddr::V4(address)) => {
            let [a, b, c, d] = address.octets();
            format!("{a}.{b}.{c}.{d:#x}:{port}")
        }
        Ok(IpAddr::V6(address)) => format!("[{address}%0]:{port}"),
        Err(_) => server.to_owned(),
    }
}

/// The password is not shown.
impl fmt::Debug for ZkConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ZkConfig({:?})", self.url)
    }
}

fn folder(text: &str) -> Result<String, LockError> {
    let text = text.strip_suffix('/').unwrap_or(text);
    let good = |part: &str| {
        !matches!(part, "" | "." | "..") && part.bytes().all(|b| b.is_ascii_graphic()) && !part.contains(['%', ','])
    };
    let Some(parts) = text.strip_prefix('/') else { return Ok(String::new()) };
    if !parts.split('/').all(good) || parts == "zookeeper" || parts.starts_with("zookeeper/") {
        return Err(FORM
            .wrong("the folder cannot be used")
            .advice("give names of visible ASCII characters between slashes, such as /prod/locks"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lock_core::ErrorKind;

    #[test]
    fn urls_are_read_in_all_their_parts() {
        for (url, shown) in [
            ("zk://h", "zk://h:2181"),
            ("ZK://h:1/", "zk://h:1"),
            ("zk://a,b:2,c_d.e-f/x/y/", "zk://a:2181,b:2,c_d.e-f:2181/x/y"),
            ("zk://u:a%2Fb@[fe80::1]:2182/x", "zk://u:***@[fe80::1]:2182/x"),
        ] {
            assert_eq!(format!("{:?}", ZkConfig::from_url(url).unwrap()), format!("ZkConfig({shown})"));
        }
    }

    #[test]
    fn bad_urls_are_refused_without_being_shown() {
        for bad in [
            "redis://u:hunter2@h",
            "zk://hunter2@h",
            "zk://u%3A:hunter2@h",
            "zk://u:hunter2@h?nonsense=1",
            "zk://u:hunter2@h//x",
            "zk://h/../x",
            "zk://h/zookeeper/x",
        ] {
            let err = ZkConfig::from_url(bad).err().unwrap_or_else(|| panic!("{bad} was taken"));
            assert_eq!(err.kind(), ErrorKind::Config);
            assert!(!err.to_string().contains("hunter2"), "{err}");
        }
    }

    #[test]
    fn an_address_leads_to_the_same_server_by_way_of_the_resolver() {
        use std::net::{SocketAddr, ToSocketAddrs};

        for address in ["127.0.0.1:1", "10.9.200.255:2", "[::1]:3", "[2001:db8::ff]:4", "[::ffff:1.2.3.4]:5"] {
            let told = looked_up(address);
            let (host, _) = told.rsplit_once(':').unwrap();
            let host = host.trim_start_matches('[').trim_end_matches(']');
            assert!(host.parse::<IpAddr>().is_err(), "{host} is read without the resolver");
            let there: Vec<_> = told.to_socket_addrs().unwrap().collect();
            assert_eq!(there, [address.parse::<SocketAddr>().unwrap()], "{told}");
        }
        assert_eq!(looked_up("h:1"), "h:1");
    }

    #[test]
    fn a_short_list_of_servers_is_repeated() {
        let cluster = ZkConfig::from_url("zk://a,b,c").unwrap().cluster();
        assert_eq!(cluster.split(',').count(), 21);
        assert!(cluster.starts_with("a:2181,b:2181,c:2181,a:2181"));
    }
}
