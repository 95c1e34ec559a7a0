//! The command: how it is started, signalled and waited for.

use std::ffi::OsString;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

use nix::libc;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpid, getppid};

use super::exit::{Failure, NOT_EXECUTABLE, NOT_FOUND};
use super::signals::{self, Signals};
use super::terminal;

/// A command that runs in a process group of its own. Whoever drops it before it has ended leaves it running.
pub(crate) struct Child {
    group: Pid,
    stopped: bool,
}

/// What has become of the command since it was last asked.
pub(crate) enum Change {
    Nothing,
    Stopped(Signal),
    Ended(ExitStatus),
}

impl Child {
    /// Starts `command`. The calling thread must live as long as the process: the kernel kills the command when that *thread* ends.
    ///
    /// `tty` is the terminal into whose foreground the command goes.
    pub(crate) fn spawn(
        command: &[OsString],
        variables: impl IntoIterator<Item = (&'static str, String)>,
        tty: Option<RawFd>,
        signals: &Signals,
    ) -> Result<Self, Failure> {
        let [program, arguments @ ..] = command else {
            return Err(Failure::new(NOT_FOUND, "there is no command to run"));
        };
        let parent = getpid();
        let ignored = signals.ignored().to_vec();
        let mut command = Command::new(program);
        command.args(arguments).envs(variables).process_group(0);
        // SAFETY: between fork and exec the closure only makes system calls, and allocates nothing.
        unsafe {
            command.pre_exec(move || {
                // First of all, so that no handler of ours runs in the child.
                signals::reset(&ignored);
                die_with(parent)?;
                if let Some(tty) = tty {
                    terminal::set_foreground(BorrowedFd::borrow_raw(tty), getpid());
                }
                Ok(())
            });
        }
        let child = command.spawn().map_err(|e| not_started(program, &e))?;
        // A process id always fits; std only has it unsigned.
        Ok(Self { group: Pid::from_raw(child.id() as libc::pid_t), stopped: false })
    }

    pub(crate) fn group(&self) -> Pid {
        self.group
    }

    /// Sends a signal to the whole group. A group that is gone needs none.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = killpg(self.group, signal);
    }

    /// Lets a stopped command go on; one that runs is left in peace.
    pub(crate) fn go_on(&mut self) {
        if std::mem::take(&mut self.stopped) {
            self.signal(Signal::SIGCONT);
        }
    }

    /// Whether any process of the group is left.
    pub(crate) fn group_is_alive(&self) -> bool {
        killpg(self.group, None).is_ok()
    }

    /// Reaps the command if it has ended. Never blocks.
    pub(crate) fn poll(&mut self) -> io::Result<Change> {
        let mut status = 0;
        // The call of `nix` fails on a real-time signal, after it has reaped the process.
        // SAFETY: `status` is valid for writing.
        let pid = unsafe {
            libc::waitpid(self.group.as_raw(), &mut status, libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED)
        };
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        let status = ExitStatus::from_raw(status);
        if pid == 0 {
            return Ok(Change::Nothing);
        }
        if let Some(signal) = status.stopped_signal() {
            self.stopped = true;
            return Ok(Signal::try_from(signal).map_or(Change::Nothing, Change::Stopped));
        }
        if status.continued() {
            self.stopped = false;
            return Ok(Change::Nothing);
        }
        Ok(Change::Ended(status))
    }
}

/// Ties the child's life to ours.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn die_with(parent: Pid) -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    // A parent that died before that call sends nothing any more.
    if getppid() == parent { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn die_with(parent: Pid) -> io::Result<()> {
    if getppid() == parent { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
}

fn not_started(program: &OsString, err: &io::Error) -> Failure {
    let program = program.to_string_lossy();
    let program = distlock::escaped(&program);
    match err.kind() {
        io::ErrorKind::NotFound => {
            Failure::new(NOT_FOUND, format!("command '{program}' was not found; check its spelling and PATH"))
        }
        _ => Failure::new(NOT_EXECUTABLE, format!("command '{program}' cannot be executed: {err}")),
    }
}
