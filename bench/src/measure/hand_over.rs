//! From the call of release to the return of acquire in the one that waits, between two clients that hand one name to each other.

use conformance_tests::Stop;

use super::{Bench, Rows, fresh};
use crate::order::{Mode, Order};
use crate::pace::IDLE_HOLD;
use crate::results::Measure;
use crate::stats::{curve, quantile};

pub async fn run(bench: &mut Bench<'_>, rows: &mut Rows) -> Result<(), Stop> {
    let (backend, share) = (bench.backend, bench.pace.hand_over);
    let mut rows: Vec<_> = rows.iter_mut().filter(|(row, _)| row.waits(backend)).collect();
    let mut all = vec![Vec::new(); rows.len()];
    for _ in 0..share.rounds {
        for ((row, runner), all) in rows.iter_mut().zip(&mut all) {
            if !bench.has(*row) {
                continue;
            }
            bench.say("hand-over between clients", *row, 2);
            let name = fresh("turns");
            let order = Order { mode: Mode::Turns, name, workers: 2, span: share.span, hold: IDLE_HOLD };
            match runner.run(&order).await.and_then(|grants| grants.hand_overs()) {
                Ok(spans) => {
                    let figures = [
                        ("p50", quantile(&spans, 0.5)),
                        ("p99", quantile(&spans, 0.99)),
                        ("count", spans.len() as f64),
                    ];
                    bench.results.add((backend, Measure::HandOver, *row, 2), &figures);
                    all.extend(spans);
                }
                Err(stop) => bench.leave_out(*row, stop)?,
            }
        }
    }
    for ((row, _), all) in rows.iter().zip(&all).filter(|(_, all)| !all.is_empty()) {
        bench.results.set_curve((backend, Measure::HandOver, *row, 2), curve(all));
    }
    Ok(())
}
