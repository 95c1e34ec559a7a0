//! Resources that refuse an older fencing token.
//!
//! A lock can be lost while its holder still works: the token of its grant is what lets the resource tell a late writer from the one that holds the
//! lock now. [`Register`] is such a resource within one process; the crates of the backends have the same for theirs.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{FencingToken, LockError};

/// A value that remembers the newest token that wrote it and refuses an older one.
///
/// One token may write often. Tokens compare within one lock name, one backend and one data set, so a register belongs to one lock.
///
/// ```
/// use lock_core::{FencingToken, fence::Register};
///
/// let stock = Register::new(10);
/// let (late, now) = (FencingToken::new(6), FencingToken::new(7)); // of `LockGuard::fencing_token`
/// stock.update(now, |left| *left -= 1)?;
/// stock.update(now, |left| *left -= 1)?;
/// assert!(stock.write(late, 10).is_err());
/// assert_eq!(stock.read(), (Some(now), 8));
/// # Ok::<(), lock_core::fence::StaleToken>(())
/// ```
#[derive(Debug, Default)]
pub struct Register<T>(Mutex<Kept<T>>);

#[derive(Debug, Default)]
struct Kept<T> {
    newest: Option<FencingToken>,
    value: T,
}

impl<T> Register<T> {
    /// A register that no token has written yet.
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(Kept { newest: None, value }))
    }

    /// Replaces the value, and returns when that is done.
    ///
    /// # Errors
    /// [`StaleToken`] if a newer token has written; the value is as it was, and the one offered is dropped.
    pub fn write(&self, token: FencingToken, value: T) -> Result<(), StaleToken> {
        self.update(token, |kept| *kept = value)
    }

    /// Changes the value while no other can read or write it, and returns what `change` returns. Keep `change` short: it runs under a mutex.
    ///
    /// # Errors
    /// [`StaleToken`] if a newer token has written; `change` was not called.
    ///
    /// # Panics
    /// If `change` does. The token counts as seen, what was changed until then stays, and the register goes on working.
    pub fn update<R>(&self, token: FencingToken, change: impl FnOnce(&mut T) -> R) -> Result<R, StaleToken> {
        let mut kept = self.kept();
        if let Some(newest) = kept.newest.filter(|newest| token < *newest) {
            return Err(StaleToken { offered: token, newest });
        }
        kept.newest = Some(token);
        Ok(change(&mut kept.value))
    }

    /// The newest token that wrote, if any has, and the value.
    pub fn read(&self) -> (Option<FencingToken>, T)
    where
        T: Clone,
    {
        let kept = self.kept();
        (kept.newest, kept.value.clone())
    }

    // Half a change by a closure that panicked is the closure's matter; the token is always whole.
    fn kept(&self) -> MutexGuard<'_, Kept<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A write came with a token older than one that the resource has seen: another has held the lock since. Nothing was written.
///
/// ```
/// use lock_core::{FencingToken, fence::StaleToken};
/// let stale = StaleToken { offered: FencingToken::new(6), newest: FencingToken::new(7) };
/// assert!(stale.to_string().starts_with("token 6 is older than 7"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StaleToken {
    /// The token that was refused.
    pub offered: FencingToken,
    /// The newest one that the resource has seen.
    pub newest: FencingToken,
}

impl fmt::Display for StaleToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "token {} is older than {}, which the resource has seen: the lock was lost and another has held it since, nothing was written; \
             stop this work, and acquire the lock anew before starting over",
            self.offered, self.newest
        )
    }
}

impl std::error::Error for StaleToken {}

/// Why a guarded write was not done, or is not known to be.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum FenceError {
    /// The lock was lost: stop this work.
    Stale(StaleToken),
    /// The resource did not answer, or refused for another reason. Its [`effect`](LockError::effect) says whether the write may have been done;
    /// the same write with the same token may be tried again.
    Failed(LockError),
}

impl FenceError {
    /// The refusal, if it is one for the token's age.
    pub fn stale(&self) -> Option<StaleToken> {
        match self {
            Self::Stale(stale) => Some(*stale),
            Self::Failed(_) => None,
        }
    }
}

impl From<StaleToken> for FenceError {
    fn from(stale: StaleToken) -> Self {
        Self::Stale(stale)
    }
}

impl From<LockError> for FenceError {
    fn from(error: LockError) -> Self {
        Self::Failed(error)
    }
}

impl fmt::Display for FenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale(stale) => stale.fmt(f),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FenceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Stale(_) => None,
            Self::Failed(error) => error.source(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_write_is_taken_exactly_if_no_newer_token_was(tokens in prop::collection::vec(prop_oneof![0..6u64, Just(u64::MAX)], 0..40)) {
            let register = Register::new(usize::MAX);
            let mut newest: Option<u64> = None;
            let mut value = usize::MAX;
            for (round, offered) in tokens.into_iter().enumerate() {
                let token = FencingToken::new(offered);
                let answer = register.write(token, round);
                match newest.filter(|newest| offered < *newest) {
                    Some(newest) => prop_assert_eq!(answer, Err(StaleToken { offered: token, newest: FencingToken::new(newest) })),
                    None => {
                        prop_assert_eq!(answer, Ok(()));
                        (newest, value) = (Some(offered), round);
                    }
                }
                prop_assert_eq!(register.read(), (newest.map(FencingToken::new), value));
            }
        }
    }

    #[test]
    fn racing_writers_leave_the_newest_value() {
        let register = Register::new(0);
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let register = &register;
                scope.spawn(move || {
                    for round in 0..500 {
                        let number = round * 4 + writer;
                        let _ = register.write(FencingToken::new(number), number);
                        let (token, value) = register.read();
                        assert_eq!(token.map(FencingToken::get), Some(value));
                        assert!(value >= number);
                    }
                });
            }
        });
        assert_eq!(register.read(), (Some(FencingToken::new(1999)), 1999));
    }

    #[test]
    fn a_panic_in_a_change_leaves_the_register_in_use() {
        let register = Register::new(1);
        let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            register.update(FencingToken::new(5), |_| panic!("the user's"))
        }));
        assert!(broken.is_err());
        assert!(register.write(FencingToken::new(4), 2).is_err());
        assert_eq!(register.update(FencingToken::new(5), |value| std::mem::replace(value, 3)), Ok(1));
    }
}
