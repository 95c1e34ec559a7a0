//! ZooKeeper against the whole suite, on servers that it starts itself.

use std::process::ExitCode;

use conformance_tests::harnesses::zk::ZkHarness;

fn main() -> ExitCode {
    conformance_tests::run(ZkHarness)
}
