//! From SQLite's result codes to the contract's kinds.

use std::path::Path;

use lock_core::{Effect, ErrorKind, LockError};

/// What a result code means to a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meaning {
    pub(crate) kind: ErrorKind,
    pub(crate) effect: Effect,
    pub(crate) retryable: bool,
    /// Whether the connection is of no more use.
    reopen: bool,
    pub(crate) detail: &'static str,
    advice: &'static str,
}

/// What an error means.
pub(crate) fn meaning(error: &sqlx::Error) -> Meaning {
    match error {
        sqlx::Error::Database(e) => meaning_of(e.code().and_then(|code| code.parse().ok()).unwrap_or(-1)),
        // The worker thread answers no more.
        sqlx::Error::WorkerCrashed | sqlx::Error::Io(_) => BROKEN_LINK,
        sqlx::Error::ColumnDecode { .. } => OTHER_TABLES,
        // What the check of the file found.
        sqlx::Error::Decode(_) => DAMAGED,
        _ => DEFECT,
    }
}

/// A LockError for this file, and whether the connection is to be opened anew.
pub(crate) fn from_sqlx(error: sqlx::Error, path: &Path) -> (LockError, bool) {
    let meaning = meaning(&error);
    let error = LockError::new(meaning.kind, format!("{}: {}", path.display(), meaning.detail))
        .backend(crate::BACKEND)
        .with_effect(meaning.effect)
        .with_retryable(meaning.retryable)
        .advice(meaning.advice)
        .source(error);
    (error, meaning.reopen)
}

const BUSY: Meaning = Meaning {
    kind: ErrorKind::Unavailable,
    effect: Effect::NotApplied,
    retryable: true,
    reopen: false,
    detail: "another program keeps the file locked",
    advice: "look for one that holds a long transaction on it",
};
const DENIED: Meaning = Meaning {
    kind: ErrorKind::Denied,
    effect: Effect::NotApplied,
    retryable: false,
    reopen: true,
    detail: "the file or its folder may not be written",
    advice: "give this user the right to write the file and its folder, or name another file",
};
const MOVED: Meaning = Meaning {
    kind: ErrorKind::Unavailable,
    effect: Effect::NotApplied,
    retryable: true,
    reopen: true,
    detail: "the file was deleted or replaced while it was open",
    advice: "try again, and leave the file in place while it is in use",
};
const FULL: Meaning = Meaning {
    kind: ErrorKind::Unavailable,
    effect: Effect::NotApplied,
    retryable: true,
    reopen: false,
    detail: "the disk is full",
    advice: "free some space or quota",
};
const CANNOT_OPEN: Meaning = Meaning {
    kind: ErrorKind::Unavailable,
    effect: Effect::NotApplied,
    retryable: true,
    reopen: true,
    detail: "the file cannot be opened",
    advice: "check the folder, the rights, and the limit of open files",
};
const IO: Meaning = Meaning {
    kind: ErrorKind::Unavailable,
    effect: Effect::Unknown,
    retryable: true,
    reopen: true,
    detail: "reading or writing failed",
    advice: "check the disk and its file system",
};
const NO_MEMORY: Meaning = Meaning {
    kind: ErrorKind::Unavailable,
    effect: Effect::NotApplied,
    retryable: true,
    reopen: false,
    detail: "out of memory, or interrupted",
    advice: "try again",
};
const DAMAGED: Meaning = Meaning {
    kind: ErrorKind::Unavailable,
    effect: Effect::Unknown,
    retryable: false,
    reopen: true,
    detail: "the file is damaged",
    advice: "stop every program that uses it and delete it together with its -wal and -shm files; fencing tokens go on rising",
};
const NO_DATABASE: Meaning = Meaning {
    kind: ErrorKind::Foreign,
    effect: Effect::NotApplied,
    retryable: false,
    reopen: true,
    detail: "the file is no SQLite database",
    advice: "name another file; this one was left as it is",
};
const OTHER_TABLES: Meaning = Meaning {
    kind: ErrorKind::Foreign,
    effect: Effect::NotApplied,
    retryable: false,
    reopen: true,
    detail: "the tables are not those of this library",
    advice: "name another file, or delete this one if nothing else uses it",
};
const BROKEN_LINK: Meaning = Meaning {
    kind: ErrorKind::Unavailable,
    effect: Effect::Unknown,
    retryable: true,
    reopen: true,
    detail: "the connection to the file has ended",
    advice: "try again",
};
const DEFECT: Meaning = Meaning {
    kind: ErrorKind::Internal,
    effect: Effect::Unknown,
    retryable: false,
    reopen: true,
    detail: "SQLite refused a statement",
    advice: "please report this",
};

