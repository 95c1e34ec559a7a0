//! Tables in Markdown, one for each measure.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::results::{Measure, Point, Results};
use crate::rows::{Backend, Row};
use crate::stats::Spread;

/// A table from its head and its cells.
pub fn table(head: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut text = line(head) + &line(&vec!["---".to_owned(); head.len()]);
    rows.iter().for_each(|row| text.push_str(&line(row)));
    text
}

/// Three digits that count, and never an exponent.
pub fn number(value: f64) -> String {
    let size = value.abs();
    let decimals = match size {
        _ if size >= 100.0 || size == 0.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        _ => 3,
    };
    let plain = format!("{value:.decimals$}");
    let (whole, rest) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    let digits = whole.trim_start_matches('-').len();
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        let left = whole.len() - at;
        if at > whole.len() - digits && left.is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

/// Microseconds as milliseconds where that reads better.
pub fn span(micros: f64) -> String {
    if micros < 1_000.0 { format!("{} µs", number(micros)) } else { format!("{} ms", number(micros / 1e3)) }
}

/// A median with what was least and most.
fn spread(spread: Option<Spread>) -> String {
    match spread {
        Some(Spread { median, least, most }) if least == most => number(median),
        Some(Spread { median, least, most }) => format!("{} ({}..{})", number(median), number(least), number(most)),
        None => "-".into(),
    }
}

fn sizes(results: &Results, backend: Backend, measure: Measure) -> BTreeSet<usize> {
    results.of(backend, measure).map(|point| point.size).collect()
}

/// One table for each backend: a line for each row, a column for each size.
fn each_backend(
    results: &Results,
    measure: Measure,
    what: &str,
    cell: impl Fn(Backend, Row, usize, &Point) -> String,
) -> String {
    let mut text = String::new();
    for backend in results.backends() {
        let sizes = sizes(results, backend, measure);
        if sizes.is_empty() {
            continue;
        }
        let head: Vec<_> =
            [backend.label().to_owned()].into_iter().chain(sizes.iter().map(|size| format!("{size} {what}"))).collect();
        let mut lines = Vec::new();
        for row in backend.rows() {
            let points: Vec<_> = sizes.iter().map(|size| results.find(backend, measure, *row, *size)).collect();
            if points.iter().all(Option::is_none) {
                continue;
            }
            let cells = sizes.iter().zip(points).map(|(size, point)| {
                point
                    .filter(|point| !point.figures.is_empty())
                    .map_or("-".into(), |point| cell(backend, *row, *size, point))
            });
            lines.push([row.label().to_owned()].into_iter().chain(cells).collect());
        }
        let _ = writeln!(text, "{}", table(&head, &lines));
    }
    text
}

pub fn uncontended(results: &Results) -> String {
    each_backend(
        results,
        Measure::Uncontended,
        "names: cycles/s, part of the floor, p50 / p99",
        |backend, row, size, point| {
            let floor = results.find(backend, Measure::Uncontended, Row::Floor, size).filter(|_| row != Row::Floor);
            let part = floor.and_then(|floor| Spread::of_ratios(point.rounds("rate"), floor.rounds("rate")));
            let part = part.map_or(String::new(), |part| {
                format!(", **{:.2}** ({:.2}..{:.2})", part.median, part.least, part.most)
            });
            let latency = [point.median("p50"), point.median("p99")].map(|micros| micros.map_or("-".into(), span));
            format!("{}{part}, {}", spread(point.spread("rate")), latency.join(" / "))
        },
    )
}

/// In one process or in many.
pub fn contended(results: &Results, measure: Measure, what: &str) -> String {
    each_backend(results, measure, &format!("{what}: grants/s, least..most served"), |_, _, _, point| {
        let served = [point.median("least"), point.median("most")].map(|count| count.map_or("-".into(), number));
        format!("{}, {}", spread(point.spread("rate")), served.join(".."))
    })
}

pub fn hand_over(results: &Results) -> String {
    let head =
        ["", "round trip", "p50", "in round trips", "p99", "in round trips", "hand-overs seen"].map(str::to_owned);
    let mut lines = Vec::new();
    for backend in results.backends() {
        let ping = results.find(backend, Measure::RoundTrip, Row::Floor, 1).and_then(|point| point.median("p50"));
        for row in backend.rows() {
            let Some(point) = results.find(backend, Measure::HandOver, *row, 2) else { continue };
            let mut line = vec![format!("{}, {}", backend.label(), row.label()), ping.map_or("-".into(), span)];
            for figure in ["p50", "p99"] {
                let micros = point.median(figure);
                line.push(micros.map_or("-".into(), span));
                line.push(micros.zip(ping).map_or("-".into(), |(micros, ping)| number(micros / ping)));
            }
            line.push(number(point.rounds("count").iter().sum()));
            lines.push(line);
        }
    }
    table(&head, &lines)
}

pub fn requests(results: &Results, measure: Measure, what: &str) -> String {
    each_backend(results, measure, what, |_, _, _, point| spread(point.spread("requests")))
}

pub fn held(results: &Results) -> String {
    let head =
        ["", "held names", "requests/s", "per name and second", "connections", "memory", "a name", "tasks", "lost"];
    let mut lines = Vec::new();
    for backend in results.backends() {
        for point in results.of(backend, Measure::Held) {
            let figure = |name: &str| point.median(name).unwrap_or(f64::NAN);
            let (names, kib) = (point.size as f64, figure("memory") / 1024.0);
            lines.push(vec![
                backend.label().to_owned(),
                number(names),
                number(figure("requests")),
                format!("{:.4}", figure("requests") / names),
                number(figure("connections")),
                format!("{} KiB", number(kib)),
                format!("{} KiB", number(kib / names)),
                number(figure("tasks")),
                number(figure("lost")),
            ]);
        }
    }
    table(&head.map(str::to_owned), &lines)
}

pub fn alone(results: &Results) -> String {
    let unit = |name: &str| if name.starts_with("instructions") { "a cycle" } else { "ms" };
    let lines: Vec<_> = results
        .alone
        .iter()
        .map(|(name, values)| vec![name.clone(), format!("{} {}", spread(Spread::of(values)), unit(name))])
        .collect();
    table(&["".to_owned(), "median (least..most)".to_owned()], &lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(number(1_234_567.8), "1,234,568");
        assert_eq!(number(999.6), "1,000");
        assert_eq!(
            (number(12.34).as_str(), number(1.234).as_str(), number(0.0123).as_str()),
            ("12.3", "1.23", "0.012")
        );
        assert_eq!((number(0.0), number(-1_234.0)), ("0".into(), "-1,234".into()));
        assert_eq!((span(999.0), span(1_500.0)), ("999 µs".into(), "1.50 ms".into()));
    }

    #[test]
    fn a_table_is_markdown() {
        let text = table(&["a".into(), "b".into()], &[vec!["1".into(), "2".into()]]);
        assert_eq!(text, "| a | b |\n| --- | --- |\n| 1 | 2 |\n");
    }

    #[test]
    fn a_row_is_compared_with_the_floor_of_its_rounds() {
        let mut results = Results::default();
        for (ours, floor) in [(80.0, 100.0), (45.0, 50.0), (170.0, 200.0)] {
            for (row, rate) in [(Row::Ours, ours), (Row::Floor, floor)] {
                let key = (Backend::Redis, Measure::Uncontended, row, 16);
                results.add(key, &[("rate", rate), ("p50", 10.0), ("p99", 2_000.0)]);
            }
        }
        let text = uncontended(&results);
        assert!(text.contains("| Redis | 16 names"), "{text}");
        assert!(
            text.contains("| ours, user's runtime | 80.0 (45.0..170), **0.85** (0.80..0.90), 10.0 µs / 2.00 ms |"),
            "{text}"
        );
        assert!(text.contains("| raw floor | 100 (50.0..200), 10.0 µs / 2.00 ms |"), "{text}");
        assert!(!text.contains("rslock"), "a row that was not measured has no line: {text}");
    }
}
