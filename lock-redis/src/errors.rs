//! What each of the server's and the driver's errors means: one table.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use lock_core::{Effect, ErrorKind, LockError, Meaning};
use redis::RedisError;

use crate::BACKEND;

const fn meaning(kind: ErrorKind, retryable: bool, effect: Effect, redial: bool, advice: &'static str) -> Meaning {
    Meaning::new(kind, retryable, effect, redial, advice)
}

use Effect::{NotApplied, Unknown};
use ErrorKind::{Config, Denied, Foreign, Internal, Unavailable, Unsupported};

/// By the first word of the server's answer. A script that fails half way is `Unknown`: what came before stays.
const BY_CODE: &[(&str, Meaning)] = &[
    (
        "READONLY",
        meaning(
            Unavailable,
            true,
            NotApplied,
            true,
            "this server is a replica; wait for the failover, or give the primary",
        ),
    ),
    ("LOADING", meaning(Unavailable, true, NotApplied, false, "the server is loading its data; wait until it is done")),
    ("BUSY", meaning(Unavailable, true, NotApplied, false, "a script blocks the server; see SCRIPT KILL")),
    (
        "MASTERDOWN",
        meaning(Unavailable, true, NotApplied, true, "the replica has lost its primary; wait for the failover"),
    ),
    (
        "MISCONF",
        meaning(
            Unavailable,
            true,
            NotApplied,
            false,
            "the server cannot save to disk and refuses writes; see its log and disk",
        ),
    ),
    (
        "NOREPLICAS",
        meaning(Unavailable, true, NotApplied, false, "fewer replicas are linked than min-replicas-to-write asks for"),
    ),
    (
        "OOM",
        meaning(Unavailable, true, NotApplied, false, "the server is at maxmemory; free memory or raise the limit"),
    ),
    (
        "CLUSTERDOWN",
        meaning(Unavailable, true, NotApplied, true, "the cluster serves no such slot now; see CLUSTER INFO"),
    ),
    (
        "TRYAGAIN",
        meaning(Unavailable, true, NotApplied, false, "the cluster is moving this slot; wait until it is done"),
    ),
    (
        "MOVED",
        meaning(
            Unsupported,
            false,
            NotApplied,
            true,
            "this is a node of a cluster, and another one serves this name; give redis+cluster://HOST",
        ),
    ),
    (
        "ASK",
        meaning(
            Unsupported,
            false,
            NotApplied,
            true,
            "this is a node of a cluster, and another one serves this name; give redis+cluster://HOST",
        ),
    ),
    (
        "CROSSSLOT",
        meaning(
            Internal,
            false,
            NotApplied,
            false,
            "keys of one lock are in different slots: a defect of this library",
        ),
    ),
    (
        "NOAUTH",
        meaning(Denied, false, NotApplied, true, "the server asks for a password: give redis://[USER]:PASSWORD@HOST"),
    ),
    ("WRONGPASS", meaning(Denied, false, NotApplied, true, "check user and password")),
    (
        "NOPERM",
        meaning(
            Denied,
            false,
            NotApplied,
            false,
            "the ACL user lacks a right; beside the names it needs &distlock:* +@connection +@string +@hash +@sortedset +@keyspace +@pubsub \
             +eval +evalsha +time (docs/redis.md)",
        ),
    ),
    (
        "WRONGTYPE",
        meaning(
            Foreign,
            false,
            NotApplied,
            false,
            "another kind of data stands under this name; choose another name or a namespace",
        ),
    ),
    ("NOSCRIPT", meaning(Unavailable, true, NotApplied, false, "the script cache was flushed twice in a row")),
    ("NOTPRIMARY", meaning(Unavailable, true, NotApplied, true, "the failover is not over yet; wait until it is")),
    (
        "NOSERVICE",
        meaning(
            Config,
            false,
            NotApplied,
            true,
            "check the service's name in the URL; SENTINEL MASTERS lists the names",
        ),
    ),
    (
        "NOSENTINEL",
        meaning(Config, false, NotApplied, true, "give the sentinels' ports, or redis://HOST for a single server"),
    ),
    ("NOCLUSTER", meaning(Config, false, NotApplied, true, "give redis://HOST for a single server")),
    (
        "SENTINELAUTH",
        meaning(
            Denied,
            false,
            NotApplied,
            true,
            "check sentinel_user and sentinel_password, by which sentinels are logged in to",
        ),
    ),
    (
        "ADDRESS",
        meaning(
            Config,
            false,
            NotApplied,
            true,
            "the servers announce an address that cannot be dialled; see their announce settings",
        ),
    ),
    ("UNCONFIRMED", meaning(Unavailable, true, Unknown, false, "see INFO replication there, or lower min_replicas")),
    ("EXECABORT", meaning(Internal, false, NotApplied, false, "")),
    ("UNKILLABLE", meaning(Unavailable, true, Unknown, false, "a script blocks the server")),
];

/// An answer to the login that is not OK.
const LOGIN: Meaning = meaning(Denied, false, NotApplied, true, "check user and password");
/// The database of the URL does not exist.
const DATABASE: Meaning = meaning(Config, false, NotApplied, true, "check the database number in the URL");
/// Too many connections at the server.
const FULL: Meaning =
    meaning(Unavailable, true, NotApplied, true, "the server is at maxclients; close connections or raise the limit");
