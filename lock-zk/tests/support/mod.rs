//! ZooKeeper servers of the test's own, and helpers around them.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lock_core::{AcquireRequest, Acquisition, DistributedLock, Lease, LockError, LockName, Owner, Ttl, Wait};
use lock_zk::{ZkConfig, ZkLock};
use tempfile::TempDir;
use zookeeper_client::{Acls, Client, CreateMode};

const JAR: &str = "/usr/share/java/zookeeper.jar";

/// A running server, killed when it is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    folder: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// One that belongs to no ensemble.
    pub(crate) async fn start() -> Self {
        Self::start_with("").await
    }

    /// One with further lines in its settings.
    pub(crate) async fn start_with(settings: &str) -> Self {
        let server = Self::spawn(free_port(), settings, None);
        server.serves().await;
        server
    }

    /// An ensemble of three.
    pub(crate) async fn ensemble() -> Vec<Self> {
        let ports: Vec<_> = (0..9).map(|_| free_port()).collect();
        let members: String =
            (0..3).map(|i| format!("server.{}=127.0.0.1:{}:{}\n", i + 1, ports[3 + i], ports[6 + i])).collect();
        let settings = format!("initLimit=50\nsyncLimit=30\n{members}");
        let servers: Vec<_> = (0..3).map(|i| Self::spawn(ports[i], &settings, Some(i + 1))).collect();
        for server in &servers {
            server.serves().await;
        }
        servers
    }

    fn spawn(port: u16, settings: &str, id: Option<usize>) -> Self {
        assert!(Path::new(JAR).is_file(), "{JAR} is missing: apt-get install zookeeper default-jre-headless");
        let folder = TempDir::new().unwrap();
        let (data, config) = (folder.path().join("data"), folder.path().join("zoo.cfg"));
        std::fs::create_dir(&data).unwrap();
        if let Some(id) = id {
            std::fs::write(data.join("myid"), id.to_string()).unwrap();
        }
        let settings = format!(
            "tickTime=100\ndataDir={}\nclientPort={port}\nmaxClientCnxns=0\nmaxSessionTimeout=60000\nadmin.enableServer=false\n\
             4lw.commands.whitelist=*\n{settings}",
            data.display()
        );
        std::fs::write(&config, settings).unwrap();
        let mut command = Command::new("java");
        command.args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no"]);
        command.args(["-Dzookeeper.preAllocSize=1024", "-Dzookeeper.jmx.log4j.disable=true", "-cp", JAR]);
        command.arg("-Dznode.container.checkIntervalMs=300");
        command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(&config);
        command.stdout(Stdio::null()).stderr(Stdio::null()).current_dir(folder.path());
        let child = command.spawn().expect("java is missing: apt-get install zookeeper default-jre-headless");
        Self { child, port, folder }
    }

    /// Another server in its place, without its data.
    pub(crate) async fn replaced(mut self) -> Self {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let server = Self::spawn(self.port, "", None);
        server.serves().await;
        server
    }

    async fn serves(&self) {
        eventually(Duration::from_secs(40), async || !self.mode().is_empty()).await;
    }

    /// What role it has, such as `leader`; empty while it does not serve.
    pub(crate) fn mode(&self) -> String {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.set_read_timeout(Some(Duration::from_millis(500)))?;
            stream.write_all(b"srvr")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = ask().unwrap_or_default();
        answer.lines().find_map(|line| line.strip_prefix("Mode: ")).unwrap_or_default().to_owned()
    }

    /// Sends a signal, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(sent.unwrap().success());
    }

    pub(crate) fn url(&self) -> String {
        format!("zk://127.0.0.1:{}/locks", self.port)
    }

    pub(crate) async fn lock(&self) -> ZkLock {
        ZkLock::connect(ZkConfig::from_url(self.url()).unwrap()).await.unwrap()
    }

    /// A way past the backend.
    pub(crate) async fn raw(&self) -> Client {
        Client::connect(&format!("127.0.0.1:{}", self.port)).await.unwrap()
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub(crate) async fn eventually(limit: Duration, condition: impl AsyncFn() -> bool) {
    let end = Instant::now() + limit;
    while !condition().await {
        assert!(Instant::now() < end, "not within {limit:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) fn request(name: &str, ttl_ms: u64, wait_ms: u64) -> AcquireRequest {
    let mut request = AcquireRequest::new(LockName::new(name).unwrap(), Owner::random().unwrap());
    request.ttl = Ttl::new(Duration::from_millis(ttl_ms)).unwrap();
    if wait_ms > 0 {
        request.wait = Wait::Until(request.clock.now().after(Duration::from_millis(wait_ms)));
    }
    request
}

pub(crate) async fn ask(lock: &ZkLock, request: &AcquireRequest) -> Result<Option<Box<dyn Lease>>, LockError> {
    Ok(match lock.acquire(request).await? {
        Acquisition::Granted(lease) => Some(lease),
        Acquisition::Busy(_) => None,
    })
}

/// Takes a name that must be free, or become so.
pub(crate) async fn take(lock: &ZkLock, name: &str, ttl_ms: u64, wait_ms: u64) -> Box<dyn Lease> {
    ask(lock, &request(name, ttl_ms, wait_ms)).await.unwrap().expect("the name is busy")
}

/// Puts a node into a lock's folder, and answers its name.
pub(crate) async fn put(client: &Client, name: &str, node: &str, mode: CreateMode) -> String {
    let folder = format!("/locks/{name}");
    client.mkdir(&folder, &CreateMode::Persistent.with_acls(Acls::anyone_all())).await.unwrap();
    let path = format!("{folder}/{node}");
    let (_, number) = client.create(&path, b"somebody", &mode.with_acls(Acls::anyone_all())).await.unwrap();
    match mode {
        CreateMode::EphemeralSequential | CreateMode::PersistentSequential => format!("{path}{number}"),
        _ => path,
    }
}
