//! Configuration files, as the command line reads them.
#![no_main]
#![allow(dead_code, unreachable_pub, reason = "of the command line only this much is taken")]

use libfuzzer_sys::fuzz_target;

#[path = "../../distlock/src/cli/exit.rs"]
mod exit;
#[path = "../../distlock/src/cli/file.rs"]
mod file;

fuzz_target!(|text: &str| {
    match file::parse(text) {
        Ok(settings) => {
            for value in [settings.url, settings.namespace, settings.ttl, settings.wait].into_iter().flatten() {
                assert!((1..=text.lines().count() + 1).contains(&value.line));
            }
        }
        Err((line, _)) => assert!((1..=text.lines().count() + 1).contains(&line), "{line}"),
    }
});
