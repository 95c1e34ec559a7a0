//! How far the sale is: a bar on a terminal, a line now and then elsewhere.

use std::sync::atomic::{AtomicUsize, Ordering};

use indicatif::{ProgressBar, ProgressStyle};

use crate::buyer::{Outcome, Visit};

/// Counts buyers who have left.
pub(crate) struct Progress {
    bar: ProgressBar,
    buyers: usize,
    stock: usize,
    served: AtomicUsize,
    sold: AtomicUsize,
}

impl Progress {
    pub(crate) fn new(buyers: usize, stock: usize) -> Self {
        let bar = ProgressBar::new(buyers as u64);
        if let Ok(style) = ProgressStyle::with_template("{elapsed:>4} [{bar:40}] {pos} of {len} buyers served, {msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        Self { bar, buyers, stock, served: AtomicUsize::new(0), sold: AtomicUsize::new(0) }
    }

    pub(crate) fn served(&self, visit: &Visit) {
        let bought = usize::from(matches!(visit.outcome, Outcome::Bought(_)));
        let sold = self.sold.fetch_add(bought, Ordering::Relaxed) + bought;
        let served = self.served.fetch_add(1, Ordering::Relaxed) + 1;
        let text = format!("{sold} of {} sold", self.stock);
        // The bar hides itself where stderr is no terminal.
        if self.bar.is_hidden() {
            if served.is_multiple_of(self.buyers.div_ceil(5)) {
                eprintln!("{served} of {} buyers served, {text}", self.buyers);
            }
        } else {
            self.bar.set_message(text);
            self.bar.inc(1);
        }
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
