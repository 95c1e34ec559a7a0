//! What each of the server's and the driver's errors means: one table.

use lock_core::{Effect, ErrorKind, LockError, Meaning};
use sqlx::mysql::MySqlDatabaseError;

use crate::BACKEND;

const fn meaning(kind: ErrorKind, retryable: bool, effect: Effect, redial: bool, advice: &'static str) -> Meaning {
    Meaning::new(kind, retryable, effect, redial, advice)
}

use Effect::{NotApplied, Unknown};
use ErrorKind::{Config, Denied, Internal, Unavailable};

/// The user lacks a right on the table.
pub(crate) const NO_RIGHT: u16 = 1142;
/// The table is missing.
pub(crate) const NO_TABLE: u16 = 1146;
/// The connection to be killed has ended.
pub(crate) const NO_SUCH_THREAD: u16 = 1094;

const READ_ONLY: Meaning = meaning(
    Unavailable,
    true,
    NotApplied,
    true,
    "this server is read-only; wait for the failover, or give the primary",
);
const LOGIN: Meaning =
    meaning(Denied, false, NotApplied, true, "check user and password, and from where the user may log in");
const RIGHT: Meaning = meaning(
    Denied,
    false,
    NotApplied,
    false,
    "grant SELECT, INSERT, UPDATE and DELETE on the table; see docs/mysql.md",
);
const BUSY: Meaning =
    meaning(Unavailable, true, NotApplied, false, "another session keeps the row locked; look for a long transaction");
const CHANGED: Meaning =
    meaning(Unavailable, true, NotApplied, false, "another transaction changed the row meanwhile; begin anew");
const CROWDED: Meaning =
    meaning(Unavailable, true, NotApplied, true, "too many connections; close some, or raise the server's limit");
const FULL: Meaning = meaning(Unavailable, true, NotApplied, false, "the server's disk is full; free some space");
const ENDING: Meaning =
    meaning(Unavailable, true, Unknown, true, "the server ended the connection; it is dialled anew");
const OUT_OF_ORDER: Meaning =
    meaning(Unavailable, true, NotApplied, true, "the server takes no statements now; wait until it does");
const CUT_SHORT: Meaning =
    meaning(Unavailable, true, NotApplied, false, "somebody or a limit on time ended the statement");
const OTHER_TABLE: Meaning = meaning(
    Config,
    false,
    NotApplied,
    false,
    "the table is not this library's, or of another layout; name another one by ?table=",
);
const STATEMENT_LOG: Meaning =
    meaning(Config, false, NotApplied, false, "set the server's binlog_format to ROW or MIXED");

/// By the server's number, the same in MySQL and MariaDB.
const BY_CODE: &[(u16, Meaning)] = &[
    (1020, CHANGED),
    (1021, FULL),
    (1040, CROWDED),
    (1041, OUT_OF_ORDER),
    (
        1044,
        meaning(
            Denied,
            false,
            NotApplied,
            true,
            "check the database's name, or grant the user rights on it; see docs/mysql.md",
        ),
    ),
    (1045, LOGIN),
    (1047, OUT_OF_ORDER),
    (1049, meaning(Config, false, NotApplied, true, "create the database, or name another one in the URL")),
    (1053, ENDING),
    (1054, OTHER_TABLE),
    (1079, ENDING),
    (1102, meaning(Config, false, NotApplied, true, "check the database's name in the URL")),
    (1114, FULL),
    (1129, meaning(Denied, false, NotApplied, true, "the server has blocked this host; run FLUSH HOSTS there")),
    (1130, LOGIN),
    (NO_RIGHT, RIGHT),
    (1143, RIGHT),
    (1146, meaning(Config, false, NotApplied, false, "create the table")),
    (1152, ENDING),
    (1154, ENDING),
    (1158, ENDING),
    (1159, ENDING),
    (1160, ENDING),
    (1161, ENDING),
    (1203, CROWDED),
    (1205, BUSY),
    (1206, BUSY),
    (1213, BUSY),
    (1226, CROWDED),
    (1227, RIGHT),
    (1243, ENDING),
    (1290, READ_ONLY),
    (1317, CUT_SHORT),
    (1364, OTHER_TABLE),
    (1406, OTHER_TABLE),
    (1665, STATEMENT_LOG),
    (1698, LOGIN),
    (1792, READ_ONLY),
    (1820, LOGIN),
    (1836, READ_ONLY),
    (1862, LOGIN),
    (1927, ENDING),
    (1969, CUT_SHORT),
    (3024, CUT_SHORT),
    (3032, OUT_OF_ORDER),
    (3118, LOGIN),
    (3159, meaning(Denied, false, NotApplied, true, "the server asks for TLS: add ?ssl-mode=required")),
    (4031, ENDING),
];

