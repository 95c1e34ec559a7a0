//! A server's URL in its parts, for backends. A list of hosts is no URL to other parsers, so this reads the text itself.

use std::fmt;
use std::net::Ipv6Addr;

use percent_encoding::percent_decode_str;

use crate::{ErrorKind, LockError};

/// What the URLs of one backend may look like.
///
/// ```
/// use lock_core::{Login, UrlForm};
/// const FORM: UrlForm = UrlForm {
///     backend: "demo",
///     schemes: &["demo", "demos"],
///     port: 4000,
///     many_hosts: true,
///     login: Login::Whole,
///     parameters: &[],
///     shape: "give demo://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]",
/// };
/// let url = FORM.read("demo://app:p%40ss@h1,[::1]:4001/x")?;
/// assert_eq!(url.hosts, ["h1:4000", "[::1]:4001"]);
/// assert_eq!(url.password.as_deref(), Some("p@ss"));
/// assert_eq!(format!("{url:?}"), "demo://app:***@h1:4000,[::1]:4001/x");
/// # Ok::<(), lock_core::LockError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct UrlForm {
    /// The backend's name, for errors.
    pub backend: &'static str,
    /// The schemes, in lower case.
    pub schemes: &'static [&'static str],
    /// The port where none is given.
    pub port: u16,
    /// Whether more than one host may stand there.
    pub many_hosts: bool,
    /// Which logins make sense.
    pub login: Login,
    /// The parameters that are known.
    pub parameters: &'static [&'static str],
    /// What a good URL looks like, as the advice of an error: `give demo://HOST`.
    pub shape: &'static str,
}

/// Which logins make sense to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Login {
    /// User and password, or neither.
    Whole,
    /// As `Whole`, or a password alone.
    PasswordAlone,
    /// As `Whole`, or a user alone.
    UserAlone,
}

/// A server's URL in its parts. [`Debug`](fmt::Debug) shows it without its password, and without the value of a parameter that is called one.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerUrl {
    /// In lower case.
    pub scheme: String,
    /// Host and port of each server; IPv6 addresses stand in brackets.
    pub hosts: Vec<String>,
    /// Who logs in.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// What follows the hosts: empty, or from its slash on. Percent signs are not decoded.
    pub path: String,
    /// Name and value of each parameter, decoded, in their order.
    pub parameters: Vec<(String, String)>,
}

