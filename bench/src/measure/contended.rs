//! Many want one name, in one process and in as many processes.

use conformance_tests::Stop;

use super::{Bench, Rows, fresh};
use crate::grants::Grants;
use crate::order::{Mode, Order};
use crate::pace::HOLD;
use crate::program::Processes;
use crate::results::Measure;
use crate::rows::Row;
use crate::workers::Runner;

/// Peers in more processes than that take longer to start than to measure.
const PEER_PROCESSES: usize = 16;

pub async fn run(bench: &mut Bench<'_>, rows: &mut Rows) -> Result<(), Stop> {
    let (backend, pace) = (bench.backend, bench.pace);
    for waiters in pace.waiters {
        for _ in 0..pace.contended.rounds {
            for (row, runner) in rows.iter_mut().filter(|(row, _)| row.waits(backend)) {
                if !bench.has(*row) {
                    continue;
                }
                bench.say("waiters of one process", *row, *waiters);
                let grants = together(runner.as_mut(), *waiters, pace.contended.span).await;
                note(bench, Measure::Contended, *row, *waiters, grants)?;
            }
        }
    }
    if !backend.is_shared() {
        return Ok(());
    }
    for count in pace.processes {
        let mut crowds = Vec::new();
        for row in backend.rows().iter().copied() {
            if !takes_part(row, bench, *count) {
                continue;
            }
            bench.say("starting processes", row, *count);
            match Processes::start(row, backend, bench.url, *count).await {
                Ok(crowd) => crowds.push((row, crowd)),
                Err(stop) => bench.leave_out(row, stop)?,
            }
        }
        for _ in 0..pace.contended.rounds {
            for (row, crowd) in &mut crowds {
                if !bench.has(*row) {
                    continue;
                }
                bench.say("waiters in processes", *row, *count);
                let grants = together(crowd, *count, pace.contended.span).await;
                note(bench, Measure::ContendedProcesses, *row, *count, grants)?;
            }
        }
    }
    Ok(())
}

/// Ours once, since a process with one worker has nobody else on its runtime.
fn takes_part(row: Row, bench: &Bench<'_>, count: usize) -> bool {
    let peers = count <= PEER_PROCESSES && row.is_light() && row.waits(bench.backend);
    match row {
        Row::Ours => true,
        Row::OwnThread => false,
        _ => peers && bench.has(row) && !(row.is_program() && bench.results.quick),
    }
}

async fn together(runner: &mut dyn Runner, workers: usize, span: std::time::Duration) -> Result<Grants, Stop> {
    runner.run(&Order { mode: Mode::Together, name: fresh("together"), workers, span, hold: HOLD }).await
}

fn note(
    bench: &mut Bench<'_>,
    measure: Measure,
    row: Row,
    size: usize,
    grants: Result<Grants, Stop>,
) -> Result<(), Stop> {
    let checked = grants.and_then(|grants| grants.hand_overs().map(|_| grants));
    match checked {
        Ok(grants) => {
            let (least, most) = grants.least_and_most();
            let figures = [("rate", grants.rate()), ("least", least as f64), ("most", most as f64)];
            bench.results.add((bench.backend, measure, row, size), &figures);
            Ok(())
        }
        Err(stop) => bench.leave_out(row, stop),
    }
}
