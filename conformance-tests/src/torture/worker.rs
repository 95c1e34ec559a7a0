//! A worker: several tasks that use the locks as any program would. A process of its own, or a thread where the store reaches no further.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::{Command as Program, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use lock_core::LockManager;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::acts::contend;
use super::history::{Log, What};
use super::plan::Dice;
use super::probes::probe;
use super::register::Pen;
use crate::harnesses::attached::Attached;
use crate::process::Process;
use crate::{Harness, Stop, eventually};

/// The argument by which the program becomes a worker.
pub const FLAG: &str = "--torture-worker";

/// How long a thread may take to be gone: one of its tasks may block it.
const KILL: Duration = Duration::from_secs(20);

/// How many tasks of a worker fight for the shared names. One more looks and tries on names of its own.
const CONTENDERS: u64 = 3;

/// What a worker is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) url: String,
    pub(super) history: PathBuf,
    pub(super) register: String,
    pub(super) names: Vec<String>,
    /// A name that nobody takes but one who dies with it.
    pub(super) quiet: String,
    /// Before the names of its own.
    pub(super) prefix: String,
    pub(super) seed: u64,
}

/// What a worker is told while it works.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Command {
    /// One of its tasks sleeps on the thread that all share, for so many milliseconds.
    Block(u64),
    /// No file or socket can be opened for so many milliseconds.
    Starve(u64),
    /// It releases all and ends.
    End,
}

/// A worker as its parent has it.
#[derive(Debug)]
pub(super) enum Worker {
    Process(Process),
    Thread { commands: mpsc::Sender<Command>, thread: Option<std::thread::JoinHandle<()>> },
}

impl Worker {
    pub(super) fn process(order: &Order) -> Result<Self, Stop> {
        let mut command = Program::new(std::env::current_exe()?);
        command.arg(FLAG).stdin(Stdio::piped()).stdout(Stdio::null());
        let worker = Self::Process(Process::spawn(command)?);
        // Not by arguments: a URL may hold a password.
        worker.say(&serde_json::to_string(order)?)?;
        Ok(worker)
    }

    pub(super) fn thread(order: Order, harness: Arc<dyn Harness>) -> Self {
        let (commands, orders) = mpsc::channel(16);
        let thread = std::thread::spawn(move || {
            let worked = runtime().and_then(|runtime| runtime.block_on(serve(order, harness, orders)));
            // The history has no end then, which the checker sees.
            if let Err(stop) = worked {
                eprintln!("torture: a worker failed: {stop:?}");
            }
        });
        Self::Thread { commands, thread: Some(thread) }
    }

    fn say(&self, line: &str) -> Result<(), Stop> {
        let Self::Process(process) = self else { return Ok(()) };
        let said = process.with_child(|child| child.stdin.as_mut().map(|stdin| writeln!(stdin, "{line}")));
        Ok(said.ok_or("a worker has no pipe")??)
    }

    pub(super) fn tell(&self, command: Command) -> Result<(), Stop> {
        match self {
            Self::Process(_) => self.say(&serde_json::to_string(&command)?),
            Self::Thread { commands, .. } => Ok(commands.try_send(command)?),
        }
    }

    /// Ends it at once, and waits until it is gone. A thread's tasks are dropped, its guards with them.
    pub(super) async fn kill(&mut self) -> Result<(), Stop> {
        match self {
            Self::Process(process) => process.kill(),
            Self::Thread { commands, thread } => {
                // A closed channel ends it without a word.
                *commands = mpsc::channel(1).0;
                let gone = || async { thread.as_ref().is_none_or(std::thread::JoinHandle::is_finished) };
                if eventually(KILL, gone).await { Ok(()) } else { Err("a thread does not end".into()) }
            }
        }
    }

    pub(super) fn as_process(&self) -> Option<&Process> {
        match self {
            Self::Process(process) => Some(process),
            Self::Thread { .. } => None,
        }
    }