/// An answer that no row knows.
const UNKNOWN: Meaning = meaning(Internal, false, Unknown, false, "");

pub(crate) fn meaning_of(error: &RedisError) -> Meaning {
    let text = error.to_string();
    if text.contains("refused to switch database") {
        return if text.contains("Authentication required") || text.contains("NOAUTH") {
            by_code("NOAUTH")
        } else {
            DATABASE
        };
    }
    if text.contains("max number of clients reached") {
        return FULL;
    }
    // A right that is missing in the midst of a script leaves what came before.
    if text.contains("The user executing the script can't") {
        return Meaning { effect: Unknown, ..by_code("NOPERM") };
    }
    if error.kind() == redis::ErrorKind::AuthenticationFailed {
        return LOGIN;
    }
    if let Some(code) = error.code() {
        // Servers before 7 wrap what a script met in an ERR of their own; Lua's own errors stay what they are.
        let wrapped = || {
            BY_CODE.iter().find(|(code, _)| text.contains(&format!("-{code} ")) || text.contains(&format!(": {code} ")))
        };
        return BY_CODE.iter().find(|(known, _)| *known == code).or_else(wrapped).map_or(UNKNOWN, |row| row.1);
    }
    // The driver keeps the system's error in an `Arc`, which is an error itself.
    let shared = error.source().and_then(|e| e.downcast_ref::<Arc<dyn StdError + Send + Sync>>());
    if let Some(system) = shared.and_then(|e| e.downcast_ref::<io::Error>()) {
        return Meaning::of_io(system);
    }
    if error.is_unrecoverable_error() || error.is_io_error() { Meaning::DROPPED } else { UNKNOWN }
}

fn by_code(code: &str) -> Meaning {
    BY_CODE.iter().find(|(known, _)| *known == code).map_or(UNKNOWN, |row| row.1)
}

/// The library's error for the driver's. `server` is host and port.
pub(crate) fn from_driver(error: RedisError, server: &str) -> LockError {
    meaning_of(&error).error(BACKEND, server, error)
}

/// An error of this library's own that has its row as the server's have.
pub(crate) fn problem(code: &str, detail: String) -> RedisError {
    redis::make_extension_error(code.to_owned(), Some(detail))
}

/// An answer in a form that this library's scripts do not give.
pub(crate) fn unexpected(answer: &redis::Value) -> LockError {
    let shown: String = format!("{answer:?}").chars().take(200).collect();
    LockError::new(Internal, format!("an unexpected answer: {shown}")).backend(BACKEND)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets the driver parse the server's bytes, as it does on a connection.
    fn answer(line: &str) -> RedisError {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        value.extract_error().unwrap_err()
    }

    #[test]
    fn each_code_means_what_its_row_says() {
        for (code, expected) in BY_CODE {
            assert_eq!(meaning_of(&answer(&format!("{code} some text"))), *expected, "{code}");
        }
    }

    #[test]
    fn scripts_wrap_the_code() {
        for (line, code) in [
            ("READONLY You can't write against a read only replica. script: 1234, on @user_script:3.", "READONLY"),
            (
                "ERR Error running script (call to f_12): @user_script:3: WRONGTYPE Operation against a key holding x",
                "WRONGTYPE",
            ),
            (
                "ERR Error running script (call to f_12): @user_script:3: -READONLY You can't write against x",
                "READONLY",
            ),
            ("NOPERM User u has no permissions to run the 'evalsha' command", "NOPERM"),
            ("OOM command not allowed when used memory > 'maxmemory'. script: 1, on @user_script:3.", "OOM"),
        ] {
            assert_eq!(meaning_of(&answer(line)), by_code(code), "{line}");
        }
    }

    #[test]
    fn nothing_but_an_answer_of_the_server_is_contention_or_loss() {
        for (_, meaning) in BY_CODE {
            assert!(!matches!(meaning.kind, ErrorKind::Timeout | ErrorKind::Lost | ErrorKind::NotHeld));
        }
    }

    #[test]
    fn system_errors_tell_whether_anything_was_sent() {
        for kind in [io::ErrorKind::ConnectionRefused, io::ErrorKind::BrokenPipe] {
            assert_eq!(meaning_of(&io::Error::from(kind).into()), Meaning::of_io(&kind.into()), "{kind:?}");
        }
        assert_eq!(meaning_of(&answer("ERR max number of clients reached")), FULL);
        assert_eq!(meaning_of(&answer("ERR something new")), UNKNOWN);
        let half =
            meaning_of(&answer("ERR The user executing the script can't run this command or subcommand script: 1"));
        assert_eq!((half.kind, half.effect), (Denied, Unknown));
    }

    #[test]
    fn login_and_database_are_told_apart() {
        let login = RedisError::from((redis::ErrorKind::AuthenticationFailed, "Password authentication failed"));
        assert_eq!(meaning_of(&login), LOGIN);
        let database = |detail: &str| {
            let kind = redis::ErrorKind::Server(redis::ServerErrorKind::ResponseError);
            RedisError::from((kind, "Redis server refused to switch database", detail.to_owned()))
        };
        assert_eq!(meaning_of(&database("DB index is out of range")), DATABASE);
        assert_eq!(meaning_of(&database("Authentication required.")), by_code("NOAUTH"));
    }
}