impl UrlForm {
    /// Reads a URL. No error shows a part of the text that may be a password.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for another scheme, a missing or malformed host, a port that is no number, half a login, an unknown parameter, which is
    /// named, a fragment, and what is not UTF-8 when it is percent-decoded.
    pub fn read(&self, text: &str) -> Result<ServerUrl, LockError> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| self.wrong("this is no URL of a server"))?;
        let scheme = scheme.to_ascii_lowercase();
        if !self.schemes.contains(&&*scheme) {
            let plain = scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
            let shown = if plain { &*scheme } else { "***" };
            return Err(self.wrong(format!("the scheme '{shown}' is not one of {}", self.backend)));
        }
        if rest.contains('#') {
            return Err(self.wrong("the URL has a fragment").advice("a '#' in a password is written %23"));
        }
        let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
        let parameters = self.parameters(query)?;
        // A password may hold an '@' that should have been escaped, so the last one counts.
        let (login, rest) = before.rsplit_once('@').map_or((None, before), |(login, rest)| (Some(login), rest));
        let (hosts, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let hosts: Vec<_> = hosts.split(',').map(|host| self.host(host)).collect::<Result<_, _>>()?;
        if hosts.len() > 1 && !self.many_hosts {
            return Err(self.wrong("there is more than one host"));
        }
        let (user, password) = self.login(login.unwrap_or_default())?;
        Ok(ServerUrl { scheme, hosts, user, password, path: path.to_owned(), parameters })
    }

    fn parameters(&self, query: &str) -> Result<Vec<(String, String)>, LockError> {
        // With an '@' it is rather a password that holds a '?'.
        if query.contains('@') {
            return Err(self.wrong("there is an '@' behind a '?'").advice("a '?' in a password is written %3F"));
        }
        let mut parameters = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !self.parameters.contains(&name) {
                let known = match self.parameters {
                    [] => "there are no parameters".to_owned(),
                    known => format!("the parameters are {}", known.join(", ")),
                };
                return Err(self.wrong(format!("unknown parameter '{name}'")).advice(known));
            }
            if parameters.iter().any(|(known, _)| known == name) {
                return Err(self.wrong(format!("the parameter '{name}' stands twice")));
            }
            parameters.push((name.to_owned(), self.decoded(value, name)?));
        }
        Ok(parameters)
    }

    fn login(&self, text: &str) -> Result<(Option<String>, Option<String>), LockError> {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        let part = |text: &str, what| match text {
            "" => Ok(None),
            text => self.decoded(text, what).map(Some),
        };
        match (part(user, "user")?, part(password, "password")?, self.login) {
            (Some(_), None, Login::Whole | Login::PasswordAlone) => {
                Err(self.wrong("there is a user without a password"))
            }
            (None, Some(_), Login::Whole | Login::UserAlone) => Err(self.wrong("there is a password without a user")),
            (user, password, _) => Ok((user, password)),
        }
    }

    /// Host and port. The text is not shown: it may be part of a password.
    fn host(&self, text: &str) -> Result<String, LockError> {
        let end = if text.starts_with('[') { text.find(']').map_or(0, |at| at + 1) } else { 0 };
        let (host, port) = match text[end..].split_once(':') {
            Some((rest, port)) => (&text[..end + rest.len()], port),
            None => (text, ""),
        };
        let good = match host.strip_prefix('[') {
            Some(address) => address.strip_suffix(']').is_some_and(|address| address.parse::<Ipv6Addr>().is_ok()),
            None => !host.is_empty() && host.chars().all(|c| c.is_alphanumeric() || "-._".contains(c)),
        };
        if !good {
            return Err(self.wrong("a host is missing or malformed"));
        }
        let port = if port.is_empty() { Some(self.port) } else { port.parse().ok().filter(|port| *port != 0) };
        let port = port.ok_or_else(|| {
            self.wrong("a port is no number from 1 to 65535").advice("an IPv6 address stands in brackets")
        })?;
        Ok(format!("{host}:{port}"))
    }

    /// Decodes percent signs; `what` names the part for an error, which does not show it.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when the bytes are not UTF-8.
    pub fn decoded(&self, text: &str, what: &str) -> Result<String, LockError> {
        let decoded = percent_decode_str(text).decode_utf8();
        decoded.map(Into::into).map_err(|_| self.wrong(format!("the {what} is not UTF-8 when it is percent-decoded")))
    }

    /// An error about this URL, with the good shape as its advice.
    pub fn wrong(&self, detail: impl Into<String>) -> LockError {
        LockError::new(ErrorKind::Config, detail).backend(self.backend).operation("connect").advice(self.shape)
    }
}

impl ServerUrl {
    /// The first host without brackets, and its port, for drivers that take them apart.
    pub fn first_host(&self) -> (String, u16) {
        host_and_port(self.hosts.first().map(String::as_str).unwrap_or_default())
    }

