//! Names: what is locked.

use std::fmt;
use std::sync::Arc;

use crate::{ErrorKind, LockError};

/// The name of a lock: 1 to [`LockName::MAX_BYTES`] bytes of UTF-8 (rule N1).
///
/// Different bytes are different locks; nothing is trimmed, folded or normalised.
/// A [`Namespace`] adds up to [`Namespace::MAX_BYTES`] bytes of its own in front.
///
/// ```
/// use lock_core::LockName;
/// assert_eq!(LockName::new("order:42")?.as_str(), "order:42");
/// assert!(LockName::new("").is_err());
/// # Ok::<(), lock_core::LockError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(Arc<str>);

impl LockName {
    /// The greatest length of a name, in bytes, without the namespace.
    pub const MAX_BYTES: usize = 512;

    /// Checks a name.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`] when it is empty or longer than [`LockName::MAX_BYTES`] bytes.
    pub fn new(name: impl AsRef<str>) -> Result<Self, LockError> {
        let name = name.as_ref();
        if name.is_empty() {
            return Err(LockError::new(ErrorKind::InvalidName, "a lock name must not be empty")
                .advice("give a name of 1 to 512 bytes; an unset shell variable is a common cause"));
        }
        if name.len() > Self::MAX_BYTES {
            return Err(LockError::new(
                ErrorKind::InvalidName,
                format!("a lock name of {} bytes is too long", name.len()),
            )
            .advice("give a name of 1 to 512 bytes of UTF-8"));
        }
        Ok(Self(name.into()))
    }

    /// Checks a name that comes as bytes, as a command line gives it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`] as [`LockName::new`] says, and when the bytes are not UTF-8.
    pub fn from_bytes(name: &[u8]) -> Result<Self, LockError> {
        let text = std::str::from_utf8(name).map_err(|e| {
            LockError::new(ErrorKind::InvalidName, "a lock name must be UTF-8")
                .advice("give a name of 1 to 512 bytes of UTF-8")
                .source(e)
        })?;
        Self::new(text)
    }

    /// The name as the user gave it, with its namespace in front where there is one.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for LockName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// Control characters are escaped, so that a name cannot forge a line of a log or move a terminal's cursor.
impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&escaped(&self.0), f)
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// Shows foreign text with its control and invisible characters escaped, and all else as it is.
///
/// ```
/// assert_eq!(lock_core::escaped("a\nb é 🔒").to_string(), "a\\nb é 🔒");
/// ```
pub fn escaped(text: &str) -> impl fmt::Display + '_ {
    struct Escaped<'a>(&'a str);
    impl fmt::Display for Escaped<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            use fmt::Write;
            for c in self.0.chars() {
                match c {
                    '\'' | '"' => f.write_char(c)?,
                    // `escape_debug` escapes a combining mark at the start of a text, which is what we want of each.
                    _ => fmt::Display::fmt(&c.escape_debug(), f)?,
                }
            }
            Ok(())
        }
    }
    Escaped(text)
}

/// A prefix that a deployment puts before each of its names, such as `prod/`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace(String);

impl Namespace {
    /// The greatest length of a namespace, in bytes.
    pub const MAX_BYTES: usize = 128;

    /// Checks a namespace; the empty one is allowed and adds nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when it is longer than [`Namespace::MAX_BYTES`] bytes.
    pub fn new(prefix: impl Into<String>) -> Result<Self, LockError> {
        let prefix = prefix.into();
        if prefix.len() > Self::MAX_BYTES {
            return Err(LockError::new(
                ErrorKind::Config,
                format!("a namespace of {} bytes is too long", prefix.len()),
            )
            .advice("give a namespace of at most 128 bytes"));
        }
        Ok(Self(prefix))
    }

    /// The prefix.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Puts the prefix before a checked name.
    pub fn apply(&self, name: &LockName) -> LockName {
        if self.0.is_empty() { name.clone() } else { LockName(format!("{}{}", self.0, name.0).into()) }
    }

    /// Takes the prefix off; `None` when the name does not bear it.
    pub fn strip(&self, name: &LockName) -> Option<LockName> {
        name.0.strip_prefix(&self.0).filter(|rest| !rest.is_empty()).map(|rest| LockName(rest.into()))
    }
}

impl LockName {
    /// A name as a backend read it from its store, namespace included; only the empty one is refused.
    pub fn from_store(name: &str) -> Option<Self> {
        (!name.is_empty() && name.len() <= Self::MAX_BYTES + Namespace::MAX_BYTES).then(|| Self(name.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_counts_bytes() {
        assert!(LockName::new("é".repeat(256)).is_ok());
        let err = LockName::new("é".repeat(257)).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidName);
        assert!(err.to_string().contains("514 bytes"), "{err}");
    }

    #[test]
    fn bytes_that_are_not_utf8_are_refused() {
        assert_eq!(LockName::from_bytes(b"a\xff").unwrap_err().kind(), ErrorKind::InvalidName);
    }

    #[test]
    fn a_name_cannot_forge_a_line() {
        let name = LockName::new("a\nb\x1b[2J\u{202e}'é🔒").unwrap();
        assert_eq!(name.to_string(), "a\\nb\\u{1b}[2J\\u{202e}'é🔒");
    }

    #[test]
    fn a_namespace_goes_on_and_comes_off() {
        let ns = Namespace::new("prod/").unwrap();
        let name = ns.apply(&LockName::new("x").unwrap());
        assert_eq!(name.as_str(), "prod/x");
        assert_eq!(ns.strip(&name).unwrap().as_str(), "x");
        assert_eq!(ns.strip(&LockName::new("test/x").unwrap()), None);
        assert!(Namespace::new("n".repeat(129)).is_err());
    }
}
