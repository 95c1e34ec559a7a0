//! Redis servers that stand together: a primary with replicas and sentinels, or a cluster.

mod settings;

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use redis::{FromRedisValue, RedisError, ToRedisArgs};
use tempfile::TempDir;

use super::certificate::Certificate;
use super::gates::{End, Gates, HOLDER, address_of};
use super::redis::patient_connection;
use crate::process::{Process, free_port};
use crate::proxy::{Announcer, Proxy};
use crate::{Stop, ensure, eventually};

/// What the sentinels call the primary.
pub const SERVICE: &str = "orders";
/// How long a server must be silent until it counts as failed, in milliseconds.
const DOWN_AFTER: &str = "1000";
/// The same in a group in which nothing takes over.
const PATIENT: &str = "60000";
/// The servers of a cluster: the first half are primaries at first.
const NODES: usize = 6;
const SLOTS: usize = 16_384;

/// Which group it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A primary with so many replicas, and three sentinels.
    Sentinel {
        /// How many.
        replicas: usize,
    },
    /// Three primaries, each with a replica.
    Cluster,
}

/// Servers with an append-only file, on addresses of their own, behind gates.
#[derive(Debug)]
pub struct RedisGroup {
    form: Form,
    /// With it, clients and members dial each other over TLS; the suite itself looks in by the plain port.
    tls: Option<Certificate>,
    members: Vec<Member>,
    gates: Gates,
}

#[derive(Debug)]
struct Member {
    number: usize,
    ports: Vec<u16>,
    folder: TempDir,
    process: Mutex<Option<Process>>,
}

impl RedisGroup {
    /// Starts one, and waits until all of it works.
    ///
    /// # Errors
    /// When it is not installed, which says how to install it, or does not come to rest in time.
    ///
    /// # Cancel safety
    /// Dropping it ends the servers.
    pub async fn start(form: Form) -> Result<Self, Stop> {
        Self::start_with(form, false).await
    }

    /// As [`start`](Self::start), with TLS between all, by a certificate of its own.
    ///
    /// # Errors
    /// As `start` says; when openssl is not installed.
    ///
    /// # Cancel safety
    /// Dropping it ends the servers.
    pub async fn start_tls(form: Form) -> Result<Self, Stop> {
        Self::start_with(form, true).await
    }

    async fn start_with(form: Form, tls: bool) -> Result<Self, Stop> {
        let mut tries = 3;
        loop {
            // The ports may be taken between the look and the start.
            let group = Self::spawn(form, tls).await?;
            tries -= 1;
            match group.join().await {
                Ok(()) => return Ok(group),
                Err(stop) if tries == 0 => return Err(stop),
                Err(_) => {}
            }
        }
    }

    async fn spawn(form: Form, tls: bool) -> Result<Self, Stop> {
        let count = match form {
            Form::Sentinel { replicas } => 1 + replicas + 3,
            Form::Cluster => NODES,
        };
        // For clients, for the other nodes, and for TLS.
        let each = if tls { 3 } else { 2 };
        let mut members = Vec::new();
        for number in 0..count {
            let ports = (0..each).map(|_| free_port()).collect::<Result<_, _>>()?;
            members.push(Member { number, ports, folder: tempfile::tempdir()?, process: Mutex::default() });
        }
        let gates = Gates::open(members.iter().map(|member| member.ports.clone()).collect()).await?;
        let addresses: Vec<_> = (0..count).map(|number| address_of(number).into()).collect();
        let tls = if tls { Some(Certificate::of(&addresses)?) } else { None };
        let group = Self { form, tls, members, gates };
        for number in 0..group.servers() {
            group.start_again(number)?;
        }
        Ok(group)
    }

    /// How many of its members are servers with data; behind them come the sentinels.
    pub fn servers(&self) -> usize {
        match self.form {
            Form::Sentinel { replicas } => 1 + replicas,
            Form::Cluster => NODES,
        }
    }

    /// The numbers of all members.
    pub fn members(&self) -> std::ops::Range<usize> {
        0..self.members.len()
    }

