//! The one error of the library.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::{Holder, LockName, LostReason, escaped};

/// What went wrong, in the contract's words (rule E1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The wait limit passed and some answer said that another holds the name. Nothing is held. Trying again can help.
    Timeout,
    /// The guard's lease can no longer be relied on. Final: acquire anew.
    Lost,
    /// The name is not held by this owner now. Nothing was changed.
    NotHeld,
    /// No answer, or none that could be used, within the time that was left. Whether the request took effect is in
    /// [`LockError::effect`]. Trying again can help.
    Unavailable,
    /// Wrong credentials or a missing right. Nothing was changed. Trying again does not help until that is mended.
    Denied,
    /// The name is empty, too long or not UTF-8. Nothing was sent.
    InvalidName,
    /// The TTL is outside the limits. Nothing was sent.
    InvalidTtl,
    /// A URL, option or file is wrong. Nothing was sent.
    Config,
    /// The backend cannot do this, as its capabilities say. Nothing was changed.
    Unsupported,
    /// The entry under this name is not a lock's. It was left as it is.
    Foreign,
    /// The manager was closed. Nothing was sent.
    Closed,
    /// A defect of the library or of a backend; whether anything was changed is in [`LockError::effect`].
    Internal,
}

impl ErrorKind {
    /// All kinds, in the order of the contract.
    pub const ALL: [Self; 12] = [
        Self::Timeout,
        Self::Lost,
        Self::NotHeld,
        Self::Unavailable,
        Self::Denied,
        Self::InvalidName,
        Self::InvalidTtl,
        Self::Config,
        Self::Unsupported,
        Self::Foreign,
        Self::Closed,
        Self::Internal,
    ];
}

/// Whether the request that failed took effect in the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// It did not: the caller may go on as if it had never asked.
    NotApplied,
    /// It did: only the answer failed.
    Applied,
    /// Nobody can know: the caller may still hold the lock, or may not.
    Unknown,
}

/// An error with its kind, whether trying again can help, and what it left behind.
///
/// It says on one line which backend and lock it concerns, what was tried, what happened and what to do.
/// A clone is cheap. No driver's type appears in it; the driver's own error is the [`source`](StdError::source). No secret does either.
///
/// ```
/// use lock_core::{Effect, ErrorKind, LockError};
/// let err = LockError::new(ErrorKind::Unavailable, "no answer within 2s").backend("redis").operation("renew");
/// assert_eq!(err.to_string(), "redis: renew: no answer within 2s");
/// assert_eq!(err.effect(), Effect::Unknown);
/// assert!(err.is_retryable());
/// ```
#[derive(Clone)]
pub struct LockError(Arc<Repr>);

#[derive(Clone)]
struct Repr {
    kind: ErrorKind,
    effect: Effect,
    retryable: bool,
    backend: Option<&'static str>,
    operation: Option<&'static str>,
    name: Option<LockName>,
    detail: String,
    advice: Option<String>,
    holder: Option<Holder>,
    lost: Option<LostReason>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl LockError {
    /// A new error. `detail` says what happened, in lower case and without a full stop; it must hold no secret.
    ///
    /// `Unavailable` and `Timeout` start as retryable; `Unavailable` and `Internal` start with an unknown effect, all others with none.
    pub fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        let effect = match kind {
            ErrorKind::Unavailable | ErrorKind::Internal => Effect::Unknown,
            _ => Effect::NotApplied,
        };
        Self(Arc::new(Repr {
            kind,
            effect,
            retryable: matches!(kind, ErrorKind::Unavailable | ErrorKind::Timeout),
            backend: None,
            operation: None,
            name: None,
            detail: detail.into(),
            advice: None,
            holder: None,
            lost: None,
            source: None,
        }))
    }

    /// Sets what the failed request did.
    #[must_use]
    pub fn with_effect(mut self, effect: Effect) -> Self {
        self.edit().effect = effect;
        self
    }

    /// Sets whether trying again can help.
    #[must_use]
    pub fn with_retryable(mut self, retryable: bool) -> Self {
        self.edit().retryable = retryable;
        self
    }

    /// Names the backend, unless it is named already.
    #[must_use]
    pub fn backend(mut self, backend: &'static str) -> Self {
        self.edit().backend.get_or_insert(backend);
        self
    }

