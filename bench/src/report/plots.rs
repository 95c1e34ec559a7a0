//! Plots as SVG files.

use std::fs;
use std::path::Path;

use conformance_tests::Stop;
use plotters::prelude::*;

use super::tables::number;
use crate::results::{Measure, Results};
use crate::rows::{Backend, Row};

const SIZE: (u32, u32) = (880, 380);
/// The rest is for the names of the lines.
const CHART_WIDTH: u32 = 650;
const COLORS: [RGBColor; 8] = [
    RGBColor(0, 90, 181),
    RGBColor(90, 170, 230),
    RGBColor(120, 120, 120),
    RGBColor(220, 50, 32),
    RGBColor(230, 140, 20),
    RGBColor(20, 140, 80),
    RGBColor(140, 80, 170),
    RGBColor(110, 70, 30),
];

/// A file and what stands under it.
pub struct Plot {
    pub file: String,
    pub title: String,
    pub measure: Measure,
}

/// What a line shows.
struct Line {
    label: String,
    /// The same in all plots of a backend.
    color: usize,
    points: Vec<(f64, f64)>,
}

struct Axes {
    x: &'static str,
    y: &'static str,
    /// Whether the vertical axis is logarithmic, as the horizontal one always is.
    steep: bool,
}

/// Draws what the results have, into a folder.
pub fn draw(results: &Results, folder: &Path) -> Result<Vec<Plot>, Stop> {
    let mut plots = Vec::new();
    let mut put = |file: String, title: String, measure, axes: &Axes, lines: Vec<Line>| -> Result<(), Stop> {
        if lines.iter().any(|line| !line.points.is_empty()) {
            fs::write(folder.join(&file), svg(&title, axes, &lines)?)?;
            plots.push(Plot { file, title, measure });
        }
        Ok(())
    };
    for backend in results.backends() {
        let (label, name) = (backend.label(), backend.label().to_lowercase());
        let by_size = |measure, figure: &'static str| by_size(results, backend, measure, figure);
        let axes = |x, y| Axes { x, y, steep: false };
        put(
            format!("uncontended-{name}.svg"),
            format!("{label}: cycles of acquire and release per second"),
            Measure::Uncontended,
            &axes("names at once", "cycles/s"),
            by_size(Measure::Uncontended, "rate"),
        )?;
        put(
            format!("contended-{name}.svg"),
            format!("{label}: grants per second of one name, held for 1 ms each"),
            Measure::Contended,
            &axes("waiters in one process", "grants/s"),
            by_size(Measure::Contended, "rate"),
        )?;
        put(
            format!("hand-over-{name}.svg"),
            format!("{label}: hand-over to who waits"),
            Measure::HandOver,
            &axes("milliseconds from release to acquire", "% of hand-overs"),
            curves(results, backend),
        )?;
        put(
            format!("requests-{name}.svg"),
            format!("{label}: requests at the server for each grant"),
            Measure::Requests,
            &axes("waiters in one process", "requests a grant"),
            by_size(Measure::Requests, "requests"),
        )?;
    }
    for (file, figure, unit, title, y) in [
        ("held-requests.svg", "requests", 1.0, "Requests per second while names are held, TTL 30 s", "requests/s"),
        ("held-memory.svg", "memory", 1024.0, "Memory of a process that holds names, beyond an empty manager", "KiB"),
    ] {
        let axes = Axes { x: "held names", y, steep: true };
        put(file.into(), title.into(), Measure::Held, &axes, held(results, figure, unit))?;
    }
    Ok(plots)
}

