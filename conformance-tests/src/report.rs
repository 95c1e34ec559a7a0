//! The table of rules and backends.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::Path;

use lock_core::{Capabilities, Durability, Reach};

use crate::case::{self, Case};
use crate::rules::RULES;

const INTRODUCTION: &str = "Written by the conformance suite: how many of the cases that cite a rule of the contract ran and held, and why the others cannot \
    be brought about on a backend. Each backend runs in servers that the suite starts, with short timers where they have some.";

/// How a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It held.
    Proved,
    /// It did not.
    Broken,
}

/// What a backend declares, row by row.
type Declared = (&'static str, fn(&Capabilities) -> String);

const DECLARED: [Declared; 11] = [
    ("reach", |it| {
        let reach = match it.reach {
            Reach::Process => "one process",
            Reach::Machine => "one machine",
            Reach::Network => "all that reach the server",
        };
        reach.into()
    }),
    ("what an acknowledged lease survives", |it| {
        let durability = match it.durability {
            Durability::Quorum => "the loss of a minority of the servers",
            Durability::Single => "what one durable store survives",
            Durability::Volatile => "what the memory of one server survives",
            Durability::AsyncReplica => "a failover, but for the last moment",
            _ => "see its page",
        };
        durability.into()
    }),
    ("waiters in order of arrival, across processes", |it| yes(it.fifo)),
    ("a lock removed by hand is noticed", |it| {
        if it.pushes_loss { "within 1 s" } else { "at the next renewal" }.into()
    }),
    ("tokens go on rising after a loss of all data", |it| yes(it.fencing_survives_data_loss)),
    ("leases survive a restart of the server", |it| yes(it.leases_survive_restart)),
    ("a restart may add one TTL", |it| yes(it.restart_adds_ttl)),
    ("`list` works", |it| yes(it.lists)),
    ("least TTL that is not rounded up", |it| format!("{:?}", it.min_ttl)),
    ("greatest TTL", |it| match it.max_ttl.as_secs() {
        days @ 86_400.. => format!("{} days", days / 86_400),
        _ => format!("{:?}", it.max_ttl),
    }),
    ("an expiry comes later than the TTL by at most", |it| match it.expiry_grain.is_zero() {
        true => "nothing".into(),
        false => format!("{:?}", it.expiry_grain),
    }),
];

fn yes(it: bool) -> String {
    if it { "yes" } else { "no" }.into()
}

/// One cell for each rule and backend, and for each thing that backends declare.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// By backend, then by the first cell of the row.
    columns: BTreeMap<String, BTreeMap<String, String>>,
}

impl Report {
    /// The report of one run: what ran, what could not, by reason, and what the backend declares, where that was asked.
    pub fn new(
        backend: &str,
        verdicts: &[(&Case, Verdict)],
        absent: &BTreeMap<&str, Vec<&Case>>,
        declared: Option<&Capabilities>,
    ) -> Self {
        let cells = RULES.iter().map(|rule| {
            let cites = |case: &Case| case.rules.contains(&rule.id);
            let cited: Vec<_> = verdicts.iter().filter(|(case, _)| cites(case)).map(|(_, verdict)| *verdict).collect();
            let reason =
                absent.iter().find(|(_, cases)| cases.iter().any(|case| cites(case))).map(|(reason, _)| *reason);
            let all = case::all().filter(|case| cites(case)).count();
            (rule.id.to_owned(), cell(&cited, reason, all))
        });
        let declared = DECLARED.iter().filter_map(|(what, show)| declared.map(|it| ((*what).to_owned(), show(it))));
        Self { columns: BTreeMap::from([(backend.to_owned(), cells.chain(declared).collect())]) }
    }

