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
            let text = harmless(text);
            // One write, so that lines of several processes do not mix; a closed stderr is no reason to fail.
            let _ = std::io::stderr().write_all(format!("distlock: {text}\n").as_bytes());
        }
    }
}

/// What a terminal obeys or hides is escaped, once more than by those who knew that a text was foreign: a message is one line, whatever is in it.
pub(crate) fn harmless(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, ' '..='~') || c.escape_debug().len() == 1 {
            line.push(c);
        } else {
            line.extend(c.escape_debug());
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::harmless;

    #[test]
    fn a_message_is_one_line_and_stays_as_it_is_otherwise() {
        assert_eq!(harmless("a\n\x1b[2J\u{9b}\u{202e}b"), r"a\n\u{1b}[2J\u{9b}\u{202e}b");
        assert_eq!(harmless(r#"lock 'é🔒\n' "x""#), r#"lock 'é🔒\n' "x""#);
    }
}
