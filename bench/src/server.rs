//! A Redis server of this run's own.

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Failure;

pub struct Redis {
    child: Child,
    url: String,
    _folder: tempfile::TempDir,
}

impl Redis {
    pub fn start() -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(folder.path())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|e| match e.kind() {
                ErrorKind::NotFound => "redis-server is not installed; on Debian: apt-get install redis-server".into(),
                _ => Failure::from(e),
            })?;
        let server = Self { child, url: format!("redis://127.0.0.1:{port}/"), _folder: folder };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if start.elapsed() > Duration::from_secs(10) {
                return Err("redis-server does not answer within 10 s".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
