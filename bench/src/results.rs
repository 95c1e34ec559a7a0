//! What was measured, as it is written to JSON. Tables, plots and the page are made from this alone.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::rows::{Backend, Row};
use crate::stats::Spread;

/// What a point is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Size: names at once.
    Uncontended,
    /// Size: waiters in one process.
    Contended,
    /// Size: processes with a waiter each.
    ContendedProcesses,
    /// Size: clients that hand over to each other.
    HandOver,
    /// Size: waiters in one process.
    Requests,
    /// Size: processes with a waiter each.
    RequestsProcesses,
    /// Size: held names.
    Held,
    /// Size: 1.
    RoundTrip,
}

/// One row at one size: each figure's value in each round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    pub backend: Backend,
    pub measure: Measure,
    pub row: Row,
    pub size: usize,
    pub figures: BTreeMap<String, Vec<f64>>,
    /// The quantiles 0 to 100 of all rounds together, where the distribution is shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<f64>,
}

/// What is of the machine and not of a backend: figures by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    pub machine: Vec<(String, String)>,
    pub quick: bool,
    pub points: Vec<Point>,
    /// Start-up and instructions: name and values.
    pub alone: BTreeMap<String, Vec<f64>>,
    /// What was left out, and why.
    pub left_out: Vec<(String, String)>,
}

impl Results {
    /// Adds a round's figures to a point.
    pub fn add(&mut self, key: (Backend, Measure, Row, usize), figures: &[(&str, f64)]) {
        let point = self.entry(key);
        for (name, value) in figures {
            // Not a number cannot be written to JSON, and says nothing.
            if value.is_finite() {
                point.figures.entry((*name).to_owned()).or_default().push(*value);
            }
        }
    }

    pub fn set_curve(&mut self, key: (Backend, Measure, Row, usize), curve: Vec<f64>) {
        self.entry(key).curve = curve;
    }

    fn entry(&mut self, key @ (backend, measure, row, size): (Backend, Measure, Row, usize)) -> &mut Point {
        let at = self.points.iter().position(|point| point.key() == key).unwrap_or_else(|| {
            self.points.push(Point { backend, measure, row, size, figures: BTreeMap::new(), curve: Vec::new() });
            self.points.len() - 1
        });
        &mut self.points[at]
    }

    pub fn find(&self, backend: Backend, measure: Measure, row: Row, size: usize) -> Option<&Point> {
        self.points.iter().find(|point| point.key() == (backend, measure, row, size))
    }

    /// The points of one measure of one backend.
    pub fn of(&self, backend: Backend, measure: Measure) -> impl Iterator<Item = &Point> {
        self.points.iter().filter(move |point| point.backend == backend && point.measure == measure)
    }

    /// The backends that were measured, in the order of [`Backend::ALL`].
    pub fn backends(&self) -> Vec<Backend> {
        let has = |backend: &Backend| self.points.iter().any(|point| point.backend == *backend);
        Backend::ALL.into_iter().filter(has).collect()
    }
}

impl Point {
    fn key(&self) -> (Backend, Measure, Row, usize) {
        (self.backend, self.measure, self.row, self.size)
    }

    pub fn rounds(&self, figure: &str) -> &[f64] {
        self.figures.get(figure).map_or(&[], Vec::as_slice)
    }

    pub fn spread(&self, figure: &str) -> Option<Spread> {
        Spread::of(self.rounds(figure))
    }

    pub fn median(&self, figure: &str) -> Option<f64> {
        self.spread(figure).map(|spread| spread.median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_gather_in_one_point() {
        let key = (Backend::Redis, Measure::Uncontended, Row::Ours, 16);
        let mut results = Results::default();
        for rate in [3.0, 1.0, 2.0] {
            results.add(key, &[("rate", rate), ("nothing", f64::NAN)]);
        }
        results.set_curve(key, vec![1.0, 2.0]);
        let text = serde_json::to_string(&results).expect("all of it is text and numbers");
        let again: Results = serde_json::from_str(&text).expect("it was written just now");
        assert_eq!(again, results);
        let point = again.find(key.0, key.1, key.2, key.3).expect("it was added");
        assert_eq!((point.median("rate"), point.median("nothing")), (Some(2.0), None));
        assert_eq!(again.backends(), [Backend::Redis]);
    }
}
