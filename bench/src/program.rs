//! Workers in other processes: a program takes orders by lines and answers each with a line of JSON.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::process::Process;
use conformance_tests::{Stop, ensure};
use tokio::io::AsyncBufReadExt;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::grants::Grants;
use crate::order::Order;
use crate::rows::{Backend, Row};
use crate::workers::Runner;

/// How long a program may take to start, and to answer after the time of its order.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program that carries out orders. It dies with its handle.
pub struct Program {
    named: String,
    _process: Process,
    orders: ChildStdin,
    lines: mpsc::UnboundedReceiver<String>,
    /// The last line that it complained with.
    complaint: Arc<Mutex<String>>,
}

impl Program {
    /// Starts it, tells it the server's address and waits until it is ready.
    pub async fn start(command: Command, address: &str) -> Result<Self, Stop> {
        let mut program = Self::launch(command, address)?;
        program.ready().await?;
        Ok(program)
    }

    fn launch(mut command: Command, address: &str) -> Result<Self, Stop> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let named = command.get_program().to_string_lossy().into_owned();
        let process = Process::spawn(command).map_err(|e| format!("{named}: {e}"))?;
        let pipes = process.with_child(|child| child.stdin.take().zip(child.stdout.take()).zip(child.stderr.take()));
        let ((mut orders, said), complained) = pipes.ok_or("a program without pipes")?;
        // Through the pipe and not by arguments: a URL may hold a password.
        writeln!(orders, "{address}")?;
        let (sender, lines) = mpsc::unbounded_channel();
        thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let complaint = Arc::new(Mutex::new(String::new()));
        let last = Arc::clone(&complaint);
        thread::spawn(move || {
            for line in BufReader::new(complained).lines().map_while(Result::ok).filter(|line| !line.is_empty()) {
                *last.lock().unwrap_or_else(PoisonError::into_inner) = line;
            }
        });
        Ok(Self { named, _process: process, orders, lines, complaint })
    }

    async fn ready(&mut self) -> Result<(), Stop> {
        let line = self.line(PATIENCE).await?;
        ensure!(line == "ready", "{} said '{line}' instead of 'ready'", self.named);
        Ok(())
    }

    fn tell(&mut self, order: &Order) -> Result<(), Stop> {
        Ok(writeln!(self.orders, "{order}")?)
    }

    async fn answer(&mut self, order: &Order) -> Result<Grants, Stop> {
        Ok(serde_json::from_str(&self.line(order.span + PATIENCE).await?)?)
    }

    fn complaint(&self) -> String {
        self.complaint.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn line(&mut self, limit: Duration) -> Result<String, Stop> {
        match timeout(limit, self.lines.recv()).await {
            Ok(Some(line)) => Ok(line),
            Ok(None) => Err(format!("{} ended instead of answering: {}", self.named, self.complaint()).into()),
            Err(_) => Err(format!("{} did not answer within {limit:?}: {}", self.named, self.complaint()).into()),
        }
    }
}

#[async_trait]
impl Runner for Program {
    async fn run(&mut self, order: &Order) -> Result<Grants, Stop> {
        self.tell(order)?;
        self.answer(order).await
    }
}

/// As many programs as there are workers, with one worker each.
pub struct Processes(Vec<Program>);

impl Processes {
    /// Starts so many of them.
    pub async fn start(row: Row, backend: Backend, url: &str, count: usize) -> Result<Self, Stop> {
        let mut all = Vec::new();
        for _ in 0..count {
            let command = if row.is_program() { crate::programs::command(row)? } else { itself(row, backend)? };
            all.push(Program::launch(command, url)?);
        }
        for program in &mut all {
            program.ready().await?;
        }
        Ok(Self(all))
    }
}

#[async_trait]
impl Runner for Processes {
    async fn run(&mut self, order: &Order) -> Result<Grants, Stop> {
        let one = Order { workers: 1, ..order.clone() };
        for program in &mut self.0 {
            program.tell(&one)?;
        }
        let mut grants = Grants::default();
        for program in &mut self.0 {
            grants.0.append(&mut program.answer(&one).await?.0);
        }
        Ok(grants)
    }
}

/// This program as a worker.
fn itself(row: Row, backend: Backend) -> Result<Command, Stop> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("worker").arg(row.argument()).arg(backend_argument(backend));
    Ok(command)
}

pub fn backend_argument(backend: Backend) -> String {
    use clap::ValueEnum;
    backend.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// The worker's side: the address, then orders until the input ends.
pub async fn serve(row: Row, backend: Backend) -> Result<(), Stop> {
    // Without blocking: heart-beats must go on between the orders.
    let mut lines = tokio::io::BufReader::new(tokio::io::stdin()).lines();
    let address = lines.next_line().await?.ok_or("a worker needs an address")?;
    let mut runner = row.open(backend, address.trim(), 1).await?;
    println!("ready");
    while let Some(line) = lines.next_line().await? {
        let grants = runner.run(&line.parse()?).await?;
        println!("{}", serde_json::to_string(&grants)?);
    }
    Ok(())
}
