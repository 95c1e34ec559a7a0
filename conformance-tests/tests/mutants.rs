//! Each mutant must be caught by the case that is aimed at it.
//!
//! `MUTANTS_ALL=1` runs every case against every mutant and shows which ones catch it.

use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use conformance_tests::case::{self, Case};
use conformance_tests::harnesses::memory::MemoryHarness;
use conformance_tests::mutants::{MUTANTS, Mutant};
use conformance_tests::{Harness, run_case};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    let killed = Arc::new(Mutex::new(Vec::new()));
    let trials = MUTANTS.iter().map(|mutant| {
        let killed = Arc::clone(&killed);
        Trial::test(format!("{:?}", mutant.fault), move || {
            let text = hunt(mutant)?;
            killed.lock().map_err(|_| "poisoned")?.push(text);
            Ok(())
        })
    });
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials.collect());
    let mut rows = killed.lock().map(|rows| rows.clone()).unwrap_or_default();
    if !rows.is_empty() {
        rows.sort();
        println!("| mutant | rules | caught by | what it saw |\n|---|---|---|---|\n{}", rows.join("\n"));
    }
    conclusion.exit_code()
}

/// Runs the aimed case against a mutant; a row of the table when it fails, as it must.
fn hunt(mutant: &'static Mutant) -> Result<String, Failed> {
    let aimed = case::all().find(|case| case.full_name() == mutant.killed_by);
    let aimed = aimed.ok_or_else(|| format!("there is no case '{}'", mutant.killed_by))?;
    let seen = catch(mutant, aimed).ok_or_else(|| format!("{} did not notice {:?}", mutant.killed_by, mutant.fault))?;
    let others = if std::env::var_os("MUTANTS_ALL").is_some() {
        let all = case::all().filter(|case| case.needs.is_empty() && catch(mutant, case).is_some());
        all.map(Case::full_name).collect::<Vec<_>>().join(", ")
    } else {
        mutant.killed_by.to_owned()
    };
    let seen: String = seen.replace(['|', '\n'], "/").chars().take(100).collect();
    Ok(format!("| {:?} | {} | {others} | {seen} |", mutant.fault, mutant.rules.join(" ")))
}

fn catch(mutant: &Mutant, case: &'static Case) -> Option<String> {
    let harness: Arc<dyn Harness> = Arc::new(MemoryHarness::with_fault(mutant.fault));
    match run_case(harness, case) {
        Err(stop) => Some(format!("{stop:?}")),
        Ok(()) => None,
    }
}
