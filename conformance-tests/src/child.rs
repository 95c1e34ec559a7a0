//! Other processes: the test binary runs itself again as a holder or a contender that can be stopped and killed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use lock_core::{LockManager, LockName};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::process::Process;
use crate::{Bench, Harness, Stop};

/// The first argument of such a child.
pub(crate) const FLAG: &str = "--conformance-child";

/// Whether this process is a child that a case has started. Such a process calls [`run`](crate::run) at once.
pub fn is_child() -> bool {
    std::env::args().nth(1).is_some_and(|first| first == FLAG)
}

/// How long a child may take for a step.
const STEP_LIMIT: Duration = Duration::from_secs(20);

/// What a child is to do. It says each step on a line of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Acquire and hold until the standard input ends, then release: `held TOKEN`, `lost REASON`, `released`.
    Hold,
    /// Acquire and release so many times, and write to a shared file meanwhile without any other protection: `done`.
    Count(u32),
    /// Acquire and release so many names, and tell the owners: `owner OWNER` each, `done`.
    Owners(u32),
}

/// A child process that uses the user's API as any program would.
#[derive(Debug)]
pub(crate) struct Child {
    process: Process,
    lines: Mutex<mpsc::Receiver<String>>,
}

impl Child {
    /// Starts a child on the bench's instance. `file` is what [`Task::Count`] writes to.
    pub(crate) fn start(b: &Bench, task: Task, name: &LockName, ttl: Duration, file: &str) -> Result<Self, Stop> {
        Self::start_from(&std::env::current_exe()?, b, task, name, ttl, file)
    }

    fn start_from(
        program: &Path,
        b: &Bench,
        task: Task,
        name: &LockName,
        ttl: Duration,
        file: &str,
    ) -> Result<Self, Stop> {
        let mut command = Command::new(program);
        command.arg(FLAG).stdin(Stdio::piped()).stdout(Stdio::piped());
        let process = Process::spawn(command)?;
        let (task, count) = match task {
            Task::Hold => ("hold", 0),
            Task::Count(count) => ("count", count),
            Task::Owners(count) => ("owners", count),
        };
        // Through the pipe and not by arguments: a URL may hold a password.
        let order = [&b.url(), task, name.as_str(), &ttl.as_millis().to_string(), &count.to_string(), file].join("\t");
        let pipes = process.with_child(|child| {
            let stdin = child.stdin.as_mut()?;
            writeln!(stdin, "{order}").ok()?;
            child.stdout.take()
        });
        let stdout = pipes.ok_or("a child process has no pipes")?;
        let (sender, lines) = mpsc::channel(1024);
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.blocking_send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { process, lines: Mutex::new(lines) })
    }

    /// A child that holds the name already; its token.
    pub(crate) async fn holder(b: &Bench, name: &LockName, ttl: Duration) -> Result<(Self, u64), Stop> {
        let mut child = Self::start(b, Task::Hold, name, ttl, "")?;
        let token = child.expect("held").await?.parse()?;
        Ok((child, token))
    }

    /// A holder of the version that was released last: `CONFORMANCE_RELEASED` names its test binary. Before there is a release,
    /// this version stands in for it.
    pub(crate) async fn released_holder(b: &Bench, name: &LockName, ttl: Duration) -> Result<(Self, u64), Stop> {
        let program = match std::env::var_os("CONFORMANCE_RELEASED") {
            Some(program) => program.into(),
            None => std::env::current_exe()?,
        };
        let mut child = Self::start_from(&program, b, Task::Hold, name, ttl, "")?;
        let token = child.expect("held").await?.parse()?;
        Ok((child, token))
    }

    /// Waits for the next line, which must start with `word`; the rest of it.
    pub(crate) async fn expect(&mut self, word: &str) -> Result<String, Stop> {
        let lines = self.lines.get_mut().map_err(|_| "a reader of the child's lines panicked")?;
        match timeout(STEP_LIMIT, lines.recv()).await {
            Ok(Some(line)) => match line.strip_prefix(word) {
                Some(rest) => Ok(rest.trim().to_owned()),
                None => Err(format!("a child said '{line}' instead of '{word}'").into()),
            },
            Ok(None) => Err(format!("a child ended instead of saying '{word}'").into()),
            Err(_) => Err(format!("a child did not say '{word}' within {STEP_LIMIT:?}").into()),
        }
    }

    /// Ends its standard input: a holder releases.
    pub(crate) fn end_input(&self) {
        self.process.with_child(|child| drop(child.stdin.take()));
    }

    /// Its process.
    pub(crate) fn process(&self) -> &Process {
        &self.process
    }
}

/// The child's side.
pub(crate) fn serve(harness: Arc<dyn Harness>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return complain(&e.into()),
    };
    match runtime.block_on(obey(harness)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => complain(&stop),
    }
}

fn complain(stop: &Stop) -> ExitCode {
    println!("failed {stop:?}");
    ExitCode::FAILURE
}

async fn obey(harness: Arc<dyn Harness>) -> Result<(), Stop> {
    let mut input = std::io::stdin().lock();
    let mut order = String::new();
    input.read_line(&mut order)?;
    let words: Vec<_> = order.trim_end_matches('\n').split('\t').map(str::to_owned).collect();
    let [url, task, name, ttl, count, file] = <[String; 6]>::try_from(words).map_err(|_| "not an order for a child")?;
    let (ttl, count) = (Duration::from_millis(ttl.parse()?), count.parse::<u32>()?);
    let locks = LockManager::builder().connect(async move { harness.connect(&url).await }).await?;
    match task.as_str() {
        "hold" => {
            let guard = locks.lock(name).ttl(ttl).acquire().await?;
            println!("held {}", guard.fencing_token());
            let lost = guard.lost();
            tokio::spawn(async move { println!("lost {}", lost.await.as_str()) });
            let end = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
            drop(input);
            end.await??;
            println!("released {:?}", guard.release().await?);
        }
        "count" => {
            for _ in 0..count {
                let guard = locks.lock(name.as_str()).ttl(ttl).acquire().await?;
                raise(&file)?;
                guard.release().await?;
            }
            println!("done");
        }
        _ => {
            for i in 0..count {
                let guard = locks.lock(format!("{name}-{i}")).ttl(ttl).acquire().await?;
                println!("owner {}", guard.owner());
                guard.release().await?;
            }
            println!("done");
        }
    }
    Ok(locks.close().await?)
}

/// Adds one to the number in a file, with a gap that a second writer would fall into.
pub(crate) fn raise(file: &str) -> Result<(), Stop> {
    let number: u64 = std::fs::read_to_string(file)?.parse()?;
    thread::sleep(Duration::from_millis(1));
    Ok(std::fs::write(file, (number + 1).to_string())?)
}
