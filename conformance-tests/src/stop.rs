//! How a case ends before its end.

use std::fmt;

/// Why a case stopped: a promise was broken, or the case could not be carried out.
///
/// Whether a case applies at all is decided before it runs, by what the harness offers; a case that runs proves or fails.
#[derive(Clone, PartialEq, Eq)]
pub struct Stop(String);

/// What a case answers.
pub type Outcome = Result<(), Stop>;

/// Any error stops a case, so that `?` does.
impl<E: fmt::Display> From<E> for Stop {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

// `Display` would forbid the conversion above.
impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Stops the case with a failure unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {{
        let condition: bool = $condition;
        if !condition {
            return ::core::result::Result::Err($crate::Stop::from(::std::format!($($text)+)));
        }
    }};
}
