//! A clock that a test moves by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::{Clock, TimeSource};

/// A clock that moves only when told to, or that follows tokio's clock and can jump ahead of it, as a suspend does.
///
/// ```
/// use std::time::Duration;
/// use lock_core::testing::ManualClock;
/// let manual = ManualClock::new();
/// let start = manual.clock().now();
/// manual.advance(Duration::from_secs(60));
/// assert_eq!(manual.clock().now().saturating_since(start), Duration::from_secs(60));
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Source>);

#[derive(Debug)]
struct Source {
    nanos: AtomicU64,
    tokio_start: Option<tokio::time::Instant>,
}

impl ManualClock {
    /// A clock that stands still.
    pub fn new() -> Self {
        Self(Arc::new(Source { nanos: AtomicU64::new(1_000_000_000), tokio_start: None }))
    }

    /// A clock that runs with tokio's, paused or not. Call it inside a runtime.
    pub fn following_tokio() -> Self {
        let tokio_start = Some(tokio::time::Instant::now());
        Self(Arc::new(Source { nanos: AtomicU64::new(1_000_000_000), tokio_start }))
    }

    /// Moves it ahead, as a suspended machine's clock is seen to move.
    pub fn advance(&self, span: Duration) {
        self.0.nanos.fetch_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX >> 2), Ordering::SeqCst);
    }

    /// The clock, for a manager or a backend.
    pub fn clock(&self) -> Clock {
        Clock::from_source(self.0.clone())
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl TimeSource for Source {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::SeqCst))
            + self.tokio_start.map_or(Duration::ZERO, |s| s.elapsed())
    }
}
