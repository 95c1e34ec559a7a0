//! A register that refuses an older token.

use lock_core::FencingToken;

/// A value with the newest token that wrote it.
#[derive(Debug, Default)]
pub(super) struct Register<T> {
    newest: Option<FencingToken>,
    value: T,
}

impl<T> Register<T> {
    /// Takes a write, unless a newer token was here before.
    pub(super) fn write(&mut self, token: FencingToken, value: T) -> Result<(), ()> {
        if self.newest.is_some_and(|newest| newest > token) {
            return Err(());
        }
        (self.newest, self.value) = (Some(token), value);
        Ok(())
    }
}
