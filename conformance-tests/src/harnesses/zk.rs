//! ZooKeeper, on servers that the harness starts itself.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{DistributedLock, LockError, LockName, Owner};
use lock_zk::{ZkConfig, ZkLock};
use tokio::runtime::Runtime;
use zookeeper_client::{Acls, Client, CreateMode, Error};

use crate::servers::zk::{Zk, ZkServer};
use crate::{Entry, Harness, Instance, Need, Server, Stop};

/// ZooKeeper: an instance is a server or an ensemble of its own.
#[derive(Clone, Copy, Debug)]
pub struct ZkHarness {
    /// How many servers it has.
    pub members: usize,
}

#[async_trait]
impl Harness for ZkHarness {
    fn name(&self) -> &str {
        "zk"
    }

    fn lacks(&self, need: Need) -> Option<&'static str> {
        let reason = "a ZooKeeper server that answers refuses writes only in read-only mode, which takes an ensemble without a majority";
        (need == Need::Refusal).then_some(reason)
    }

    async fn start(&self) -> Result<Arc<dyn Instance>, Stop> {
        let server = ZkServer::of(Zk::default(), self.members).await?;
        let host = format!("127.0.0.1:{}", server.port());
        let login = Some(("super".to_owned(), "suite".to_owned()));
        Ok(Arc::new(ZkInstance { store: ZkStore::new(host, ROOT.to_owned(), login)?, server }))
    }

    async fn connect(&self, url: &str) -> Result<Arc<dyn DistributedLock>, LockError> {
        Ok(Arc::new(ZkLock::connect(ZkConfig::from_url(url)?).await?))
    }
}

#[derive(Debug)]
struct ZkInstance {
    store: ZkStore,
    server: ZkServer,
}

#[async_trait]
impl Instance for ZkInstance {
    fn url(&self) -> String {
        format!("zk://{}{ROOT}", self.server.hosts())
    }

    async fn peek(&self, name: &LockName) -> Result<Option<Entry>, Stop> {
        self.store.peek(name).await
    }

    async fn remove(&self, name: &LockName) -> Result<(), Stop> {
        self.store.remove(name).await
    }

    async fn replace_owner(&self, name: &LockName, ttl: Duration) -> Result<String, Stop> {
        self.store.replace_owner(name, ttl).await
    }

    async fn residue(&self, name: &LockName) -> Result<Vec<String>, Stop> {
        self.store.residue(name).await
    }

    fn address(&self) -> Option<SocketAddr> {
        Some(([127, 0, 0, 1], self.server.port()).into())
    }

    fn url_via(&self, address: SocketAddr) -> Option<String> {
        Some(format!("zk://{address}{ROOT}"))
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.server.members().iter().map(|member| ([127, 0, 0, 1], member.port()).into()).collect()
    }

    fn url_via_all(&self, addresses: &[SocketAddr]) -> Option<String> {
        let hosts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        Some(format!("zk://{}{ROOT}", hosts.join(",")))
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(&self.server)
    }

    async fn put_foreign(&self, name: &LockName, kind: usize) -> Result<bool, Stop> {
        self.store.put_foreign(name, kind).await
    }

    async fn wipe(&self) -> Result<(), Stop> {
        self.server.wipe().await
    }
}

const ROOT: &str = "/suite/locks";

/// The suite's own way into the store, by a session of its own, on its own servers one that may see all.
pub(crate) struct ZkStore {
    hosts: String,
    root: String,
    login: Option<(String, String)>,
    /// The session outlives the case that opened it.
    runtime: Option<Runtime>,
    client: Mutex<Option<Client>>,
}

impl std::fmt::Debug for ZkStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The password is nobody's business.
        write!(f, "ZkStore({}{})", self.hosts, self.root)
    }
}

impl Drop for ZkStore {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl ZkStore {
    /// Opens nothing yet.
    pub(crate) fn new(hosts: String, root: String, login: Option<(String, String)>) -> Result<Self, Stop> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        Ok(Self { hosts, root, login, runtime: Some(runtime), client: Mutex::default() })
    }

    fn folder(&self, name: &LockName) -> String {
        folder(&self.root, name)
    }

    async fn client(&self) -> Result<Client, Stop> {
        let known = self.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(client) = known.filter(|client| !client.state().is_terminated()) {
            // Its server may lag behind the others.
            client.sync("/").await?;
            return Ok(client);
        }
        let (hosts, login) = (self.hosts.clone(), self.login.clone());
        let connecting = async move {
            let mut connector = Client::connector();
            if let Some((user, password)) = login {
                connector = connector.with_auth("digest", format!("{user}:{password}").as_bytes());
            }
            connector.with_session_timeout(Duration::from_secs(10)).connect(&vec![hosts; 20].join(",")).await
        };
        let runtime = self.runtime.as_ref().ok_or("the harness has ended")?;
        let client = runtime.spawn(connecting).await??;
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = Some(client.clone());
        Ok(client)
    }