    /// Reads a report that [`to_markdown`](Self::to_markdown) wrote; lines that are no part of its tables are passed over.
    pub fn parse(markdown: &str) -> Self {
        let mut rows = markdown.lines().filter_map(|line| {
            let cells = line.strip_prefix("| ")?.strip_suffix(" |")?;
            Some(cells.split(" | ").map(str::to_owned).collect::<Vec<_>>())
        });
        let mut report = Self::default();
        let Some(header) = rows.next() else { return report };
        let backends = &header[header.len().min(2)..];
        for row in rows {
            let cells = match &row[..] {
                [rule, _, cells @ ..] if RULES.iter().any(|known| known.id == rule) => cells,
                [what, cells @ ..] if DECLARED.iter().any(|known| known.0 == what) => cells,
                _ => continue,
            };
            for (backend, cell) in backends.iter().zip(cells) {
                report.columns.entry(backend.clone()).or_default().insert(row[0].clone(), cell.clone());
            }
        }
        report
    }

    /// The tables.
    pub fn to_markdown(&self) -> String {
        let backends: Vec<_> = self.columns.keys().map(String::as_str).collect();
        let mut text = format!("| rule | what it says | {} |\n", backends.join(" | "));
        let _ = writeln!(text, "|---|---|{}", "---|".repeat(backends.len()));
        for rule in RULES {
            let _ = writeln!(text, "| {} | {} | {} |", rule.id, rule.title, self.row(rule.id));
        }
        let _ = writeln!(text, "\n| what it declares | {} |", backends.join(" | "));
        let _ = writeln!(text, "|---|{}", "---|".repeat(backends.len()));
        for (what, _) in DECLARED {
            let _ = writeln!(text, "| {what} | {} |", self.row(what));
        }
        text
    }

    fn row(&self, first: &str) -> String {
        let cells = self.columns.values().map(|cells| cells.get(first).map_or("not run", String::as_str));
        cells.collect::<Vec<_>>().join(" | ")
    }

    /// Puts the columns of this run into the report at `path`, and keeps those of other backends.
    ///
    /// # Errors
    /// What reading or writing the file says.
    pub fn merge_into(&self, path: &Path) -> io::Result<()> {
        let mut merged = match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Self::default(),
            Err(e) => return Err(e),
        };
        merged.columns.extend(self.columns.clone());
        std::fs::write(path, format!("# Rules and backends\n\n{INTRODUCTION}\n\n{}", merged.to_markdown()))
    }
}

/// `all` is how many cases cite the rule; fewer have run when a filter was given, or when some do not apply.
fn cell(verdicts: &[Verdict], absent: Option<&str>, all: usize) -> String {
    let count = |wanted: Verdict| verdicts.iter().filter(|&&verdict| verdict == wanted).count();
    let proved = count(Verdict::Proved);
    let absent = absent.map(|reason| reason.replace('|', "/"));
    match (count(Verdict::Broken), proved, absent) {
        (broken @ 1.., _, _) => format!("**broken** ({broken} of {all})"),
        (0, 0, Some(reason)) => format!("n/a: {reason}"),
        (0, 0, None) => "not run".to_owned(),
        (0, _, Some(reason)) if proved < all => format!("proved ({proved} of {all}; {reason})"),
        (0, _, _) if proved < all => format!("proved ({proved} of {all}; others not run)"),
        (0, _, _) => format!("proved ({all})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_reads_itself_and_keeps_other_backends() {
        let case = case::all().next().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.md");
        let none = BTreeMap::new();
        let declared = Capabilities::new("memory");
        Report::new("memory", &[(case, Verdict::Proved)], &none, Some(&declared)).merge_into(&path).unwrap();
        Report::new("redis", &[(case, Verdict::Broken)], &none, None).merge_into(&path).unwrap();
        Report::new("redis", &[], &BTreeMap::from([("a|b", vec![case])]), None).merge_into(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("| rule | what it says | memory | redis |"), "{text}");
        assert!(text.contains("n/a: a/b |"), "{text}");
        assert!(text.contains("| greatest TTL | 365 days | not run |"), "{text}");
        assert!(text.ends_with(&Report::parse(&text).to_markdown()));
    }
}
