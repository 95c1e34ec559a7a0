//! While the command runs: signals pass, the lock is watched, and a command that may not run any longer is ended in time.

use std::io;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use distlock::{Clock, Deadline, LockGuard, LockName, LostReason};
use nix::sys::signal::Signal;
use tokio::time::sleep;

use super::child::{Change, Child};
use super::report::Report;
use super::signals::{Signals, stop_self};
use super::terminal::Terminal;

/// Timers stand still while the machine sleeps, and the lock's clock does not: so it is read at least this often.
const LOOK: Duration = Duration::from_millis(500);
/// KILL is sent so long before the lock runs out, and no more than a twentieth of the TTL, so that a busy machine is not late.
const KILL_LEAD: Duration = Duration::from_millis(30);
/// How often a group whose leader has ended is looked at.
const GROUP_LOOK: Duration = Duration::from_millis(10);

/// How the command ended.
pub(crate) enum Outcome {
    /// By itself, or by a signal that was passed on.
    Ended(ExitStatus),
    /// The lock was lost, or could not be renewed, while it ran.
    Lost,
}

/// Why the command was ended.
enum Loss {
    Reason(LostReason),
    /// TERM was sent before the lock ran out, because no renewal had been confirmed.
    NotRenewed,
}

struct Stop {
    kill_at: Deadline,
    killed: bool,
}

pub(crate) struct Supervisor<'a> {
    name: &'a LockName,
    guard: &'a LockGuard,
    child: Child,
    terminal: Option<&'a mut Terminal>,
    kill_after: Duration,
    kill_lead: Duration,
    report: Report,
    clock: Clock,
    /// As last seen while the lock was held.
    valid_until: Deadline,
    stop: Option<Stop>,
}

impl<'a> Supervisor<'a> {
    pub(crate) fn new(
        name: &'a LockName,
        guard: &'a LockGuard,
        child: Child,
        terminal: Option<&'a mut Terminal>,
        kill_after: Duration,
        report: Report,
    ) -> Self {
        let clock = Clock::system();
        let valid_until = clock.now();
        let kill_lead = KILL_LEAD.min(guard.ttl() / 20);
        Self { name, guard, child, terminal, kill_after, kill_lead, report, clock, valid_until, stop: None }
    }

    /// Returns when the command has been reaped; after a loss, when its whole group is gone.
    pub(crate) async fn run(mut self, signals: &mut Signals) -> io::Result<Outcome> {
        let mut lost = pin!(self.guard.lost());
        let status = loop {
            let wake = self.look();
            tokio::select! {
                biased;
                reason = &mut lost, if self.stop.is_none() => self.begin_stop(Loss::Reason(reason)),
                signal = signals.next() => if let Some(status) = self.on_signal(signal, signals)? {
                    break status;
                },
                // A look at the command, too: its end must not hang on one signal.
                () = sleep(wake.min(LOOK)) => if let Some(status) = self.reap(signals)? {
                    break status;
                },
            }
        };
        if let (None, Some(reason)) = (&self.stop, self.guard.lost_reason()) {
            // It was lost in the moment before the command ended.
            self.say(format!("lock '{}' was lost while the command ran: {reason}", self.name));
            return Ok(Outcome::Lost);
        }
        match self.stop.take() {
            None => Ok(Outcome::Ended(status)),
            Some(stop) => {
                self.end_group(stop.kill_at).await;
                Ok(Outcome::Lost)
            }
        }
    }

    /// Does what is due, and answers how long until something may be due again.
    fn look(&mut self) -> Duration {
        if let Some(valid_until) = self.guard.valid_until() {
            self.valid_until = valid_until;
        }
        let stop_at = self.valid_until.before(self.kill_after.max(self.kill_lead));
        if self.stop.is_none() && self.guard.is_held() && self.clock.has_passed(stop_at) {
            self.begin_stop(Loss::NotRenewed);
        }
        let Some(stop) = &mut self.stop else {
            return self.clock.until(stop_at);
        };
        if !stop.killed && self.clock.has_passed(stop.kill_at) {
            stop.killed = true;
            self.child.signal(Signal::SIGKILL);
        }
        if stop.killed { LOOK } else { self.clock.until(stop.kill_at) }
    }

    /// TERM now, KILL later, and no later than the lock runs out. There is no way back, even if a renewal comes through after all.
    fn begin_stop(&mut self, loss: Loss) {
        let now = self.clock.now();
        let kill_at = now.after(self.kill_after).min(self.valid_until.before(self.kill_lead));
        let left = Duration::from_millis(kill_at.saturating_since(now).as_millis() as u64);
        let killed = left.is_zero();
        if killed {
            self.child.signal(Signal::SIGKILL);
        } else {
            self.child.signal(Signal::SIGTERM);
            self.child.go_on();
        }
        self.stop = Some(Stop { kill_at, killed });
        let why = match loss {
            Loss::Reason(reason) => format!("was lost: {reason}"),
            Loss::NotRenewed => "could not be renewed".to_owned(),
        };
        let what = if killed {
            "the command is killed".to_owned()
        } else {
            format!("the command gets TERM now and KILL in {}", humantime::format_duration(left))
        };
        self.say(format!("lock '{}' {why}; {what}", self.name));
    }

    /// Says something without waiting for whoever reads it: a full pipe must not keep a command alive. The runtime's end waits for it.
    fn say(&self, text: String) {
        let report = self.report;
        tokio::task::spawn_blocking(move || report.warn(text));
    }

    fn on_signal(&mut self, signal: Signal, signals: &Signals) -> io::Result<Option<ExitStatus>> {
        match signal {
            Signal::SIGCHLD => return self.reap(signals),
            Signal::SIGCONT => self.resume(),
            signal => self.child.signal(signal),
        }
        Ok(None)
    }

    fn reap(&mut self, signals: &Signals) -> io::Result<Option<ExitStatus>> {
        loop {
            match self.child.poll()? {
                Change::Ended(status) => return Ok(Some(status)),
                Change::Stopped(by) => self.on_stop(by, signals),
                Change::Nothing => return Ok(None),
            }
        }
    }

    /// The command was stopped. The tool stops with it, so that the shell takes the terminal back: nobody works then, and nobody renews.
    fn on_stop(&mut self, by: Signal, signals: &Signals) {
        let wants_terminal = matches!(by, Signal::SIGTTIN | Signal::SIGTTOU);
        if self.stop.is_some() {
            return self.child.go_on();
        }
        if wants_terminal && self.lend_terminal() {
            return self.child.go_on();
        }
        // A STOP is meant for the command alone. Where stops were ignored at the start there is no shell that would continue us.
        if (by != Signal::SIGTSTP && !wants_terminal) || signals.ignored().contains(&Signal::SIGTSTP) {
            return;
        }
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
        }
        stop_self();
        if by == Signal::SIGTSTP {
            self.resume();
        }
    }

    /// Lets the command go on, unless the lock has run out meanwhile: then the next look ends it.
    fn resume(&mut self) {
        self.lend_terminal();
        if self.guard.is_held() {
            self.child.go_on();
        }
    }

    fn lend_terminal(&mut self) -> bool {
        let group = self.child.group();
        self.terminal.as_mut().is_some_and(|terminal| terminal.lend(group))
    }

    /// What the command left in its group gets the rest of the time, too.
    async fn end_group(&self, kill_at: Deadline) {
        while self.child.group_is_alive() {
            if self.clock.has_passed(kill_at) {
                self.child.signal(Signal::SIGKILL);
                return;
            }
            sleep(GROUP_LOOK).await;
        }
    }
}
