//! The controlling terminal: who is in its foreground.

use std::fs::{File, OpenOptions};
use std::io::IsTerminal;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};
use nix::sys::stat::{SFlag, fstat};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The controlling terminal of the tool.
pub(crate) struct Terminal {
    tty: File,
    /// As it was set before the command ran.
    settings: Option<Termios>,
    /// Whether the command has the foreground from us.
    lent: bool,
}

impl Terminal {
    /// The controlling terminal; `None` when there is none.
    pub(crate) fn open() -> Option<Self> {
        let tty = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        let settings = tcgetattr(&tty).ok();
        Some(Self { tty, settings, lent: false })
    }

    /// The descriptor for a child that puts itself into the foreground, if that is the tool's to give.
    ///
    /// Not where the tool is part of a pipeline, or its input is elsewhere: then others of its group may be using the terminal, as a
    /// pager does, and would be stopped. A child that needs the terminal all the same gets it when it asks.
    pub(crate) fn lend_at_start(&mut self) -> Option<RawFd> {
        self.lent = std::io::stdin().is_terminal() && !is_pipe(std::io::stdout()) && self.is_ours();
        self.lent.then(|| self.tty.as_raw_fd())
    }

    /// Whether the tool's process group is in the foreground.
    pub(crate) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.tty).is_ok_and(|group| group == getpgrp())
    }

    /// Gives the foreground to `group`, if it is ours to give.
    pub(crate) fn lend(&mut self, group: Pid) -> bool {
        let given = self.is_ours() && set_foreground(&self.tty, group);
        self.lent |= given;
        given
    }

    /// Takes the foreground back, if it was lent.
    pub(crate) fn take_back(&mut self) {
        if std::mem::take(&mut self.lent) {
            set_foreground(&self.tty, getpgrp());
        }
    }

    /// Sets the terminal as it was before the command, which had no chance to do so.
    pub(crate) fn restore_settings(&self) {
        if let Some(settings) = self.settings.as_ref().filter(|_| self.is_ours()) {
            let _ = tcsetattr(&self.tty, SetArg::TCSADRAIN, settings);
        }
    }
}

fn is_pipe(stream: impl AsFd) -> bool {
    fstat(stream).is_ok_and(|stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFIFO)
}

/// From the background this call would stop the caller with TTOU, unless that is blocked.
pub(crate) fn set_foreground(tty: impl AsFd, group: Pid) -> bool {
    let mut ttou = SigSet::empty();
    ttou.add(Signal::SIGTTOU);
    let mut before = SigSet::empty();
    let blocked = pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&ttou), Some(&mut before)).is_ok();
    let done = blocked && tcsetpgrp(tty, group).is_ok();
    let _ = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
    done
}
