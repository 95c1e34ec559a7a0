//! The picture of a run: workers as rows, holds as bars, waiting thin, losses and faults as marks, names by colour.

use std::fmt::Write;

use super::checker::Finding;
use super::history::Nanos;
use super::record::{Record, Scope};

const COLOURS: [&str; 8] = ["#1f77b4", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#17becf", "#bcbd22", "#7f7f7f"];
/// What is drawn when nothing was broken, at the most.
const WHOLE: Nanos = 30_000_000_000;
/// Shown before and after a violation.
const AROUND: Nanos = 2_000_000_000;
const WIDTH: f64 = 1_600.0;
const LEFT: f64 = 90.0;
const LANE: f64 = 9.0;
/// A worker has so many tasks, which may all be at it at a time.
const LANES: usize = 4;
const ROW: f64 = LANE * (LANES as f64) + 16.0;
const TOP: f64 = 60.0;

struct Canvas {
    svg: String,
    from: Nanos,
    to: Nanos,
}

impl Canvas {
    fn x(&self, at: Nanos) -> f64 {
        let at = at.clamp(self.from, self.to) - self.from;
        LEFT + (WIDTH - LEFT - 10.0) * at as f64 / (self.to - self.from).max(1) as f64
    }

    fn shows(&self, from: Nanos, to: Nanos) -> bool {
        from <= self.to && to >= self.from
    }

    fn bar(&mut self, from: Nanos, to: Nanos, y: f64, height: f64, style: &str, title: &str) {
        let (x, right) = (self.x(from), self.x(to));
        let width = (right - x).max(1.0);
        let title = escaped(title);
        let _ = writeln!(
            self.svg,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" {style}><title>{title}</title></rect>"#
        );
    }

    fn text(&mut self, x: f64, y: f64, text: &str) {
        let _ = writeln!(self.svg, r#"<text x="{x:.1}" y="{y:.1}">{}</text>"#, escaped(text));
    }
}

fn escaped(text: &str) -> String {
    let mut safe = String::new();
    for c in text.chars() {
        match c {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            c if c.is_control() => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// Draws the stretch around the first thing that was broken, or the first half minute.
pub fn draw(record: &Record, findings: &[Finding]) -> String {
    let broken = findings.iter().find(|finding| finding.excuse.is_none());
    let (from, to) = match broken {
        Some(finding) => (finding.span.0.saturating_sub(AROUND), finding.span.1 + AROUND),
        None => (record.span.0, record.span.1.min(record.span.0 + WHOLE)),
    };
    let slots = record.workers.iter().map(|life| life.slot + 1).max().unwrap_or(0);
    let height = TOP + ROW * slots as f64 + 30.0;
    let mut canvas = Canvas { svg: String::new(), from, to };
    let _ = writeln!(
        canvas.svg,
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>"##
    );
    scale(&mut canvas, record.span.0, height);
    if let Some(finding) = broken {
        canvas.bar(
            finding.span.0,
            finding.span.1,
            TOP,
            height - TOP - 30.0,
            r#"fill="red" fill-opacity="0.25""#,
            &finding.text,
        );
        canvas.text(LEFT, 14.0, &format!("{} {:?}: {}", finding.check, finding.name, finding.text));
    }
    faults(&mut canvas, record, height);
    attempts(&mut canvas, record, slots);
    canvas.svg.push_str("</svg>\n");
    canvas.svg
}

fn scale(canvas: &mut Canvas, start: Nanos, height: f64) {
    let step = ((canvas.to - canvas.from) / 10).max(1);
    for number in 0..=10 {
        let at = canvas.from + step * number;
        let x = canvas.x(at);
        let _ = writeln!(
            canvas.svg,
            r##"<line x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{:.1}" stroke="#ddd"/>"##,
            height - 20.0
        );
        canvas.text(x, height - 6.0, &format!("{:.3} s", at.saturating_sub(start) as f64 / 1e9));
    }
}

fn faults(canvas: &mut Canvas, record: &Record, height: f64) {
    for fault in record.faults.iter().filter(|fault| fault.missed.is_none()) {
        if !canvas.shows(fault.from, fault.to) {
            continue;
        }
        let title = format!("{} {:?}", fault.fault, fault.scope);
        let x = canvas.x(fault.from);
        match fault.scope {
            Scope::Worker(slot) => {
                let y = TOP + ROW * slot as f64;
                canvas.bar(fault.from, fault.to, y, ROW - 4.0, r#"fill="orange" fill-opacity="0.35""#, &title);
                canvas.text(x, y + 9.0, &fault.fault);
            }
            Scope::All => {
                canvas.bar(
                    fault.from,
                    fault.to,
                    TOP,
                    height - TOP - 30.0,
                    r#"fill="gray" fill-opacity="0.25""#,
                    &title,
                );
                canvas.text(x, TOP - 22.0, &fault.fault);
            }
            Scope::Name(_) => {
                canvas.bar(
                    fault.from,
                    fault.from,
                    TOP,
                    height - TOP - 30.0,
                    r#"fill="black" fill-opacity="0.6""#,
                    &title,
                );
                canvas.text(x, TOP - 8.0, &fault.fault);
            }
        }
    }
}

fn attempts(canvas: &mut Canvas, record: &Record, slots: usize) {
    let mut names: Vec<&str> =
        record.attempts.iter().filter(|a| !a.name.contains("own-")).map(|attempt| &*attempt.name).collect();
    names.sort_unstable();
    names.dedup();
    for (number, name) in names.iter().enumerate() {
        let x = LEFT + 160.0 * number as f64;
        let _ =
            writeln!(canvas.svg, r#"<rect x="{x}" y="20" width="10" height="10" fill="{}"/>"#, colour(&names, name));
        canvas.text(x + 14.0, 29.0, name);
    }
    for slot in 0..slots {
        canvas.text(8.0, TOP + ROW * slot as f64 + ROW / 2.0, &format!("worker {slot}"));
    }
    let mut busy = vec![[0; LANES]; slots];
    for attempt in &record.attempts {
        let life = &record.workers[attempt.worker];
        let answered = attempt.answered.unwrap_or(life.span.1);
        let end =
            attempt.held_until.unwrap_or(answered).max(answered).max(attempt.lost.as_ref().map_or(0, |lost| lost.0));
        if !canvas.shows(attempt.asked, end) {
            continue;
        }
        let free = busy[life.slot].iter().position(|until| *until <= attempt.asked).unwrap_or(LANES - 1);
        busy[life.slot][free] = end;
        let y = TOP + ROW * life.slot as f64 + 11.0 + LANE * free as f64;
        let colour = colour(&names, &attempt.name);
        let title =
            format!("{} token {} of worker {}: {:?}", attempt.name, attempt.token, attempt.worker, attempt.answer);
        canvas.bar(
            attempt.asked,
            answered,
            y + LANE / 2.0 - 1.0,
            1.0,
            &format!(r#"fill="{colour}" fill-opacity="0.5""#),
            &title,
        );
        if let Some((from, to)) = attempt.belief() {
            canvas.bar(from, to, y, LANE - 2.0, &format!(r#"fill="{colour}""#), &title);
        }
        if let Some((at, reason)) = attempt.lost.as_ref().filter(|lost| canvas.shows(lost.0, lost.0)) {
            canvas.bar(*at, *at, y - 1.0, LANE, r#"fill="red""#, &format!("lost: {reason}"));
        }
    }
}

fn colour(names: &[&str], name: &str) -> &'static str {
    // The names of one worker alone are black.
    names.iter().position(|known| *known == name).map_or("#000000", |place| COLOURS[place % COLOURS.len()])
}

#[cfg(test)]
mod tests {
    use super::super::checker::{check, stories::Story};
    use super::*;

    #[test]
    fn a_picture_shows_workers_holds_faults_and_what_was_broken() {
        let mut story = Story::new(2);
        story.hold(0, "<x>", 1, 100, 200);
        story.hold(1, "<x>", 2, 150, 160);
        story.fault("line cut", Scope::Worker(1), 120, 120);
        story.fault("server killed", Scope::All, 130, 140);
        let svg = draw(&story.record, &check(&story.record));
        for part in ["worker 1", "line cut", "server killed", "both held", "&lt;x&gt;", "</svg>"] {
            assert!(svg.contains(part), "{part}");
        }
        assert!(!svg.contains("<x>"));
    }
}
