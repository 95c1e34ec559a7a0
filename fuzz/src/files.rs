#[allow(dead_code, unreachable_pub, reason = "of the command line only this much is taken")]
#[path = "../../distlock/src/cli/exit.rs"]
mod exit;
#[allow(dead_code, unreachable_pub, reason = "of the command line only this much is taken")]
#[path = "../../distlock/src/cli/file.rs"]
mod file;

/// Reads a configuration file, as the command line does.
pub fn read(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let lines = 1..=text.lines().count() + 1;
    match file::parse(text) {
        Ok(settings) => {
            for value in [settings.url, settings.namespace, settings.ttl, settings.wait].into_iter().flatten() {
                assert!(lines.contains(&value.line), "{value:?}");
            }
        }
        Err((line, why)) => assert!(lines.contains(&line), "line {line}: {why}"),
    }
}
