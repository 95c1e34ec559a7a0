//! What a worker writes down as it goes, so that it outlives a kill: one line of JSON for each event.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lock_core::{Clock, Deadline};
use serde::{Deserialize, Serialize};

use crate::Stop;

/// Nanoseconds of the machine's monotonic clock, which all processes share.
pub type Nanos = u64;

/// Something that happened to a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum What {
    /// It is connected and begins.
    Begin,
    /// It asks for a name; `limit` is `None` where it does not wait.
    Ask { id: u64, name: String, ttl: Nanos, limit: Option<Nanos>, renewed: bool },
    /// What came of it.
    Answer { id: u64, answer: Answer },
    /// It looked at its guard. The event's time is *before* the look, so that a look that says "held" tells of that moment; `after` is after it.
    Look { id: u64, held: bool, until: Option<Nanos>, after: Nanos },
    /// The guard told the reason of its loss.
    Lost { id: u64, reason: String },
    /// The register was written to under the guard's token. The event's time is before it was sent.
    Write { id: u64, taken: bool, answered: Nanos },
    /// A renewal by hand; the event's time is after it.
    Renewed { id: u64, done: bool },
    /// It is about to release the guard, or to drop it.
    GaveUp { id: u64 },
    /// The answer to the release.
    Released { id: u64, answer: String },
    /// Somebody was seen under a name; `own` is the attempt of whoever looked, if it held the name before and after.
    Seen { name: String, asked: Nanos, own: Option<u64>, owner: Option<String>, token: Option<u64>, state: String },
    /// The holder was revoked by a mark.
    Marked { id: u64, asked: Nanos },
    /// A broken promise that the worker saw by itself.
    Odd { rule: String, text: String },
    /// It was told to end, has released all, and ends.
    End,
}

/// What came of an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Answer {
    Granted {
        token: u64,
        owner: String,
        ttl: Nanos,
    },
    Busy,
    Failed {
        kind: String,
        text: String,
    },
    /// The future was dropped.
    Cancelled,
}

/// A moment of the machine's clock in nanoseconds.
pub fn nanos(moment: Deadline) -> Nanos {
    span(moment.saturating_since(Deadline::PAST))
}

/// A span in nanoseconds.
pub fn span(span: Duration) -> Nanos {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Where a worker writes.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    clock: Clock,
    next: AtomicU64,
}

impl Log {
    pub(super) fn create(path: &Path) -> Result<Self, Stop> {
        let file = File::options().create_new(true).append(true).open(path)?;
        Ok(Self { file, clock: Clock::system(), next: AtomicU64::new(0) })
    }

    pub(super) fn now(&self) -> Nanos {
        nanos(self.clock.now())
    }

    /// A number for a new attempt.
    pub(super) fn attempt(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn write(&self, what: What) {
        self.write_at(self.now(), what);
    }

    /// One system call for each line: what was written stays, whatever happens to the process.
    pub(super) fn write_at(&self, at: Nanos, what: What) {
        let line = serde_json::to_string(&(at, what)).map(|line| line + "\n").map_err(std::io::Error::from);
        let written = line.and_then(|line| (&self.file).write_all(line.as_bytes()));
        // A history with a hole would prove nothing.
        written.unwrap_or_else(|error| panic!("a history cannot be written: {error}"));
    }
}

/// The events of a file, in order. The last line may have been cut by a kill.
pub(super) fn read(path: &Path) -> Result<Vec<(Nanos, What)>, Stop> {
    let text = std::fs::read(path)?;
    let mut events = Vec::new();
    for line in text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
        events.push(serde_json::from_slice(line)?);
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_survives_a_cut_last_line() {
        let folder = tempfile::tempdir().expect("a file");
        let path = folder.path().join("h");
        let log = Log::create(&path).expect("a file");
        log.write_at(5, What::Lost { id: 1, reason: "expired".into() });
        log.write(What::End);
        File::options().append(true).open(&path).expect("a file").write_all(b"[7,{\"Lo").expect("a file");
        let events = read(&path).map_err(|_| ()).expect("a history");
        assert_eq!(events[0], (5, What::Lost { id: 1, reason: "expired".into() }));
        assert_eq!((events.len(), &events[1].1), (2, &What::End));
    }
}
