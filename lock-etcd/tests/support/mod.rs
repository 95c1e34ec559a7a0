//! An etcd cluster of the test's own, and helpers around it.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::ErrorKind;
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use etcd_client::{Client, GetOptions};
use lock_core::{AcquireRequest, Acquisition, Lease, LockName, Owner, Ttl, Wait};
use lock_core::{DistributedLock, Released};
use lock_etcd::{EtcdConfig, EtcdLock};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// What makes elections quick, and leases of 1 s possible.
pub(crate) const QUICK: [&str; 4] = ["--heartbeat-interval", "50", "--election-timeout", "250"];

/// A running member, killed when it is dropped.
pub(crate) struct Member {
    child: Child,
    pub(crate) port: u16,
    _folder: TempDir,
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct Cluster(pub(crate) Vec<Member>);

impl Cluster {
    pub(crate) async fn start() -> Self {
        Self::start_with(1, &QUICK).await
    }

    pub(crate) async fn start_with(members: usize, options: &[&str]) -> Self {
        // Another process may take a port between the look and the start; then others are tried.
        for _ in 0..5 {
            let ports: Vec<_> = (0..members).map(|_| (free_port(), free_port())).collect();
            let all: Vec<_> =
                ports.iter().enumerate().map(|(i, (_, peer))| format!("m{i}=http://127.0.0.1:{peer}")).collect();
            let cluster =
                Self(ports.iter().enumerate().map(|(i, ports)| member(i, *ports, &all.join(","), options)).collect());
            let mut up = true;
            for member in &cluster.0 {
                up &= answers(member.port).await;
            }
            if up {
                return cluster;
            }
        }
        panic!("etcd does not come up with {options:?}");
    }

    pub(crate) fn url(&self) -> String {
        let hosts: Vec<_> = self.0.iter().map(|member| format!("127.0.0.1:{}", member.port)).collect();
        format!("etcd://{}", hosts.join(","))
    }

    pub(crate) async fn lock(&self) -> EtcdLock {
        EtcdLock::connect(EtcdConfig::from_url(self.url()).unwrap()).await.unwrap()
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect([format!("127.0.0.1:{}", self.0[0].port)], None).await.unwrap()
    }

    pub(crate) fn etcdctl(&self) -> Command {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").arg(format!("--endpoints=127.0.0.1:{}", self.0[0].port)).stdin(Stdio::null());
        command
    }

    /// Runs `etcdctl` to its end, which must be a success.
    pub(crate) fn ctl(&self, arguments: &[&str]) -> Output {
        let output = self.etcdctl().args(arguments).output().expect("etcdctl is missing: apt-get install etcd-client");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn member(number: usize, (port, peer): (u16, u16), all: &str, options: &[&str]) -> Member {
    let folder = TempDir::new().unwrap();
    let (client, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer}"));
    let child = Command::new("etcd")
        .args(["--name", &format!("m{number}"), "--initial-cluster", all, "--logger", "zap", "--log-level", "error"])
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer, "--data-dir"])
        .arg(folder.path().join("data"))
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|e| match e.kind() {
            ErrorKind::NotFound => panic!("etcd is missing: apt-get install etcd-server"),
            _ => panic!("etcd does not start: {e}"),
        });
    Member { child, port, _folder: folder }
}

async fn answers(port: u16) -> bool {
    eventually(Duration::from_secs(20), || async {
        let asked = async { Client::connect([format!("127.0.0.1:{port}")], None).await?.get("x", None).await };
        matches!(tokio::time::timeout(Duration::from_secs(1), asked).await, Ok(Ok(_)))
    })
    .await
}

