//! Times to live.

use std::time::Duration;

use crate::{ErrorKind, LockError};

/// How long a lease lives when it is not renewed: [`Ttl::MIN`] to [`Ttl::MAX`] (rule T2).
///
/// A backend may have narrower limits; it refuses what lies beyond them before any I/O and never grants less than was asked.
///
/// ```
/// use std::time::Duration;
/// use lock_core::Ttl;
/// assert_eq!(Ttl::new(Duration::from_secs(30))?.get().as_secs(), 30);
/// assert!(Ttl::new(Duration::ZERO).is_err());
/// # Ok::<(), lock_core::LockError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ttl(Duration);

impl Ttl {
    /// The least TTL: 10 ms.
    pub const MIN: Duration = Duration::from_millis(10);
    /// The greatest TTL: 365 days.
    pub const MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);
    /// What is used where the user sets none: 30 s.
    pub const DEFAULT: Self = Self(Duration::from_secs(30));

    /// Checks a TTL and rounds it up to whole milliseconds.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidTtl`] below [`Ttl::MIN`] or above [`Ttl::MAX`].
    pub fn new(ttl: Duration) -> Result<Self, LockError> {
        Self::within(ttl, Self::MIN, Self::MAX)
    }

    /// Checks a TTL against narrower limits, as a backend does.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidTtl`] below `min` or above `max`; the text names both.
    pub fn within(ttl: Duration, min: Duration, max: Duration) -> Result<Self, LockError> {
        if ttl < min || ttl > max {
            return Err(LockError::new(ErrorKind::InvalidTtl, format!("a TTL of {ttl:?} is out of range"))
                .advice(format!("give a TTL from {min:?} to {max:?}")));
        }
        let up = ttl + Duration::from_nanos(999_999);
        Ok(Self(Duration::new(up.as_secs(), up.subsec_millis() * 1_000_000)))
    }

    /// The TTL, in whole milliseconds.
    pub const fn get(self) -> Duration {
        self.0
    }

    /// The TTL as a number of milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0.as_secs() * 1000 + self.0.subsec_millis() as u64
    }
}

impl Default for Ttl {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_hold_at_their_edges_and_far_beyond() {
        let ns = Duration::from_nanos(1);
        for (ttl, ok) in [
            (Duration::ZERO, false),
            (Ttl::MIN - ns, false),
            (Ttl::MIN, true),
            (Ttl::MAX, true),
            (Ttl::MAX + ns, false),
            (Duration::from_millis(i64::MAX as u64), false),
            (Duration::from_secs(u64::MAX), false),
            (Duration::MAX, false),
        ] {
            let got = Ttl::new(ttl);
            assert_eq!(got.is_ok(), ok, "{ttl:?}");
            if let Err(e) = got {
                assert_eq!(e.kind(), ErrorKind::InvalidTtl);
            }
        }
    }

    #[test]
    fn parts_of_a_millisecond_round_up() {
        assert_eq!(Ttl::new(Duration::from_micros(10_001)).unwrap().as_millis(), 11);
        assert_eq!(Ttl::new(Duration::from_millis(1500)).unwrap().as_millis(), 1500);
    }
}
