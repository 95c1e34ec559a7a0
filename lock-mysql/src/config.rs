//! Where the server is, how to log in, and which table carries the locks.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use lock_core::{ErrorKind, LockError};
use percent_encoding::percent_decode_str;
use sqlx::ConnectOptions;
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
use url::Url;

use crate::BACKEND;

/// How to reach a MySQL or MariaDB server.
///
/// From a URL: `mysql://user[:password]@host[:port]/database[?table=NAME][&ssl-mode=MODE][&ssl-ca=FILE]`. User, password and database may
/// be percent-encoded. The table is `distributed_lock` where none is named. The modes of TLS are the ones of MySQL's own tools: `disabled`,
/// `preferred` (the default), `required`, `verify_ca` and `verify_identity`; only the last two keep out a stranger in between.
///
/// ```
/// use lock_mysql::MysqlConfig;
/// let config = MysqlConfig::from_url(&"mysql://app:p%40ss@[::1]:3307/shop?table=locks".parse()?)?;
/// assert_eq!(format!("{config:?}"), "MysqlConfig(mysql://app:***@[::1]:3307/shop?table=locks)");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct MysqlConfig {
    host: String,
    port: u16,
    user: String,
    password: Option<String>,
    database: String,
    table: String,
    tls: MySqlSslMode,
    authority: Option<PathBuf>,
    connect_timeout: Duration,
    operation_timeout: Duration,
}

impl MysqlConfig {
    /// The default bound on opening a connection: 5 s.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
    /// The default bound on a request that no [`AcquireRequest`](lock_core::AcquireRequest) bounds: 2 s.
    pub const OPERATION_TIMEOUT: Duration = Duration::from_secs(2);
    /// The default table.
    pub const TABLE: &str = "distributed_lock";

    /// Reads a URL. Nothing is sent.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for another scheme, a missing host, user or database, a table's name of other than 1 to 64 letters, digits and
    /// underscores, and an unknown parameter, which is named.
    pub fn from_url(url: &Url) -> Result<Self, LockError> {
        if url.scheme() != "mysql" {
            return Err(wrong(format!("the scheme '{}' is not MySQL", url.scheme())).advice("give mysql://"));
        }
        if url.fragment().is_some() {
            return Err(wrong("a MySQL URL takes no fragment").advice("a '#' in a password is written %23"));
        }
        let host = match url.host() {
            Some(url::Host::Domain(host)) if !host.is_empty() => decoded(host, "host")?,
            Some(url::Host::Ipv4(address)) => address.to_string(),
            Some(url::Host::Ipv6(address)) => address.to_string(),
            _ => return Err(wrong("the host is missing").advice(FORM)),
        };
        let user = decoded(url.username(), "user")?;
        if user.is_empty() {
            return Err(wrong("the user is missing").advice(FORM));
        }
        let database = decoded(url.path().trim_start_matches('/'), "database")?;
        if database.is_empty() || database.contains('/') {
            return Err(wrong("the database is missing, or its name has a slash").advice(FORM));
        }
        let mut config = Self {
            host,
            port: url.port().unwrap_or(3306),
            user,
            password: url.password().map(|text| decoded(text, "password")).transpose()?,
            database,
            table: Self::TABLE.into(),
            tls: MySqlSslMode::Preferred,
            authority: None,
            connect_timeout: Self::CONNECT_TIMEOUT,
            operation_timeout: Self::OPERATION_TIMEOUT,
        };
        for (parameter, value) in url.query_pairs() {
            match &*parameter {
                "table" => config.table = table(&value)?,
                "ssl-mode" => {
                    config.tls = value.parse().map_err(|_| {
                        wrong(format!("the ssl-mode '{value}' is unknown"))
                            .advice("give disabled, preferred, required, verify_ca or verify_identity")
                    })?;
                }
                "ssl-ca" => config.authority = Some(value.into_owned().into()),
                other => {
                    return Err(wrong(format!("unknown parameter '{other}'"))
                        .advice("the parameters are table, ssl-mode and ssl-ca"));
                }
            }
        }
        Ok(config)
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

    pub(crate) fn table(&self) -> &str {
        &self.table
    }

    /// Host and port, as a message names the server.
    pub(crate) fn server(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{host}:{}", self.port)
    }

    /// What the driver needs. It sets nothing in the session: the link does, all at once.
    pub(crate) fn options(&self) -> MySqlConnectOptions {
        let mut options = MySqlConnectOptions::new()
            .host(&self.host)
            .port(self.port)
            .username(&self.user)
            .database(&self.database)
            .ssl_mode(self.tls)
            .pipes_as_concat(false)
            .no_engine_substitution(false)
            .timezone(None)
            .set_names(false)
            .disable_statement_logging();
        if let Some(password) = &self.password {
            options = options.password(password);
        }
        if let Some(file) = &self.authority {
            options = options.ssl_ca(file);
        }
        options
    }
}

/// The password is not shown.
impl fmt::Debug for MysqlConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, database, table, .. } = self;
        let secret = if self.password.is_some() { ":***" } else { "" };
        write!(f, "MysqlConfig(mysql://{user}{secret}@{}/{database}?table={table})", self.server())
    }
}

