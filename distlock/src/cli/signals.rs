//! Signals that reach the tool.

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::task::{Context, Poll};

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};
use tokio::signal::unix::{SignalKind, signal};

use Signal::{
    SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTOU, SIGUSR1, SIGUSR2, SIGWINCH,
};

/// The signals that end a process by default, and that the command gets passed on.
const ENDING: [Signal; 7] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGALRM, SIGUSR1, SIGUSR2];
/// What is passed on, or acted on, only once there is a command.
const RUNNING: [Signal; 4] = [SIGCHLD, SIGWINCH, SIGTSTP, SIGCONT];

/// All whose effect is changed.
fn all() -> impl Iterator<Item = Signal> {
    ENDING.into_iter().chain(RUNNING).chain([SIGTTOU])
}

/// The signals that are listened to. From its making on, none of them has its default effect.
pub(crate) struct Signals {
    streams: Vec<(Signal, tokio::signal::unix::Signal)>,
    ignored: Vec<Signal>,
}

impl Signals {
    /// Listens to the signals that would end the tool.
    pub(crate) fn new() -> io::Result<Self> {
        let ignored = all().filter(|signal| is_ignored(*signal)).collect();
        let mut signals = Self { streams: Vec::with_capacity(ENDING.len() + RUNNING.len()), ignored };
        signals.listen(&ENDING)?;
        Ok(signals)
    }

    /// Listens to those for a running command, too. Until then ^Z stops the tool as it stops any.
    pub(crate) fn listen_for_child(&mut self) -> io::Result<()> {
        // From the background, where the tool is while the command has the terminal, a message would stop it under `stty tostop`.
        // SAFETY: to ignore is no function of ours.
        unsafe { libc::signal(SIGTTOU as c_int, libc::SIG_IGN) };
        self.listen(&RUNNING)
    }

    /// What was ignored when the tool started, as under nohup. It is passed on all the same, and the command starts with it ignored.
    pub(crate) fn ignored(&self) -> &[Signal] {
        &self.ignored
    }

    fn listen(&mut self, signals: &[Signal]) -> io::Result<()> {
        for &it in signals {
            self.streams.push((it, signal(SignalKind::from_raw(it as c_int))?));
        }
        Ok(())
    }

    /// The next signal.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub(crate) async fn next(&mut self) -> Signal {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The next signal that is meant to end the tool.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub(crate) async fn next_ending(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if ENDING.contains(&signal) && !self.ignored.contains(&signal) {
                return signal;
            }
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Signal> {
        for (signal, stream) in &mut self.streams {
            if let Poll::Ready(Some(())) = stream.poll_recv(cx) {
                return Poll::Ready(*signal);
            }
        }
        Poll::Pending
    }
}

/// Puts a child between fork and exec back to what the tool was started with.
pub(crate) fn reset(ignored: &[Signal]) {
    for signal in all() {
        let how = if ignored.contains(&signal) { libc::SIG_IGN } else { libc::SIG_DFL };
        // SAFETY: neither action is a function of ours.
        unsafe { libc::signal(signal as c_int, how) };
    }
}

/// Stops the tool as ^Z does, until it is continued. Where no shell could continue it, the kernel does nothing.
pub(crate) fn stop_self() {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action is no function, and the handler that is put back was in place before.
    unsafe {
        if let Ok(handler) = sigaction(SIGTSTP, &default) {
            let _ = raise(SIGTSTP);
            let _ = sigaction(SIGTSTP, &handler);
        }
    }
}

fn is_ignored(signal: Signal) -> bool {
    let mut old = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action the call only writes the present one to `old`, which is valid for that.
    let status = unsafe { libc::sigaction(signal as c_int, std::ptr::null(), old.as_mut_ptr()) };
    // SAFETY: a zeroed `sigaction` is a valid value, so `old` is initialised even where the call failed.
    status == 0 && unsafe { old.assume_init() }.sa_sigaction == libc::SIG_IGN
}
