//! Time that all processes of this machine share, and a sleep that is exact.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timer::TimerSetTimeFlags;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags};
use nix::time::{ClockId as Clock, clock_gettime};
use tokio::io::unix::AsyncFd;

/// Nanoseconds of the monotonic clock, which Python, Java, Go and Node read, too.
pub fn now() -> u64 {
    let now = clock_gettime(Clock::CLOCK_MONOTONIC).expect("every Linux has this clock");
    Duration::from(now).as_nanos() as u64
}

/// Sleeps for a time that the kernel measures: the timer of the runtime would round 1 ms up to 2.
pub async fn exact_sleep(span: Duration) -> io::Result<()> {
    let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
    timer.set(Expiration::OneShot(TimeSpec::from_duration(span)), TimerSetTimeFlags::empty())?;
    // SAFETY: an `OwnedFd` names the same open file until it is dropped, which the `AsyncFd` does itself.
    let timer = unsafe { AsyncFd::register(OwnedFd::from(timer)) }?;
    timer.readable().await?.retain_ready();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sleep_is_never_short() -> io::Result<()> {
        let start = now();
        exact_sleep(Duration::from_micros(1_500)).await?;
        assert!(now() - start >= 1_500_000);
        Ok(())
    }
}
