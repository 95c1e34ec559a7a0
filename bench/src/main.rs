//! Uncontended cycles of acquire and release through `LockManager`, beside the least two commands that the same driver could send.
//!
//! Every row runs several times, interleaved with the others, and is reported as a median and as a ratio to the floor of the same
//! round, so that a machine whose speed drifts does not decide.

mod floor;
mod ours;
mod server;

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;

/// Cycles of acquire and release per second on Redis, ours beside the raw floor of the same driver.
#[derive(Parser)]
struct Arguments {
    /// How many rounds of all rows.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// How long one row runs in one round, in milliseconds.
    #[arg(long, default_value_t = 700)]
    millis: u64,
    /// How many names at once, each with a task of its own.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 128])]
    names: Vec<usize>,
    /// Only these rows of `floor`, `own` (thread) and `lent` (runtime), for a profiler.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Fewer and shorter rounds.
    #[arg(long)]
    quick: bool,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let mut arguments = Arguments::parse();
    if arguments.quick {
        (arguments.rounds, arguments.millis) = (3, 300);
    }
    // What `#[tokio::main]` makes: a worker for each processor.
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(measure(&arguments))
}

async fn measure(arguments: &Arguments) -> Result<(), Failure> {
    let server = server::Redis::start()?;
    let span = Duration::from_millis(arguments.millis);
    let floor = Arc::new(floor::Floor::connect(server.url()).await?);
    let own_thread = Arc::new(ours::Ours::connect(server.url(), None).await?);
    let lent = Arc::new(ours::Ours::connect(server.url(), Some(tokio::runtime::Handle::current())).await?);

    let wanted = |row: &str| arguments.only.is_empty() || arguments.only.iter().any(|only| only == row);
    let bar = indicatif::ProgressBar::new((arguments.rounds * arguments.names.len()) as u64);
    let mut rows: Vec<Row> = arguments.names.iter().map(|names| Row { names: *names, ..Row::default() }).collect();
    for _ in 0..arguments.rounds {
        for row in &mut rows {
            if wanted("floor") {
                row.floor.push(rate(span, row.names, &floor).await?);
            }
            if wanted("own") {
                row.own.push(rate(span, row.names, &own_thread).await?);
            }
            if wanted("lent") {
                row.lent.push(rate(span, row.names, &lent).await?);
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    println!("| names | floor, cycles/s | own thread | ratio (min..max) | user's runtime | ratio (min..max) |");
    println!("|---|---|---|---|---|---|");
    for row in &rows {
        println!(
            "| {} | {:.0} | {:.0} | {} | {:.0} | {} |",
            row.names,
            median(&row.floor),
            median(&row.own),
            ratios(&row.own, &row.floor),
            median(&row.lent),
            ratios(&row.lent, &row.floor),
        );
    }
    Ok(())
}

#[derive(Default)]
struct Row {
    names: usize,
    floor: Vec<f64>,
    own: Vec<f64>,
    lent: Vec<f64>,
}

/// Cycles per second of as many tasks as names, each on a name of its own.
async fn rate<C: Cycle>(span: Duration, names: usize, cycle: &Arc<C>) -> Result<f64, Failure> {
    let start = Instant::now();
    let mut workers = tokio::task::JoinSet::new();
    for n in 0..names {
        let cycle = Arc::clone(cycle);
        workers.spawn(async move {
            let mut done = 0u64;
            while start.elapsed() < span {
                cycle.run(n).await?;
                done += 1;
            }
            Ok::<_, Failure>(done)
        });
    }
    let mut total = 0;
    while let Some(done) = workers.join_next().await {
        total += done??;
    }
    Ok(total as f64 / start.elapsed().as_secs_f64())
}

/// One acquisition and one release of the `n`-th name.
trait Cycle: Send + Sync + 'static {
    fn run(&self, n: usize) -> impl Future<Output = Result<(), Failure>> + Send;
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn ratios(ours: &[f64], floor: &[f64]) -> String {
    let ratios: Vec<f64> = ours.iter().zip(floor).map(|(a, b)| a / b).collect();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    format!("{:.2} ({least:.2}..{most:.2})", median(&ratios))
}
