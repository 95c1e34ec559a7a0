//! Where the server is, how to log in, and which table carries the locks.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use lock_core::{LockError, Login, ServerUrl, UrlForm};
use sqlx::ConnectOptions;
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};

use crate::BACKEND;

const FORM: UrlForm = UrlForm {
    backend: BACKEND,
    schemes: &["mysql"],
    port: 3306,
    many_hosts: true,
    login: Login::UserAlone,
    parameters: &["table", "ssl-mode", "ssl-ca"],
    shape: "give mysql://USER:PASSWORD@HOST[:PORT][,HOST[:PORT]...]/DATABASE",
};

/// How to reach a MySQL or MariaDB server.
///
/// From a URL: `mysql://user[:password]@host[:port][,host[:port]...]/database[?table=NAME][&ssl-mode=MODE][&ssl-ca=FILE]`. Of several hosts the
/// one that is not `read_only` is used, and looked for anew when its connections break or it refuses writes. User, password and database may
/// be percent-encoded. The table is `distributed_lock` where none is named. The modes of TLS are the ones of MySQL's own tools: `disabled`,
/// `preferred` (the default), `required`, `verify_ca` and `verify_identity`; only the last two keep out a stranger in between.
///
/// ```
/// use lock_mysql::MysqlConfig;
/// let config = MysqlConfig::from_url("mysql://app:p%40ss@[::1]:3307/shop?table=locks")?;
/// assert_eq!(format!("{config:?}"), "MysqlConfig(mysql://app:***@[::1]:3307/shop?table=locks)");
/// # Ok::<(), lock_core::LockError>(())
/// ```
#[derive(Clone)]
pub struct MysqlConfig {
    url: ServerUrl,
    user: String,
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
    /// [`ErrorKind::Config`](lock_core::ErrorKind::Config) for whatever [`UrlForm::read`] refuses, a missing user or database, and a table's name of other
    /// than 1 to 64 letters, digits and underscores.
    pub fn from_url(url: impl AsRef<str>) -> Result<Self, LockError> {
        let url = FORM.read(url.as_ref())?;
        let database = FORM.decoded(url.path.trim_start_matches('/'), "database")?;
        if database.is_empty() || database.contains('/') {
            return Err(FORM.wrong("the database is missing, or its name has a slash"));
        }
        let mut config = Self {
            user: url.user.clone().ok_or_else(|| FORM.wrong("the user is missing"))?,
            database,
            table: Self::TABLE.into(),
            tls: MySqlSslMode::Preferred,
            authority: None,
            connect_timeout: Self::CONNECT_TIMEOUT,
            operation_timeout: Self::OPERATION_TIMEOUT,
            url,
        };
        for (parameter, value) in &config.url.parameters {
            match &**parameter {
                "table" => config.table = table(value)?,
                "ssl-mode" => {
                    config.tls = value.parse().map_err(|_| {
                        FORM.wrong(format!("the ssl-mode '{value}' is unknown"))
                            .advice("give disabled, preferred, required, verify_ca or verify_identity")
                    })?;
                }
                _ => config.authority = Some(value.into()),
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

    /// Host and port, or several, as a message names the server.
    pub(crate) fn server(&self) -> String {
        self.url.hosts.join(",")
    }

    /// Host and port of each server.
    pub(crate) fn hosts(&self) -> &[String] {
        &self.url.hosts
    }

    /// What the driver needs to reach one of them. It sets nothing in the session: the link does, all at once.
    pub(crate) fn options(&self, address: &str) -> MySqlConnectOptions {
        let (host, port) = lock_core::host_and_port(address);
        let mut options = MySqlConnectOptions::new()
            .host(&host)
            .port(port)
            .username(&self.user)
            .database(&self.database)
            .ssl_mode(self.tls)
            .pipes_as_concat(false)
            .no_engine_substitution(false)
            .timezone(None)
            .set_names(false)
            .disable_statement_logging();
        if let Some(password) = &self.url.password {
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
        write!(f, "MysqlConfig({:?})", self.url)
    }
}

fn table(name: &str) -> Result<String, LockError> {
    let fits = (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if fits {
        return Ok(name.into());
    }
    Err(FORM.wrong(format!("'{name}' is no name for the table")).advice("use 1 to 64 letters, digits and underscores"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lock_core::ErrorKind;

    #[test]
    fn a_url_is_read_in_all_its_parts() {
        let url = "mysql://us%2Fer:p%23a%40s@db.example:7000/my%20db?table=L_1&ssl-mode=verify_ca&ssl-ca=/c.pem";
        let full = MysqlConfig::from_url(url).unwrap();
        assert_eq!(
            (full.user.as_str(), full.server().as_str(), full.database.as_str()),
            ("us/er", "db.example:7000", "my db")
        );
        assert_eq!((full.table(), full.authority.as_ref().and_then(|path| path.to_str())), ("L_1", Some("/c.pem")));
        assert!(matches!(full.tls, MySqlSslMode::VerifyCa));
        let short = MysqlConfig::from_url("MYSQL://root@[::1]/d").unwrap();
        assert_eq!((short.server().as_str(), short.table()), ("[::1]:3306", "distributed_lock"));
        let many = MysqlConfig::from_url("mysql://u@a:1,b/d").unwrap();
        assert_eq!(many.hosts(), ["a:1", "b:3306"]);
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
            ("mysql://u@h,/d", "host"),
        ] {
            let err = MysqlConfig::from_url(url).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::Config, "{url}");
            assert!(err.to_string().contains(named), "{url}: {err}");
        }
    }
}
