//! A ZooKeeper server of a test's own.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::redis::free_port;
use super::until;

/// Where Debian keeps the server; it names what else it needs.
const JAR: &str = "/usr/share/java/zookeeper.jar";

pub(crate) struct Zk {
    server: Child,
    pub(crate) port: u16,
    _dir: tempfile::TempDir,
}

impl Zk {
    /// Starts one with further lines of its configuration, and waits until it serves.
    pub(crate) fn start(settings: &str) -> Self {
        let it = Self::spawn(settings);
        until("ZooKeeper to serve", || it.says("srvr").contains("Mode:"));
        it
    }

    /// Starts one of three, whose fellows are not there: it takes connections and serves none.
    pub(crate) fn without_quorum() -> Self {
        let members: String =
            (1..=3).map(|n| format!("server.{n}=127.0.0.1:{}:{}\n", free_port(), free_port())).collect();
        let it = Self::spawn(&format!("initLimit=5\nsyncLimit=2\n{members}"));
        until("ZooKeeper to listen", || TcpStream::connect(("127.0.0.1", it.port)).is_ok());
        it
    }

    fn spawn(settings: &str) -> Self {
        assert!(std::path::Path::new(JAR).is_file(), "{JAR} is missing; install zookeeper and default-jre-headless");
        let dir = tempfile::tempdir().unwrap();
        let (port, data, config) = (free_port(), dir.path().join("data"), dir.path().join("zoo.cfg"));
        std::fs::create_dir(&data).unwrap();
        std::fs::write(data.join("myid"), "1").unwrap();
        let text = format!(
            "tickTime=200\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n{settings}\n",
            data.display()
        );
        std::fs::write(&config, text).unwrap();
        let server = Command::new("java")
            .args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no"])
            .args(["-Dzookeeper.jmx.log4j.disable=true", "-cp", JAR])
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(&config)
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("java does not start; install the package default-jre-headless");
        Self { server, port, _dir: dir }
    }

    /// `login` is empty or ends in `@`, `folder` is empty or starts with a slash.
    pub(crate) fn url(&self, login: &str, folder: &str) -> String {
        format!("zk://{login}127.0.0.1:{}{folder}", self.port)
    }

    fn says(&self, word: &str) -> String {
        let mut answer = String::new();
        if let Ok(mut line) = TcpStream::connect(("127.0.0.1", self.port)) {
            line.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            let _ = line.write_all(word.as_bytes()).and_then(|()| line.read_to_string(&mut answer));
        }
        answer
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.server.id() as i32), signal).unwrap();
    }
}

impl Drop for Zk {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
