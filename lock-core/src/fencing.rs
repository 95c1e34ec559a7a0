//! Fencing tokens: how a resource refuses a late writer.

use std::fmt;

/// A number that rises strictly with each grant of a name (rule F1).
///
/// Hand it to the resource that the lock guards; the resource remembers the greatest one it has seen and refuses a smaller one.
/// Tokens compare within one name, one backend and one data set.
///
/// ```
/// use lock_core::FencingToken;
/// assert!(FencingToken::new(7) > FencingToken::new(6));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// Wraps a number that a backend gave.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
