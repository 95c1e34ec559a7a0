//! ZooKeeper servers of the test's own, and helpers around them.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
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
        Self::start_as(&[], settings).await
    }

    /// One with further flags for Java, too.
    pub(crate) async fn start_as(flags: &[&str], settings: &str) -> Self {
        let server = Self::spawn_as(free_port(), flags, settings, None);
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
        Self::spawn_as(port, &[], settings, id)
    }

    fn spawn_as(port: u16, flags: &[&str], settings: &str, id: Option<usize>) -> Self {
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
        command.args(flags).arg("-Dznode.container.checkIntervalMs=300");
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

    /// What it answers to a word of four letters; empty while it does not serve.
    pub(crate) fn says(&self, word: &str) -> String {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.set_read_timeout(Some(Duration::from_millis(500)))?;
            stream.write_all(word.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        ask().unwrap_or_default()
    }

    /// What role it has, such as `leader`; empty while it does not serve.
    pub(crate) fn mode(&self) -> String {
        let answer = self.says("srvr");
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

/// A line to a server that listens in, and so knows the sessions that were opened over it.
pub(crate) struct Tap {
    port: u16,
    server: u16,
    /// What the server answered first on each connection: a length, three numbers, and the session's number and password.
    answers: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Tap {
    pub(crate) async fn before(server: u16) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answers = Arc::<Mutex<Vec<_>>>::default();
        let noted = answers.clone();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let noted = noted.clone();
                tokio::spawn(async move {
                    let mut server = tokio::net::TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                    let (mut up, mut down) = (client.split(), server.split());
                    let replies = async {
                        let mut first = vec![0; 40];
                        if tokio::io::AsyncReadExt::read_exact(&mut down.0, &mut first).await.is_ok() {
                            noted.lock().unwrap().push(first.clone());
                            let _ = tokio::io::AsyncWriteExt::write_all(&mut up.1, &first).await;
                        }
                        let _ = tokio::io::copy(&mut down.0, &mut up.1).await;
                    };
                    tokio::select! { () = replies => {}, _ = tokio::io::copy(&mut up.0, &mut down.1) => {} }
                });
            }
        });
        Self { port, server, answers }
    }

    pub(crate) fn url(&self) -> String {
        format!("zk://127.0.0.1:{}/locks", self.port)
    }

    /// Comes in with each session's number and password, and closes the session.
    pub(crate) fn end_sessions(&self) {
        for answer in self.answers.lock().unwrap().iter() {
            // The client comes back as soon as it is thrown out, and may be the quicker one.
            let until = Instant::now() + Duration::from_secs(10);
            let mut ended = false;
            while !ended && Instant::now() < until {
                ended = self.close_session(answer).is_ok_and(|over| over);
            }
            assert!(ended, "a session does not end");
        }
    }

    /// Whether it was over already.
    fn close_session(&self, answer: &[u8]) -> std::io::Result<bool> {
        let mut line = TcpStream::connect(("127.0.0.1", self.server))?;
        line.set_read_timeout(Some(Duration::from_secs(5)))?;
        // Version, last zxid seen, time-out, session, password, whether read-only will do.
        let mut hello = [&[0; 12][..], &answer[8..12], &answer[12..20], &answer[20..40], &[0]].concat();
        hello.splice(0..0, (hello.len() as u32).to_be_bytes());
        // In one breath with a request of the number 1 and the kind -11: close.
        hello.extend([8_i32, 1, -11].map(i32::to_be_bytes).concat());
        line.write_all(&hello)?;
        // A length, a version, and a time-out, which is zero when there is no such session.
        let mut granted = [0; 12];
        line.read_exact(&mut granted)?;
        let _ = line.read_to_end(&mut Vec::new());
        Ok(granted[8..] == [0; 4])
    }
}
