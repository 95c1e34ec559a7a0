//! What each of the server's and the driver's errors means: one table.

use std::error::Error as StdError;
use std::io;

use etcd_client::Error;
use lock_core::{Effect, ErrorKind, LockError, Meaning};
use tonic::Code;

use crate::BACKEND;

const fn meaning(kind: ErrorKind, retryable: bool, effect: Effect, redial: bool, advice: &'static str) -> Meaning {
    Meaning::new(kind, retryable, effect, redial, advice)
}

use Effect::{NotApplied, Unknown};
use ErrorKind::{Config, Denied, Internal, InvalidTtl, Unavailable};

/// What a user needs, by the command that gives it.
const LACKS: &str = "the user lacks a right: etcdctl role grant-permission ROLE readwrite --prefix NAMESPACE, and the same for the library's own keys (docs/etcd.md has both commands)";

/// By what the server's message contains. The codes are too coarse: `InvalidArgument` is a wrong password as well as an old login.
const BY_MESSAGE: &[(&str, Meaning)] = &[
    (
        "database space exceeded",
        meaning(
            Unavailable,
            true,
            NotApplied,
            false,
            "the server is at its quota; compact, defragment and disarm the alarm",
        ),
    ),
    (
        "too many requests",
        meaning(
            Unavailable,
            true,
            NotApplied,
            false,
            "the cluster applies more slowly than it is asked; look at its disks",
        ),
    ),
    // Most callers look for it first and take a new lease at once.
    (
        "requested lease not found",
        meaning(Unavailable, true, NotApplied, false, "the lease has run out; a new one is taken"),
    ),
    ("too large lease TTL", meaning(InvalidTtl, false, NotApplied, false, "give a shorter TTL")),
    ("invalid auth token", meaning(Unavailable, true, NotApplied, true, "the login has run out; it is made anew")),
    (
        "revision of auth store is old",
        meaning(Unavailable, true, NotApplied, true, "users or rights were changed; the login is made anew"),
    ),
    ("authentication failed", meaning(Denied, false, NotApplied, true, "check user and password")),
    (
        "authentication is not enabled",
        meaning(Config, false, NotApplied, true, "the cluster knows no users: leave user and password out of the URL"),
    ),
    (
        "user name is empty",
        meaning(Denied, false, NotApplied, true, "the cluster asks for a user: give etcd://USER:PASSWORD@HOST"),
    ),
    ("user name not found", meaning(Denied, false, NotApplied, true, "check user and password")),
    ("permission denied", meaning(Denied, false, NotApplied, false, LACKS)),
    ("request is too large", meaning(Internal, false, NotApplied, false, "")),
    (
        "no leader",
        meaning(
            Unavailable,
            true,
            Unknown,
            true,
            "the cluster has no leader; wait for the election, or restore a majority",
        ),
    ),
    ("leader changed", meaning(Unavailable, true, Unknown, false, "the cluster has elected a new leader")),
    ("not leader", meaning(Unavailable, true, NotApplied, false, "the cluster is electing a leader")),
    (
        "request timed out",
        meaning(Unavailable, true, Unknown, true, "the cluster did not agree in time; look at its members and disks"),
    ),
    ("unhealthy cluster", meaning(Unavailable, true, NotApplied, true, "restore a majority of the members")),
    ("server stopped", meaning(Unavailable, true, Unknown, true, "the member is going down")),
    (
        "rpc not supported for learner",
        meaning(Unavailable, true, NotApplied, true, "this member is a learner; name voting members in the URL"),
    ),
    ("not capable", meaning(Unavailable, true, NotApplied, false, "the member is starting")),
    (
        "corrupt cluster",
        meaning(Unavailable, false, NotApplied, true, "the members disagree about the data; see the alarm CORRUPT"),
    ),
];

/// By the code, where the message is unknown.
const BY_CODE: &[(Code, Meaning)] = &[
    (Code::PermissionDenied, meaning(Denied, false, NotApplied, false, LACKS)),
    (Code::Unauthenticated, meaning(Denied, false, NotApplied, true, "check user and password")),
    (Code::Unavailable, meaning(Unavailable, true, Unknown, true, "check that the cluster is up and reachable")),
    (Code::DeadlineExceeded, meaning(Unavailable, true, Unknown, true, "check that the cluster is up and reachable")),
    (Code::Cancelled, meaning(Unavailable, true, Unknown, true, "the connection was lost; it is dialled anew")),
    (
        Code::ResourceExhausted,
        meaning(Unavailable, true, Unknown, false, "the cluster is short of something; see its log"),
    ),
    (Code::Unimplemented, meaning(Config, false, NotApplied, true, "check that the port is etcd's client port")),
    (Code::DataLoss, meaning(Unavailable, false, Unknown, true, "the cluster has lost data; see its log")),
    (Code::Aborted, meaning(Unavailable, true, Unknown, false, "")),
];

/// An answer that no row knows.
const UNKNOWN: Meaning = meaning(Internal, false, Unknown, false, "");

pub(crate) fn meaning_of(error: &Error) -> Meaning {
    match error {
        Error::GRpcStatus(status) => of_status(status),
        Error::TransportError(e) => in_chain(e).unwrap_or(Meaning::DROPPED),
        Error::IoError(e) => of_io(e).unwrap_or(Meaning::DROPPED),
        // An answer, and no fault of the connection.
        error if is_lease_gone(error) => UNKNOWN,
        // The stream ended without a word.
        Error::WatchError(_) | Error::LeaseKeepAliveError(_) | Error::EndpointError(_) => Meaning::DROPPED,
        Error::InvalidArgs(_) | Error::InvalidUri(_) | Error::InvalidMetadataValue(_) => {
            meaning(Config, false, NotApplied, false, "check the URL")
        }
        _ => UNKNOWN,
    }
}

