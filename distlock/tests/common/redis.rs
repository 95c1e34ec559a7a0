//! A Redis server of a test's own.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::until;

pub(crate) struct Redis {
    server: Child,
    pub(crate) port: u16,
    _dir: tempfile::TempDir,
}

impl Redis {
    /// Starts a server on a free port, in a temporary folder.
    pub(crate) fn start(flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = free_port();
        let server = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(flags)
            .current_dir(dir.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server does not start; install the package redis-server");
        until("redis to listen", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self { server, port, _dir: dir }
    }

    /// A sentinel that watches a server as `orders`.
    pub(crate) fn sentinel(watched: u16, settings: &str) -> Self {
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        let file = dir.path().join("sentinel.conf");
        let text = format!("port {port}\nbind 127.0.0.1\n{settings}sentinel monitor orders 127.0.0.1 {watched} 1\n");
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new("redis-server");
        command.arg(&file).arg("--sentinel").current_dir(dir.path()).stdout(Stdio::null());
        let server = command.spawn().expect("redis-server does not start; install the package redis-server");
        until("the sentinel to listen", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self { server, port, _dir: dir }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Sends commands, each of which must be answered with OK.
    #[track_caller]
    pub(crate) fn tell(&self, commands: &[&str]) {
        let line = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let mut answers = BufReader::new(line.try_clone().unwrap()).lines();
        for command in commands {
            (&line).write_all(format!("{command}\r\n").as_bytes()).unwrap();
            assert_eq!(answers.next().unwrap().unwrap(), "+OK", "{command}");
        }
    }

    /// Sets a key, both of any bytes.
    #[track_caller]
    pub(crate) fn set(&self, key: &[u8], value: &[u8], more: &[&str]) {
        let mut line = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let words: Vec<&[u8]> =
            [&b"SET"[..], key, value].into_iter().chain(more.iter().map(|word| word.as_bytes())).collect();
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend([format!("${}\r\n", word.len()).as_bytes(), word, b"\r\n"].concat());
        }
        line.write_all(&request).unwrap();
        let mut answer = String::new();
        BufReader::new(line).read_line(&mut answer).unwrap();
        assert_eq!(answer, "+OK\r\n");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.server.id() as i32), signal).unwrap();
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A port on which nothing listens now.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
