//! Redis against the whole suite, on servers that it starts itself; with `CONFORMANCE_REDIS=sentinel` or `cluster` on a group.

use std::process::ExitCode;

use conformance_tests::harnesses::redis::RedisHarness;
use conformance_tests::harnesses::redis_group::RedisGroupHarness;
use conformance_tests::servers::redis_group::Form;

fn main() -> ExitCode {
    match std::env::var("CONFORMANCE_REDIS").as_deref() {
        Ok("sentinel") => conformance_tests::run(RedisGroupHarness { form: Form::Sentinel { replicas: 1 } }),
        Ok("cluster") => conformance_tests::run(RedisGroupHarness { form: Form::Cluster }),
        _ => conformance_tests::run(RedisHarness),
    }
}
