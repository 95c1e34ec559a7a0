//! A MariaDB server of one's own; or a MySQL server, from a folder that holds one.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_trait::async_trait;
use tempfile::TempDir;

use super::system::System;
use super::{accepts, comes_up};
use crate::process::{Process, free_port};
use crate::{Server, Stop};

/// Run at each start. `app` is who the library logs in as, without any right beyond its database; `admin` is the suite's own.
const SETUP: &str = "CREATE DATABASE IF NOT EXISTS locks;
CREATE USER IF NOT EXISTS 'app'@'%' IDENTIFIED BY 'se:cret/1';
GRANT ALL ON locks.* TO 'app'@'%';
CREATE USER IF NOT EXISTS 'admin'@'%' IDENTIFIED BY 'admin';
GRANT ALL ON *.* TO 'admin'@'%' WITH GRANT OPTION;
";

/// A server on a free port, with the server's own defaults: each commit is on the disk.
///
/// It is the `mariadbd` of this machine; or the `mysqld` of the system that `CONFORMANCE_ROOT` names, a folder such as debootstrap makes.
#[derive(Debug)]
pub struct MysqlServer {
    system: System,
    port: u16,
    folder: TempDir,
    environment: Vec<(String, String)>,
    extra: Vec<String>,
    process: Mutex<Process>,
    /// Kept while one server lives, so that the next starts fast.
    _template: Arc<TempDir>,
}

impl MysqlServer {
    /// Starts one, with further arguments such as `--max-connections=20`, and waits until it answers.
    ///
    /// # Errors
    /// When it is not installed, which says how to install it, or does not answer in time.
    ///
    /// # Cancel safety
    /// Dropping it ends the server.
    pub async fn start(extra: &[&str]) -> Result<Self, Stop> {
        Self::start_in(&[], extra).await
    }

    /// As [`start`](Self::start), with variables of its own in its environment.
    ///
    /// # Errors
    /// As `start` says.
    ///
    /// # Cancel safety
    /// Dropping it ends the server.
    pub async fn start_in(environment: &[(&str, &str)], extra: &[&str]) -> Result<Self, Stop> {
        let environment: Vec<_> =
            environment.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let system = System::chosen();
        let template = tokio::task::spawn_blocking(|| template(&System::chosen())).await??;
        let extra: Vec<_> = extra.iter().map(|&arg| arg.to_owned()).collect();
        let mut tries = 3;
        loop {
            // The port may be taken between the look and the start.
            let (port, folder) = (free_port()?, system.folder()?);
            copy(template.path(), folder.path())?;
            std::fs::write(folder.path().join("setup.sql"), SETUP)?;
            let process = spawn(&system, port, folder.path(), &environment, &extra)?;
            let ready = comes_up(&process, port).await;
            tries -= 1;
            if ready.is_ok() {
                let process = Mutex::new(process);
                return Ok(Self { system, port, folder, environment, extra, process, _template: template });
            }
            if tries == 0 {
                let log = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
                return Err(format!("the server did not start: {ready:?}\n{log}").into());
            }
        }
    }

    /// Its port on the loopback interface.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether it is MySQL and not MariaDB.
    pub fn is_mysql(&self) -> bool {
        is_mysql(&self.system)
    }

    /// What it has written to its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn with<T>(&self, f: impl FnOnce(&mut Process) -> T) -> T {
        f(&mut self.process.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Server for MysqlServer {
    fn stop(&self) -> Result<(), Stop> {
        self.with(|process| process.stop())
    }

    fn resume(&self) -> Result<(), Stop> {
        self.with(|process| process.resume())
    }

    fn kill(&self) -> Result<(), Stop> {
        self.with(|process| process.kill())
    }

    async fn restart(&self) -> Result<(), Stop> {
        // The old server must have left the port before the new one takes it.
        let _ = self.kill();
        let process = spawn(&self.system, self.port, self.folder.path(), &self.environment, &self.extra)?;
        self.with(|old| *old = process);
        accepts(self.port).await
    }
}

fn is_mysql(system: &System) -> bool {
    !system.has("mariadbd")
}

fn server(system: &System) -> Command {
    let mysql = is_mysql(system);
    let mut command = system.command(if mysql { "mysqld" } else { "mariadbd" });
    command.arg("--no-defaults").args(as_root());
    if mysql {
        command.args(["--mysqlx=OFF", "--secure-file-priv=", "--innodb-redo-log-capacity=8M"]);
    } else {
        command.arg("--innodb-log-file-size=8M");
    }
    command
}

/// The command that makes a database in `data`.
fn maker(system: &System, data: &Path) -> Command {
    let folder = format!("--datadir={}", system.seen(data));
    if is_mysql(system) {
        let mut command = server(system);
        command.args(["--initialize-insecure", &folder]);
        return command;
    }
    let mut command = system.command("mariadb-install-db");
    command
        .args(["--no-defaults", &folder])
        .args(["--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-log-file-size=8M"])
        .args(as_root());
    command
}

fn spawn(
    system: &System,
    port: u16,
    folder: &Path,
    environment: &[(String, String)],
    extra: &[String],
) -> Result<Process, Stop> {
    let path = |name: &str| system.seen(&folder.join(name));
    let mut command = server(system);
    command
        .arg(format!("--datadir={}", path("data")))
        .arg(format!("--socket={}", path("socket")))
        .arg(format!("--pid-file={}", path("pid")))
        .arg(format!("--log-error={}", path("log")))
        .arg(format!("--init-file={}", path("setup.sql")))
        .arg(format!("--port={port}"))
        .args(["--skip-networking=0", "--bind-address=127.0.0.1", "--skip-name-resolve"])
        .args(["--innodb-buffer-pool-size=32M", "--max-connections=500"])
        .args(extra)
        .envs(environment.iter().cloned())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Process::spawn(command).map_err(|e| format!("cannot start the server: {e}; {INSTALL}").into())
}

const INSTALL: &str = "apt-get install mariadb-server";

/// A server refuses to run as root unless it is told so.
fn as_root() -> Option<&'static str> {
    nix::unistd::getuid().is_root().then_some("--user=root")
}

/// A folder with a fresh database, which takes seconds to make: once for all servers that live at a time.
fn template(system: &System) -> Result<Arc<TempDir>, Stop> {
    static TEMPLATE: Mutex<Weak<TempDir>> = Mutex::new(Weak::new());
    let mut kept = TEMPLATE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(template) = kept.upgrade() {
        return Ok(template);
    }
    let folder = system.folder()?;
    let mut make = maker(system, &folder.path().join("data"));
    let made = make.output().map_err(|e| format!("cannot make a database: {e}; {INSTALL}"))?;
    crate::ensure!(made.status.success(), "no database can be made: {}", String::from_utf8_lossy(&made.stderr));
    let template = Arc::new(folder);
    *kept = Arc::downgrade(&template);
    Ok(template)
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            std::fs::create_dir(&target)?;
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