/// Looks again and again until the condition holds; whether it did within `bound`.
pub(crate) async fn eventually<F: Future<Output = bool>>(bound: Duration, mut condition: impl FnMut() -> F) -> bool {
    let end = Instant::now() + bound;
    loop {
        if condition().await {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A request of a new owner that is kept alive with others.
pub(crate) fn request(name: &str, ttl: Duration) -> AcquireRequest {
    let mut request = AcquireRequest::new(LockName::new(name).unwrap(), Owner::random().unwrap());
    request.ttl = Ttl::new(ttl).unwrap();
    request
}

pub(crate) fn waiting(name: &str, ttl: Duration, wait: Duration) -> AcquireRequest {
    let mut request = request(name, ttl);
    request.wait = Wait::Until(request.clock.now().after(wait));
    request
}

pub(crate) async fn ask(lock: &EtcdLock, request: &AcquireRequest) -> Option<Box<dyn Lease>> {
    match lock.acquire(request).await.unwrap() {
        Acquisition::Granted(lease) => Some(lease),
        Acquisition::Busy(_) => None,
    }
}

/// Takes a name that must be free, for 20 s.
pub(crate) async fn take(lock: &EtcdLock, name: &str) -> Box<dyn Lease> {
    ask(lock, &request(name, Duration::from_secs(20))).await.unwrap_or_else(|| panic!("'{name}' is busy"))
}

pub(crate) async fn give_back(mut lease: Box<dyn Lease>) {
    assert_eq!(lease.release().await.unwrap(), Released::Released);
}

/// All keys with a prefix, as text.
pub(crate) async fn keys(client: &mut Client, prefix: &str) -> Vec<String> {
    let found = client.get(prefix, Some(GetOptions::new().with_prefix())).await.unwrap();
    found.kvs().iter().map(|kv| String::from_utf8_lossy(kv.key()).into_owned()).collect()
}

/// A line to a member, on which what the client sends can be held back for a while.
pub(crate) struct Line {
    pub(crate) port: u16,
    /// Connections with a lower number are held back.
    held_below: tokio::sync::watch::Sender<usize>,
    opened: std::sync::Arc<std::sync::atomic::AtomicUsize>,
}

impl Line {
    pub(crate) async fn to(server: u16) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (held_below, rules) = tokio::sync::watch::channel(0);
        let opened = std::sync::Arc::<std::sync::atomic::AtomicUsize>::default();
        let count = opened.clone();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let number = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                let mut rules = rules.clone();
                tokio::spawn(async move {
                    let mut server = tokio::net::TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                        (client.split(), server.split());
                    let requests = async {
                        let mut piece = [0; 4096];
                        loop {
                            let length = from_client.read(&mut piece).await.unwrap_or(0);
                            if number >= *rules.borrow() {
                                if length == 0 || to_server.write_all(&piece[..length]).await.is_err() {
                                    return;
                                }
                                continue;
                            }
                            // What the client says in a moment goes through in the end, its second thoughts do not.
                            let mut held = piece[..length].to_vec();
                            let rest = from_client.read_buf(&mut held);
                            let _ = tokio::time::timeout(Duration::from_millis(150), rest).await;
                            rules.wait_for(|below| number >= *below).await.unwrap();
                            let _ = to_server.write_all(&held).await;
                            tokio::time::sleep(Duration::from_millis(300)).await;
                            return;
                        }
                    };
                    let replies = tokio::io::copy(&mut from_server, &mut to_client);
                    // The server hears what was held back, though the client has gone.
                    let _ = tokio::join!(requests, async {
                        let _ = replies.await;
                    });
                });
            }
        });
        Self { port, held_below, opened }
    }

    /// Holds back what is sent on the connections that are open now.
    pub(crate) fn hold_open(&self) {
        self.held_below.send_replace(self.opened.load(std::sync::atomic::Ordering::SeqCst));
    }

    /// Delivers what was held back.
    pub(crate) fn deliver(&self) {
        self.held_below.send_replace(0);
    }

    pub(crate) async fn lock(&self) -> EtcdLock {
        let url = format!("etcd://127.0.0.1:{}", self.port);
        EtcdLock::connect(EtcdConfig::from_url(url).unwrap()).await.unwrap()
    }
}
