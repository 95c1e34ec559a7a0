//! Cycles of acquire and release, each worker on a name of its own.

use std::time::Duration;

use conformance_tests::Stop;

use super::{Bench, Rows, fresh};
use crate::order::{Mode, Order};
use crate::results::Measure;

/// Programs take part at few names and in few rounds: they are there for the order of magnitude.
const PROGRAM_NAMES: usize = 16;
const PROGRAM_ROUNDS: usize = 3;
const WARM_UP: Duration = Duration::from_millis(50);
/// A virtual machine compiles what it meets often.
const PROGRAM_WARM_UP: Duration = Duration::from_millis(300);

pub async fn run(bench: &mut Bench<'_>, rows: &mut Rows) -> Result<(), Stop> {
    let pace = bench.pace;
    let prefix = fresh("apart");
    let order = |workers, span| Order { mode: Mode::Apart, name: prefix.clone(), workers, span, hold: Duration::ZERO };
    for names in pace.names {
        for round in 0..=pace.uncontended.rounds {
            for (row, runner) in rows.iter_mut() {
                let has_enough = row.is_program() && (*names > PROGRAM_NAMES || round > PROGRAM_ROUNDS);
                if has_enough || !bench.has(*row) {
                    continue;
                }
                bench.say("uncontended names", *row, *names);
                // The first round makes what must be there: scripts, folders, connections.
                let span = match (round, row.is_program()) {
                    (0, true) => PROGRAM_WARM_UP,
                    (0, false) => WARM_UP,
                    _ => pace.uncontended.span,
                };
                match runner.run(&order(*names, span)).await {
                    Err(stop) => bench.leave_out(*row, stop)?,
                    Ok(_) if round == 0 => {}
                    Ok(grants) => bench.results.add(
                        (bench.backend, Measure::Uncontended, *row, *names),
                        &[
                            ("rate", grants.rate()),
                            ("p50", grants.cycle_micros(0.5)),
                            ("p99", grants.cycle_micros(0.99)),
                        ],
                    ),
                }
            }
        }
    }
    Ok(())
}
