//! Runs the suite against the backend at a URL.

use std::process::ExitCode;

use conformance_tests::harnesses::attached::Attached;
use conformance_tests::harnesses::memory::MemoryHarness;

const USAGE: &str = "usage: conformance-tests URL [FILTER] [--report FILE] [FLAGS OF cargo test]

Runs the conformance suite against the backend at URL: memory:, sqlite:///path/locks.db,
redis://host:port/, mysql://user:password@host/database, zk://host,host/folder, or etcd://host,host (with the feature etcd).
The store is used under random names and left as it was found. What would need to stop or wipe it is not run;
a backend's own test in the source tree starts servers for that.";

fn main() -> ExitCode {
    if conformance_tests::is_child() {
        return conformance_tests::run(Attached::unnamed());
    }
    let mut arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("-h" | "--help") => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        Some("memory:") => {
            arguments.remove(1);
            conformance_tests::run_with(MemoryHarness::default(), arguments)
        }
        Some(url) if !url.starts_with('-') => match Attached::new(url) {
            Ok(attached) => {
                arguments.remove(1);
                conformance_tests::run_with(attached, arguments)
            }
            Err(stop) => usage(&format!("{stop:?}")),
        },
        _ => usage("the URL is missing"),
    }
}

fn usage(what: &str) -> ExitCode {
    eprintln!("conformance-tests: {what}\n\n{USAGE}");
    ExitCode::from(64)
}
