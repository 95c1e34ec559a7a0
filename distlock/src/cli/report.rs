//! What the tool says on stderr: one line a matter, with its name in front.

use std::io::Write;

/// How much to say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    level: i8,
}

impl Report {
    pub(crate) fn new(verbose: u8, quiet: bool) -> Self {
        Self { level: if quiet { -1 } else { i8::try_from(verbose).unwrap_or(i8::MAX) } }
    }

    /// Something that went wrong, or that a user must know.
    pub(crate) fn warn(self, text: impl AsRef<str>) {
        self.line(0, text.as_ref());
    }

    /// Something that `-v` shows.
    pub(crate) fn info(self, text: impl AsRef<str>) {
        self.line(1, text.as_ref());
    }

    fn line(self, level: i8, text: &str) {
        if self.level >= level {
            // One write, so that lines of several processes do not mix; a closed stderr is no reason to fail.
            let _ = std::io::stderr().write_all(format!("distlock: {text}\n").as_bytes());
        }
    }
}
