//! SQLite against the whole suite, over files in temporary folders.

use std::process::ExitCode;

use conformance_tests::harnesses::sqlite::SqliteHarness;

fn main() -> ExitCode {
    conformance_tests::run(SqliteHarness)
}
