//! What is shown while it runs.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often a line is written where there is no terminal.
const LINE: Duration = Duration::from_secs(5);

/// A bar on a terminal, else a line now and then; both on standard error.
#[derive(Debug)]
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    begun: Instant,
    said: Instant,
    silent: bool,
}

impl Progress {
    pub(super) fn begin(span: Duration, silent: bool) -> Self {
        let bar = (!silent && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(Some(span.as_secs().max(1)), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} {wide_bar} {len} s  {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self { bar, begun: Instant::now(), said: Instant::now(), silent }
    }

    /// Shows where it stands.
    pub(super) fn show(&mut self, grants: u64, faults: usize, refused: usize, what: &str) {
        let message = format!("{grants} grants, {faults} faults, {refused} writes refused; {what}");
        match &self.bar {
            Some(bar) => {
                bar.set_position(self.begun.elapsed().as_secs());
                bar.set_message(message);
            }
            None if !self.silent && self.said.elapsed() >= LINE => {
                self.said = Instant::now();
                eprintln!("{:>4} s  {message}", self.begun.elapsed().as_secs());
            }
            None => {}
        }
    }

    pub(super) fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
