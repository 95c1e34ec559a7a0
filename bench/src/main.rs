//! Uncontended cycles of acquire and release through `LockManager`, beside the least two commands that the same driver could send.
//!
//! Every row runs several times, interleaved with the others, and is reported as a median and as a ratio to the floor of the same
//! round, so that a machine whose speed drifts does not decide.

mod floor;
mod ours;
mod server;

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
    /// Fewer and shorter rounds.
    #[arg(long)]
    quick: bool,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

const NAMES: [usize; 3] = [1, 16, 128];

fn main() -> Result<(), Failure> {
    let mut arguments = Arguments::parse();
    if arguments.quick {
        (arguments.rounds, arguments.millis) = (3, 300);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(&arguments))
}

async fn measure(arguments: &Arguments) -> Result<(), Failure> {
    let server = server::Redis::start()?;
    let span = Duration::from_millis(arguments.millis);
    let floor = floor::Floor::connect(server.url()).await?;
    let own_thread = ours::manager(server.url(), None).await?;
    let lent = ours::manager(server.url(), Some(tokio::runtime::Handle::current())).await?;

    let bar = indicatif::ProgressBar::new((arguments.rounds * NAMES.len()) as u64);
    let mut rows: Vec<Row> = NAMES.iter().map(|names| Row { names: *names, ..Row::default() }).collect();
    for _ in 0..arguments.rounds {
        for row in &mut rows {
            row.floor.push(rate(span, row.names, |n| floor.cycle(n)).await?);
            row.own.push(rate(span, row.names, |n| ours::cycle(&own_thread, n)).await?);
            row.lent.push(rate(span, row.names, |n| ours::cycle(&lent, n)).await?);
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
async fn rate<F, Fut>(span: Duration, names: usize, cycle: F) -> Result<f64, Failure>
where
    F: Fn(usize) -> Fut,
    Fut: Future<Output = Result<(), Failure>>,
{
    let start = Instant::now();
    let workers = (0..names).map(|n| {
        let cycle = &cycle;
        async move {
            let mut done = 0u64;
            while start.elapsed() < span {
                cycle(n).await?;
                done += 1;
            }
            Ok::<_, Failure>(done)
        }
    });
    let mut total = 0;
    for worker in join_all(workers).await {
        total += worker?;
    }
    Ok(total as f64 / start.elapsed().as_secs_f64())
}

/// Runs all on this task, as tasks of one runtime would.
async fn join_all<T>(futures: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut futures: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|cx| {
        let mut all = true;
        for (future, answer) in &mut futures {
            if answer.is_none() {
                match future.as_mut().poll(cx) {
                    std::task::Poll::Ready(value) => *answer = Some(value),
                    std::task::Poll::Pending => all = false,
                }
            }
        }
        if all { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    futures.into_iter().filter_map(|(_, answer)| answer).collect()
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn ratios(ours: &[f64], floor: &[f64]) -> String {
    let ratios: Vec<f64> = ours.iter().zip(floor).map(|(a, b)| a / b).collect();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    format!("{:.2} ({least:.2}..{most:.2})", median(&ratios))
}
