//! Long runs: a siege of a lock on a Redis server of its own (see `conformance_tests::siege`), and many locks held at any server.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use conformance_tests::siege::Siege;
use conformance_tests::{Stop, held, last_act, siege};

/// Long runs: under faults on a Redis server that is started for them, and at rest on any server.
#[derive(Parser)]
#[command(after_help = "Examples:
  siege kills --seconds 120      4 processes x 10 waiters on one name, under kill -9, stops and cut lines
  siege last-act --rounds 200    guards dropped as the last act of main: how many entries are left
  siege held --url etcd://h:2379 1,000 locks held for a minute: what the server counts")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Processes fight for one name while they are killed and stopped; their beliefs are compared afterwards.
    Kills {
        /// How long the faults go on.
        #[arg(long, default_value_t = 120)]
        seconds: u64,
        /// Waiters in each of the four processes.
        #[arg(long, default_value_t = 10)]
        waiters: usize,
        /// Which faults come when.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
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
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let done = match arguments.get(1).map(String::as_str) {
        Some(siege::FLAG) => siege::work(&arguments[2..]),
        Some(last_act::FLAG) => last_act::act(&arguments[2..]),
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
            What::Kills { seconds, waiters, seed } => {
                let verdict = Siege { span: Duration::from_secs(seconds), waiters, seed }.lay().await?;
                println!("seed                        {seed}\n{verdict}");
                Ok(if verdict.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
            }
            What::Held { url, names, seconds } => {
                let held = held::hold(&url, names, Duration::from_secs(seconds)).await?;
                println!("{held}");
                Ok(if held.is_whole() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
            }
            What::LastAct { rounds } => {
                let dropped = last_act::count(rounds, false).await?;
                let closed = last_act::count(rounds, true).await?;
                println!("{rounds} guards dropped at the end of main: {dropped} entries left after 1 s");
                println!("{rounds} managers closed before it:         {closed} entries left after 1 s");
                Ok(if closed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
            }
        }
    })
}
