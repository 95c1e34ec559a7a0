//! What a run came to.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::json;

use super::checker::{CHECKS, Finding, Judged, judged, longest_free};
use super::driver::Torture;
use super::ground::Ground;
use super::history::{Answer, Nanos};
use super::record::Record;

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The backend.
    pub backend: String,
    /// The command that does it again.
    pub command: String,
    /// How long it took.
    pub elapsed: Duration,
    /// What was found, excused or not.
    pub findings: Vec<Finding>,
    /// Attempts, by what came of them.
    pub outcomes: BTreeMap<String, usize>,
    /// Guards that were lost, by reason.
    pub losses: BTreeMap<String, usize>,
    /// Faults that were made, by kind, and those that were not.
    pub faults: BTreeMap<String, (usize, usize)>,
    /// Kinds of faults that were left out, with the reason.
    pub left_out: Vec<(&'static str, &'static str)>,
    /// How many workers lived.
    pub workers: usize,
    /// The longest time from a request to its grant.
    pub longest_wait: Duration,
    /// The median and the longest time between two holds of one name.
    pub gaps: (Duration, Duration),
    /// The longest time that the store showed the first name free while somebody waited.
    pub longest_free: Duration,
    /// Writes to the register: taken, refused.
    pub writes: (usize, usize),
    /// How long the machine did not run who measures, in all.
    pub stalled: Duration,
    /// How long the server took long for a look from the side, or did not answer, in all.
    pub slow: Duration,
    /// How long after the begin the first violation had happened.
    pub found_after: Option<Duration>,
    /// How much the checks could judge to which faults leave little.
    pub judged: Vec<(&'static str, Judged)>,
    /// A text of the first finding's stretch.
    pub stretch: String,
}

impl Verdict {
    pub(super) fn of(
        torture: &Torture,
        ground: &Ground,
        record: &Record,
        findings: Vec<Finding>,
        left_out: Vec<(&'static str, &'static str)>,
        elapsed: Duration,
    ) -> Self {
        let mut verdict = Self {
            backend: ground.scheme().to_owned(),
            command: torture.command(ground),
            elapsed,
            outcomes: BTreeMap::new(),
            losses: BTreeMap::new(),
            faults: BTreeMap::new(),
            left_out,
            workers: record.workers.len(),
            longest_wait: Duration::ZERO,
            gaps: gaps(record),
            longest_free: longest_free(record, &ground.name(0)),
            writes: (0, 0),
            stalled: Duration::from_nanos(record.stalls.iter().map(|stall| stall.1 - stall.0).sum()),
            stretch: findings
                .iter()
                .find(|finding| finding.excuse.is_none())
                .map_or(String::new(), |first| stretch(record, first)),
            judged: judged(record).to_vec(),
            slow: Duration::from_nanos(record.slow.iter().map(|slow| slow.1 - slow.0).sum()),
            found_after: findings
                .iter()
                .filter(|f| f.excuse.is_none())
                .map(|f| Duration::from_nanos(f.span.1.saturating_sub(record.span.0)))
                .min(),
            findings,
        };
        for attempt in &record.attempts {
            let outcome = match &attempt.answer {
                Some(Answer::Granted { .. }) => "granted".to_owned(),
                Some(Answer::Busy) => "busy".to_owned(),
                Some(Answer::Cancelled) => "cancelled".to_owned(),
                Some(Answer::Failed { kind, .. }) => kind.clone(),
                None => "unanswered (killed or ended)".to_owned(),
            };
            *verdict.outcomes.entry(outcome).or_default() += 1;
            if let Some((_, reason)) = &attempt.lost {
                *verdict.losses.entry(reason.clone()).or_default() += 1;
            }
            if let Some(granted) = attempt.granted() {
                verdict.longest_wait = verdict.longest_wait.max(Duration::from_nanos(granted - attempt.asked));
            }
        }
        for fault in &record.faults {
            let counts = verdict.faults.entry(fault.fault.clone()).or_default();
            if fault.missed.is_none() { counts.0 += 1 } else { counts.1 += 1 }
        }
        let taken = record.writes.iter().filter(|write| write.taken).count();
        verdict.writes = (taken, record.writes.len() - taken);
        verdict
    }

