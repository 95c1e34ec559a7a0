//! ZooKeeper against the whole suite, on servers that it starts itself; with `CONFORMANCE_MEMBERS=3` on ensembles.

use std::process::ExitCode;

use conformance_tests::harnesses::zk::ZkHarness;

fn main() -> ExitCode {
    conformance_tests::run(ZkHarness { members: conformance_tests::harnesses::members() })
}
