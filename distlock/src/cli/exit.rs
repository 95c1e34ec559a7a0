//! Exit codes: all of them, and how an error becomes one.

use distlock::{ErrorKind, LockError, LockName};

/// `revoke`: nothing was revoked.
pub(crate) const NO: u8 = 1;
/// Usage, a bad name or a bad TTL.
pub(crate) const USAGE: u8 = 64;
/// The backend does not answer.
pub(crate) const UNAVAILABLE: u8 = 69;
/// A defect, ours or the backend's.
pub(crate) const SOFTWARE: u8 = 70;
/// Another holds the lock, and nobody wanted to wait.
pub(crate) const HELD: u8 = 75;
/// Wrong credentials or a missing right.
pub(crate) const DENIED: u8 = 77;
/// A wrong URL, file or setting.
pub(crate) const CONFIG: u8 = 78;
/// The lock was lost while the command ran.
pub(crate) const LOST: u8 = 79;
/// The wait limit was reached.
pub(crate) const TIMEOUT: u8 = 124;
/// The command exists and cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: u8 = 127;
/// Added to the number of the signal that ended something.
pub(crate) const SIGNAL: u8 = 128;

/// Why the tool ends without the code of a command: a code, and one line for stderr.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Names the lock where the message knows nothing of it.
    pub(crate) fn about(self, name: &LockName) -> Self {
        Self { message: format!("lock '{name}': {}", self.message), ..self }
    }
}

impl From<LockError> for Failure {
    fn from(err: LockError) -> Self {
        Self::new(code(err.kind()), err.to_string())
    }
}

pub(crate) fn code(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Timeout => TIMEOUT,
        ErrorKind::Lost | ErrorKind::NotHeld => LOST,
        ErrorKind::Unavailable => UNAVAILABLE,
        ErrorKind::Denied => DENIED,
        ErrorKind::InvalidName | ErrorKind::InvalidTtl => USAGE,
        // A foreign entry means that two programs were given the same name in the same store.
        ErrorKind::Config | ErrorKind::Unsupported | ErrorKind::Foreign => CONFIG,
        _ => SOFTWARE,
    }
}
