//! Requests that reach the server for each grant, by the number of waiters.

use conformance_tests::{Stop, ensure};

use super::{Bench, Rows, fresh};
use crate::clock::now;
use crate::order::{Mode, Order};
use crate::pace::HOLD;
use crate::program::Processes;
use crate::results::Measure;
use crate::rows::Row;
use crate::tally::Tally;
use crate::workers::Runner;

pub async fn run(bench: &mut Bench<'_>, rows: &mut Rows) -> Result<(), Stop> {
    let (backend, pace) = (bench.backend, bench.pace);
    if !backend.counts() {
        return Ok(());
    }
    for waiters in pace.waiters {
        // The home of our keepers makes no difference to the server.
        for (row, runner) in rows.iter_mut().filter(|(row, _)| row.waits(backend) && *row != Row::OwnThread) {
            if !bench.has(*row) {
                continue;
            }
            bench.say("requests with waiters", *row, *waiters);
            match per_grant(bench, runner.as_mut(), *waiters).await {
                Ok(count) => bench.results.add((backend, Measure::Requests, *row, *waiters), &[("requests", count)]),
                Err(stop) => bench.leave_out(*row, stop)?,
            }
        }
    }
    for count in pace.processes {
        bench.say("requests with processes", Row::Ours, *count);
        let mut crowd = Processes::start(Row::Ours, backend, bench.url, *count).await?;
        let requests = per_grant(bench, &mut crowd, *count).await?;
        bench.results.add((backend, Measure::RequestsProcesses, Row::Ours, *count), &[("requests", requests)]);
    }
    Ok(())
}

/// Counted in the middle of a run, where neither the first requests nor those that give up at the end weigh.
async fn per_grant(bench: &Bench<'_>, runner: &mut dyn Runner, workers: usize) -> Result<f64, Stop> {
    let span = bench.pace.requests;
    let order = Order { mode: Mode::Together, name: fresh("counted"), workers, span, hold: HOLD };
    let counted = async {
        tokio::time::sleep(span / 4).await;
        let tally = Tally::start(bench.url).await?;
        let start = now();
        tokio::time::sleep(span / 2).await;
        let requests = tally.stop().await?;
        Ok::<_, Stop>((requests, start..now()))
    };
    let (grants, counted) = tokio::join!(runner.run(&order), counted);
    let (requests, window) = counted?;
    let grants = grants?.0.iter().flatten().filter(|grant| window.contains(&grant.1)).count();
    ensure!(grants > 0, "nobody got the lock");
    Ok(requests as f64 / grants as f64)
}
