//! The measures, one file each. Each adds to the results.

pub mod contended;
pub mod hand_over;
pub mod held;
pub mod instructions;
pub mod requests;
pub mod round_trip;
pub mod start_up;
pub mod uncontended;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use conformance_tests::Stop;
use indicatif::ProgressBar;

use crate::pace::Pace;
use crate::results::Results;
use crate::rows::{Backend, Row};
use crate::workers::Runner;

/// The rows of one backend, open.
pub type Rows = Vec<(Row, Box<dyn Runner>)>;

/// One backend's run.
pub struct Bench<'a> {
    pub backend: Backend,
    pub url: &'a str,
    pub pace: Pace,
    pub bar: &'a ProgressBar,
    pub results: &'a mut Results,
    /// Peers that failed, so that none of them is waited for twice.
    pub out: BTreeSet<Row>,
}

impl Bench<'_> {
    /// Opens all rows, with as many clients each as a hand-over takes; what cannot be opened is left out with its reason, unless it is ours.
    pub async fn open(&mut self) -> Result<Rows, Stop> {
        let mut opened = Vec::new();
        for row in self.backend.rows().iter().copied() {
            self.bar.set_message(format!("{}: starting {}", self.backend.label(), row.label()));
            match row.open(self.backend, self.url, 2).await {
                Ok(runner) => opened.push((row, runner)),
                Err(stop) => self.leave_out(row, stop)?,
            }
        }
        Ok(opened)
    }

    /// Names a peer that cannot be measured. Ours must be.
    pub fn leave_out(&mut self, row: Row, stop: Stop) -> Result<(), Stop> {
        if matches!(row, Row::Ours | Row::OwnThread | Row::Floor) {
            return Err(format!("{} on {}: {stop:?}", row.label(), self.backend.label()).into());
        }
        self.out.insert(row);
        let entry = (format!("{} ({})", row.label(), self.backend.label()), format!("{stop:?}"));
        if !self.results.left_out.contains(&entry) {
            self.results.left_out.push(entry);
        }
        Ok(())
    }

    /// Whether a row still takes part.
    pub fn has(&self, row: Row) -> bool {
        !self.out.contains(&row)
    }

    pub fn say(&self, what: &str, row: Row, size: usize) {
        self.bar.set_message(format!("{}: {what}, {size}, {}", self.backend.label(), row.label()));
    }
}

/// A name that was never used before, so that nothing of an earlier round is in the way.
pub fn fresh(what: &str) -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    format!("{what}-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}
