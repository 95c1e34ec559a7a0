//! A MariaDB server of a test's own.

use std::process::{Child, Command, Stdio};

use super::redis::free_port;
use super::until;

pub(crate) struct Mysql {
    server: Child,
    pub(crate) port: u16,
    _dir: tempfile::TempDir,
}

/// `app` may do anything in its database, `reader` may not make tables, `poor` may only look, `admin` may do anything anywhere.
const SETUP: &str = "CREATE DATABASE locks;
CREATE TABLE locks.other (a INT);
CREATE USER 'poor'@'%' IDENTIFIED BY 'se:cret';
GRANT SELECT ON locks.* TO 'poor'@'%';
CREATE USER 'admin'@'%' IDENTIFIED BY 'se:cret';
GRANT ALL ON *.* TO 'admin'@'%' WITH GRANT OPTION;
CREATE USER 'app'@'%' IDENTIFIED BY 'se:cret';
GRANT ALL ON locks.* TO 'app'@'%';
CREATE USER 'reader'@'%' IDENTIFIED BY 'se:cret';
GRANT SELECT, INSERT, UPDATE, DELETE ON locks.* TO 'reader'@'%';
";

impl Mysql {
    /// Starts a server on a free port, in a temporary folder.
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let as_root = nix::unistd::getuid().is_root().then_some("--user=root");
        let made = Command::new("mariadb-install-db")
            .args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"])
            .args(["--innodb-log-file-size=8M", &format!("--datadir={}", path("data"))])
            .args(as_root)
            .output()
            .expect("mariadb-install-db does not start; install the package mariadb-server");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        std::fs::write(path("setup.sql"), SETUP).unwrap();
        let port = free_port();
        let mut command = Command::new("mariadbd");
        command.arg("--no-defaults");
        for (option, file) in [
            ("datadir", "data"),
            ("socket", "socket"),
            ("pid-file", "pid"),
            ("log-error", "log"),
            ("init-file", "setup.sql"),
        ] {
            command.arg(format!("--{option}={}", path(file)));
        }
        let server = command
            .args([&format!("--port={port}"), "--bind-address=127.0.0.1", "--skip-name-resolve"])
            .args(["--innodb-log-file-size=8M", "--innodb-buffer-pool-size=32M"])
            .args(as_root)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("mariadbd does not start; install the package mariadb-server");
        until("mariadbd to listen", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self { server, port, _dir: dir }
    }

    pub(crate) fn url(&self, login: &str) -> String {
        format!("mysql://{login}@127.0.0.1:{}/locks", self.port)
    }
}

impl Mysql {
    /// Runs a statement as one who may do anything.
    #[track_caller]
    pub(crate) fn run(&self, statement: &str) {
        let done = Command::new("mariadb")
            .args(["--no-defaults", "--protocol=tcp", "--host=127.0.0.1", "--user=admin", "--password=se:cret"])
            .args([&format!("--port={}", self.port), "locks", "--execute", statement])
            .output()
            .expect("mariadb does not start; install the package mariadb-client");
        assert!(done.status.success(), "{statement}: {}", String::from_utf8_lossy(&done.stderr));
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.server.id() as i32), signal).unwrap();
    }
}

impl Drop for Mysql {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
