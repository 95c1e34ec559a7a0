//! etcd against the whole suite, on servers that it starts itself.

use std::process::ExitCode;

use conformance_tests::harnesses::etcd::EtcdHarness;

fn main() -> ExitCode {
    conformance_tests::run(EtcdHarness)
}
