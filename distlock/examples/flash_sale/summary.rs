//! What came of the sale.

use std::time::{Duration, Instant};

use crate::buyer::{Outcome, Visit};
use crate::shop::Audit;

/// All that is known at the end.
pub(crate) struct Summary {
    pub(crate) visits: Vec<Visit>,
    /// One a product.
    pub(crate) audits: Vec<Audit>,
    pub(crate) stock: usize,
    pub(crate) start: Instant,
    pub(crate) took: Duration,
    /// Closed before the end: then less may have been sold.
    pub(crate) stopped: bool,
}

impl Summary {
    /// Prints it; whether the books are right.
    pub(crate) fn print(&self) -> bool {
        let faults = self.faults();
        let sold: usize = self.audits.iter().map(|audit| audit.sold).sum();
        let verdict = match &*faults {
            [] if self.stopped => "right as far as it went".to_owned(),
            [] => "exact".to_owned(),
            faults => format!("WRONG: {}", faults.join(", ")),
        };
        line("sold", format!("{sold} of {}: {verdict}", self.stock * self.audits.len()));
        let sales: Vec<_> = self.visits.iter().filter_map(bought).map(|at| at - self.start).collect();
        let last_sale = sales.iter().max().copied().unwrap_or_default();
        let (buyers, sales) = (pace(self.visits.len(), self.took), pace(sales.len(), last_sale));
        line("pace", format!("buyers: {buyers}; sales: {sales}"));
        let mut waits: Vec<_> =
            self.visits.iter().filter(|visit| was_served(visit)).map(|visit| visit.waited).collect();
        waits.sort();
        let wait = |percent| seconds(percentile(&waits, percent));
        line("wait", format!("p50 {}, p90 {}, p99 {}, max {}", wait(50), wait(90), wait(99), wait(100)));
        let gave_up: Vec<_> = self.visits.iter().filter_map(trouble).collect();
        let lost: usize = self.visits.iter().map(|visit| visit.lost).sum();
        let unconfirmed = self.visits.iter().filter(|visit| visit.unconfirmed).count();
        let gone = gave_up.len();
        line(
            "trouble",
            format!("{lost} locks lost before the write, {unconfirmed} releases unconfirmed, {gone} buyers gave up"),
        );
        if let Some(why) = gave_up.first() {
            line("", format!("the first gave up because of: {why}"));
        }
        faults.is_empty()
    }

    /// What is wrong with the books; nothing, if the lock did its work.
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (product, audit) in self.audits.iter().enumerate() {
            // Who bought in another process is in the book, too, so it may say more than was sold here.
            let buyers = (0..self.visits.len()).filter(|number| number % self.audits.len() == product).count();
            let least = if self.stopped { 0 } else { self.stock.min(buyers) };
            let mut fault = |count, what| {
                if count > 0 {
                    faults.push(format!("product {product}: {count} {what}"));
                }
            };
            fault(audit.lost, "sales written over");
            fault(audit.twice, "sales to somebody who had bought");
            fault(audit.unfenced, "sales with a token that had not risen");
            fault(audit.sold.saturating_sub(self.stock), "oversold");
            fault(least.saturating_sub(audit.sold), "not sold");
        }
        faults
    }
}

fn bought(visit: &Visit) -> Option<Instant> {
    match visit.outcome {
        Outcome::Bought(at) => Some(at),
        _ => None,
    }
}

fn was_served(visit: &Visit) -> bool {
    matches!(visit.outcome, Outcome::Bought(_) | Outcome::SoldOut)
}

fn trouble(visit: &Visit) -> Option<String> {
    match &visit.outcome {
        Outcome::GaveUp(error) => Some(error.to_string()),
        Outcome::Failed(error) => Some(error.to_string()),
        _ => None,
    }
}

/// The least value that so many percent do not exceed.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

fn pace(count: usize, span: Duration) -> String {
    let rate = if span.is_zero() { 0.0 } else { count as f64 / span.as_secs_f64() };
    format!("{count} in {}, {rate:.0}/s", seconds(span))
}

fn seconds(span: Duration) -> String {
    format!("{:.3} s", span.as_secs_f64())
}

fn line(title: &str, text: String) {
    println!("{title:<9} {text}");
}
