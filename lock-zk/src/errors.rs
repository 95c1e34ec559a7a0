//! What each of the server's and the driver's errors means: one table.

use lock_core::{Effect, ErrorKind, LockError};
use zookeeper_client::Error;

use Effect::{NotApplied, Unknown};
use ErrorKind::{Denied, Foreign, Internal, Unavailable, Unsupported};

/// One row: what an error means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Meaning(ErrorKind, Effect, &'static str);

/// The table. What the server refuses has done nothing; what the driver gave up may have been done.
fn meaning(error: &Error) -> Meaning {
    match error {
        // The driver hands on what ended the connection as `Custom` or `UnexpectedError`.
        Error::ConnectionLoss | Error::Custom(_) | Error::UnexpectedError(_) => {
            Meaning(Unavailable, Unknown, "check that the servers are up and reachable")
        }
        Error::NoHosts => {
            Meaning(Unavailable, NotApplied, "check host and port, and that the servers are up and have a majority")
        }
        Error::Timeout => Meaning(
            Unavailable,
            Unknown,
            "no server took the session in time; check that the servers are up and have a majority",
        ),
        Error::SessionExpired => Meaning(Unavailable, Unknown, "a new session is opened with the next request"),
        Error::SessionMoved => Meaning(Unavailable, NotApplied, "the session went to another server; try again"),
        Error::ClientClosed => Meaning(Unavailable, Unknown, "a new session is opened with the next request"),
        Error::NotReadOnly => {
            Meaning(Unavailable, NotApplied, "the ensemble has lost its majority; start more servers")
        }
        Error::Throttled => Meaning(Unavailable, NotApplied, "the server is overloaded; see its request throttling"),
        Error::QuotaExceeded => Meaning(Unavailable, NotApplied, "raise the quota of the locks' folder, or empty it"),
        Error::NoNode => Meaning(Unavailable, NotApplied, "something keeps removing the lock's folder"),
        Error::NodeExists | Error::BadVersion | Error::NotEmpty => {
            Meaning(Unavailable, NotApplied, "another client changed the same node; try again")
        }
        Error::NoAuth => {
            Meaning(Denied, NotApplied, "give zk://USER:PASSWORD@HOST, or see the ACL of the lock's folder")
        }
        Error::AuthFailed => {
            Meaning(Denied, NotApplied, "the servers refuse this way to log in; check user and password")
        }
        Error::InvalidAcl => {
            Meaning(Denied, NotApplied, "the servers do not accept the login; check user and password")
        }
        Error::NoChildrenForEphemerals => {
            Meaning(Foreign, NotApplied, "an ephemeral node of another program stands where the lock's folder should")
        }
        Error::Unimplemented => Meaning(Unsupported, NotApplied, "ZooKeeper 3.5 or newer is needed"),
        Error::ReconfigDisabled | Error::MarshallingError | Error::BadArguments(_) | Error::NoWatcher => {
            Meaning(Internal, NotApplied, "a defect of this library: please report it")
        }
        _ => Meaning(Internal, Unknown, "the server answered what this library does not understand: please report it"),
    }
}

/// The driver's error in the contract's words.
pub(crate) fn failed(error: Error) -> LockError {
    let Meaning(kind, effect, advice) = meaning(&error);
    LockError::new(kind, "the request failed").with_effect(effect).source(error.to_string()).advice(advice)
}

/// Whether the session is over, and all its nodes with it, now or within its time-out.
pub(crate) fn is_over(error: &Error) -> bool {
    matches!(error, Error::SessionExpired | Error::ClientClosed | Error::AuthFailed | Error::Timeout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contention_and_loss_are_no_errors_and_a_cut_line_is_retried() {
        for (error, kind, effect, retryable) in [
            (Error::ConnectionLoss, Unavailable, Unknown, true),
            (Error::NoHosts, Unavailable, NotApplied, true),
            (Error::SessionExpired, Unavailable, Unknown, true),
            (Error::SessionMoved, Unavailable, NotApplied, true),
            (Error::NotReadOnly, Unavailable, NotApplied, true),
            (Error::NoNode, Unavailable, NotApplied, true),
            (Error::NoAuth, Denied, NotApplied, false),
            (Error::AuthFailed, Denied, NotApplied, false),
            (Error::NoChildrenForEphemerals, Foreign, NotApplied, false),
            (Error::Unimplemented, Unsupported, NotApplied, false),
            (Error::BadArguments(&"x"), Internal, NotApplied, false),
            (Error::UnexpectedErrorCode(-99), Internal, Unknown, false),
            (Error::RuntimeInconsistent, Internal, Unknown, false),
        ] {
            let text = error.to_string();
            let failed = failed(error);
            let seen = (failed.kind(), failed.effect(), failed.is_retryable());
            assert_eq!(seen, (kind, effect, retryable), "{text}");
            assert!(failed.to_string().contains(&text), "{failed}");
        }
    }
}
