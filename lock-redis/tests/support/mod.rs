//! A Redis server of the test's own, and helpers around it.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::ErrorKind;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lock_core::{AcquireRequest, Acquisition, DistributedLock, Lease, LockError, LockName, Owner, Ttl, Wait};
use lock_redis::{RedisConfig, RedisLock};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue};
use tempfile::TempDir;

/// A running server, killed when it is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    folder: TempDir,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    pub(crate) async fn start_with(options: &[&str]) -> Self {
        // Another process may take the port between the look and the start; then another one is tried.
        for _ in 0..20 {
            let folder = TempDir::new().unwrap();
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let child = Self::spawn(port, &folder, options);
            let mut server = Self { child, port, folder };
            if server.answers().await {
                return server;
            }
        }
        panic!("redis-server does not come up with {options:?}");
    }

    fn spawn(port: u16, folder: &TempDir, options: &[&str]) -> Child {
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"]).arg(folder.path());
        command.args(options).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap_or_else(|e| match e.kind() {
            ErrorKind::NotFound => panic!("redis-server is missing: apt-get install redis-server"),
            _ => panic!("redis-server does not start: {e}"),
        })
    }

    async fn answers(&mut self) -> bool {
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            match self.try_raw().await {
                Ok(_) => return true,
                Err(e) if e.code() == Some("NOAUTH") => return true,
                Err(_) => {}
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        false
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    async fn try_raw(&self) -> Result<MultiplexedConnection, redis::RedisError> {
        let mut connection = redis::Client::open(self.url())?.get_multiplexed_async_connection().await?;
        let _: String = redis::cmd("INFO").arg("server").query_async(&mut connection).await?;
        Ok(connection)
    }

    /// A connection beside the library.
    pub(crate) async fn raw(&self) -> Raw {
        Raw(self.try_raw().await.unwrap())
    }

    pub(crate) async fn connect(&self) -> RedisLock {
        connect(&self.url()).await.unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Clone)]
pub(crate) struct Raw(MultiplexedConnection);

impl Raw {
    pub(crate) async fn run<T: FromRedisValue>(&mut self, words: &[&str]) -> T {
        self.attempt(words).await.unwrap()
    }

    pub(crate) async fn attempt<T: FromRedisValue>(&mut self, words: &[&str]) -> redis::RedisResult<T> {
        let mut cmd = Cmd::new();
        words.iter().for_each(|word| {
            cmd.arg(*word);
        });
        cmd.query_async(&mut self.0).await
    }

    pub(crate) async fn bytes<T: FromRedisValue>(&mut self, words: &[&[u8]]) -> T {
        let mut cmd = Cmd::new();
        words.iter().for_each(|word| {
            cmd.arg(*word);
        });
        cmd.query_async(&mut self.0).await.unwrap()
    }

    /// All keys, with their remaining milliseconds (-1 = none).
    pub(crate) async fn ttls(&mut self) -> Vec<(Vec<u8>, i64)> {
        let keys: Vec<Vec<u8>> = self.run(&["KEYS", "*"]).await;
        let mut ttls = Vec::new();
        for key in keys {
            let ttl: i64 = redis::cmd("PTTL").arg(&key).query_async(&mut self.0).await.unwrap();
            ttls.push((key, ttl));
        }
        ttls
    }
}

/// A connection of the user's own, with limits for a busy machine.
pub(crate) async fn patient(url: &str) -> MultiplexedConnection {
    let limit = Some(Duration::from_secs(20));
    let config = redis::AsyncConnectionConfig::new().set_connection_timeout(limit).set_response_timeout(limit);
    redis::Client::open(url).unwrap().get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

pub(crate) async fn connect(url: &str) -> Result<RedisLock, LockError> {
    RedisLock::connect(RedisConfig::from_url(url)?).await
}

pub(crate) fn name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

/// A request that does not wait.
pub(crate) fn request(text: &str, ttl_ms: u64) -> AcquireRequest {
    let mut request = AcquireRequest::new(name(text), Owner::random().unwrap());
    request.ttl = Ttl::new(Duration::from_millis(ttl_ms)).unwrap();
    request
}

/// A request that waits so long.
pub(crate) fn waiting(text: &str, ttl_ms: u64, wait: Duration) -> AcquireRequest {
    let mut request = request(text, ttl_ms);
    request.wait = Wait::Until(request.clock.now().after(wait));
    request
}

pub(crate) fn granted(acquisition: Acquisition) -> Box<dyn Lease> {
    match acquisition {
        Acquisition::Granted(lease) => lease,
        Acquisition::Busy(holder) => panic!("busy: {holder:?}"),
    }
}

pub(crate) async fn grant(lock: &RedisLock, request: &AcquireRequest) -> Box<dyn Lease> {
    granted(lock.acquire(request).await.unwrap())
}

pub(crate) async fn is_busy(lock: &RedisLock, request: &AcquireRequest) -> bool {
    matches!(lock.acquire(request).await.unwrap(), Acquisition::Busy(_))
}

/// Waits until a condition holds, at most so long.
pub(crate) async fn until<F: Future<Output = bool>>(limit: Duration, what: &str, mut condition: impl FnMut() -> F) {
    let end = Instant::now() + limit;
    while !condition().await {
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
