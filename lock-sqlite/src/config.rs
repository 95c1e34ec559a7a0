//! Where the file is.

use std::path::{Path, PathBuf};

use lock_core::{ErrorKind, LockError};
use percent_encoding::percent_decode_str;
use url::Url;

/// Which file holds the locks.
///
/// ```
/// use lock_sqlite::SqliteConfig;
/// let url = "sqlite:///var/lib/my%20app/locks.db".parse()?;
/// assert_eq!(SqliteConfig::from_url(&url)?.path().to_str(), Some("/var/lib/my app/locks.db"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqliteConfig {
    path: PathBuf,
}

impl SqliteConfig {
    /// Locks in this file. A relative path counts from the current folder of now.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when the path is empty, not UTF-8, or holds a NUL byte, and when there is no current folder.
    pub fn from_path(path: impl AsRef<Path>) -> Result<Self, LockError> {
        let path = path.as_ref();
        if path.as_os_str().is_empty() {
            return Err(config("the path of the file is empty", "give sqlite:///absolute/path/locks.db"));
        }
        if path.to_str().is_none_or(|text| text.contains('\0')) {
            return Err(config(
                format!("the path {path:?} cannot be given to SQLite"),
                "give a path of UTF-8 without NUL bytes",
            ));
        }
        // Absolute, since the process may change its folder, and since SQLite reads a relative `file:x` as a URI.
        let path = std::path::absolute(path)
            .map_err(|e| config(format!("the path {path:?} is relative"), "give an absolute path").source(e))?;
        Ok(Self { path })
    }

    /// Reads `sqlite:///absolute/path`, `sqlite:relative/path`, or `sqlite://relative/path`; percent signs are decoded.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for another scheme, a user, a port, a fragment, a parameter, or a path that
    /// [`from_path`](Self::from_path) refuses.
    pub fn from_url(url: &Url) -> Result<Self, LockError> {
        if url.scheme() != "sqlite" {
            return Err(config(
                format!("the scheme '{}' is not sqlite", url.scheme()),
                "write sqlite:///path/locks.db",
            ));
        }
        if let Some((key, _)) = url.query_pairs().next() {
            return Err(config(format!("unknown parameter '{key}'"), "the sqlite backend has no parameters"));
        }
        if !url.username().is_empty() || url.password().is_some() || url.port().is_some() || url.fragment().is_some() {
            return Err(config(
                "a sqlite URL has no user, port or fragment",
                "write sqlite:///path/locks.db, with %23 for '#'",
            ));
        }
        // `sqlite://dir/locks.db` names the relative path `dir/locks.db`, as others read it too.
        let path = format!("{}{}", url.host_str().unwrap_or(""), url.path());
        let path = percent_decode_str(&path)
            .decode_utf8()
            .map_err(|e| config("the path is not UTF-8", "give a path of UTF-8").source(e))?;
        Self::from_path(&*path)
    }

    /// The absolute path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn config(detail: impl Into<String>, advice: &str) -> LockError {
    LockError::new(ErrorKind::Config, detail).backend(crate::BACKEND).advice(advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(url: &str) -> Result<PathBuf, LockError> {
        SqliteConfig::from_url(&url.parse().unwrap()).map(|config| config.path)
    }

    #[test]
    fn paths_are_read_as_people_write_them() {
        let here = std::env::current_dir().unwrap();
        for (url, expected) in [
            ("sqlite:///a/b.db", PathBuf::from("/a/b.db")),
            ("sqlite:/a/b.db", PathBuf::from("/a/b.db")),
            ("sqlite:///a%20b/%C3%A9%23%3F.db", PathBuf::from("/a b/é#?.db")),
            ("sqlite:b.db", here.join("b.db")),
            ("sqlite:a/b.db", here.join("a/b.db")),
            ("sqlite://a/b.db", here.join("a/b.db")),
            ("sqlite:file:x", here.join("file:x")),
        ] {
            assert_eq!(path(url).unwrap(), expected, "{url}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused_by_name() {
        for (url, word) in [
            ("redis:///a", "redis"),
            ("sqlite:///a?mode=ro", "'mode'"),
            ("sqlite://user@a/b", "user"),
            ("sqlite:///a#b", "fragment"),
            ("sqlite:", "empty"),
            ("sqlite:///a%00b", "NUL"),
            ("sqlite:///a%FF", "UTF-8"),
        ] {
            let err = path(url).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::Config, "{url}");
            assert!(err.to_string().contains(word), "{url}: {err}");
        }
    }
}
