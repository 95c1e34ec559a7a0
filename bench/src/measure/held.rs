//! What many held names cost while nothing happens. All servers at once: what is counted does not depend on speed.

use std::process::Stdio;
use std::time::{Duration, Instant};

use conformance_tests::load::gauge::{self, Footprint};
use conformance_tests::{Stop, ensure};
use distlock::Options;
use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

use crate::pace::Pace;
use crate::results::{Measure, Results};
use crate::rows::{Backend, Row};
use crate::servers;
use crate::tally::Tally;

/// How many are taken at once.
const AT_ONCE: usize = 100;
/// Under such a load an answer may take its time.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the names may take to be taken.
const TAKING: Duration = Duration::from_secs(75);
/// What was only needed to take the names is over then.
const SETTLE: Duration = Duration::from_secs(2);

/// What a process that holds names has seen.
#[derive(Debug, Serialize, Deserialize)]
struct Seen {
    requests_per_second: f64,
    connections: u64,
    memory: u64,
    tasks: u64,
    lost: usize,
}

pub async fn run(backends: &[Backend], pace: &Pace, results: &mut Results) -> Result<(), Stop> {
    let watched = backends.iter().filter(|backend| backend.counts()).map(|backend| watch(*backend, pace));
    for (backend, seen) in try_join_all(watched).await? {
        for (names, seen) in seen {
            match seen {
                Ok(seen) => results.add((backend, Measure::Held, Row::Ours, names), &seen.figures()),
                // A server may be too slow for so many; the rest of the run is worth keeping.
                Err(stop) => {
                    results.left_out.push((format!("{names} held names on {}", backend.label()), format!("{stop:?}")));
                }
            }
        }
    }
    Ok(())
}

impl Seen {
    fn figures(&self) -> [(&str, f64); 5] {
        [
            ("requests", self.requests_per_second),
            ("connections", self.connections as f64),
            ("memory", self.memory as f64),
            ("tasks", self.tasks as f64),
            ("lost", self.lost as f64),
        ]
    }
}

/// What came of each number of names.
type All = Vec<(usize, Result<Seen, Stop>)>;

/// One server, and for each number of names a process of its own, whose memory nobody else touches.
async fn watch(backend: Backend, pace: &Pace) -> Result<(Backend, All), Stop> {
    let server = servers::start(backend).await?;
    let mut all = Vec::new();
    for names in pace.held {
        all.push((*names, child(&server.url(), *names, pace.held_span).await));
    }
    Ok((backend, all))
}

async fn child(url: &str, names: usize, span: Duration) -> Result<Seen, Stop> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["hold", &names.to_string(), &span.as_millis().to_string()]).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    // Through the pipe and not by arguments: a URL may hold a password.
    let mut input = child.stdin.take().ok_or("a child without pipes")?;
    input.write_all(format!("{url}\n").as_bytes()).await?;
    let ended = timeout(span + TAKING, child.wait_with_output()).await;
    let output = ended.map_err(|_| format!("they could not be taken and watched within {:?}", span + TAKING))??;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the process that should hold them failed: {complaint}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The child's side; the URL stands in its standard input.
pub async fn hold(names: usize, span: Duration) -> Result<(), Stop> {
    let url = std::io::stdin().lines().next().ok_or("give the URL by the standard input")??;
    let before = gauge::server(&url).await?.ok_or("this backend counts nothing")?.connections;
    let runtime = tokio::runtime::Handle::current();
    let locks = Options::new().runtime(runtime).operation_timeout(PATIENCE).connect(&url).await?;
    locks.lock("held-warm").acquire().await?.release().await?;
    let empty = Footprint::now()?;
    let mut guards = Vec::with_capacity(names);
    for some in (0..names).collect::<Vec<_>>().chunks(AT_ONCE) {
        guards.extend(try_join_all(some.iter().map(|number| locks.lock(format!("held-{number}")).acquire())).await?);
    }
    tokio::time::sleep(SETTLE).await;
    let full = Footprint::now()?;
    let connections = gauge::server(&url).await?.map_or(0, |now| now.connections).saturating_sub(before);
    let (start, tally) = (Instant::now(), Tally::start(&url).await?);
    tokio::time::sleep(span).await;
    let (span, requests) = (start.elapsed(), tally.stop().await?);
    let seen = Seen {
        requests_per_second: requests as f64 / span.as_secs_f64(),
        connections,
        memory: full.memory.saturating_sub(empty.memory),
        tasks: full.tasks,
        lost: guards.iter().filter(|guard| !guard.is_held()).count(),
    };
    println!("{}", serde_json::to_string(&seen)?);
    // The server is thrown away, so nothing need be given back.
    std::process::exit(0)
}