    /// What no fault excuses.
    pub fn violations(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.excuse.is_none())
    }

    /// Whether no promise was broken.
    pub fn is_clean(&self) -> bool {
        self.violations().next().is_none()
    }

    /// How often a check failed: without an excuse, and with one.
    pub fn count(&self, check: &str) -> (usize, usize) {
        let of =
            |excused: bool| self.findings.iter().filter(|f| f.check == check && f.excuse.is_some() == excused).count();
        (of(false), of(true))
    }

    fn judged(&self, check: &str) -> Option<Judged> {
        self.judged.iter().find(|(of, judged)| *of == check && judged.of > 0).map(|(_, judged)| *judged)
    }

    /// The same for programs.
    pub fn to_json(&self) -> serde_json::Value {
        let checks: BTreeMap<_, _> = CHECKS
            .iter()
            .map(|(check, meaning)| {
                let (broken, excused) = self.count(check);
                let judged = self.judged(check).map(|judged| json!([judged.judged, judged.of]));
                (*check, json!({ "meaning": meaning, "violations": broken, "excused": excused, "judged": judged }))
            })
            .collect();
        let findings: Vec<_> = self
            .findings
            .iter()
            .map(|f| json!({ "check": f.check, "name": f.name, "text": f.text, "from": f.span.0, "to": f.span.1, "excuse": f.excuse }))
            .collect();
        json!({
            "backend": self.backend, "clean": self.is_clean(), "command": self.command, "seconds": self.elapsed.as_secs_f64(),
            "outcomes": self.outcomes, "losses": self.losses, "faults": self.faults, "left_out": self.left_out,
            "workers": self.workers, "longest_wait_seconds": self.longest_wait.as_secs_f64(),
            "median_gap_seconds": self.gaps.0.as_secs_f64(), "longest_gap_seconds": self.gaps.1.as_secs_f64(),
            "longest_free_while_waited_seconds": self.longest_free.as_secs_f64(),
            "writes_taken": self.writes.0, "writes_refused": self.writes.1, "stalled_seconds": self.stalled.as_secs_f64(), "slow_seconds": self.slow.as_secs_f64(),
            "checks": checks, "findings": findings,
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} under torture for {:.0?}: {} workers", self.backend, self.elapsed, self.workers)?;
        writeln!(f, "\nattempts")?;
        for (outcome, count) in &self.outcomes {
            writeln!(f, "  {outcome:<42} {count:>8}")?;
        }
        writeln!(f, "losses")?;
        for (reason, count) in &self.losses {
            writeln!(f, "  {reason:<42} {count:>8}")?;
        }
        writeln!(f, "faults")?;
        for (fault, (made, missed)) in &self.faults {
            let note = if *missed > 0 { format!("  ({missed} found nothing to hit)") } else { String::new() };
            writeln!(f, "  {fault:<42} {made:>8}{note}")?;
        }
        for (fault, reason) in &self.left_out {
            writeln!(f, "  {fault:<42} left out: {reason}")?;
        }
        writeln!(f, "times")?;
        writeln!(f, "  {:<42} {:>8.1?}", "longest wait for a grant", self.longest_wait)?;
        writeln!(f, "  {:<42} {:>8.1?}", "longest free while somebody waited", self.longest_free)?;
        writeln!(f, "  {:<42} {:>8.1?}", "median gap between two holds", self.gaps.0)?;
        writeln!(f, "  {:<42} {:>8.1?}", "longest gap between two holds", self.gaps.1)?;
        writeln!(f, "  {:<42} {:>8.1?}", "machine stalled, in all", self.stalled)?;
        writeln!(f, "  {:<42} {:>8.1?}", "server slow or away, in all", self.slow)?;
        writeln!(
            f,
            "register\n  {:<42} {:>8}\n  {:<42} {:>8}",
            "writes taken", self.writes.0, "writes refused", self.writes.1
        )?;
        writeln!(f, "checks")?;
        for (check, meaning) in CHECKS {
            let (broken, excused) = self.count(check);
            let excused = if excused > 0 {
                format!("  ({excused} excused by a fault outside the contract)")
            } else {
                String::new()
            };
            let judged = self
                .judged(check)
                .map_or(String::new(), |judged| format!("  ({} of {} could be judged)", judged.judged, judged.of));
            writeln!(f, "  {check:<12} {broken:>4}  {meaning}{excused}{judged}")?;
        }
        if self.is_clean() {
            return write!(f, "\nclean");
        }
        writeln!(f, "\nBROKEN")?;
        for finding in self.violations().take(10) {
            writeln!(f, "  {} {:?}: {}", finding.check, finding.name, finding.text)?;
        }
        write!(f, "\n{}\nto repeat: {}", self.stretch, self.command)
    }
}

