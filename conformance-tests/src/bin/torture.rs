//! Tortures a lock backend, and proves from the histories of all who used it that it kept the contract.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use conformance_tests::Stop;
use conformance_tests::torture::{FLAG, Ground, Torture, obey};

/// A lock backend under torture: workers take, hold, renew, release, give up and die, while faults hit them, their lines and the server.
#[derive(Parser)]
#[command(after_help = "Examples:
  torture redis: --minutes 2             a Redis server of its own, for two minutes
  torture zk: --members 3 --seed 7       an ensemble of three, whose leader is killed
  torture memory: --mutant DoubleGrant   a backend that is broken on purpose
  torture mutants --seconds 60           all of those, each for 60 s at the most

Exit codes: 0 clean, 1 a promise was broken, 64 usage, 69 it could not be carried out.")]
struct Arguments {
    /// memory:, sqlite:, redis:, mysql:, zk: or etcd: for a server of the run's own; or the URL of a server; or 'mutants'.
    url: String,
    /// How many minutes faults are made.
    #[arg(long)]
    minutes: Option<u64>,
    /// How many seconds, if not minutes; a minute by default.
    #[arg(long, conflicts_with = "minutes")]
    seconds: Option<u64>,
    /// Which faults come when.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many workers.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=64))]
    workers: u64,
    /// How many names they fight for.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=64))]
    names: u64,
    /// Where histories, verdict and picture go. Without it a folder is made if a promise was broken.
    #[arg(long)]
    report: Option<PathBuf>,
    /// How many members the server of its own has (zk:, etcd:).
    #[arg(long, default_value_t = 1)]
    members: usize,
    /// The server at the URL may be tortured, and whoever uses it.
    #[arg(long)]
    yes_this_server: bool,
    /// With memory:, the broken variant of that name.
    #[cfg(feature = "mutants")]
    #[arg(long)]
    mutant: Option<String>,
}

const USAGE: u8 = 64;
const UNAVAILABLE: u8 = 69;

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|first| first == FLAG) {
        return obey().unwrap_or_else(|stop| {
            eprintln!("torture: a worker failed: {stop:?}");
            ExitCode::FAILURE
        });
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build();
    let done = runtime.map_err(Stop::from).and_then(|runtime| runtime.block_on(command(arguments)));
    done.unwrap_or_else(|stop| {
        eprintln!("torture: it could not be carried out: {stop:?}");
        ExitCode::from(UNAVAILABLE)
    })
}

async fn command(arguments: Arguments) -> Result<ExitCode, Stop> {
    let seconds = arguments.minutes.map(|minutes| minutes * 60).or(arguments.seconds);
    let torture = Torture {
        span: Duration::from_secs(seconds.unwrap_or(60)),
        seed: arguments.seed,
        workers: usize::try_from(arguments.workers)?,
        names: usize::try_from(arguments.names)?,
        report: arguments.report,
        ..Torture::default()
    };
    #[cfg(feature = "mutants")]
    if arguments.url == "mutants" {
        return mutants(Duration::from_secs(seconds.unwrap_or(120)), arguments.seed).await;
    }
    if let Err(refused) = Ground::check(&arguments.url, arguments.members, arguments.yes_this_server) {
        return Ok(usage(&refused.0));
    }
    #[cfg(feature = "mutants")]
    let ground = match arguments.mutant {
        None => Ground::open(&arguments.url, arguments.members).await?,
        Some(_) if arguments.url != "memory:" => return Ok(usage("--mutant is for memory:")),
        Some(name) => match conformance_tests::torture::mutants::ground(&name).await? {
            Some(ground) => ground,
            None => return Ok(usage(&format!("there is no mutant '{name}'; 'torture mutants' lists them"))),
        },
    };
    #[cfg(not(feature = "mutants"))]
    let ground = Ground::open(&arguments.url, arguments.members).await?;
    let verdict = torture.run(ground).await?;
    println!("{verdict}");
    Ok(if verdict.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(feature = "mutants")]
async fn mutants(limit: Duration, seed: u64) -> Result<ExitCode, Stop> {
    use conformance_tests::torture::mutants::{Hunt, hunt_all};
    use lock_core::memory::Fault;
    let hunts = hunt_all(Fault::ALL, limit, seed, |hunt| eprintln!("{hunt}")).await?;
    println!("| mutant | dies after | by | what it shows |\n|---|---|---|---|");
    for hunt in &hunts {
        println!("{hunt}");
    }
    let failed = hunts.iter().filter(|hunt| !hunt.is_as_expected()).count();
    println!(
        "\n{} of {} died; {failed} not as expected",
        hunts.iter().filter(|hunt| hunt.has_died()).count(),
        hunts.len()
    );
    Ok(if hunts.iter().all(Hunt::is_as_expected) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn usage(what: &str) -> ExitCode {
    eprintln!("torture: {what}\nFor more, try '--help'.");
    ExitCode::from(USAGE)
}