const FORM: &str = "give mysql://USER:PASSWORD@HOST[:PORT]/DATABASE";

fn table(name: &str) -> Result<String, LockError> {
    let fits = (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if fits {
        return Ok(name.into());
    }
    Err(wrong(format!("'{name}' is no name for the table")).advice("use 1 to 64 letters, digits and underscores"))
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

    fn config(url: &str) -> Result<MysqlConfig, LockError> {
        MysqlConfig::from_url(&url.parse().unwrap())
    }

    #[test]
    fn a_url_is_read_in_all_its_parts() {
        let full = config("mysql://us%2Fer:p%23a%40s%3As%2Fw%3D%25%2Bd@db.example:7000/my%20db?table=L_1&ssl-mode=verify_ca&ssl-ca=/c.pem")
            .unwrap();
        assert_eq!((full.user.as_str(), full.password.as_deref()), ("us/er", Some("p#a@s:s/w=%+d")));
        assert_eq!((full.host.as_str(), full.port, full.database.as_str()), ("db.example", 7000, "my db"));
        assert_eq!((full.table(), full.authority.as_ref().and_then(|path| path.to_str())), ("L_1", Some("/c.pem")));
        assert!(matches!(full.tls, MySqlSslMode::VerifyCa));
        let short = config("MYSQL://root@[::1]/d").unwrap();
        assert_eq!((short.host.as_str(), short.port, short.table()), ("::1", 3306, "distributed_lock"));
        assert_eq!((short.server().as_str(), short.password), ("[::1]:3306", None));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (url, named) in [
            ("redis://u@h/d", "redis"),
            ("mysql://u@h/d?timeout=3", "'timeout'"),
            ("mysql://u@h/d?ssl-mode=maybe", "'maybe'"),
            ("mysql://u@h/d?table=a%60b", "'a`b'"),
            ("mysql://u@h/d?table=", "''"),
            ("mysql://u@h/", "database"),
            ("mysql://u@h/a/b", "database"),
            ("mysql://h/d", "user"),
            ("mysql:///d", "host"),
            ("mysql://u@h/d#x", "%23"),
        ] {
            let err = config(url).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::Config, "{url}");
            assert!(err.to_string().contains(named), "{url}: {err}");
        }
    }

    #[test]
    fn no_text_shows_the_password() {
        let shown = format!("{:?}", config("mysql://u:hunter2@h/d").unwrap());
        assert!(!shown.contains("hunter2"), "{shown}");
        for url in ["mysql://u:hunter2%FF@h/d", "mysql://u:hunter2@h/", "mysql://u:hunter2@h/d?x=1"] {
            let err = config(url).unwrap_err();
            assert!(!format!("{err} {err:?}").contains("hunter2"), "{err}");
        }
    }
}