    /// Where a member is to be dialled.
    pub fn address(&self, member: usize) -> SocketAddr {
        (address_of(member), self.gates.port(member, if self.tls.is_some() { 2 } else { 0 })).into()
    }

    /// The certificate that clients must trust.
    pub fn certificate(&self) -> Option<&Certificate> {
        self.tls.as_ref()
    }

    /// The URL of the whole. With `only`, these members alone are named: sentinels, or nodes of the cluster. As [`HOLDER`] the client logs in by
    /// that name, so that its lines can be cut.
    pub fn url(&self, only: Option<&[usize]>, as_holder: bool) -> String {
        let all: Vec<_> = match self.form {
            Form::Sentinel { .. } => (self.servers()..self.members.len()).collect(),
            Form::Cluster => self.members().collect(),
        };
        let hosts: Vec<_> = only.unwrap_or(&all).iter().map(|member| self.address(*member).to_string()).collect();
        let (login, hosts) = (if as_holder { format!("{HOLDER}:x@") } else { String::new() }, hosts.join(","));
        let redis = if self.tls.is_some() { "rediss" } else { "redis" };
        match (self.form, as_holder) {
            (Form::Sentinel { .. }, false) => format!("{redis}+sentinel://{hosts}/{SERVICE}"),
            (Form::Sentinel { .. }, true) => {
                format!("{redis}+sentinel://{login}{hosts}/{SERVICE}?sentinel_user={HOLDER}&sentinel_password=x")
            }
            (Form::Cluster, _) => format!("{redis}+cluster://{login}{hosts}/"),
        }
    }

    /// A proxy before all members of a group without TLS, by which clients reach them that enter at its [`url_via`](Self::url_via).
    ///
    /// # Errors
    /// What the operating system says.
    ///
    /// # Cancel safety
    /// Dropping it starts nothing.
    pub async fn proxy(&self) -> Result<Proxy, Stop> {
        // Where there are sentinels, clients come to them first.
        let members = (self.servers()..self.members.len()).chain(0..self.servers());
        let announcers = members.map(|it| Announcer { server: self.direct(it), announced: self.address(it) });
        Ok(Proxy::before(&announcers.collect::<Vec<_>>()).await?)
    }

    /// The URL of the whole, with one address of a [`proxy`](Self::proxy).
    pub fn url_via(&self, address: SocketAddr) -> String {
        match self.form {
            Form::Sentinel { .. } => format!("redis+sentinel://{address}/{SERVICE}"),
            Form::Cluster => format!("redis+cluster://{address}/"),
        }
    }

    /// From now on nothing is kept in files, so that a restart of all loses all data, and nobody takes another for failed within a minute, so that nothing takes over when all are stopped
    /// or ended for a while.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Cancel safety
    /// Dropping it may leave some as they were.
    pub async fn without_files_and_takeovers(&self) -> Result<(), Stop> {
        for server in 0..self.servers() {
            let mut settings = vec![("appendonly", "no"), ("rdb-del-sync-files", "yes")];
            if self.form == Form::Cluster {
                settings.push(("cluster-node-timeout", PATIENT));
            }
            for (key, value) in settings {
                let () = self.ask(server, &["CONFIG", "SET", key, value]).await?;
            }
            let () = self.ask(server, &["CONFIG", "REWRITE"]).await?;
        }
        for sentinel in self.servers()..self.members.len() {
            let () = self.ask(sentinel, &["SENTINEL", "SET", SERVICE, "down-after-milliseconds", PATIENT]).await?;
        }
        Ok(())
    }

