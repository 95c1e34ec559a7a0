//! A job that one of many machines does each night, and that none does for ever.
//!
//! ```sh
//! cargo run -p distlock --example nightly_job
//! cargo run -p distlock --example nightly_job --features zk -- zk://127.0.0.1:2181
//! ```
//!
//! Cron starts the same job on every machine; [`tonight`] is what each of them runs. The story takes a few seconds: two machines start together, a
//! third one's clock is late, and one night the job hangs. The exit code is 0 only if each went as it should.

mod common;

use std::error::Error;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use distlock::{ErrorKind, Held, LockError, LockManager, LostReason, RunError};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// Long enough for a slow server to say who holds the lock, and too short to queue for a job that takes an hour.
const NO_QUEUE: Duration = Duration::from_secs(1);
/// More than the clocks of two machines differ: until then the name stays taken, however quick the job was.
const MIN_HOLD: Duration = Duration::from_secs(3);
/// A job that takes longer hangs: it is cut off, and tomorrow's finds the name free.
const MAX_HOLD: Duration = Duration::from_secs(4);

/// A job that one of many machines does each night.
#[derive(Parser)]
struct Args {
    /// The backend, such as redis://host/ [default: DISTLOCK_URL, else a SQLite file]
    url: Option<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    common::ended("nightly_job", tell(Args::parse()).await)
}

/// What a machine can say in the morning.
#[derive(Debug, PartialEq)]
enum Night {
    Done(u32),
    Elsewhere,
    CutOff(LostReason),
}

/// The job as each machine runs it: does it, or leaves it to the one that is at it.
async fn tonight<W: Future<Output = u32>>(
    locks: &LockManager,
    machine: &str,
    work: impl FnOnce(Held) -> W,
) -> Result<Night, LockError> {
    let request = locks.lock("nightly-report").label(machine).wait(NO_QUEUE).min_hold(MIN_HOLD).max_hold(MAX_HOLD);
    // The work is dropped where it stands when the lock is lost.
    match request.run(work).await {
        Ok(pages) => {
            println!("{machine}: done, {pages} pages");
            Ok(Night::Done(pages))
        }
        Err(RunError::Lost { reason, .. }) => {
            println!("{machine}: cut off: {reason}");
            Ok(Night::CutOff(reason))
        }
        Err(RunError::NotAcquired(error)) if error.kind() == ErrorKind::Timeout => {
            let who = error.holder().and_then(|holder| holder.label.as_deref()).unwrap_or("another machine");
            println!("{machine}: {who} does it tonight");
            Ok(Night::Elsewhere)
        }
        Err(RunError::NotAcquired(error)) => Err(error),
        // `RunError` may grow; whatever it is, the job was not done.
        Err(other) => Err(LockError::new(ErrorKind::Internal, other.to_string())),
    }
}

/// Three chapters, each counted on a thread for blocking work.
async fn report(machine: &str, held: Held) -> u32 {
    let mut pages = 0;
    for chapter in 1..=3 {
        let lock = held.clone();
        // Only a thread that died fails to be joined; then there is no chapter.
        pages += spawn_blocking(move || count(&lock, Duration::from_millis(100))).await.unwrap_or(0);
        println!("{machine}: chapter {chapter} of 3, token {}, held: {}", held.fencing_token(), held.is_held());
    }
    pages
}

/// Counts pages for a while. A thread is not dropped with the future that waits for it, so it looks at the lock itself, between two pages.
fn count(held: &Held, span: Duration) -> u32 {
    let start = Instant::now();
    let mut pages = 0;
    while held.is_held() && start.elapsed() < span {
        thread::sleep(Duration::from_millis(20));
        pages += 1;
    }
    pages
}

async fn tell(args: Args) -> Result<bool, Box<dyn Error>> {
    let locks = common::connect(args.url, None).await?;
    let (url, locks) = (locks.url, locks.manager);
    println!("-- Monday: red and blue start together, over {url}");
    let monday = Instant::now();
    // Green's clock is late, by less than the least hold.
    let late = async {
        sleep(MIN_HOLD / 4).await;
        println!("-- green's clock is late; the others have counted their pages already");
        tonight(&locks, "green", |held| report("green", held)).await
    };
    let (red, blue, green) = tokio::try_join!(
        tonight(&locks, "red", |held| report("red", held)),
        tonight(&locks, "blue", |held| report("blue", held)),
        late
    )?;
    let once = [&red, &blue].into_iter().filter(|night| matches!(night, Night::Done(_))).count() == 1
        && [&red, &blue].contains(&&Night::Elsewhere)
        && green == Night::Elsewhere
        && monday.elapsed() >= MIN_HOLD;

    println!("-- Tuesday: the job hangs");
    let (stopped, worker_stopped) = oneshot::channel();
    let hanging = tonight(&locks, "red", |held| async move {
        let work = spawn_blocking(move || {
            let pages = count(&held, Duration::MAX);
            println!("red: the counting thread saw the loss, and stops");
            // Nobody listens if the story ended early.
            let _ = stopped.send(());
            pages
        });
        work.await.unwrap_or(0)
    });
    let cut_off = hanging.await? == Night::CutOff(LostReason::MaxHold);
    worker_stopped.await?;

    println!("-- Wednesday: the name is free again");
    let again = matches!(tonight(&locks, "blue", |held| report("blue", held)).await?, Night::Done(_));
    locks.close().await?;
    let right = once && cut_off && again;
    println!("{}", if right { "each night went as it should" } else { "WRONG: a night did not go as it should" });
    Ok(right)
}
