//! The clock by which a holder judges its own lease.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Where a [`Clock`] reads its time. Replaceable, so that a test can move it.
pub trait TimeSource: fmt::Debug + Send + Sync + 'static {
    /// The time since some fixed point. It never steps back and goes on while the machine sleeps.
    fn now(&self) -> Duration;
}

/// A monotonic clock that also counts the time that the machine spends suspended.
///
/// `std::time::Instant` stands still in a suspend on Linux; a holder that trusted it would believe itself held
/// after the lid was opened again. One clock serves a manager, its keepers and its backend.
///
/// ```
/// use lock_core::Clock;
/// let clock = Clock::system();
/// let start = clock.now();
/// assert!(clock.now() >= start);
/// ```
#[derive(Clone, Debug)]
pub struct Clock(Arc<dyn TimeSource>);

impl Clock {
    /// The machine's clock: `CLOCK_BOOTTIME` on Linux and Android, the monotonic clock elsewhere.
    pub fn system() -> Self {
        Self(Arc::new(SystemTimeSource))
    }

    /// A clock over a source of one's own.
    pub fn from_source(source: Arc<dyn TimeSource>) -> Self {
        Self(source)
    }

    /// The present moment.
    pub fn now(&self) -> Deadline {
        Deadline(self.0.now())
    }

    /// How long until `deadline`; zero when it has passed.
    pub fn until(&self, deadline: Deadline) -> Duration {
        deadline.saturating_since(self.now())
    }

    /// Whether `deadline` has passed.
    pub fn has_passed(&self, deadline: Deadline) -> bool {
        self.now() >= deadline
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

/// A moment on a [`Clock`]. Moments of different clocks do not compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Duration);

impl Deadline {
    /// A moment that never comes.
    pub const NEVER: Self = Self(Duration::MAX);
    /// A moment that has always passed.
    pub const PAST: Self = Self(Duration::ZERO);

    /// The moment `span` later; [`Deadline::NEVER`] where that overflows.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span))
    }

    /// The moment `span` earlier, and no earlier than the clock's start.
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(span))
    }

    /// The time from `earlier` to this moment; zero when it is not earlier.
    pub fn saturating_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The end of the span for which a holder may trust a lease (rule M2): from the moment before the request was sent,
    /// its effective TTL, less a margin of 1 % and 2 ms for clocks that drift.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lock_core::{Clock, Deadline};
    /// let sent = Clock::system().now();
    /// let valid_until = Deadline::valid_until(sent, Duration::from_secs(30));
    /// assert_eq!(valid_until.saturating_since(sent), Duration::from_millis(29_698));
    /// ```
    #[must_use]
    pub fn valid_until(sent: Self, effective_ttl: Duration) -> Self {
        sent.after(trusted(effective_ttl))
    }

    /// The moment from which [`Deadline::valid_until`] was counted.
    pub(crate) fn sent_at(valid_until: Self, effective_ttl: Duration) -> Self {
        valid_until.before(trusted(effective_ttl))
    }

    /// Nanoseconds on the clock's line, for storing in one machine word; 2^62 at the most (146 years).
    pub(crate) fn to_nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX).min(1 << 62)
    }

    pub(crate) fn from_nanos(nanos: u64) -> Self {
        Self(Duration::from_nanos(nanos))
    }
}

/// The part of a TTL that a holder trusts: clocks drift.
fn trusted(ttl: Duration) -> Duration {
    ttl.saturating_sub(ttl / 100 + Duration::from_millis(2))
}

#[derive(Debug)]
struct SystemTimeSource;

#[cfg(any(target_os = "linux", target_os = "android"))]
impl TimeSource for SystemTimeSource {
    fn now(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        // The time since boot is never negative and its nanoseconds are below 10^9.
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}

#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
impl TimeSource for SystemTimeSource {
    fn now(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}

#[cfg(not(unix))]
impl TimeSource for SystemTimeSource {
    fn now(&self) -> Duration {
        static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
        START.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validity_counts_from_the_send_and_keeps_its_margin() {
        let sent = Deadline(Duration::from_secs(100));
        let until = Deadline::valid_until(sent, Duration::from_secs(2));
        assert_eq!(until, Deadline(Duration::from_millis(101_978)));
        assert_eq!(Deadline::valid_until(sent, Duration::from_millis(1)), sent);
    }

    /// It counts the time that the machine sleeps, and nobody sets it.
    #[test]
    #[cfg(target_os = "linux")]
    fn the_machines_clock_counts_from_its_boot() {
        let text = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = text.split_whitespace().next().unwrap().parse().unwrap();
        let now = Clock::system().now().saturating_since(Deadline::PAST).as_secs_f64();
        assert!((now - uptime).abs() < 5.0, "{now} by the clock, {uptime} since the boot");
    }

    #[test]
    fn far_moments_do_not_overflow() {
        assert_eq!(Deadline::NEVER.after(Duration::MAX), Deadline::NEVER);
        assert_eq!(Clock::system().now().after(Duration::MAX), Deadline::NEVER);
        assert_eq!(Deadline::NEVER.to_nanos(), 1 << 62);
    }
}
