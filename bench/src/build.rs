//! Programs of this project that are measured as processes: built in release where they are not yet.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use conformance_tests::{Stop, ensure};

/// The command line.
pub fn distlock() -> Result<PathBuf, Stop> {
    let program = package("distlock", concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"));
    Ok(program.map_err(|stop| format!("{stop:?}; give its path by --distlock"))?)
}

/// What valgrind looks at.
pub fn cycles() -> Result<PathBuf, Stop> {
    package("distlock-cycles", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
}

fn package(name: &str, manifest: &str) -> Result<PathBuf, Stop> {
    let mut cargo = Command::new("cargo");
    cargo.args([
        "build",
        "--release",
        "--message-format=json-render-diagnostics",
        "-p",
        name,
        "--manifest-path",
        manifest,
    ]);
    let output = cargo.stderr(Stdio::inherit()).output().map_err(|e| format!("cargo: {e}"))?;
    ensure!(output.status.success(), "{name} cannot be built");
    let lines = String::from_utf8(output.stdout)?;
    let made = lines.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let program = made.filter_map(|made| Some(PathBuf::from(made.get("executable")?.as_str()?))).next_back();
    Ok(program.ok_or_else(|| format!("cargo built no {name}"))?)
}
