//! etcd against the whole suite, on servers that it starts itself; with `CONFORMANCE_MEMBERS=3` on clusters.

use std::process::ExitCode;

use conformance_tests::harnesses::etcd::EtcdHarness;

fn main() -> ExitCode {
    conformance_tests::run(EtcdHarness { members: conformance_tests::harnesses::members() })
}