fn meaning_of(code: i32) -> Meaning {
    const READONLY_DBMOVED: i32 = 1032;
    if code == READONLY_DBMOVED {
        return MOVED;
    }
    // The low byte is the primary code, the rest tells more.
    match code & 0xff {
        5 | 6 | 15 | 17 => BUSY,
        3 | 8 | 23 => DENIED,
        7 | 9 => NO_MEMORY,
        10 => IO,
        11 => DAMAGED,
        13 => FULL,
        14 => CANNOT_OPEN,
        26 => NO_DATABASE,
        1 => OTHER_TABLES,
        _ => DEFECT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_meaning() {
        for (code, name, meaning) in [
            (1, "ERROR", OTHER_TABLES),
            (2, "INTERNAL", DEFECT),
            (3, "PERM", DENIED),
            (5, "BUSY", BUSY),
            (261, "BUSY_RECOVERY", BUSY),
            (517, "BUSY_SNAPSHOT", BUSY),
            (773, "BUSY_TIMEOUT", BUSY),
            (6, "LOCKED", BUSY),
            (262, "LOCKED_SHAREDCACHE", BUSY),
            (7, "NOMEM", NO_MEMORY),
            (8, "READONLY", DENIED),
            (264, "READONLY_RECOVERY", DENIED),
            (520, "READONLY_CANTLOCK", DENIED),
            (1032, "READONLY_DBMOVED", MOVED),
            (1288, "READONLY_CANTINIT", DENIED),
            (1544, "READONLY_DIRECTORY", DENIED),
            (9, "INTERRUPT", NO_MEMORY),
            (10, "IOERR", IO),
            (266, "IOERR_READ", IO),
            (4618, "IOERR_SHMOPEN", IO),
            (11, "CORRUPT", DAMAGED),
            (13, "FULL", FULL),
            (14, "CANTOPEN", CANNOT_OPEN),
            (526, "CANTOPEN_ISDIR", CANNOT_OPEN),
            (15, "PROTOCOL", BUSY),
            (17, "SCHEMA", BUSY),
            (19, "CONSTRAINT", DEFECT),
            (20, "MISMATCH", DEFECT),
            (21, "MISUSE", DEFECT),
            (23, "AUTH", DENIED),
            (26, "NOTADB", NO_DATABASE),
            (-1, "no code", DEFECT),
        ] {
            assert_eq!(meaning_of(code), meaning, "{code} {name}");
        }
    }

    #[test]
    fn what_is_no_error_of_the_database_has_a_meaning_too() {
        let path = Path::new("/x/locks.db");
        for (error, kind, effect, reopen) in [
            (sqlx::Error::WorkerCrashed, ErrorKind::Unavailable, Effect::Unknown, true),
            (sqlx::Error::RowNotFound, ErrorKind::Internal, Effect::Unknown, true),
            (sqlx::Error::Decode("x".into()), ErrorKind::Unavailable, Effect::Unknown, true),
        ] {
            let (error, again) = from_sqlx(error, path);
            assert_eq!((error.kind(), error.effect(), again), (kind, effect, reopen), "{error}");
            assert!(error.to_string().contains("/x/locks.db"), "{error}");
        }
    }
}
