//! The table of rules and backends.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::Path;

use crate::case::{self, Case};
use crate::rules::RULES;

/// How a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It held.
    Proved,
    /// It did not.
    Broken,
}

/// One cell for each rule and backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// By backend, then by rule.
    columns: BTreeMap<String, BTreeMap<String, String>>,
}

impl Report {
    /// The report of one run: what ran, and what could not, by reason.
    pub fn new(backend: &str, verdicts: &[(&Case, Verdict)], absent: &BTreeMap<&str, Vec<&Case>>) -> Self {
        let cells = RULES.iter().map(|rule| {
            let cites = |case: &Case| case.rules.contains(&rule.id);
            let cited: Vec<_> = verdicts.iter().filter(|(case, _)| cites(case)).map(|(_, verdict)| *verdict).collect();
            let reason =
                absent.iter().find(|(_, cases)| cases.iter().any(|case| cites(case))).map(|(reason, _)| *reason);
            let all = case::all().filter(|case| cites(case)).count();
            (rule.id.to_owned(), cell(&cited, reason, all))
        });
        Self { columns: BTreeMap::from([(backend.to_owned(), cells.collect())]) }
    }

    /// Reads a report that [`to_markdown`](Self::to_markdown) wrote; lines that are no part of its table are passed over.
    pub fn parse(markdown: &str) -> Self {
        let mut rows = markdown.lines().filter_map(|line| {
            let cells = line.strip_prefix("| ")?.strip_suffix(" |")?;
            Some(cells.split(" | ").map(str::to_owned).collect::<Vec<_>>())
        });
        let mut report = Self::default();
        let Some(header) = rows.next() else { return report };
        for row in rows.filter(|row| row.len() == header.len() && RULES.iter().any(|rule| rule.id == row[0])) {
            for (backend, cell) in header.iter().zip(&row).skip(2) {
                report.columns.entry(backend.clone()).or_default().insert(row[0].clone(), cell.clone());
            }
        }
        report
    }

    /// The table.
    pub fn to_markdown(&self) -> String {
        let backends: Vec<_> = self.columns.keys().map(String::as_str).collect();
        let mut text = format!("| rule | what it says | {} |\n", backends.join(" | "));
        let _ = writeln!(text, "|---|---|{}", "---|".repeat(backends.len()));
        for rule in RULES {
            let cells = self.columns.values().map(|cells| cells.get(rule.id).map_or("not run", String::as_str));
            let _ = writeln!(text, "| {} | {} | {} |", rule.id, rule.title, cells.collect::<Vec<_>>().join(" | "));
        }
        text
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
        std::fs::write(path, format!("# Conformance\n\n{}", merged.to_markdown()))
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
        Report::new("memory", &[(case, Verdict::Proved)], &none).merge_into(&path).unwrap();
        Report::new("redis", &[(case, Verdict::Broken)], &none).merge_into(&path).unwrap();
        Report::new("redis", &[], &BTreeMap::from([("a|b", vec![case])])).merge_into(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("| rule | what it says | memory | redis |"), "{text}");
        assert!(text.contains("n/a: a/b |"), "{text}");
        assert_eq!(Report::parse(&text).to_markdown(), text.trim_start_matches("# Conformance\n\n"));
    }
}