/// Whether the statement failed only because of whoever else was at work, and is best sent again at once: a deadlock's victim, a row that
/// stayed locked, a row that changed since it was read, a statement to be prepared anew.
pub(crate) fn is_passing(code: u16) -> bool {
    matches!(code, 1020 | 1205 | 1213 | 1615)
}

const TLS: Meaning = meaning(
    Unavailable,
    false,
    NotApplied,
    true,
    "check that the server offers TLS and that ssl-ca names the authority of its certificate",
);
const NO_MYSQL: Meaning =
    meaning(Unavailable, true, Unknown, true, "check that a MySQL or MariaDB server listens at this host and port");
const UNKNOWN: Meaning = meaning(Internal, false, Unknown, true, "");

/// The server's number of an error, where it is an answer of the server.
pub(crate) fn code(error: &sqlx::Error) -> Option<u16> {
    error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>().map(MySqlDatabaseError::number)
}

pub(crate) fn meaning_of(error: &sqlx::Error) -> Meaning {
    match error {
        sqlx::Error::Database(_) => code(error).map_or(UNKNOWN, by_code),
        sqlx::Error::Io(e) => Meaning::of_io(e),
        sqlx::Error::Tls(_) => TLS,
        sqlx::Error::Protocol(_) => NO_MYSQL,
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::ColumnIndexOutOfBounds { .. } => OTHER_TABLE,
        _ => UNKNOWN,
    }
}

fn by_code(code: u16) -> Meaning {
    BY_CODE.iter().find(|(known, _)| *known == code).map_or(Meaning { redial: false, ..UNKNOWN }, |row| row.1)
}

/// The library's error for the driver's. `server` is host and port.
pub(crate) fn from_driver(error: sqlx::Error, server: &str) -> LockError {
    meaning_of(&error).error(BACKEND, server, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_stands_once_and_in_order() {
        assert!(BY_CODE.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn nothing_but_an_answer_about_the_owner_is_contention_or_loss() {
        for (code, meaning) in BY_CODE {
            assert!(matches!(meaning.kind, Unavailable | Denied | Config | Internal), "{code}");
            assert!(!meaning.advice.is_empty(), "{code}");
        }
    }

    #[test]
    fn what_the_driver_reports_in_passing_keeps_its_kind() {
        for (code, kind, redial) in [
            (1213, Unavailable, false),
            (1205, Unavailable, false),
            (1290, Unavailable, true),
            (1792, Unavailable, true),
            (1836, Unavailable, true),
            (1040, Unavailable, true),
            (1045, Denied, true),
            (1142, Denied, false),
            (1049, Config, true),
            (1665, Config, false),
            (9999, Internal, false),
        ] {
            let meaning = by_code(code);
            assert_eq!((meaning.kind, meaning.redial), (kind, redial), "{code}");
        }
        assert!(is_passing(1213) && is_passing(1205) && !is_passing(1290));
    }

    #[test]
    fn what_is_no_answer_of_the_server_has_its_row() {
        assert_eq!(meaning_of(&sqlx::Error::Tls("x".into())), TLS);
        assert_eq!(meaning_of(&sqlx::Error::RowNotFound), UNKNOWN);
    }
}
