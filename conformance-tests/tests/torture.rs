//! The torture in short: the backends that need no server for some seconds each, the seeds that once failed, and the mutants.
#![cfg(all(feature = "mysql", feature = "redis", feature = "sqlite", feature = "zk"))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, ExitCode};
use std::time::Duration;

use conformance_tests::servers::redis::RedisServer;
use conformance_tests::torture::{FLAG, Ground, Torture, obey};
use libtest_mimic::{Arguments, Failed, Trial};

/// Seeds that once failed, and on what: backend, seed, seconds, and what it was.
const FAILED_SEEDS: &[(&str, u64, u64, &str)] = &[
    ("zk:", 3, 8, "a release of a lock that was revoked said 'released' on ZooKeeper"),
    ("mysql:", 3, 8, "a limit of 50 ms was taken for an error without a fault"),
];

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|first| first == FLAG) {
        return match obey() {
            Ok(code) => code,
            Err(stop) => panic!("{stop:?}"),
        };
    }
    let run = |url: &'static str, seed: u64, seconds: u64| {
        let span = Duration::from_secs(seconds);
        move || torture(url, Torture { seed, span, silent: true, ..Torture::default() })
    };
    let mut trials = vec![
        Trial::test("memory_keeps_the_contract", run("memory:", 7, 8)),
        Trial::test("sqlite_keeps_the_contract", run("sqlite:", 7, 8)),
        Trial::test("a_server_of_somebody_elses_needs_a_yes", refuses),
        Trial::test("a_yes_tortures_nothing_but_the_runs_own_names", spares),
    ];
    for (url, seed, seconds, _) in FAILED_SEEDS {
        trials.push(Trial::test(format!("seed_{seed}_on_{}", url.trim_end_matches(':')), run(url, *seed, *seconds)));
    }
    #[cfg(feature = "mutants")]
    trials.push(Trial::test("every_mutant_dies", mutants));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap()
}

fn torture(url: &str, torture: Torture) -> Result<(), Failed> {
    let verdict = runtime().block_on(async { torture.run(Ground::open(url, 1).await?).await });
    let verdict = verdict.map_err(|stop| format!("{stop:?}"))?;
    if verdict.is_clean() { Ok(()) } else { Err(verdict.to_string().into()) }
}

/// The program itself: what it refuses, and how.
fn refuses() -> Result<(), Failed> {
    for (arguments, code) in [
        (&["redis://user:hunter2@host/"][..], 64),
        (&["redis:", "--seconds", "x"], 64),
        (&["redis:", "--members", "3"], 64),
        (&["memory:", "--mutant", "None"], 64),
        (&[], 64),
        (&["--help"], 0),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_torture")).args(arguments).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.code() != Some(code) || said.contains("hunter2") {
            return Err(format!("{arguments:?}: {:?}, {said}", output.status).into());
        }
    }
    Ok(())
}

/// On somebody's server: what is left out is named, and afterwards all stands as it did, but for idle counters, which vanish by themselves.
fn spares() -> Result<(), Failed> {
    let runtime = runtime();
    let server = runtime.block_on(RedisServer::start(&["--requirepass", "hunter2"]));
    let server = server.map_err(|stop| format!("{stop:?}"))?;
    let url = format!("redis://:hunter2@127.0.0.1:{}/", server.port());
    let mut theirs = redis::Client::open(&*url)?.get_connection()?;
    let () = redis::pipe().set("theirs", "data").pset_ex("held", "f".repeat(32), 600_000).query(&mut theirs)?;
    let settings =
        |theirs: &mut redis::Connection| redis::cmd("CONFIG").arg("GET").arg("*").query::<redis::Value>(theirs);
    let before = settings(&mut theirs)?;
    let arguments = [&*url, "--yes-this-server", "--seconds", "3"];
    let output = Command::new(env!("CARGO_BIN_EXE_torture")).args(arguments).output()?;
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let words =
        ["left out: the store is not the suite's to stop or to wipe", "left out: the server is not the run's own"];
    let told = words.iter().all(|words| said.contains(words)) && said.trim_end().ends_with("clean");
    if !output.status.success() || !told || said.contains("hunter2") {
        return Err(format!("{:?}: {said}", output.status).into());
    }
    let mut left: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(&mut theirs)?;
    let helper = |key: &[u8]| key.starts_with(b"torture-") && key.contains(&0xff);
    left.retain(|key| {
        !helper(key) || redis::cmd("PTTL").arg(key).query::<i64>(&mut theirs).is_ok_and(|left| left == -1)
    });
    left.sort();
    if left != [b"held".to_vec(), b"theirs".to_vec()] || settings(&mut theirs)? != before {
        return Err(format!("left behind, or changed: {left:?}").into());
    }
    Ok(())
}

/// Each is found out, or has a reason to live on, and none has both.
#[cfg(feature = "mutants")]
fn mutants() -> Result<(), Failed> {
    use conformance_tests::torture::mutants::hunt_all;
    use lock_core::memory::Fault;

    // Most are gone within two seconds, some need luck: a limit costs time only where it is needed.
    let hunts = runtime().block_on(hunt_all(Fault::ALL, Duration::from_secs(120), 1, |_| {}));
    let hunts = hunts.map_err(|stop| format!("{stop:?}"))?;
    for hunt in &hunts {
        println!("{hunt}");
    }
    let wrong: Vec<_> =
        hunts.iter().filter(|hunt| !hunt.is_as_expected()).map(|hunt| format!("{:?}", hunt.fault)).collect();
    if wrong.is_empty() { Ok(()) } else { Err(format!("not as expected: {wrong:?}").into()) }
}
