//! The configuration file.

use std::io;
use std::path::Path;

use distlock::escaped;
use serde::Deserialize;
use toml::Spanned;

use super::exit::{CONFIG, Failure};

/// What a file may say. Values stay texts, so that one place parses them, whatever layer they come from.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) url: Option<FileValue>,
    pub(crate) namespace: Option<FileValue>,
    pub(crate) ttl: Option<FileValue>,
    pub(crate) wait: Option<FileValue>,
}

#[derive(Debug)]
pub(crate) struct FileValue {
    pub(crate) text: String,
    pub(crate) line: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    url: Option<Spanned<String>>,
    namespace: Option<Spanned<String>>,
    ttl: Option<Spanned<String>>,
    wait: Option<Spanned<String>>,
}

/// Reads a file.
pub(crate) fn read(path: &Path) -> Result<Settings, Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| unreadable(path, &e))?;
    parse(&text).map_err(|(line, why)| {
        let path = path.to_string_lossy();
        Failure::new(CONFIG, format!("configuration file {} line {line}: {}", escaped(&path), escaped(&why)))
    })
}

pub(crate) fn unreadable(path: &Path, err: &io::Error) -> Failure {
    let path = path.to_string_lossy();
    Failure::new(CONFIG, format!("configuration file {}: cannot be read: {err}", escaped(&path)))
}

pub(crate) fn parse(text: &str) -> Result<Settings, (usize, String)> {
    let line = |at: usize| text.as_bytes()[..at.min(text.len())].iter().filter(|b| **b == b'\n').count() + 1;
    // Only the message: the error's own rendering would quote the line, which may hold a password.
    let raw: Raw =
        toml::from_str(text).map_err(|e| (line(e.span().map_or(0, |span| span.start)), without_values(e.message())))?;
    let value = |field: Option<Spanned<String>>| {
        field.map(|field| FileValue { line: line(field.span().start), text: field.into_inner() })
    };
    Ok(Settings { url: value(raw.url), namespace: value(raw.namespace), ttl: value(raw.ttl), wait: value(raw.wait) })
}

/// A message about a value of the wrong type quotes the value; only the expectation after it is of use.
fn without_values(message: &str) -> String {
    match message.split_once("invalid type: ").and_then(|(_, rest)| rest.rsplit_once(", expected ")) {
        Some((_, expected)) => format!("expected {expected}, in quotes"),
        None => message.lines().collect::<Vec<_>>().join("; "),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_is_a_file_or_is_refused(text in "\\PC{0,80}|((url|ttl|wait|namespace|x) ?=? ?(\"\\PC{0,9}\"|'\\PC{0,9}'|\"\"\"|[0-9{\\[]{1,3}|)(\n|\r|#|\0|)){0,5}") {
            if let Err((line, _)) = parse(&text) {
                prop_assert!((1..=text.lines().count() + 1).contains(&line), "{} of {:?}", line, text);
            }
        }

        #[test]
        fn a_good_file_comes_back(url in "\\PC{0,40}", ttl in "\\PC{0,9}") {
            let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
            let settings = parse(&format!("# x\nurl = {}\n\nttl = {}\n", quoted(&url), quoted(&ttl))).unwrap();
            prop_assert_eq!(settings.url.unwrap().text, url);
            prop_assert_eq!(settings.ttl.map(|ttl| (ttl.text, ttl.line)), Some((ttl, 4)));
        }
    }

    #[test]
    fn values_know_their_line() {
        let settings = parse("# locks\nurl = \"memory:\"\n\nttl = '5s'\n").unwrap();
        assert_eq!(settings.url.unwrap().line, 2);
        let ttl = settings.ttl.unwrap();
        assert_eq!((&*ttl.text, ttl.line), ("5s", 4));
        assert!(settings.wait.is_none());
    }

    #[test]
    fn unknown_keys_and_bad_syntax_name_the_line() {
        let (line, why) = parse("ttl = \"5s\"\nurll = \"x\"\n").unwrap_err();
        assert_eq!(line, 2);
        assert!(why.contains("unknown field `urll`, expected one of `url`, `namespace`, `ttl`, `wait`"), "{why}");
        assert_eq!(parse("\n\nurl = \n").unwrap_err().0, 3);
        assert_eq!(parse("\nttl = 30\n").unwrap_err(), (2, "expected a string, in quotes".to_owned()));
    }
}
