//! Runs the cases against one harness.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use tokio::sync::OnceCell;

use crate::case::{self, Case};
use crate::report::{Report, Verdict};
use crate::{Bench, Harness, Instance, Need, Outcome, Stop, child};
use lock_core::{Capabilities, Reach};

/// How many cases run at once, unless `--test-threads` says otherwise.
const THREADS: usize = 4;

/// No case takes longer.
const CASE_LIMIT: Duration = Duration::from_secs(60);

/// Runs the suite against a backend, with the command line of `cargo test`, and answers the exit code of the test binary.
///
/// The binary runs itself again for cases that need another process; such a child is served in here as well.
pub fn run(harness: impl Harness) -> ExitCode {
    run_with(harness, std::env::args().collect())
}

/// As [`run`], with a command line of one's own; its first word is the program.
pub fn run_with(harness: impl Harness, mut arguments: Vec<String>) -> ExitCode {
    let harness: Arc<dyn Harness> = Arc::new(harness);
    if child::is_child() {
        return child::serve(harness);
    }
    let report = report_path(&mut arguments);
    let suite =
        Arc::new(Suite { harness, shared: OnceCell::new(), verdicts: Mutex::default(), declared: OnceLock::new() });
    let mut trials = vec![Trial::test("harness::offers_what_its_reach_allows", {
        let suite = Arc::clone(&suite);
        move || block_on(suite.offers_enough())?.map_err(to_failed)
    })];
    // What the harness cannot bring about is no trial, so that every trial proves something; it is told below, with the reason.
    let mut absent: BTreeMap<&str, Vec<&Case>> = BTreeMap::new();
    for case in case::all() {
        match case.needs.iter().find_map(|&need| suite.harness.lacks(need)) {
            Some(reason) => absent.entry(reason).or_default().push(case),
            None => trials.push(Trial::test(case.full_name(), {
                let suite = Arc::clone(&suite);
                move || suite.prove(case)
            })),
        }
    }
    let mut arguments = Arguments::from_iter(arguments);
    // Cases wait more than they work.
    arguments.test_threads.get_or_insert(THREADS);
    let conclusion = libtest_mimic::run(&arguments, trials);

    let verdicts = std::mem::take(&mut *suite.verdicts.lock().unwrap_or_else(PoisonError::into_inner));
    if !verdicts.is_empty() {
        for (reason, cases) in &absent {
            println!("{} cases do not apply: {reason}", cases.len());
        }
        let table = Report::new(suite.harness.name(), &verdicts, &absent, suite.declared.get());
        println!("\n{}", table.to_markdown());
        if let Some(path) = report
            && let Err(e) = table.merge_into(&path)
        {
            eprintln!("cannot write the report {}: {e}", path.display());
            return ExitCode::FAILURE;
        }
    }
    // The shared instance must end before the process does; nothing drops statics.
    drop(suite);
    conclusion.exit_code()
}

/// Runs one case on an instance of its own, as the hunt for mutants does.
pub fn run_case(harness: Arc<dyn Harness>, case: &'static Case) -> Outcome {
    block_on(async move {
        let instance = harness.start().await?;
        prove_on(harness, instance, case).await
    })
    .unwrap_or_else(|panic| Err(panic.into()))
}

struct Suite {
    harness: Arc<dyn Harness>,
    /// The instance that all cases share that do no harm to it.
    shared: OnceCell<Arc<dyn Instance>>,
    verdicts: Mutex<Vec<(&'static Case, Verdict)>>,
    /// What the backend says of itself.
    declared: OnceLock<Capabilities>,
}

impl Suite {
    fn prove(&self, case: &'static Case) -> Result<(), libtest_mimic::Failed> {
        let outcome = block_on(async {
            let instance = self.shared.get_or_try_init(|| self.harness.start()).await?;
            prove_on(Arc::clone(&self.harness), Arc::clone(instance), case).await
        })
        .unwrap_or_else(|panic| Err(panic.into()));
        let verdict = if outcome.is_ok() { Verdict::Proved } else { Verdict::Broken };
        self.verdicts.lock().unwrap_or_else(PoisonError::into_inner).push((case, verdict));
        outcome.map_err(to_failed)
    }

    /// A harness must not lack what its backend's reach makes possible: no mandatory group is skipped by leaving something out.
    async fn offers_enough(&self) -> Outcome {
        let instance = self.shared.get_or_try_init(|| self.harness.start()).await?;
        let client = self.harness.connect(&instance.url()).await?;
        client.close().await?;
        let declared = self.declared.get_or_init(|| client.capabilities().clone());
        let demanded: &[Need] = match declared.reach {
            _ if self.harness.is_partial() => &[],
            Reach::Process => &[],
            Reach::Machine => &[Need::Processes],
            // What else a store can do differs from one to the other.
            Reach::Network => &[Need::Network, Need::Freeze, Need::Server, Need::Wipe, Need::Processes],
        };
        for &need in demanded {
            crate::ensure!(
                self.harness.lacks(need).is_none(),
                "a backend with the reach {:?} must offer {need:?}",
                declared.reach
            );
        }
        Ok(())
    }
}

async fn prove_on(harness: Arc<dyn Harness>, instance: Arc<dyn Instance>, case: &'static Case) -> Outcome {
    let bench = Bench::new(harness, instance).await?;
    match tokio::time::timeout(CASE_LIMIT, (case.run)(&bench)).await {
        Ok(outcome) => outcome?,
        Err(_) => return Err(format!("the case did not end within {CASE_LIMIT:?}").into()),
    }
    bench.finish().await
}

/// Each case has a runtime of its own; a panic in it is an answer like any other.
fn block_on<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| e.to_string())?;
    let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runtime.block_on(future)));
    runtime.shutdown_timeout(Duration::from_secs(2));
    answer.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        format!("panicked: {}", text.unwrap_or("without a text"))
    })
}

fn to_failed(stop: Stop) -> libtest_mimic::Failed {
    format!("{stop:?}").into()
}

/// Takes `--report FILE` out of the arguments; `CONFORMANCE_REPORT` stands in for it.
fn report_path(arguments: &mut Vec<String>) -> Option<std::path::PathBuf> {
    match arguments.iter().position(|argument| argument == "--report") {
        Some(at) if at + 1 < arguments.len() => arguments.drain(at..at + 2).nth(1).map(Into::into),
        _ => std::env::var_os("CONFORMANCE_REPORT").map(Into::into),
    }
}
