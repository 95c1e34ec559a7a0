//! What an error of a driver means: the rows of a backend's table, and those that all of them share.

use std::error::Error as StdError;
use std::io;

use crate::{Effect, ErrorKind, LockError};

/// One row of a backend's table of errors.
///
/// ```
/// use lock_core::{Effect, ErrorKind, Meaning};
/// const READ_ONLY: Meaning =
///     Meaning::new(ErrorKind::Unavailable, true, Effect::NotApplied, true, "wait for the failover");
/// let error = READ_ONLY.error("demo", "h:1", std::io::Error::other("READONLY"));
/// assert_eq!(error.to_string(), "demo: the server h:1 did not serve the request (READONLY); wait for the failover");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// The kind.
    pub kind: ErrorKind,
    /// Whether the same request may succeed when it is made again.
    pub retryable: bool,
    /// Whether the request took effect.
    pub effect: Effect,
    /// Whether the connection leads to the wrong place or nowhere, so that the next call dials anew.
    pub redial: bool,
    /// What to do about it; empty where nothing can be said.
    pub advice: &'static str,
}

use Effect::{NotApplied, Unknown};
use ErrorKind::Unavailable;

impl Meaning {
    /// A connection that broke under a request.
    pub const DROPPED: Self =
        Self::new(Unavailable, true, Unknown, true, "the connection was lost; it is dialled anew");

    /// A row.
    pub const fn new(kind: ErrorKind, retryable: bool, effect: Effect, redial: bool, advice: &'static str) -> Self {
        Self { kind, retryable, effect, redial, advice }
    }

    /// What an error of the system means to a client of a server. [`Meaning::DROPPED`] where only that the line is broken can be said.
    pub fn of_io(error: &io::Error) -> Self {
        // The standard library has no kind for it.
        if error.to_string().contains("failed to lookup address information") {
            return NO_HOST;
        }
        BY_IO.iter().find(|(kind, _)| *kind == error.kind()).map_or(Self::DROPPED, |row| row.1)
    }

    /// The library's error for the driver's. `server` is host and port.
    pub fn error(
        self,
        backend: &'static str,
        server: &str,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> LockError {
        let detail = match self.kind {
            ErrorKind::Unavailable => format!("the server {server} did not serve the request"),
            ErrorKind::Denied => format!("the server {server} refused"),
            ErrorKind::Config => format!("the server {server} is not set up for this"),
            ErrorKind::Foreign => "the entry is not a lock's".into(),
            _ => format!("an error of the server {server}"),
        };
        let error = LockError::new(self.kind, detail)
            .backend(backend)
            .with_effect(self.effect)
            .with_retryable(self.retryable)
            .source(source);
        if self.advice.is_empty() { error } else { error.advice(self.advice) }
    }
}

const NO_HOST: Meaning =
    Meaning::new(Unavailable, true, NotApplied, true, "check the host's name, and that this machine can look it up");

const NETWORK: Meaning = Meaning::new(Unavailable, true, NotApplied, true, "check host and network");

const BY_IO: &[(io::ErrorKind, Meaning)] = &[
    (
        io::ErrorKind::ConnectionRefused,
        Meaning::new(Unavailable, true, NotApplied, true, "check host and port, and that the server is up"),
    ),
    (io::ErrorKind::NotFound, Meaning::new(Unavailable, true, NotApplied, true, "check the host")),
    (io::ErrorKind::HostUnreachable, NETWORK),
    (io::ErrorKind::NetworkUnreachable, NETWORK),
    (
        io::ErrorKind::InvalidData,
        Meaning::new(
            Unavailable,
            false,
            Unknown,
            true,
            "check that the port speaks what the URL says: plain, or TLS with a certificate that this machine trusts",
        ),
    ),
    (
        io::ErrorKind::TimedOut,
        Meaning::new(Unavailable, true, Unknown, true, "check that the server is up and reachable"),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_errors_tell_whether_anything_was_sent() {
        for (kind, expected) in BY_IO {
            assert_eq!(Meaning::of_io(&(*kind).into()), *expected, "{kind:?}");
        }
        for kind in [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset, io::ErrorKind::UnexpectedEof] {
            assert_eq!(Meaning::of_io(&kind.into()), Meaning::DROPPED, "{kind:?}");
        }
        let lookup = io::Error::other("failed to lookup address information: Name or service not known");
        assert_eq!(Meaning::of_io(&lookup), NO_HOST);
    }
}
