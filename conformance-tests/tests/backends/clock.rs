//! A server's wall clock that a test may set.

use std::path::PathBuf;
use std::process::Command;

use conformance_tests::{Stop, ensure};
use tempfile::TempDir;

/// A clock for a server that reads the time by the C library.
pub(crate) struct WallClock {
    folder: TempDir,
}

impl WallClock {
    /// One that is right.
    pub(crate) fn new() -> Result<Self, Stop> {
        let clock = Self { folder: tempfile::tempdir()? };
        clock.set(0)?;
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/backends/clock.c");
        let made = Command::new("cc").args(["-shared", "-fPIC", "-O", "-o"]).arg(clock.library()).arg(source).output();
        let made = made.map_err(|e| format!("cc does not start: {e}; apt-get install build-essential"))?;
        ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Ok(clock)
    }

    fn library(&self) -> PathBuf {
        self.folder.path().join("clock.so")
    }

    fn offset(&self) -> PathBuf {
        self.folder.path().join("offset")
    }

    /// What the server's environment needs.
    pub(crate) fn environment(&self) -> [(&'static str, String); 2] {
        let text = |path: PathBuf| path.display().to_string();
        [("LD_PRELOAD", text(self.library())), ("CLOCK_OFFSET", text(self.offset()))]
    }

    /// Puts it ahead by so many seconds, or behind.
    pub(crate) fn set(&self, seconds: i64) -> Result<(), Stop> {
        use std::io::Write;
        // In place: the server has the file mapped.
        let mut file = std::fs::OpenOptions::new().create(true).write(true).truncate(false).open(self.offset())?;
        Ok(file.write_all(&seconds.to_ne_bytes())?)
    }
}
