//! Many processes that take turns on one name, each of them a program of its own.

use std::fmt;
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::Stop;
use crate::process::Process;

/// The argument by which the program becomes one of them.
pub const FLAG: &str = "--load-process";
const NAME: &str = "turns";
/// How long all of them may take to end once the last turn could have been taken.
const LIMIT: Duration = Duration::from_secs(600);

/// What came of it.
#[derive(Debug)]
pub struct Turns {
    processes: u32,
    turns: u32,
    failed: usize,
    counted: u32,
    span: Duration,
}

/// Starts so many processes of `program` (which calls [`take_turns`] when its first argument is [`FLAG`]), each of which adds one to
/// a number in a file so many times, with no protection but the lock at `url`.
///
/// # Errors
/// When a process cannot be started.
///
/// # Cancel safety
/// Dropping it ends the processes, and leaves what they hold to its TTL.
pub async fn turns(url: &str, program: &Path, processes: u32, turns: u32) -> Result<Turns, Stop> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("count");
    std::fs::write(&file, "0")?;
    let order = [url, &turns.to_string(), &file.to_string_lossy()].join("\t");
    let start = Instant::now();
    let mut all = Vec::new();
    for _ in 0..processes {
        let mut command = Command::new(program);
        command.arg(FLAG).stdin(Stdio::piped());
        let process = Process::spawn(command)?;
        // Through the pipe and not by arguments: a URL may hold a password.
        let told =
            process.with_child(|child| child.stdin.take().is_some_and(|mut pipe| writeln!(pipe, "{order}").is_ok()));
        crate::ensure!(told, "a process ended before it was told what to do");
        all.push(process);
    }
    let ended = crate::eventually(LIMIT, || async { all.iter().all(|process| process.exit_code().is_some()) }).await;
    crate::ensure!(ended, "some of {processes} processes have not ended after {LIMIT:?}");
    let failed = all.iter().filter(|process| process.exit_code() != Some(0)).count();
    let counted = std::fs::read_to_string(&file)?.trim().parse()?;
    Ok(Turns { processes, turns, failed, counted, span: start.elapsed() })
}

/// What each of these processes does; its order stands in its standard input.
///
/// # Errors
/// What the lock or the file says.
pub fn take_turns() -> Result<ExitCode, Stop> {
    let mut order = String::new();
    std::io::stdin().read_line(&mut order)?;
    let mut words = order.trim_end().split('\t');
    let (Some(url), Some(turns), Some(file)) = (words.next(), words.next(), words.next()) else {
        return Err("a process needs URL, TURNS and FILE".into());
    };
    let turns: u32 = turns.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let locks = super::manager(url).await?;
        for _ in 0..turns {
            let guard = locks.lock(NAME).acquire().await?;
            let count: u32 = std::fs::read_to_string(file)?.trim().parse()?;
            tokio::task::yield_now().await;
            std::fs::write(file, (count + 1).to_string())?;
            guard.release().await?;
        }
        locks.close().await?;
        Ok(ExitCode::SUCCESS)
    })
}

impl Turns {
    /// Whether every turn was counted, and every process ended well.
    pub fn is_exact(&self) -> bool {
        self.failed == 0 && self.counted == self.processes * self.turns
    }
}

impl fmt::Display for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processes, turns, failed, counted, span } = self;
        writeln!(f, "processes                   {processes}, failed {failed}")?;
        write!(f, "turns                       {counted} of {} in {span:.1?}", processes * turns)
    }
}