    /// The value of a parameter.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Takes `host:port` apart, for drivers that want it so; an IPv6 address loses its brackets. A port that is no number is 0.
///
/// ```
/// assert_eq!(lock_core::host_and_port("[::1]:6379"), ("::1".to_owned(), 6379));
/// ```
pub fn host_and_port(address: &str) -> (String, u16) {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    (host.trim_matches(['[', ']']).to_owned(), port.parse().unwrap_or_default())
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme)?;
        if self.user.is_some() || self.password.is_some() {
            let secret = if self.password.is_some() { ":***" } else { "" };
            write!(f, "{}{secret}@", self.user.as_deref().unwrap_or_default())?;
        }
        write!(f, "{}{}", self.hosts.join(","), self.path)?;
        for (i, (name, value)) in self.parameters.iter().enumerate() {
            let value = if name.contains("password") { "***" } else { value };
            write!(f, "{}{name}={value}", if i == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: UrlForm = UrlForm {
        backend: "demo",
        schemes: &["demo"],
        port: 9,
        many_hosts: true,
        login: Login::Whole,
        parameters: &["a"],
        shape: "give demo://HOST",
    };

    #[test]
    fn urls_are_read_in_all_their_parts() {
        for (url, shown) in [
            ("demo://h", "demo://h:9"),
            ("DEMO://h:1/", "demo://h:1/"),
            ("demo://a,b:2,c_d.e-f/x/y?a=%2F", "demo://a:9,b:2,c_d.e-f:9/x/y?a=/"),
            ("demo://u:a%2Fb@[fe80::1]:2182/x", "demo://u:***@[fe80::1]:2182/x"),
            ("demo://[::1]", "demo://[::1]:9"),
            // A password that should have been escaped is still none of the host.
            ("demo://u:a/b@c@h/x", "demo://u:***@h:9/x"),
            ("demo://@h", "demo://h:9"),
        ] {
            assert_eq!(format!("{:?}", FORM.read(url).unwrap()), shown, "{url}");
        }
        let full = FORM.read("demo://us%2Fer:p%23a%40s%3As%2Fw%3D%25%2Bd@h").unwrap();
        assert_eq!((full.user.as_deref(), full.password.as_deref()), (Some("us/er"), Some("p#a@s:s/w=%+d")));
    }

    #[test]
    fn what_is_wrong_is_named_and_no_secret_is_shown() {
        for (url, named) in [
            ("demo:hunter2", "no URL"),
            ("other://u:hunter2@h", "'other'"),
            ("hunter2 hunter2://h", "'***'"),
            ("demo://u:hunter2@h#x", "%23"),
            ("demo://u:#hunter2@h", "%23"),
            ("demo://u:?hunter2@h", "%3F"),
            ("demo://u:hunter2@h?timeout=1", "'timeout'"),
            ("demo://h?a=1&a=2", "twice"),
            ("demo://hunter2@h", "without a password"),
            ("demo://:hunter2@h", "without a user"),
            ("demo://u:hunter2%FF@h", "the password is not UTF-8"),
            ("demo://u:hunter2@", "host"),
            ("demo://u:hunter2/h", "a port"),
            ("demo:///x", "host"),
            ("demo://h,,k", "host"),
            ("demo://h:x", "port"),
            ("demo://h:0", "port"),
            ("demo://h:99999", "port"),
            ("demo://::1:2379", "host"),
            ("demo://[::1", "host"),
            ("demo://[x]:1", "host"),
            ("demo://[::1]x", "host"),
        ] {
            let err = FORM.read(url).expect_err(url);
            assert_eq!(err.kind(), ErrorKind::Config, "{url}");
            assert!(err.to_string().contains(named), "{url}: {err}");
            assert!(!format!("{err} {err:?}").contains("hunter2"), "{err}");
        }
        assert!(UrlForm { many_hosts: false, ..FORM }.read("demo://a,b").is_err());
    }

    #[test]
    fn half_a_login_is_for_those_who_know_it() {
        let with = |login| UrlForm { login, ..FORM };
        assert_eq!(with(Login::PasswordAlone).read("demo://:p@h").unwrap().user, None);
        assert_eq!(with(Login::UserAlone).read("demo://u@h").unwrap().password, None);
        assert!(with(Login::PasswordAlone).read("demo://u@h").is_err());
        assert!(with(Login::UserAlone).read("demo://:p@h").is_err());
    }
}