fn of_status(status: &tonic::Status) -> Meaning {
    if let Some(meaning) = in_chain(status) {
        return meaning;
    }
    let by_message = BY_MESSAGE.iter().find(|(part, _)| status.message().contains(part));
    if let Some((_, meaning)) = by_message {
        return *meaning;
    }
    if status.source().is_some() {
        // Made by the driver and not by the server.
        return Meaning::DROPPED;
    }
    BY_CODE.iter().find(|(code, _)| *code == status.code()).map_or(UNKNOWN, |row| row.1)
}

fn in_chain(error: &dyn StdError) -> Option<Meaning> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(meaning) = error.downcast_ref::<io::Error>().and_then(of_io) {
            return Some(meaning);
        }
        cause = error.source();
    }
    None
}

/// `None` where it says no more than that the line is broken: another cause may.
fn of_io(error: &io::Error) -> Option<Meaning> {
    // A port that hangs up on a greeting by TLS speaks something else.
    let hung_up = error.to_string().contains("tls handshake");
    let meaning = if hung_up { Meaning::of_io(&io::ErrorKind::InvalidData.into()) } else { Meaning::of_io(error) };
    (meaning != Meaning::DROPPED).then_some(meaning)
}

/// Whether the server says that there is no such lease (any more).
pub(crate) fn is_lease_gone(error: &Error) -> bool {
    match error {
        Error::GRpcStatus(status) => status.message().contains("requested lease not found"),
        // What the driver makes of an answer to a keep-alive whose TTL is 0.
        Error::LeaseKeepAliveError(text) => text == "lease not found",
        _ => false,
    }
}

/// The library's error for the driver's. `server` is host and port.
pub(crate) fn from_driver(error: Error, server: &str) -> LockError {
    meaning_of(&error).error(BACKEND, server, error)
}

/// An answer in a form that the server does not give.
pub(crate) fn unexpected(what: &str) -> LockError {
    LockError::new(Internal, format!("an unexpected answer: {what}")).backend(BACKEND)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: Code, message: &str) -> Error {
        tonic::Status::new(code, message).into()
    }

    #[test]
    fn each_message_means_what_its_row_says() {
        for (part, expected) in BY_MESSAGE {
            assert_eq!(meaning_of(&status(Code::Unknown, &format!("etcdserver: {part}"))), *expected, "{part}");
        }
        for (code, expected) in BY_CODE {
            assert_eq!(meaning_of(&status(*code, "something new")), *expected, "{code:?}");
        }
        assert_eq!(meaning_of(&status(Code::Unknown, "something new")), UNKNOWN);
    }

    #[test]
    fn the_servers_own_words_are_known() {
        for (code, message, kind, redial) in [
            (Code::InvalidArgument, "etcdserver: authentication failed, invalid user ID or password", Denied, true),
            (Code::InvalidArgument, "etcdserver: revision of auth store is old", Unavailable, true),
            (Code::Unauthenticated, "etcdserver: invalid auth token", Unavailable, true),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", Unavailable, false),
            (
                Code::Unavailable,
                "etcdserver: request timed out, possibly due to previous leader failure",
                Unavailable,
                true,
            ),
            (Code::Unavailable, "etcdserver: leader changed", Unavailable, false),
            (Code::Unavailable, "etcdserver: no leader", Unavailable, true),
            (Code::PermissionDenied, "etcdserver: permission denied", Denied, false),
            (Code::OutOfRange, "etcdserver: too large lease TTL", InvalidTtl, false),
        ] {
            let found = meaning_of(&status(code, message));
            assert_eq!((found.kind, found.redial), (kind, redial), "{message}");
        }
    }

    #[test]
    fn nothing_but_an_answer_of_the_server_is_contention_or_loss() {
        for meaning in BY_MESSAGE.iter().map(|row| row.1).chain(BY_CODE.iter().map(|row| row.1)) {
            assert!(!matches!(meaning.kind, ErrorKind::Timeout | ErrorKind::Lost | ErrorKind::NotHeld));
        }
    }

    #[test]
    fn a_lease_that_is_gone_is_told_apart() {
        assert!(is_lease_gone(&status(Code::NotFound, "etcdserver: requested lease not found")));
        assert!(is_lease_gone(&Error::LeaseKeepAliveError("lease not found".into())));
        // Else all who wait would be woken by a new connection, ask for the lease again, and so on.
        assert!(!meaning_of(&Error::LeaseKeepAliveError("lease not found".into())).redial);
        assert!(meaning_of(&Error::LeaseKeepAliveError("the stream ended".into())).redial);
        assert!(!is_lease_gone(&status(Code::NotFound, "etcdserver: member not found")));
    }

    #[test]
    fn system_errors_tell_whether_anything_was_sent() {
        let refused = io::ErrorKind::ConnectionRefused;
        assert_eq!(meaning_of(&Error::IoError(refused.into())), Meaning::of_io(&refused.into()));
        assert_eq!(meaning_of(&Error::IoError(io::ErrorKind::ConnectionReset.into())), Meaning::DROPPED);
    }
}