    /// Freezes a member (SIGSTOP), or lets it go on.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn freeze(&self, member: usize, frozen: bool) -> Result<(), Stop> {
        self.members[member].with(|process| if frozen { process.stop() } else { process.resume() })
    }

    /// Ends a member at once (SIGKILL).
    ///
    /// # Errors
    /// What the operating system says.
    pub fn kill(&self, member: usize) -> Result<(), Stop> {
        self.members[member].with(|process| process.kill())
    }

    /// Starts a member again with its data; ends it first where it runs.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn start_again(&self, member: usize) -> Result<(), Stop> {
        let command = if member < self.servers() { self.server(member)? } else { self.sentinel(member)? };
        let mut process = self.members[member].process.lock().unwrap_or_else(PoisonError::into_inner);
        // The old process must have left the port before the new one takes it.
        drop(process.take());
        let started = Process::spawn(command)
            .map_err(|e| format!("cannot start redis-server: {e}; apt-get install redis-server"));
        *process = Some(started?);
        Ok(())
    }

    /// Cuts the lines between two ends, or joins them.
    pub fn cut(&self, one: End, other: End, off: bool) {
        self.gates.cut(one, other, off);
    }

    /// Cuts a server off from all others, or joins it again. Clients still reach it.
    pub fn cut_off(&self, member: usize, off: bool) {
        for other in self.members().filter(|other| *other != member) {
            self.cut(End::Server(member), End::Server(other), off);
        }
    }

    /// The number of the member at an address.
    pub fn at(&self, address: &str) -> Option<usize> {
        // Who asks by the plain port is told of plain ports.
        let gates = |member| [self.address(member), (address_of(member), self.gates.port(member, 0)).into()];
        self.members().find(|member| gates(*member).iter().any(|gate| gate.to_string() == address))
    }

    /// Asks a member.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub async fn ask<T: FromRedisValue>(&self, member: usize, words: &[impl ToRedisArgs]) -> Result<T, RedisError> {
        let mut connection = patient_connection(&format!("redis://{}/", self.direct(member))).await?;
        let mut cmd = redis::Cmd::new();
        cmd.arg(words);
        cmd.query_async(&mut connection).await
    }

    /// The server that takes the writes of a name: by what the sentinels say, or by what a majority of the nodes says.
    ///
    /// # Errors
    /// When there is none.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub async fn primary(&self, name: &str) -> Result<usize, Stop> {
        if let Form::Cluster = self.form {
            let views = self.members().map(|member| self.view(member, name));
            let views: Vec<usize> = futures_util::future::join_all(views).await.into_iter().flatten().collect();
            let most = self.members().max_by_key(|member| views.iter().filter(|view| *view == member).count());
            return most.filter(|_| !views.is_empty()).ok_or_else(|| "nobody serves the slot".into());
        }
        let ask = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE];
        let (host, port): (String, u16) = self.ask(self.servers(), &ask).await?;
        self.at(&format!("{host}:{port}")).ok_or_else(|| "a stranger leads".into())
    }

    /// Whom a node takes for the primary of a name.
    async fn view(&self, member: usize, name: &str) -> Option<usize> {
        let asked = async {
            let slot: u16 = self.ask(member, &["CLUSTER", "KEYSLOT", name]).await?;
            Ok::<_, RedisError>((slot, self.ask::<String>(member, &["CLUSTER", "NODES"]).await?))
        };
        let (slot, nodes) = tokio::time::timeout(std::time::Duration::from_secs(1), asked).await.ok()?.ok()?;
        let serves = |range: &str| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            first.parse().is_ok_and(|first: u16| first <= slot) && last.parse().is_ok_and(|last: u16| slot <= last)
        };
        let line = nodes.lines().find(|line| line.contains("master") && line.split(' ').skip(8).any(serves))?;
        self.at(line.split(' ').nth(1)?.split('@').next()?)
    }

    /// Waits until all members work together: each replica is in step, and all know each other.
    ///
    /// # Errors
    /// When they do not in time.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub async fn ready(&self) -> Result<(), Stop> {
        let why = Mutex::new(String::new());
        let rests = || async {
            match self.rest().await {
                Ok(()) => true,
                Err(stop) => {
                    *why.lock().unwrap_or_else(PoisonError::into_inner) = format!("{stop:?}");
                    false
                }
            }
        };
        if eventually(super::START_LIMIT * 2, rests).await {
            return Ok(());
        }
        let why = why.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Err(format!("the {:?} does not come to rest: {why}", self.form).into())
    }

    async fn rest(&self) -> Result<(), Stop> {
        for server in 0..self.servers() {
            let info: String = self.ask(server, &["INFO", "replication"]).await?;
            let in_step = match self.form {
                Form::Sentinel { replicas } => info.matches(",state=online").count() == replicas,
                Form::Cluster => info.matches(",state=online").count() == 1,
            };
            let follows = info.contains("role:slave") && info.contains("master_link_status:up");
            ensure!(follows || info.contains("role:master") && in_step, "server {server}: {info}");
            if self.form == Form::Cluster {
                let info: String = self.ask(server, &["CLUSTER", "INFO"]).await?;
                ensure!(
                    info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:6"),
                    "{server}: {info}"
                );
                let nodes: String = self.ask(server, &["CLUSTER", "NODES"]).await?;
                ensure!(!nodes.contains("fail") && !nodes.contains("disconnected"), "{server}: {nodes}");
            }
        }
        let Form::Sentinel { replicas } = self.form else { return Ok(()) };
        let primary = self.primary("").await?;
        let role: redis::Value = self.ask(primary, &["ROLE"]).await?;
        ensure!(format!("{role:?}").contains("master"), "server {primary} is no primary yet");
        for sentinel in self.servers()..self.members.len() {
            let state: std::collections::HashMap<String, String> =
                self.ask(sentinel, &["SENTINEL", "MASTER", SERVICE]).await?;
            let is = |key: &str, value: &str| state.get(key).is_some_and(|known| known == value);
            let knows =
                is("flags", "master") && is("num-slaves", &replicas.to_string()) && is("num-other-sentinels", "2");
            ensure!(knows && is("port", &self.address(primary).port().to_string()), "sentinel {sentinel}: {state:?}");
            let usable: String = self.ask(sentinel, &["SENTINEL", "CKQUORUM", SERVICE]).await?;
            ensure!(usable.starts_with("OK"), "sentinel {sentinel}: {usable}");
            let replicas: Vec<std::collections::HashMap<String, String>> =
                self.ask(sentinel, &["SENTINEL", "REPLICAS", SERVICE]).await?;
            ensure!(
                replicas.iter().all(|replica| replica.get("flags").is_some_and(|flags| flags == "slave")
                    && replica.get("master-link-status").is_some_and(|link| link == "ok")),
                "sentinel {sentinel}: {replicas:?}"
            );
        }
        Ok(())
    }

    /// Makes a group of them, once they are started.
    async fn join(&self) -> Result<(), Stop> {
        for server in 0..self.servers() {
            let answers = || async { self.ask::<String>(server, &["PING"]).await.is_ok() };
            ensure!(eventually(super::START_LIMIT, answers).await, "server {server} does not answer");
        }
        match self.form {
            Form::Sentinel { .. } => {
                for sentinel in self.servers()..self.members.len() {
                    self.start_again(sentinel)?;
                }
            }
            Form::Cluster => self.make_cluster().await?,
        }
        self.ready().await
    }

    async fn make_cluster(&self) -> Result<(), Stop> {
        let primaries = NODES / 2;
        for node in 0..primaries {
            let (first, last) = (node * SLOTS / primaries, (node + 1) * SLOTS / primaries - 1);
            let () = self.ask(node, &["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]).await?;
            let () = self.ask(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(node + 1).to_string()]).await?;
        }
        for node in 1..NODES {
            let (address, bus) = (self.address(node), self.gates.port(node, 1).to_string());
            let () =
                self.ask(0, &["CLUSTER", "MEET", &address.ip().to_string(), &address.port().to_string(), &bus]).await?;
        }
        for node in primaries..NODES {
            let primary: String = self.ask(node - primaries, &["CLUSTER", "MYID"]).await?;
            let follows = || async { self.ask::<()>(node, &["CLUSTER", "REPLICATE", &primary]).await.is_ok() };
            ensure!(eventually(super::START_LIMIT, follows).await, "node {node} follows nobody");
        }
        Ok(())
    }

    fn direct(&self, member: usize) -> SocketAddr {
        (address_of(member), self.members[member].ports[0]).into()
    }
}

impl Member {
    fn with(&self, f: impl FnOnce(&mut Process) -> Result<(), Stop>) -> Result<(), Stop> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        f(process.as_mut().ok_or_else(|| format!("member {} was never started", self.number))?)
    }
}
