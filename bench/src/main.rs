//! Measures distlock beside the least that its drivers could do and beside its peers, on servers that it starts itself, and writes
//! tables, plots and a page.

mod build;
mod clock;
mod grants;
mod machine;
mod measure;
mod order;
mod pace;
mod program;
mod programs;
mod report;
mod results;
mod rows;
mod servers;
mod stats;
mod tally;
mod workers;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use conformance_tests::Stop;
use indicatif::{ProgressBar, ProgressStyle};

use measure::Bench;
use pace::Pace;
use results::Results;
use rows::{Backend, Row};

/// Measures distlock beside the raw floor of each driver and beside its peers, on servers that it starts itself.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    /// Only these backends.
    #[arg(long, value_enum, value_delimiter = ',')]
    backend: Vec<Backend>,
    /// Fewer and shorter rounds: two minutes for all backends.
    #[arg(long)]
    quick: bool,
    /// Where performance.md and the folder performance/ are written: the project's docs/ after a whole run, else target/performance
    /// beside the manifest.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// The command line to measure; built in release where it is not given.
    #[arg(long, value_name = "PATH")]
    distlock: Option<PathBuf>,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    /// Writes tables, plots and the page again from the results of an earlier run.
    Report {
        /// The folder with performance/results.json.
        #[arg(default_value = DOCS)]
        out: PathBuf,
    },
    /// One worker of many processes; it takes its orders by lines.
    #[command(hide = true)]
    Worker { row: Row, backend: Backend },
    /// A process that holds names and looks at what they cost.
    #[command(hide = true)]
    Hold { names: usize, millis: u64 },
}

/// Where a whole run writes.
const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs");
/// Where a part of a run writes.
const SCRATCH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/performance");

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => {
            eprintln!("distlock-bench: {stop:?}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<(), Stop> {
    // As one process of many, or under a tool, with no thread that is not needed.
    let small = || tokio::runtime::Builder::new_current_thread().enable_all().build();
    match arguments.what {
        Some(What::Report { out }) => return report::write_again(&out),
        Some(What::Worker { row, backend }) => return small()?.block_on(program::serve(row, backend)),
        Some(What::Hold { names, millis }) => {
            return small()?.block_on(measure::held::hold(names, Duration::from_millis(millis)));
        }
        None => {}
    }
    let whole = arguments.backend.is_empty();
    let backends = if whole { Backend::ALL.to_vec() } else { arguments.backend.clone() };
    let out =
        arguments.out.clone().unwrap_or_else(|| if whole && !arguments.quick { DOCS.into() } else { SCRATCH.into() });
    let distlock = match (arguments.distlock, whole || backends.contains(&Backend::Sqlite)) {
        (Some(path), _) => Some(path),
        (None, true) => Some(build::distlock()?),
        (None, false) => None,
    };
    let cycles = if backends.contains(&Backend::Memory) { Some(build::cycles()?) } else { None };
    programs::prepare(&backends);
    let start = Instant::now();
    // What `#[tokio::main]` makes: a worker for each processor.
    let runtime = tokio::runtime::Runtime::new()?;
    let results = runtime.block_on(all(&backends, arguments.quick, distlock.as_deref(), cycles.as_deref()))?;
    print!("{}", report::summary(&results));
    report::write(&results, &out)?;
    println!("\nWritten to {} after {} s.", out.display(), start.elapsed().as_secs());
    Ok(())
}

/// Stages of one backend.
const STAGES: u64 = 5;

async fn all(
    backends: &[Backend],
    quick: bool,
    distlock: Option<&Path>,
    cycles: Option<&Path>,
) -> Result<Results, Stop> {
    let pace = if quick { Pace::QUICK } else { Pace::FULL };
    let mut results = Results { quick, machine: machine::facts(), ..Results::default() };
    let bar = ProgressBar::new(backends.len() as u64 * STAGES + 3);
    bar.set_style(ProgressStyle::with_template("{elapsed_precise} {wide_bar} {pos}/{len}\n{msg}")?);
    bar.enable_steady_tick(Duration::from_millis(250));
    for backend in backends {
        bar.set_message(format!("{}: starting a server", backend.label()));
        let server = servers::start(*backend).await?;
        let url = server.url();
        let mut bench =
            Bench { backend: *backend, url: &url, pace, bar: &bar, results: &mut results, out: BTreeSet::new() };
        let mut rows = bench.open().await?;
        measure::uncontended::run(&mut bench, &mut rows).await?;
        bar.inc(1);
        measure::round_trip::run(&mut bench).await?;
        bar.inc(1);
        measure::contended::run(&mut bench, &mut rows).await?;
        bar.inc(1);
        measure::hand_over::run(&mut bench, &mut rows).await?;
        bar.inc(1);
        measure::requests::run(&mut bench, &mut rows).await?;
        bar.inc(1);
    }
    bar.set_message("held names, on all servers at once");
    measure::held::run(backends, &pace, &mut results).await?;
    bar.inc(1);
    if let Some(distlock) = distlock {
        bar.set_message("start-up of the command line");
        measure::start_up::run(distlock, &pace, &mut results)?;
    }
    bar.inc(1);
    if let Some(cycles) = cycles {
        bar.set_message("instructions under valgrind");
        measure::instructions::run(cycles, &pace, &mut results);
    }
    bar.finish_and_clear();
    Ok(results)
}
