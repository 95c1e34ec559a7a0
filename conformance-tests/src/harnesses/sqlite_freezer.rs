//! A process that is stopped in the midst of a write to a SQLite file, as everybody else sees it.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;

use crate::{Server, Stop};

/// Holds the one right to write while it is stopped; readers go on.
#[derive(Debug)]
pub(super) struct Freezer {
    path: PathBuf,
    writer: Mutex<Option<(mpsc::Sender<()>, JoinHandle<()>)>>,
}

impl Freezer {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, writer: Mutex::default() }
    }
}

#[async_trait]
impl Server for Freezer {
    fn stop(&self) -> Result<(), Stop> {
        let (thaw, thawed) = mpsc::channel();
        let (ready, frozen) = mpsc::channel::<Result<(), String>>();
        let options = SqliteConnectOptions::new().filename(&self.path).busy_timeout(Duration::from_secs(5));
        let thread = std::thread::spawn(move || {
            let write = async {
                let mut connection = options.connect().await?;
                sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await?;
                let _ = ready.send(Ok(()));
                // Until somebody sends, or is gone.
                let _ = thawed.recv();
                sqlx::query("ROLLBACK").execute(&mut connection).await
            };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let done = runtime.map_err(|e| e.to_string()).and_then(|r| r.block_on(write).map_err(|e| e.to_string()));
            // Nobody waits for it any more where the file was frozen.
            let _ = ready.send(done.map(drop));
        });
        frozen.recv()??;
        *self.writer.lock().unwrap_or_else(PoisonError::into_inner) = Some((thaw, thread));
        Ok(())
    }

    fn resume(&self) -> Result<(), Stop> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (thaw, thread) = writer.ok_or("it was not stopped")?;
        thaw.send(())?;
        thread.join().map_err(|_| "the writer panicked".into())
    }

    fn kill(&self) -> Result<(), Stop> {
        Err("a file has no process to kill".into())
    }

    async fn restart(&self) -> Result<(), Stop> {
        Err("a file has no process to start".into())
    }
}