/// Median and longest time from the end of one belief to the next about the same name.
fn gaps(record: &Record) -> (Duration, Duration) {
    let mut names: BTreeMap<&str, Vec<(Nanos, Nanos)>> = BTreeMap::new();
    for attempt in &record.attempts {
        if let Some(belief) = attempt.belief() {
            names.entry(&attempt.name).or_default().push(belief);
        }
    }
    let mut gaps = Vec::new();
    for beliefs in names.values_mut().filter(|beliefs| beliefs.len() > 100) {
        beliefs.sort_unstable();
        gaps.extend(beliefs.windows(2).map(|pair| pair[1].0.saturating_sub(pair[0].1)));
    }
    gaps.sort_unstable();
    let at = |place: usize| Duration::from_nanos(gaps.get(place).copied().unwrap_or(0));
    (at(gaps.len() / 2), at(gaps.len().saturating_sub(1)))
}

/// What happened to those that take part, and the faults meanwhile, in the order of time.
fn stretch(record: &Record, finding: &Finding) -> String {
    let mut lines: Vec<(Nanos, String)> = Vec::new();
    for attempt in finding.attempts.iter().map(|number| &record.attempts[*number]) {
        let life = &record.workers[attempt.worker];
        let place = format!("worker {} (place {}, number {} there)", attempt.worker, life.slot, life.generation);
        let who = format!("{place} {:?} token {}", attempt.name, attempt.token);
        let mut say = |at: Nanos, what: &str| lines.push((at, format!("{who}: {what}")));
        say(attempt.asked, "asks");
        if let Some(at) = attempt.answered {
            say(at, &format!("answered: {:?}", attempt.answer));
        }
        for look in attempt
            .looks
            .iter()
            .filter(|look| look.0 >= finding.span.0.saturating_sub(1_000_000) && look.0 <= finding.span.1)
            .take(6)
        {
            say(look.0, if look.1 { "looks: held" } else { "looks: not held" });
        }
        if let Some(at) = attempt.held_until {
            say(at, "last look that said 'held'");
        }
        if let Some((at, reason)) = &attempt.lost {
            say(*at, &format!("lost: {reason}"));
        }
        for (at, taken, _) in attempt.writes.iter().take(6) {
            say(*at, if *taken { "writes: taken" } else { "writes: refused" });
        }
        if let Some((at, _)) = attempt.marked {
            say(at, "is revoked by a mark");
        }
        if let Some(at) = attempt.gave_up {
            say(at, "gives up");
        }
        if let Some((at, answer)) = &attempt.released {
            say(*at, &format!("release says '{answer}'"));
        }
    }
    let from = lines.iter().map(|line| line.0).min().unwrap_or(finding.span.0);
    for fault in record.faults.iter().filter(|fault| fault.to >= from && fault.from <= finding.span.1) {
        lines.push((
            fault.from,
            format!(
                "fault: {} ({:?}), for {:?}",
                fault.fault,
                fault.scope,
                Duration::from_nanos(fault.to - fault.from)
            ),
        ));
    }
    lines.push((finding.span.0, ">>> the stretch begins".to_owned()));
    lines.push((finding.span.1, "<<< the stretch ends".to_owned()));
    lines.sort();
    let at = |at: Nanos| Duration::from_nanos(at.saturating_sub(record.span.0)).as_secs_f64();
    let lines: Vec<_> = lines.iter().map(|(when, what)| format!("  {:>12.6} s  {what}", at(*when))).collect();
    format!("the first ({}: {})\n{}", finding.check, finding.text, lines.join("\n"))
}
