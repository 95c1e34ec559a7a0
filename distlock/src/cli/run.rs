//! `distlock run`: acquire, run the command, release.

use std::process::ExitStatus;
use std::time::Duration;

use distlock::{Clock, ErrorKind, LockGuard, LockManager, LockName, Options, Released};
use std::os::unix::process::ExitStatusExt;

use super::args::{Globals, Run};
use super::child::Child;
use super::config::{Config, WaitLimit};
use super::exit::{Failure, HELD, LOST, SIGNAL, SOFTWARE, TIMEOUT};
use super::report::Report;
use super::signals::Signals;
use super::supervise::{Outcome, Supervisor};
use super::terminal::Terminal;
use super::{connect, name_of, show};

/// How long a tool that was told to end waits for what it left in the backend.
const CLEAN_UP: Duration = Duration::from_millis(400);
/// The bound on looking up who holds a lock that was not got.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) async fn run(globals: &Globals, args: Run, report: Report) -> Result<u8, Failure> {
    let name = name_of(&args.name)?;
    let config = Config::load(globals, args.ttl.as_deref(), args.wait.as_deref())?;
    let wait = if args.no_wait { WaitLimit::Never } else { config.wait.value };
    let mut signals = Signals::new().map_err(|e| Failure::new(SOFTWARE, format!("cannot listen to signals: {e}")))?;
    let clock = Clock::system();
    let start = clock.now();

    let connecting = connect(&config, Options::new().ttl(config.ttl.value).connect_timeout(connect_timeout(wait)));
    let locks = tokio::select! {
        biased;
        signal = signals.next_ending() => return Ok(SIGNAL + signal as u8),
        locks = connecting => locks.map_err(|failure| failure.about(&name))?,
    };
    let spent = clock.now().saturating_since(start);
    report.info(format!("asking for lock '{name}' ({})", locks.capabilities().backend));
    let guard = tokio::select! {
        biased;
        signal = signals.next_ending() => {
            let _ = tokio::time::timeout(CLEAN_UP, locks.close()).await;
            return Ok(SIGNAL + signal as u8);
        }
        guard = acquire(&locks, &name, &args, wait, spent) => guard?,
    };
    report.info(format!(
        "holding lock '{name}', fencing token {}, TTL {}",
        guard.fencing_token(),
        humantime::format_duration(guard.ttl())
    ));
    let ended = hold(&name, &args, &guard, &mut signals, report).await;
    tokio::select! {
        biased;
        () = release(&name, guard, &ended, report) => {}
        signal = signals.next_ending() => {
            report.warn(format!("lock '{name}': {signal} came before its release was confirmed; its TTL will free it"));
        }
    }
    match ended? {
        Outcome::Lost => Ok(LOST),
        Outcome::Ended(status) => Ok(code(status)),
    }
}

/// The wait limit covers connecting; without a limit the usual bounds hold.
fn connect_timeout(wait: WaitLimit) -> Duration {
    const CONNECT: Duration = Duration::from_secs(5);
    const OPERATION: Duration = Duration::from_secs(2);
    match wait {
        WaitLimit::Forever => CONNECT,
        WaitLimit::For(limit) if !limit.is_zero() => limit.min(CONNECT),
        WaitLimit::For(_) | WaitLimit::Never => OPERATION,
    }
}

async fn acquire(
    locks: &LockManager,
    name: &LockName,
    args: &Run,
    wait: WaitLimit,
    spent: Duration,
) -> Result<LockGuard, Failure> {
    let mut request = locks.lock(name.as_str());
    if let Some(label) = &args.label {
        request = request.label(label);
    }
    if let Some(span) = args.max_hold {
        request = request.max_hold(span);
    }
    let limit = match wait {
        WaitLimit::Never => {
            let Some(guard) = request.try_acquire().await? else {
                let code = args.conflict_exit_code.unwrap_or(HELD);
                return Err(Failure::new(code, format!("lock '{name}' is held by {}", holder(locks, name).await)));
            };
            return Ok(guard);
        }
        WaitLimit::Forever => return Ok(request.wait_forever().acquire().await?),
        WaitLimit::For(limit) => limit,
    };
    match request.wait(limit.saturating_sub(spent)).acquire().await {
        Err(err) if err.kind() == ErrorKind::Timeout => {
            let code = args.conflict_exit_code.unwrap_or(TIMEOUT);
            let holder = match err.holder() {
                Some(holder) => show::brief(holder),
                None => holder(locks, name).await,
            };
            let limit = humantime::format_duration(limit);
            Err(Failure::new(code, format!("lock '{name}' was still held after {limit} by {holder}")))
        }
        other => Ok(other?),
    }
}

/// Who holds the lock, as far as can be learnt quickly.
async fn holder(locks: &LockManager, name: &LockName) -> String {
    match tokio::time::timeout(LOOK, locks.inspect(name.as_str())).await {
        Ok(Ok(Some(holder))) => show::brief(&holder),
        _ => "another".to_owned(),
    }
}

/// Runs the command to its end.
async fn hold(
    name: &LockName,
    args: &Run,
    guard: &LockGuard,
    signals: &mut Signals,
    report: Report,
) -> Result<Outcome, Failure> {
    let failed = |e: std::io::Error| Failure::new(SOFTWARE, format!("lock '{name}': {e}"));
    signals.listen_for_child().map_err(failed)?;
    let mut terminal = Terminal::open();
    let variables = [
        ("DISTLOCK_NAME", name.as_str().to_owned()),
        ("DISTLOCK_OWNER", guard.owner().to_string()),
        ("DISTLOCK_FENCING_TOKEN", guard.fencing_token().to_string()),
        ("DISTLOCK_TTL_MS", guard.ttl().as_millis().to_string()),
    ];
    let tty = terminal.as_mut().and_then(Terminal::lend_at_start);
    let ended = match Child::spawn(&args.command, variables, tty, signals) {
        Ok(child) => {
            let kill_after = args.kill_after.min(guard.ttl() / 3);
            Supervisor::new(name, guard, child, terminal.as_mut(), kill_after, report)
                .run(signals)
                .await
                .map_err(failed)
        }
        Err(failure) => Err(failure),
    };
    if let Some(terminal) = &mut terminal {
        terminal.take_back();
        if !matches!(&ended, Ok(Outcome::Ended(status)) if status.code().is_some()) {
            terminal.restore_settings();
        }
    }
    ended
}

/// A problem here stands beside the command's code, never in its place.
async fn release(name: &LockName, guard: LockGuard, ended: &Result<Outcome, Failure>, report: Report) {
    let lost = matches!(ended, Ok(Outcome::Lost));
    match guard.release().await {
        Ok(Released::NotHeld) if !lost => {
            report.warn(format!("lock '{name}' was not held any more when the command had ended"));
        }
        Ok(_) => {}
        // After a loss the entry may be another's, and the lines before have told the user.
        Err(err) if lost => report.info(err.to_string()),
        Err(err) => report.warn(format!("{err}; the lock is free at the latest when its TTL has passed")),
    }
}

fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        // The kernel keeps 8 bits of a code and 7 of a signal.
        (Some(code), _) => code as u8,
        (None, Some(signal)) => SIGNAL + signal as u8,
        (None, None) => SOFTWARE,
    }
}
