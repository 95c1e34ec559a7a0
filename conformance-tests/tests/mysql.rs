//! MySQL's backend against the whole suite, on MariaDB servers that it starts itself.

use std::process::ExitCode;

use conformance_tests::harnesses::mysql::MysqlHarness;

fn main() -> ExitCode {
    conformance_tests::run(MysqlHarness)
}
