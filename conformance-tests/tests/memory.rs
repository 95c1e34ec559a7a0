//! The memory backend against the whole suite.

use std::process::ExitCode;

use conformance_tests::harnesses::memory::MemoryHarness;

fn main() -> ExitCode {
    conformance_tests::run(MemoryHarness::default())
}
