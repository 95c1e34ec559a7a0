//! How long `distlock run` takes for a command that does nothing, beside the command alone and flock(1).

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use conformance_tests::{Stop, ensure};

use crate::pace::Pace;
use crate::results::Results;

pub fn run(distlock: &Path, pace: &Pace, results: &mut Results) -> Result<(), Stop> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite://{}", folder.path().join("locks.db").display());
    let ours = || {
        let mut command = Command::new(distlock);
        command.env("DISTLOCK_URL", &url).args(["run", "start-up", "--", "true"]);
        command
    };
    let flock = || {
        let mut command = Command::new("flock");
        command.arg(folder.path().join("flock")).arg("true");
        command
    };
    // Makes the file.
    timed(ours())?;
    for _ in 0..pace.starts {
        let mut add = |name: &str, millis| results.alone.entry(name.to_owned()).or_default().push(millis);
        add("distlock run on SQLite", timed(ours())?);
        add("true alone", timed(Command::new("true"))?);
        if let Ok(millis) = timed(flock()) {
            add("flock(1)", millis);
        }
    }
    Ok(())
}

fn timed(mut command: Command) -> Result<f64, Stop> {
    let start = Instant::now();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    let millis = start.elapsed().as_secs_f64() * 1e3;
    let status = status.map_err(|e| format!("{}: {e}", command.get_program().display()))?;
    ensure!(status.success(), "{} failed: {status}", command.get_program().display());
    Ok(millis)
}