    /// Whether it has ended, and how if not in order.
    pub(super) fn ended(&self) -> Option<Result<(), String>> {
        match self {
            Self::Process(process) => {
                process.exit_code().map(|code| if code == 0 { Ok(()) } else { Err(format!("exit code {code}")) })
            }
            Self::Thread { thread, .. } => thread.as_ref().is_none_or(|thread| thread.is_finished()).then_some(Ok(())),
        }
    }
}

fn runtime() -> Result<Runtime, Stop> {
    // One thread for all tasks, so that one that blocks blocks all.
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Works as the order on standard input says, until that ends.
///
/// # Errors
/// What kept it from working.
pub fn obey() -> Result<ExitCode, Stop> {
    let mut order = String::new();
    std::io::stdin().lock().read_line(&mut order)?;
    let order: Order = serde_json::from_str(&order)?;
    let (sender, commands) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let Ok(command) = serde_json::from_str(&line) else { break };
            if sender.blocking_send(command).is_err() {
                break;
            }
        }
    });
    runtime()?.block_on(serve(order, Arc::new(Attached::unnamed()), commands))?;
    Ok(ExitCode::SUCCESS)
}

/// Until it is told to end, or the channel closes: then it is gone without a word.
async fn serve(order: Order, harness: Arc<dyn Harness>, mut commands: mpsc::Receiver<Command>) -> Result<(), Stop> {
    let log = Arc::new(Log::create(&order.history)?);
    let locks = tokio::select! {
        locks = connected(&order, &harness) => locks,
        () = end_of(&mut commands) => return Ok(()),
    };
    log.write(What::Begin);
    let mut dice = Dice::new(order.seed);
    let mut tasks = JoinSet::new();
    for _ in 0..CONTENDERS {
        let hand = Hand::new(&locks, &log, &order, &mut dice).await?;
        tasks.spawn(contend(hand));
    }
    let hand = Hand::new(&locks, &log, &order, &mut dice).await?;
    tasks.spawn(probe(hand));
    loop {
        tokio::select! {
            command = commands.recv() => match command {
                None => return Ok(()),
                Some(Command::End) => break,
                Some(Command::Block(ms)) => std::thread::sleep(Duration::from_millis(ms)),
                Some(Command::Starve(ms)) => drop(tokio::spawn(starve(Duration::from_millis(ms)))),
            },
            Some(ended) = tasks.join_next() => ended.map_err(|e| Stop::from(e.to_string()))??,
        }
    }
    tasks.shutdown().await;
    locks.close().await?;
    log.write(What::End);
    Ok(())
}

async fn end_of(commands: &mut mpsc::Receiver<Command>) {
    while !matches!(commands.recv().await, None | Some(Command::End)) {}
}

/// A manager, however long the server is away.
async fn connected(order: &Order, harness: &Arc<dyn Harness>) -> LockManager {
    loop {
        let (url, harness) = (order.url.clone(), Arc::clone(harness));
        match LockManager::builder().connect(async move { harness.connect(&url).await }).await {
            Ok(locks) => return locks,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn starve(span: Duration) -> Result<(), Stop> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, 3, hard)?;
    tokio::time::sleep(span).await;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, soft.max(4), hard)?)
}

/// What one task of a worker has in its hands.
#[derive(Debug)]
pub(super) struct Hand {
    pub(super) locks: LockManager,
    pub(super) log: Arc<Log>,
    pub(super) names: Vec<String>,
    pub(super) quiet: String,
    pub(super) prefix: String,
    pub(super) dice: Dice,
    pub(super) pen: Pen,
}

impl Hand {
    async fn new(locks: &LockManager, log: &Arc<Log>, order: &Order, dice: &mut Dice) -> Result<Self, Stop> {
        Ok(Self {
            locks: locks.clone(),
            log: Arc::clone(log),
            names: order.names.clone(),
            quiet: order.quiet.clone(),
            prefix: order.prefix.clone(),
            dice: Dice::new(dice.roll(u64::MAX)),
            pen: Pen::connect(&order.register).await?,
        })
    }
}