    /// Names what was tried, such as `acquire`, unless it is named already.
    #[must_use]
    pub fn operation(mut self, operation: &'static str) -> Self {
        self.edit().operation.get_or_insert(operation);
        self
    }

    /// Names the lock, unless it is named already.
    #[must_use]
    pub fn name(mut self, name: &LockName) -> Self {
        self.edit().name.get_or_insert_with(|| name.clone());
        self
    }

    /// Says what to do about it.
    #[must_use]
    pub fn advice(mut self, advice: impl Into<String>) -> Self {
        self.edit().advice = Some(advice.into());
        self
    }

    /// Says who holds the name.
    #[must_use]
    pub fn with_holder(mut self, holder: Option<Holder>) -> Self {
        self.edit().holder = holder;
        self
    }

    /// Says why the lease was lost.
    #[must_use]
    pub fn with_lost_reason(mut self, reason: LostReason) -> Self {
        self.edit().lost = Some(reason);
        self
    }

    /// Keeps the error beneath. Whatever it shows must hold no secret.
    #[must_use]
    pub fn source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.edit().source = Some(Arc::from(source.into()));
        self
    }

    fn edit(&mut self) -> &mut Repr {
        Arc::make_mut(&mut self.0)
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the request that failed took effect, as far as can be known.
    pub fn effect(&self) -> Effect {
        self.0.effect
    }

    /// Whether the same call may succeed when it is made again.
    pub fn is_retryable(&self) -> bool {
        self.0.retryable
    }

    /// The lock that it concerns, where it concerns one.
    pub fn lock_name(&self) -> Option<&LockName> {
        self.0.name.as_ref()
    }

    /// The backend that it concerns, such as `redis`.
    pub fn backend_name(&self) -> Option<&'static str> {
        self.0.backend
    }

    /// What was tried, such as `acquire`.
    pub fn operation_name(&self) -> Option<&'static str> {
        self.0.operation
    }

    /// Who held the name, where a [`Timeout`](ErrorKind::Timeout) knows it.
    pub fn holder(&self) -> Option<&Holder> {
        self.0.holder.as_ref()
    }

    /// Why the lease was lost, where the kind is [`Lost`](ErrorKind::Lost).
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.0.lost
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Repr { backend, operation, name, detail, advice, source, .. } = &*self.0;
        if let Some(backend) = backend {
            write!(f, "{backend}: ")?;
        }
        match (operation, name) {
            (Some(operation), Some(name)) => write!(f, "{operation} '{name}': ")?,
            (Some(operation), None) => write!(f, "{operation}: ")?,
            (None, Some(name)) => write!(f, "lock '{name}': ")?,
            (None, None) => {}
        }
        write!(f, "{}", escaped(detail))?;
        if let Some(source) = source {
            write!(f, " ({})", escaped(&source.to_string()))?;
        }
        if let Some(advice) = advice {
            write!(f, "; {}", escaped(advice))?;
        }
        Ok(())
    }
}

impl fmt::Debug for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Repr { kind, effect, retryable, .. } = &*self.0;
        write!(f, "LockError({kind:?}, {effect:?}, retryable: {retryable}: {self})")
    }
}

impl StdError for LockError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_lock_backend_deed_and_remedy_on_one_line() {
        let name = LockName::new("a\nb").unwrap();
        let err = LockError::new(ErrorKind::Unavailable, "connection refused")
            .backend("redis")
            .operation("acquire")
            .name(&name)
            .source(std::io::Error::other("os\nerror 111"))
            .advice("check the host and port");
        let text = err.to_string();
        assert_eq!(text, r"redis: acquire 'a\nb': connection refused (os\nerror 111); check the host and port");
    }

    #[test]
    fn the_first_context_stays() {
        let err = LockError::new(ErrorKind::Denied, "x").backend("mysql").backend("core");
        assert_eq!(err.backend_name(), Some("mysql"));
        assert_eq!(err.effect(), Effect::NotApplied);
        assert!(!err.is_retryable());
    }

    #[test]
    fn an_error_is_one_word_wide() {
        assert_eq!(size_of::<LockError>(), size_of::<usize>());
    }
}