    /// What stands in the lock's folder.
    async fn children(&self, client: &Client, name: &LockName) -> Result<Vec<String>, Stop> {
        match client.list_children(&self.folder(name)).await {
            Ok(children) => Ok(children),
            Err(Error::NoNode) => Ok(Vec::new()),
            Err(e) => Err(e.into()),
        }
    }

    /// The first contender, by the number at the end of its name: its owner and TTL.
    /// As [`Instance::peek`].
    pub(crate) async fn peek(&self, name: &LockName) -> Result<Option<Entry>, Stop> {
        let client = self.client().await?;
        let number = |node: &String| node.rsplit_once("-lock-").and_then(|(_, number)| number.parse::<i64>().ok());
        let (data, session) = loop {
            let children = self.children(&client, name).await?;
            let Some(first) = children.iter().filter_map(|node| Some((number(node)?, node))).min() else {
                return Ok(None);
            };
            match client.get_data(&format!("{}/{}", self.folder(name), first.1)).await {
                Ok((data, stat)) => break (data, stat.ephemeral_owner),
                Err(Error::NoNode) => {}
                Err(e) => return Err(e.into()),
            }
        };
        let text = String::from_utf8(data)?;
        let lines: Vec<_> = text.lines().collect();
        let ttl = lines.get(2).and_then(|ttl| ttl.parse().ok()).map(Duration::from_millis);
        let owner = (*lines.get(1).unwrap_or(&"")).to_owned();
        Ok(Some(Entry { owner, remaining: ttl.filter(|_| session != 0) }))
    }

    /// As [`Instance::remove`].
    pub(crate) async fn remove(&self, name: &LockName) -> Result<(), Stop> {
        let client = self.client().await?;
        loop {
            // At one stroke: a waiter may be granted the name as soon as the holder's node is gone, and would lose it again.
            let mut writer = client.new_multi_writer();
            for node in self.children(&client, name).await? {
                writer.add_delete(&format!("{}/{node}", self.folder(name)), None)?;
            }
            match writer.commit().await.map_err(Error::from) {
                // Somebody left in between.
                Err(Error::NoNode) => {}
                done => break drop(done?),
            };
        }
        if client.check_stat(&self.folder(name)).await?.is_some_and(|stat| stat.ephemeral_owner != 0) {
            gone(client.delete(&self.folder(name), None).await)?;
        }
        Ok(())
    }

    /// As [`Instance::replace_owner`].
    pub(crate) async fn replace_owner(&self, name: &LockName, ttl: Duration) -> Result<String, Stop> {
        let (client, owner) = (self.client().await?, Owner::random()?.to_string());
        self.remove(name).await?;
        let data = format!("1\n{owner}\n{}\n0\n", ttl.as_millis());
        let node = format!("{}/_c_{owner}-lock-", self.folder(name));
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        client.create(&node, data.as_bytes(), &options).await?;
        Ok(owner)
    }

    /// As [`Instance::put_foreign`]. A lock is a folder, and what stands in it beside its contenders is none of its business: only a node that can
    /// have no children stands in its way.
    pub(crate) async fn put_foreign(&self, name: &LockName, kind: usize) -> Result<bool, Stop> {
        if kind > 0 {
            return Ok(false);
        }
        let client = self.client().await?;
        self.remove(name).await?;
        gone(client.delete(&self.folder(name), None).await)?;
        client.mkdir(&self.root, &CreateMode::Persistent.with_acls(Acls::anyone_all())).await?;
        let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        client.create(&self.folder(name), b"an application's data", &options).await?;
        Ok(true)
    }

    /// All that stands in the folder, and the folder itself, which the server removes some time after its last node.
    pub(crate) async fn residue(&self, name: &LockName) -> Result<Vec<String>, Stop> {
        let client = self.client().await?;
        let mut left = self.children(&client, name).await?;
        match client.check_stat(&self.folder(name)).await?.map(|stat| stat.ephemeral_owner) {
            None => {}
            Some(0) => left.push("the folder".into()),
            Some(_) => left.push("an ephemeral node in place of the folder".into()),
        }
        Ok(left)
    }
}

fn gone(deleted: Result<(), Error>) -> Result<(), Stop> {
    match deleted {
        Ok(()) | Err(Error::NoNode) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// The folder of a lock, as docs/zk.md describes it. No case uses one of the three names that are written otherwise.
fn folder(root: &str, name: &LockName) -> String {
    let mut path = format!("{root}/");
    for byte in name.as_str().bytes() {
        match byte {
            b'!'..=b'~' if byte != b'/' && byte != b'%' => path.push(char::from(byte)),
            _ => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}
