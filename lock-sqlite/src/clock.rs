//! The clock by which leases expire in the file.

use std::time::{SystemTime, UNIX_EPOCH};

use lock_core::LockError;

/// The time since the machine was started, together with the name of that start. Every process of the machine reads the same, no setting of
/// the wall clock moves it, and it counts the time asleep. A lease of another boot has ended, since its holder has.
#[derive(Debug)]
pub(crate) struct BootClock {
    boot: String,
    /// By how much a time namespace moves this process's clock, in microseconds.
    offset: i64,
}

impl BootClock {
    /// The name of this boot.
    pub(crate) fn boot(&self) -> &str {
        &self.boot
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl BootClock {
    /// Whether a start of the machine is told from the next.
    pub(crate) const NAMES_BOOTS: bool = true;

    /// Finds out which boot this is.
    pub(crate) fn new() -> Result<Self, LockError> {
        use lock_core::ErrorKind;

        const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
        let boot = std::fs::read_to_string(BOOT_ID).map_err(|e| {
            LockError::new(ErrorKind::Config, format!("cannot read {BOOT_ID}")).advice("mount /proc").source(e)
        })?;
        // A kernel without time namespaces has no such file, and no offset.
        let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        Ok(Self { boot: boot.trim().into(), offset: boot_offset(&offsets) })
    }

    /// Microseconds since the boot, the same in every container.
    pub(crate) fn now(&self) -> i64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        time.tv_sec * 1_000_000 + time.tv_nsec / 1000 - self.offset
    }
}

/// The offset in microseconds from a text of lines such as `boottime  -5  250000000`.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn boot_offset(offsets: &str) -> i64 {
    let mut words = offsets.lines().map(str::split_whitespace).find_map(|mut line| {
        let clock = line.next()?;
        (clock == "boottime").then_some(line)
    });
    let mut number = || words.as_mut()?.next()?.parse::<i64>().ok();
    let (seconds, nanos) = (number().unwrap_or(0), number().unwrap_or(0));
    seconds * 1_000_000 + nanos / 1000
}

// No other system offers both a clock that all processes share and a name for the boot without foreign code. There the wall clock serves,
// and a step of it can end a lease early or late, as `docs/sqlite.md` says.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
impl BootClock {
    /// Whether a start of the machine is told from the next.
    pub(crate) const NAMES_BOOTS: bool = false;

    /// The one boot there is.
    pub(crate) fn new() -> Result<Self, LockError> {
        Ok(Self { boot: "utc".into(), offset: 0 })
    }

    /// Microseconds of the wall clock.
    pub(crate) fn now(&self) -> i64 {
        utc() - self.offset
    }
}

/// The wall clock in microseconds, for showing and for the first token of a file. A clock before 1970 counts as 1.
pub(crate) fn utc() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(1).max(1)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_offset_of_a_time_namespace_is_found() {
        assert_eq!(boot_offset("monotonic           7         0\nboottime          -5 250000000\n"), -4_750_000);
        assert_eq!(boot_offset(""), 0);
    }

    #[test]
    fn the_clock_is_that_of_the_machine() {
        let clock = BootClock::new().unwrap();
        assert_eq!(clock.boot().len(), 36);
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = uptime.split_whitespace().next().unwrap().parse().unwrap();
        assert!((clock.now() as f64 / 1e6 - uptime).abs() < 1.0, "{} {uptime}", clock.now());
    }
}
