//! Long runs: a siege of a lock on a Redis server of its own (see `conformance_tests::siege`), and load on any server.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use conformance_tests::{Stop, last_act, load};

/// Long runs: under faults on a Redis server that is started for them, and under load on any server.
#[derive(Parser)]
#[command(after_help = "Examples:
  siege last-act --rounds 200    guards dropped as the last act of main: how many entries are left
  siege held --url etcd://h:2379 1,000 locks held for a minute: what the server counts
  siege crowd --url redis://h/   10,000 names held while 1,000 waiters take one more in turn
  siege cycles --url redis://h/  100,000 cycles: memory, files, tasks and connections before and after
  siege turns --url redis://h/   100 processes that take turns on one name")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Processes whose `main` ends with a guard in its hands.
    LastAct {
        /// How many processes.
        #[arg(long, default_value_t = 200)]
        rounds: usize,
    },
    /// Many locks held by one process: requests and connections at the server meanwhile, and memory for each.
    Held {
        /// The server, which nobody else should use: redis, mysql, zk on this machine, or etcd on this machine.
        #[arg(long)]
        url: String,
        /// How many names.
        #[arg(long, default_value_t = 1000)]
        names: usize,
        /// How long they are held.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
    /// Many names held while many tasks of the same process wait for one more.
    Crowd {
        /// The server or file, which nobody else should use.
        #[arg(long)]
        url: String,
        /// How many names are held.
        #[arg(long, default_value_t = 10_000)]
        held: usize,
        /// How many tasks wait.
        #[arg(long, default_value_t = 1000)]
        waiters: usize,
    },
    /// Many cycles of one process: what it takes up must stay flat.
    Cycles {
        /// The server or file, which nobody else should use.
        #[arg(long)]
        url: String,
        /// How many times a lock is acquired and released.
        #[arg(long, default_value_t = 100_000)]
        cycles: u64,
    },
    /// Many processes that count together under one name.
    Turns {
        /// The server or file.
        #[arg(long)]
        url: String,
        /// How many processes.
        #[arg(long, default_value_t = 100)]
        processes: u32,
        /// How often each of them takes the lock.
        #[arg(long, default_value_t = 20)]
        turns: u32,
    },
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let done = match arguments.get(1).map(String::as_str) {
        Some(last_act::FLAG) => last_act::act(&arguments[2..]),
        Some(load::FLAG) => load::take_turns(),
        _ => command(Arguments::parse().what),
    };
    done.unwrap_or_else(|stop| {
        eprintln!("siege: {stop:?}");
        ExitCode::FAILURE
    })
}

fn command(what: What) -> Result<ExitCode, Stop> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match what {
            What::Held { url, names, seconds } => {
                let held = load::hold(&url, names, Duration::from_secs(seconds)).await?;
                println!("{held}");
                Ok(exit(held.is_whole()))
            }
            What::Crowd { url, held, waiters } => {
                let crowd = load::crowd(&url, held, waiters).await?;
                println!("{crowd}");
                Ok(exit(crowd.is_whole()))
            }
            What::Cycles { url, cycles } => {
                let cycles = load::cycles(&url, cycles).await?;
                println!("{cycles}");
                cycles.grown().iter().for_each(|line| println!("{line}"));
                Ok(exit(cycles.grown().is_empty()))
            }
            What::Turns { url, processes, turns } => {
                let turns = load::turns(&url, &std::env::current_exe()?, processes, turns).await?;
                println!("{turns}");
                Ok(exit(turns.is_exact()))
            }
            What::LastAct { rounds } => {
                let dropped = last_act::count(rounds, false).await?;
                let closed = last_act::count(rounds, true).await?;
                println!("{rounds} guards dropped at the end of main: {dropped} entries left after 1 s");
                println!("{rounds} managers closed before it:         {closed} entries left after 1 s");
                Ok(exit(closed == 0))
            }
        }
    })
}

fn exit(well: bool) -> ExitCode {
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
