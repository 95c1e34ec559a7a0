//! The folder against the whole suite.

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::harnesses::through_contract;
use conformance_tests::{Entry, Harness, Instance, Need, Server, Stop};
use folder_lock::FolderLock;
use lock_core::{DistributedLock, LockError, LockName};
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

#[derive(Debug)]
struct Folders;

#[async_trait]
impl Harness for Folders {
    fn name(&self) -> &str {
        "folder"
    }

    fn lacks(&self, need: Need) -> Option<&'static str> {
        match need {
            Need::Freeze | Need::Wipe | Need::Processes => None,
            _ => Some("the store is a file of its own, with no server and no line to it"),
        }
    }

    async fn start(&self) -> Result<Arc<dyn Instance>, Stop> {
        let folder = tempfile::tempdir()?;
        Ok(Arc::new(Running { lock: FolderLock::open(folder.path())?, folder, frozen: Mutex::default() }))
    }

    async fn connect(&self, url: &str) -> Result<Arc<dyn DistributedLock>, LockError> {
        Ok(Arc::new(FolderLock::open(url)?))
    }
}

#[derive(Debug)]
struct Running {
    lock: FolderLock,
    folder: TempDir,
    frozen: Mutex<Option<File>>,
}

#[async_trait]
impl Instance for Running {
    fn url(&self) -> String {
        self.folder.path().display().to_string()
    }

    async fn peek(&self, name: &LockName) -> Result<Option<Entry>, Stop> {
        through_contract::peek(&self.lock, name).await
    }

    async fn remove(&self, name: &LockName) -> Result<(), Stop> {
        through_contract::remove(&self.lock, name).await
    }

    async fn replace_owner(&self, name: &LockName, ttl: Duration) -> Result<String, Stop> {
        through_contract::replace_owner(&self.lock, name, ttl).await
    }

    async fn residue(&self, name: &LockName) -> Result<Vec<String>, Stop> {
        through_contract::residue(&self.lock, name).await
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }

    async fn wipe(&self) -> Result<(), Stop> {
        Ok(std::fs::remove_file(self.folder.path().join("locks.json"))?)
    }
}

/// Frozen means: somebody was stopped in the midst of a step.
#[async_trait]
impl Server for Running {
    fn stop(&self) -> Result<(), Stop> {
        let gate = File::create(Path::new(&self.url()).join("gate"))?;
        flock(&gate, FlockOperation::LockExclusive)?;
        *self.frozen.lock().map_err(|_| "poisoned")? = Some(gate);
        Ok(())
    }

    fn resume(&self) -> Result<(), Stop> {
        self.frozen.lock().map_err(|_| "poisoned")?.take();
        Ok(())
    }

    fn kill(&self) -> Result<(), Stop> {
        Err("a file has no process".into())
    }

    async fn restart(&self) -> Result<(), Stop> {
        Err("a file has no process".into())
    }
}

fn main() -> ExitCode {
    conformance_tests::run(Folders)
}
