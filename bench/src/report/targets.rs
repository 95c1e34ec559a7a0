//! The targets, and what was measured of each.

use super::tables::{number, span};
use crate::results::{Measure, Point, Results};
use crate::rows::{Backend, Row};
use crate::stats::{Spread, median};

const NETWORKED: [Backend; 4] = [Backend::Redis, Backend::Mysql, Backend::Zk, Backend::Etcd];
/// What all contended targets speak of.
const WAITERS: usize = 16;

/// Which side of the bound is good.
#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// The lines of the table, as far as there are figures for them.
struct Targets<'a> {
    results: &'a Results,
    lines: Vec<Vec<String>>,
}

/// Each target with its measured value, and met or short by how much.
pub fn table_of(results: &Results) -> Vec<Vec<String>> {
    let mut targets = Targets { results, lines: Vec::new() };
    targets.floors();
    targets.peers();
    targets.contended();
    targets.fairness();
    targets.hand_overs();
    targets.requests();
    targets.held();
    targets.start_up();
    targets.lines
}

/// The same in Markdown.
pub fn table(results: &Results) -> String {
    super::tables::table(&["", "target", "measured", ""].map(str::to_owned), &table_of(results))
}

impl Targets<'_> {
    fn judge(&mut self, what: String, bound: Bound, unit: impl Fn(f64) -> String, value: Option<f64>) {
        let Some(value) = value.filter(|value| value.is_finite()) else { return };
        let (good, words, short) = match bound {
            Bound::AtLeast(least) => (value >= least, format!("at least {}", unit(least)), least / value),
            Bound::AtMost(most) => (value <= most, format!("at most {}", unit(most)), value / most),
        };
        let verdict = if !good && !short.is_finite() {
            "**short**".to_owned()
        } else if good {
            "met".to_owned()
        } else {
            format!("**short** by {} x", number(short))
        };
        self.lines.push(vec![what, words, unit(value), verdict]);
    }

    fn point(&self, backend: Backend, measure: Measure, row: Row, size: usize) -> Option<&Point> {
        self.results.find(backend, measure, row, size)
    }

    /// The median of the ratios of two rows, round by round.
    fn ratio(&self, backend: Backend, measure: Measure, (a, b): (Row, Row), size: usize) -> Option<f64> {
        let (a, b) = (self.point(backend, measure, a, size)?, self.point(backend, measure, b, size)?);
        Spread::of_ratios(a.rounds("rate"), b.rounds("rate")).map(|ratios| ratios.median)
    }

    fn floors(&mut self) {
        for backend in NETWORKED {
            let own = if backend == Backend::Redis { [0.75, 0.95, 0.8] } else { [0.95; 3] };
            for (row, parts) in [(Row::Ours, [0.9, 0.9, 0.85]), (Row::OwnThread, own)] {
                for (names, part) in [1, 16, 128].into_iter().zip(parts) {
                    let what = format!("{}, {}, {names} names, part of the raw floor", backend.label(), row.label());
                    let ratio = self.ratio(backend, Measure::Uncontended, (row, Row::Floor), names);
                    self.judge(what, Bound::AtLeast(part), |value| format!("{value:.2}"), ratio);
                }
            }
        }
    }

    fn peers(&mut self) {
        let peers = [
            (Backend::Redis, Row::Rslock, 1.0),
            (Backend::Redis, Row::RedisPy, 3.0),
            (Backend::Zk, Row::Recipe, 1.5),
            (Backend::Zk, Row::Curator, 1.5),
            (Backend::Etcd, Row::LockService, 1.6),
        ];
        for (backend, peer, times) in peers {
            for names in [1, 16] {
                let what = format!("{}, {names} names, against {}", backend.label(), peer.label());
                let ratio = self.ratio(backend, Measure::Uncontended, (Row::Ours, peer), names);
                self.judge(what, Bound::AtLeast(times), |value| format!("{value:.2} x"), ratio);
            }
        }
    }

    fn contended(&mut self) {
        for backend in [Backend::Sqlite, Backend::Redis, Backend::Zk, Backend::Etcd] {
            let Some(ping) = self.ping(backend) else { continue };
            let ideal = 1e6 / (1e3 + 2.0 * ping);
            for (measure, place) in [(Measure::Contended, "one process"), (Measure::ContendedProcesses, "16 processes")]
            {
                let rate = self.point(backend, measure, Row::Ours, WAITERS).and_then(|point| point.median("rate"));
                let what = format!(
                    "{}, 16 waiters in {place}, grants/s against one per hold and two round trips ({})",
                    backend.label(),
                    number(ideal)
                );
                self.judge(what, Bound::AtLeast(0.85), |value| format!("{value:.2}"), rate.map(|rate| rate / ideal));
            }
        }
        let peers =
            [(Backend::Redis, Row::PythonRedisLock), (Backend::Zk, Row::Curator), (Backend::Mysql, Row::GetLock)];
        for (backend, peer) in peers {
            let what = format!("{}, 16 waiters in one process, grants/s against {}", backend.label(), peer.label());
            let ratio = self.ratio(backend, Measure::Contended, (Row::Ours, peer), WAITERS);
            self.judge(what, Bound::AtLeast(1.0), |value| format!("{value:.2} x"), ratio);
        }
    }

    fn fairness(&mut self) {
        for backend in Backend::ALL {
            let is_fifo = !matches!(backend, Backend::Sqlite | Backend::Mysql);
            for (measure, place) in [(Measure::Contended, "one process"), (Measure::ContendedProcesses, "16 processes")]
            {
                let Some(point) = self.point(backend, measure, Row::Ours, WAITERS) else { continue };
                let pairs = point.rounds("most").iter().zip(point.rounds("least"));
                // Who was never served makes it as unfair as can be.
                let ratios: Vec<_> = pairs.map(|(most, least)| most / least.max(0.1)).collect();
                let what = format!("{}, 16 waiters in {place}, most against least served", backend.label());
                let bound = Bound::AtMost(if is_fifo { 1.2 } else { 2.0 });
                self.judge(what, bound, |value| format!("{value:.2}"), (!ratios.is_empty()).then(|| median(&ratios)));
            }
        }
    }

    fn hand_overs(&mut self) {
        for backend in Backend::ALL {
            let Some(ping) = self.ping(backend) else { continue };
            for (figure, trips, polled) in [("p50", 2.0, 50e3), ("p99", 5.0, 90e3)] {
                let micros =
                    self.point(backend, Measure::HandOver, Row::Ours, 2).and_then(|point| point.median(figure));
                let what = format!("{}, hand-over between clients, {figure}", backend.label());
                if backend == Backend::Mysql {
                    self.judge(what, Bound::AtMost(polled), span, micros);
                } else {
                    let unit = |trips: f64| format!("{} round trips", number(trips));
                    self.judge(what, Bound::AtMost(trips), unit, micros.map(|micros| micros / ping));
                }
            }
        }
    }

    fn requests(&mut self) {
        for backend in NETWORKED {
            for (measure, place) in
                [(Measure::Requests, "in one process"), (Measure::RequestsProcesses, "in as many processes")]
            {
                let points = self.results.of(backend, measure).filter(|point| point.row == Row::Ours);
                let each: Vec<_> = points.filter_map(|point| point.median("requests")).collect();
                let Some(all) = Spread::of(&each) else { continue };
                let what = format!("{}, requests a grant, waiters {place}, the most of all numbers", backend.label());
                self.judge(what, Bound::AtMost(6.0), number, Some(all.most));
                let what = format!("{}, requests a grant, waiters {place}, most against least", backend.label());
                // Constant, but for what a short run counts at its ends.
                self.judge(what, Bound::AtMost(1.5), |value| format!("{value:.2} x"), Some(all.most / all.least));
            }
        }
    }

    fn held(&mut self) {
        let Some(most) = self.results.points.iter().filter(|p| p.measure == Measure::Held).map(|p| p.size).max() else {
            return;
        };
        for backend in NETWORKED {
            let Some(point) = self.point(backend, Measure::Held, Row::Ours, most) else { continue };
            let (requests, memory) = (point.median("requests"), point.median("memory"));
            let what = format!("{}, {} held names, lost meanwhile", backend.label(), number(most as f64));
            self.judge(what, Bound::AtMost(0.0), number, point.median("lost"));
            let each = |value: Option<f64>| value.map(|value| value / most as f64);
            if matches!(backend, Backend::Redis | Backend::Mysql) {
                let what =
                    format!("{}, {} held names, requests a name and second", backend.label(), number(most as f64));
                self.judge(what, Bound::AtMost(0.01), |value| format!("{value:.4}"), each(requests));
            } else {
                let what = format!("{}, {} held names, requests a second in all", backend.label(), number(most as f64));
                self.judge(what, Bound::AtMost(10.0), number, requests);
            }
            let what = format!("{}, {} held names, memory a name", backend.label(), number(most as f64));
            self.judge(what, Bound::AtMost(2_000.0), |bytes| format!("{} bytes", number(bytes)), each(memory));
        }
    }

    fn start_up(&mut self) {
        let millis = self.results.alone.get("distlock run on SQLite").map(|values| median(values));
        self.judge(
            "`distlock run` on SQLite with `true`".into(),
            Bound::AtMost(15.0),
            |ms| format!("{} ms", number(ms)),
            millis,
        );
    }

    fn ping(&self, backend: Backend) -> Option<f64> {
        self.point(backend, Measure::RoundTrip, Row::Floor, 1)?.median("p50")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_met_or_short() {
        let mut results = Results::default();
        for (row, rate) in [(Row::Ours, 91.0), (Row::OwnThread, 60.0), (Row::Floor, 100.0), (Row::Rslock, 70.0)] {
            results.add((Backend::Redis, Measure::Uncontended, row, 1), &[("rate", rate)]);
        }
        let text = table(&results);
        assert!(
            text.contains("user's runtime, 1 names, part of the raw floor | at least 0.90 | 0.91 | met |"),
            "{text}"
        );
        assert!(
            text.contains("own thread, 1 names, part of the raw floor | at least 0.75 | 0.60 | **short** by 1.25 x |")
        );
        assert!(text.contains("against rslock | at least 1.00 x | 1.30 x | met |"), "{text}");
        assert!(!text.contains("16 names"), "what was not measured is no line: {text}");
    }

    #[test]
    fn who_was_never_served_is_not_fair() {
        let mut results = Results::default();
        let key = (Backend::Redis, Measure::Contended, Row::Ours, WAITERS);
        results.add(key, &[("rate", 500.0), ("least", 0.0), ("most", 50.0)]);
        assert!(table(&results).contains("most against least served | at most 1.20 | 500.00 | **short**"));
    }
}
