//! A process that locks with another library. It is driven line by line: see neighbours/lines.py.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::thread;
use std::time::Duration;

use conformance_tests::process::Process;
use conformance_tests::{Stop, ensure};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// How long a step may take: on a busy machine, and with a time to live in between.
pub(crate) const STEP_LIMIT: Duration = Duration::from_secs(60);

/// It dies with its handle, and with the test.
pub(crate) struct Client {
    process: Process,
    orders: ChildStdin,
    lines: mpsc::UnboundedReceiver<String>,
}

impl Client {
    pub(crate) async fn start(mut command: Command) -> Result<Self, Stop> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let program = format!("{command:?}");
        let process = Process::spawn(command).map_err(|e| format!("{program}: {e}"))?;
        let pipes = process.with_child(|child| child.stdin.take().zip(child.stdout.take()));
        let (orders, said) = pipes.ok_or("a neighbour has no pipes")?;
        let (sender, lines) = mpsc::unbounded_channel();
        thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut client = Self { process, orders, lines };
        client.expect("ready").await?;
        Ok(client)
    }

    /// Lets it begin to acquire; it says `held` once it holds.
    pub(crate) fn ask(&mut self) -> Result<(), Stop> {
        Ok(writeln!(self.orders, "acquire")?)
    }

    pub(crate) async fn acquire(&mut self) -> Result<(), Stop> {
        self.ask()?;
        self.expect("held").await
    }

    pub(crate) async fn release(&mut self) -> Result<(), Stop> {
        writeln!(self.orders, "release")?;
        self.expect("released").await
    }

    pub(crate) async fn expect(&mut self, word: &str) -> Result<(), Stop> {
        match timeout(STEP_LIMIT, self.lines.recv()).await {
            Ok(Some(line)) => {
                ensure!(line == word, "it said '{line}' instead of '{word}'");
                Ok(())
            }
            Ok(None) => Err(format!("it ended instead of saying '{word}'").into()),
            Err(_) => Err(format!("it did not say '{word}' within {STEP_LIMIT:?}").into()),
        }
    }

    /// Watches that it says nothing for so long, and lives.
    pub(crate) async fn stays_silent(&mut self, duration: Duration) -> Result<(), Stop> {
        match timeout(duration, self.lines.recv()).await {
            Err(_) => Ok(()),
            Ok(Some(line)) => Err(format!("it said '{line}' where it had to wait").into()),
            Ok(None) => Err("it ended where it had to wait".into()),
        }
    }

    /// Ends it at once, as a crash would.
    pub(crate) fn kill(&self) -> Result<(), Stop> {
        self.process.kill()
    }
}
