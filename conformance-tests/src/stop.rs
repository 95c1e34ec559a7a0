//! How a case ends before its end.

use std::fmt;

/// Why a case stopped: a promise was broken, or the case does not apply to this backend.
#[derive(Clone, PartialEq, Eq)]
pub enum Stop {
    /// A promise was broken, or the case could not be carried out.
    Failed(String),
    /// What it proves is not promised by this backend; the reason stands in the report.
    NotApplicable(String),
}

/// What a case answers.
pub type Outcome = Result<(), Stop>;

/// Any error stops a case, so that `?` does.
impl<E: fmt::Display> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.to_string())
    }
}

// `Display` would forbid the conversion above.
impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(text) => f.write_str(text),
            Self::NotApplicable(reason) => write!(f, "not applicable: {reason}"),
        }
    }
}

/// Stops the case with a failure unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {{
        let condition: bool = $condition;
        if !condition {
            return ::core::result::Result::Err($crate::Stop::Failed(::std::format!($($text)+)));
        }
    }};
}

/// Stops the case as not applicable unless the backend promises what it proves.
#[macro_export]
macro_rules! applies_if {
    ($condition:expr, $($text:tt)+) => {{
        let condition: bool = $condition;
        if !condition {
            return ::core::result::Result::Err($crate::Stop::NotApplicable(::std::format!($($text)+)));
        }
    }};
}