fn by_size(results: &Results, backend: Backend, measure: Measure, figure: &str) -> Vec<Line> {
    let line = |(color, row): (usize, &Row)| {
        let points = results.of(backend, measure).filter(|point| point.row == *row);
        let mut points: Vec<_> = points.filter_map(|point| Some((point.size as f64, point.median(figure)?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Line { label: row.label().into(), color, points }
    };
    backend.rows().iter().enumerate().map(line).filter(|line| !line.points.is_empty()).collect()
}

fn curves(results: &Results, backend: Backend) -> Vec<Line> {
    let line = |(color, row): (usize, &Row)| {
        let point = results.find(backend, Measure::HandOver, *row, 2)?;
        let points = point.curve.iter().enumerate().map(|(percent, micros)| (micros.max(0.1) / 1e3, percent as f64));
        Some(Line { label: row.label().into(), color, points: points.collect() })
    };
    backend.rows().iter().enumerate().filter_map(line).filter(|line| !line.points.is_empty()).collect()
}

fn held(results: &Results, figure: &str, unit: f64) -> Vec<Line> {
    let line = |(color, backend): (usize, Backend)| {
        let points = results.of(backend, Measure::Held);
        let points = points.filter_map(|point| Some((point.size as f64, point.median(figure)? / unit)));
        Line { label: backend.label().into(), color, points: points.collect() }
    };
    results.backends().into_iter().enumerate().map(line).filter(|line| !line.points.is_empty()).collect()
}

/// A chart with the names of its lines beside it.
fn svg(title: &str, axes: &Axes, lines: &[Line]) -> Result<String, Stop> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (left, right) = root.split_horizontally(CHART_WIDTH);
        let up = |y: f64| if axes.steep { y.max(1e-3).log10() } else { y };
        let all = || lines.iter().flat_map(|line| line.points.iter().copied());
        let (least_x, most_x) = bounds(all().map(|(x, _)| x));
        let (least_y, most_y) = bounds(all().map(|(_, y)| up(y)));
        let bottom = if axes.steep { least_y.floor() } else { 0.0 };
        let top = if axes.steep { most_y.ceil().max(bottom + 1.0) } else { most_y * 1.05 };
        let mut chart = ChartBuilder::on(&left)
            .margin(10)
            .caption(title, ("sans-serif", 16))
            .x_label_area_size(42)
            .y_label_area_size(70)
            .build_cartesian_2d((least_x..most_x.max(least_x * 1.1)).log_scale(), bottom..top)?;
        let y_label = |y: &f64| tick(if axes.steep { 10_f64.powf(*y) } else { *y });
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_desc(axes.x)
            .y_desc(axes.y)
            .x_label_formatter(&|x| tick(*x))
            .y_label_formatter(&y_label)
            .draw()?;
        for (number, line) in lines.iter().enumerate() {
            let color = COLORS[line.color % COLORS.len()];
            let width = if line.label.starts_with("ours") { 3 } else { 2 };
            let points = line.points.iter().map(|(x, y)| (*x, up(*y)));
            // A distribution has too many points to mark each.
            let mark = if line.points.len() < 10 { 3 } else { 0 };
            chart.draw_series(LineSeries::new(points, color.stroke_width(width)).point_size(mark))?;
            let y = 50 + 22 * number as i32;
            right.draw(&PathElement::new(vec![(4, y), (28, y)], color.stroke_width(width)))?;
            right.draw(&Text::new(line.label.clone(), (36, y - 6), ("sans-serif", 14)))?;
        }
        root.present()?;
    }
    Ok(text)
}

/// A number at an axis: without zeros that say nothing.
fn tick(value: f64) -> String {
    let text = number(value);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// The least and the greatest; of nothing, one and one.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let bounds = values.fold(None, |bounds: Option<(f64, f64)>, value| {
        Some(bounds.map_or((value, value), |(least, most)| (least.min(value), most.max(value))))
    });
    bounds.unwrap_or((1.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_names_its_lines_and_axes() -> Result<(), Stop> {
        let axes = Axes { x: "names", y: "cycles/s", steep: false };
        let line = |label: &str, points: &[(f64, f64)]| Line { label: label.into(), color: 0, points: points.into() };
        let lines = [line("ours", &[(1.0, 100.0), (128.0, 900.0)]), line("theirs & co", &[(1.0, 50.0)])];
        let text = svg("a title", &axes, &lines)?;
        for part in ["<svg", "a title", "names", "cycles/s", "ours", "theirs &amp; co", "</svg>"] {
            assert!(text.contains(part), "no {part} in {text}");
        }
        assert!(!text.contains("NaN"), "{text}");
        Ok(())
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!([1.0, 10.0, 0.5, 1_000.0, 0.0].map(tick), ["1", "10", "0.5", "1,000", "0"]);
    }

    #[test]
    fn a_steep_plot_bears_nothing_and_one_point() -> Result<(), Stop> {
        let axes = Axes { x: "names", y: "requests/s", steep: true };
        let text = svg("held", &axes, &[Line { label: "Redis".into(), color: 9, points: vec![(1.0, 0.0)] }])?;
        assert!(text.contains("</svg>") && !text.contains("NaN"), "{text}");
        Ok(())
    }

    #[test]
    fn plots_are_files_of_what_was_measured() -> Result<(), Stop> {
        let mut results = Results::default();
        for names in [1, 16] {
            results.add((Backend::Zk, Measure::Uncontended, Row::Ours, names), &[("rate", 500.0)]);
        }
        let folder = tempfile::tempdir()?;
        let plots = draw(&results, folder.path())?;
        assert_eq!(plots.iter().map(|plot| plot.file.as_str()).collect::<Vec<_>>(), ["uncontended-zookeeper.svg"]);
        assert!(folder.path().join("uncontended-zookeeper.svg").exists());
        Ok(())
    }
}
