//! Processes that the suite starts: they never outlive it.

use std::io;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Stop;

/// A child process, killed when it is dropped and when the suite dies.
#[derive(Debug)]
pub struct Process {
    child: Mutex<Child>,
    pid: Pid,
}

impl Process {
    /// Starts it.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn spawn(command: Command) -> io::Result<Self> {
        let child = spawn_on_lasting_thread(command)?;
        let pid = Pid::from_raw(child.id().cast_signed());
        Ok(Self { child: Mutex::new(child), pid })
    }

    /// Its process id.
    pub fn id(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Freezes it (SIGSTOP).
    ///
    /// # Errors
    /// What the operating system says.
    pub fn stop(&self) -> Result<(), Stop> {
        self.signal(Signal::SIGSTOP)
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Errors
    /// What the operating system says.
    pub fn resume(&self) -> Result<(), Stop> {
        self.signal(Signal::SIGCONT)
    }

    /// Ends it at once (SIGKILL) and waits until it is gone.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn kill(&self) -> Result<(), Stop> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Its exit code once it has ended; -1 when a signal ended it.
    pub fn exit_code(&self) -> Option<i32> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        child.try_wait().ok().flatten().map(|status| status.code().unwrap_or(-1))
    }

    /// Takes the pipes that the command asked for.
    pub fn with_child<T>(&self, f: impl FnOnce(&mut Child) -> T) -> T {
        f(&mut self.child.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn signal(&self, signal: Signal) -> Result<(), Stop> {
        Ok(kill(self.pid, signal)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// The parent-death signal fires when the *thread* that forked ends, so one thread that lives as long as the process forks them all.
fn spawn_on_lasting_thread(mut command: Command) -> io::Result<Child> {
    type Job = (Command, mpsc::Sender<io::Result<Child>>);
    static FORKER: OnceLock<Mutex<mpsc::Sender<Job>>> = OnceLock::new();

    #[cfg(target_os = "linux")]
    // SAFETY: between fork and exec only prctl is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?));
    }
    let forker = FORKER.get_or_init(|| {
        let (jobs, queue) = mpsc::channel::<Job>();
        thread::spawn(move || {
            for (mut command, answer) in queue {
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(jobs)
    });
    let gone = || io::Error::other("the thread that starts processes is gone");
    let (answer, child) = mpsc::channel();
    forker.lock().unwrap_or_else(PoisonError::into_inner).send((command, answer)).map_err(|_| gone())?;
    child.recv().map_err(|_| gone())?
}

/// A port of the loopback interface that nobody listens on now, and that the system gives to no outgoing connection: a server that is killed
/// finds it free when it is started again.
///
/// # Errors
/// What the operating system says.
pub fn free_port() -> io::Result<u16> {
    const FIRST: u16 = 10_000;
    /// Systems take ports for connections from 32,768 on, or higher.
    const COUNT: u16 = 22_000;
    let mut tries = 100;
    loop {
        let mut dice = [0; 2];
        getrandom::fill(&mut dice).map_err(io::Error::other)?;
        let port = FIRST + u16::from_le_bytes(dice) % COUNT;
        tries -= 1;
        match TcpListener::bind(("127.0.0.1", port)) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && tries > 0 => {}
            bound => return bound.map(|_| port),
        }
    }
}
