//! What all backend URLs have in common. A list of hosts is no URL to the `url` crate, so this looks at the text alone.

use lock_core::{ErrorKind, LockError};

/// A URL in its parts, as far as every backend has them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BackendUrl {
    pub(crate) scheme: String,
    /// The whole, without `fence_base`.
    pub(crate) rest: String,
    pub(crate) fence_base: Option<u64>,
}

impl BackendUrl {
    /// Takes scheme and `fence_base` out. The text may hold a password, so no error shows it.
    pub(crate) fn parse(url: &str) -> Result<Self, LockError> {
        let scheme = scheme(url).ok_or_else(|| {
            config("this is not a URL").advice("write it as sqlite:///path/locks.db, redis://host/ or memory:")
        })?;
        let (before, query) = match url.split_once('?') {
            Some((before, query)) => (before, Some(query)),
            None => (url, None),
        };
        let mut fence_base = None;
        let mut kept = Vec::new();
        for pair in query.iter().flat_map(|query| query.split('&')) {
            match pair.strip_prefix("fence_base=") {
                None => kept.push(pair),
                Some(_) if fence_base.is_some() => {
                    return Err(config("the URL parameter 'fence_base' stands twice"));
                }
                Some(number) => {
                    let number: u64 = number.parse().map_err(|_| {
                        config("the URL parameter 'fence_base' is no number")
                            .advice("give a whole number from 0 to 18446744073709551615")
                    })?;
                    fence_base = Some(number);
                }
            }
        }
        let rest = if kept.is_empty() { before.to_owned() } else { format!("{before}?{}", kept.join("&")) };
        Ok(Self { scheme: scheme.to_ascii_lowercase(), rest, fence_base })
    }
}

fn scheme(url: &str) -> Option<&str> {
    let (scheme, _) = url.split_once(':')?;
    let mut bytes = scheme.bytes();
    let starts = bytes.next().is_some_and(|b| b.is_ascii_alphabetic());
    (starts && bytes.all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))).then_some(scheme)
}

/// Parses the URL of a file.
#[cfg(feature = "sqlite")]
pub(crate) fn parse(url: &str) -> Result<url::Url, LockError> {
    // The error of the `url` crate says what is wrong without quoting the text.
    url::Url::parse(url).map_err(|e| {
        config("the URL is malformed").source(e).advice("special characters in a password are written as %XX")
    })
}

fn config(text: &str) -> LockError {
    LockError::new(ErrorKind::Config, text).operation("connect")
}

/// A URL for showing: user and password, and the values of parameters that may be secret, become `***`.
///
/// ```
/// assert_eq!(distlock::redact("redis://app:s3cret@db:6379/0?tls=on"), "redis://***@db:6379/0?tls=on");
/// ```
pub fn redact(url: &str) -> String {
    if scheme(url).is_none() {
        return "***".to_owned();
    }
    let (before, query) = url.split_once('?').map_or((url, None), |(before, query)| (before, Some(query)));
    // A password may hold an '@' or a '/' that should have been escaped: everything before the last '@' goes.
    let mut shown = match (before.split_once(':'), before.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://***@{host}"),
        // `mysql://app:hunter2`, where the host was forgotten.
        (Some((scheme, rest)), None) if !is_hosts(rest) => format!("{scheme}://***"),
        _ => before.to_owned(),
    };
    for (i, pair) in query.iter().flat_map(|query| query.split('&')).enumerate() {
        shown.push(if i == 0 { '?' } else { '&' });
        match pair.split_once('=') {
            Some((key, _)) if is_secret(key) => shown.push_str(&format!("{key}=***")),
            _ => shown.push_str(pair),
        }
    }
    shown
}

/// Whether what follows the scheme can only be hosts with ports, and a path.
fn is_hosts(rest: &str) -> bool {
    let hosts = rest.strip_prefix("//").unwrap_or("").split('/').next().unwrap_or("");
    hosts.split(',').all(|host| {
        let port = host.rsplit_once(']').map_or(host, |(_, port)| port).rsplit_once(':').map_or("", |(_, port)| port);
        port.bytes().all(|b| b.is_ascii_digit())
    })
}

fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    key == "user" || ["pass", "pw", "secret", "token", "auth", "key"].iter().any(|word| key.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fence_base_is_taken_out_and_the_rest_stays() {
        let url = BackendUrl::parse("ZK://h1:2181,h2:2181/c?a=1&fence_base=7&b=2").unwrap();
        assert_eq!(url.scheme, "zk");
        assert_eq!(url.rest, "ZK://h1:2181,h2:2181/c?a=1&b=2");
        assert_eq!(url.fence_base, Some(7));
        assert_eq!(BackendUrl::parse("memory:?fence_base=0").unwrap().rest, "memory:");
    }

    #[test]
    fn bad_urls_are_refused_without_being_shown() {
        for bad in ["", "hunter2", "/hunter2", "1hunter2:", "redis:?fence_base=hunter2", "m:?fence_base=1&fence_base=1"]
        {
            let err = BackendUrl::parse(bad).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::Config);
            assert!(!err.to_string().contains("hunter2"), "{err}");
        }
    }

    #[test]
    fn secrets_do_not_show() {
        for (url, shown) in [
            ("sqlite:///a%20b/locks.db", "sqlite:///a%20b/locks.db"),
            ("redis://:p@ss@h/", "redis://***@h/"),
            ("redis://u:a/b@h1:1,h2:2/0?password=x&db=1", "redis://***@h1:1,h2:2/0?password=***&db=1"),
            ("hunter2", "***"),
            ("mysql://app:hunter2", "mysql://***"),
            ("zk://h1:1,app:hunter2/x?a=1", "zk://***?a=1"),
            ("zk://h1:1,[::1],[fe80::1]:2,h3/x:y", "zk://h1:1,[::1],[fe80::1]:2,h3/x:y"),
            ("sqlite:a:b", "sqlite:a:b"),
        ] {
            assert_eq!(redact(url), shown);
        }
    }
}
