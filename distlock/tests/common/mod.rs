//! A folder, a backend and the tool, for tests of the command line.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

pub(crate) mod etcd;
pub(crate) mod mysql;
pub(crate) mod overlap;
pub(crate) mod redis;
pub(crate) mod zk;

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Longer than anything here may take; a test that reaches it has failed.
pub(crate) const BOUND: Duration = Duration::from_secs(30);

/// A temporary home folder, and a URL for the locks.
pub(crate) struct Lab {
    dir: tempfile::TempDir,
    url: String,
    runs: AtomicUsize,
}

/// A tool that was started. Dropping it kills it.
pub(crate) struct Running {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

/// How a tool ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Lab {
    /// With a SQLite file of its own.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/locks.db", dir.path().display());
        Self { dir, url, runs: AtomicUsize::new(0) }
    }

    /// With a backend that others know.
    pub(crate) fn at(url: impl Into<String>) -> Self {
        Self { url: url.into(), ..Self::new() }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn home(&self) -> &Path {
        self.dir.path()
    }

    /// The tool with nothing of ours in its environment, and no backend but the default.
    pub(crate) fn bare(&self) -> Command {
        self.clean(env!("CARGO_BIN_EXE_distlock"))
    }

    /// A program with nothing of ours in its environment.
    pub(crate) fn clean(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            let name = name.into_string().unwrap();
            if name.starts_with("DISTLOCK_") || name.starts_with("XDG_") {
                command.env_remove(name);
            }
        }
        command.env("HOME", self.home()).current_dir(self.home());
        command
    }

    /// The tool at the lab's backend.
    pub(crate) fn tool(&self, args: &[&str]) -> Command {
        let mut command = self.bare();
        command.env("DISTLOCK_URL", &self.url).args(args);
        command
    }

    pub(crate) fn start(&self, args: &[&str]) -> Running {
        self.spawn(self.tool(args))
    }

    /// Starts a command with its output going to files, which a grandchild cannot hold open.
    pub(crate) fn spawn(&self, mut command: Command) -> Running {
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        let (out, err) = (self.path(&format!("out{run}")), self.path(&format!("err{run}")));
        let child = command
            .stdin(Stdio::null())
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&err).unwrap())
            .spawn()
            .unwrap();
        Running { child, out, err }
    }

    /// Runs the tool to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        self.start(args).wait()
    }

    /// Runs the tool to its end; again where it says that the server did not answer, though something else was to be said. A machine that is too
    /// busy runs out of time, which tells nothing about anything else.
    pub(crate) fn run_in_time(&self, args: &[&str], code: i32, words: &[&str]) -> Ended {
        let is_said = |ended: &Ended| words.iter().all(|word| ended.out.contains(word) || ended.err.contains(word));
        let mut ended = self.run(args);
        for _ in 0..5 {
            if ended.code() != 69 || (code == 69 && is_said(&ended)) {
                break;
            }
            ended = self.run(args);
        }
        ended
    }

    /// What `inspect --json` says of a name.
    pub(crate) fn inspect(&self, name: &str) -> serde_json::Value {
        let ended = self.run(&["inspect", name, "--json"]);
        assert_eq!(ended.code(), 0, "{ended:?}");
        serde_json::from_str(&ended.out).unwrap()
    }

    pub(crate) fn state(&self, name: &str) -> String {
        self.inspect(name)["state"].as_str().unwrap().to_owned()
    }

    /// A tool that holds `name` with a child that sleeps, once it does hold.
    pub(crate) fn hold(&self, name: &str, flags: &[&str]) -> Running {
        let marker = self.path(&format!("held-{}", self.runs.load(Ordering::Relaxed)));
        let script = format!("touch '{}'; exec sleep 60", marker.display());
        let args: Vec<&str> = ["run", name].iter().chain(flags).copied().chain(["--", "sh", "-c", &script]).collect();
        let running = self.start(&args);
        until("the holder to run", || marker.exists());
        running
    }
}

impl Running {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    pub(crate) fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub(crate) fn out(&self) -> String {
        read(&self.out)
    }

    pub(crate) fn err(&self) -> String {
        read(&self.err)
    }

    pub(crate) fn wait(self) -> Ended {
        self.wait_within(BOUND)
    }

    /// Waits for the end, and fails if it does not come in time.
    pub(crate) fn wait_within(mut self, bound: Duration) -> Ended {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Ended { status, out: self.out(), err: self.err() };
            }
            assert!(start.elapsed() < bound, "not over within {bound:?}; stderr: {}", self.err());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// The exit code; a tool that a signal ended has none.
    #[track_caller]
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("ended by a signal: {self:?}"))
    }

    /// Checks the code, and that there is one line on stderr with these words.
    #[track_caller]
    pub(crate) fn says(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code(), code, "{self:?}");
        assert_eq!(self.err.lines().count(), 1, "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "no '{word}' in {self:?}");
        }
    }
}

/// Waits for a condition; fails when it does not come true in time.
#[track_caller]
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < BOUND, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn read(path: impl AsRef<Path>) -> String {
    let mut text = Vec::new();
    if let Ok(mut file) = File::open(path) {
        file.read_to_end(&mut text).unwrap();
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Whether a process exists and is no zombie.
pub(crate) fn lives(pid: &str) -> bool {
    let stat = read(format!("/proc/{}/stat", pid.trim()));
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}
