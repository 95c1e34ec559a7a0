//! Redis Cluster: which node serves which slot, learnt from the nodes and from their redirections.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::LockError;
use redis::{RedisError, ServerErrorKind, Value};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::RedisConfig;
use crate::errors::problem;
use crate::node::{ASK_LIMIT, Answer, Failure, Node, Place, Request, Resend, Server, lock};
use crate::scripts::{number, parts, text};
use crate::sentinel::{Question, newest};

/// So often a request follows a redirection.
const HOPS: usize = 8;
/// What was learnt is not asked for again for so long.
const FRESH: Duration = Duration::from_millis(100);

pub(crate) struct Cluster {
    config: RedisConfig,
    closed: CancellationToken,
    map: Mutex<Map>,
    /// Held while the nodes are asked, and when they were last.
    asking: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Default)]
struct Map {
    nodes: HashMap<String, Arc<Node>>,
    /// First and last slot, and the primary's address.
    ranges: Vec<Range>,
}

type Range = (u16, u16, String);

impl Cluster {
    pub(crate) fn new(config: &RedisConfig, closed: CancellationToken) -> Result<Self, LockError> {
        let cluster =
            Self { config: config.clone(), closed, map: Mutex::default(), asking: tokio::sync::Mutex::default() };
        for address in config.hosts() {
            let client = config.client(address)?;
            cluster.add(Server { address: address.clone(), client });
        }
        Ok(cluster)
    }

    /// Sends a command to the node of its slot.
    pub(crate) async fn send(&self, slot: u16, request: &Request, resend: Resend) -> Result<Answer, Failure> {
        let no_node = |error| Failure { error, server: None, repeated: false };
        let mut node = self.owner(slot).await.map_err(no_node)?;
        let (mut asking, mut repeated, mut hops) = (false, false, 0);
        loop {
            let mut answer = node.send(request, asking, resend).await;
            match &mut answer {
                Ok(answer) => answer.repeated |= repeated,
                Err(failure) => failure.repeated |= repeated,
            }
            let Err(failure) = &answer else { return answer };
            let Some((address, _)) = failure.error.redirect_node() else { return answer };
            hops += 1;
            if hops > HOPS {
                return answer;
            }
            repeated = failure.repeated;
            asking = failure.error.kind() == redis::ErrorKind::Server(ServerErrorKind::Ask);
            let address = whole(address, failure.server.as_deref());
            node = self.node(&address).map_err(no_node)?;
            if !asking {
                self.learn(slot, address);
            }
        }
    }

    /// All primaries that serve slots.
    pub(crate) async fn primaries(&self) -> Result<Vec<Arc<Node>>, RedisError> {
        self.refresh().await?;
        let map = lock(&self.map);
        let mut addresses: Vec<_> = map.ranges.iter().map(|range| &range.2).collect();
        addresses.sort();
        addresses.dedup();
        Ok(addresses.into_iter().filter_map(|address| map.nodes.get(address).cloned()).collect())
    }

    /// A node that answers.
    pub(crate) async fn any(&self) -> Result<Arc<Node>, RedisError> {
        let known = lock(&self.map).nodes.values().find(|node| node.current().is_some()).cloned();
        match known {
            Some(node) => Ok(node),
            None => {
                self.refresh().await?;
                let all: Vec<_> = lock(&self.map).nodes.values().cloned().collect();
                let live = all.iter().find(|node| node.current().is_some());
                live.or(all.first()).cloned().ok_or_else(|| problem("CLUSTERDOWN", "no node is known".to_owned()))
            }
        }
    }

    pub(crate) fn close(&self) {
        lock(&self.map).nodes.values().for_each(|node| node.close());
    }

    /// The node of a slot. One that has to be dialled may have failed: then the others know who took over.
    async fn owner(&self, slot: u16) -> Result<Arc<Node>, RedisError> {
        if let Some(node) = self.known(slot).filter(|node| node.current().is_some()) {
            return Ok(node);
        }
        self.refresh().await?;
        self.known(slot).ok_or_else(|| problem("CLUSTERDOWN", format!("no node serves slot {slot}")))
    }

    fn known(&self, slot: u16) -> Option<Arc<Node>> {
        let map = lock(&self.map);
        let range = map.ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&slot))?;
        map.nodes.get(&range.2).cloned()
    }

    /// The newest redirection comes before the ranges.
    fn learn(&self, slot: u16, address: String) {
        let mut map = lock(&self.map);
        if let Some(node) = map.nodes.get(&address).filter(|_| map.ranges.iter().all(|range| range.2 != address)) {
            node.close();
        }
        map.ranges.retain(|(first, last, _)| first != last || *first != slot);
        map.ranges.insert(0, (slot, slot, address));
    }

    fn node(&self, address: &str) -> Result<Arc<Node>, RedisError> {
        if let Some(node) = lock(&self.map).nodes.get(address) {
            return Ok(node.clone());
        }
        let client = self.config.client(address).map_err(|e| problem("ADDRESS", e.to_string()))?;
        Ok(self.add(Server { address: address.to_owned(), client }))
    }

    fn add(&self, server: Server) -> Arc<Node> {
        let address = server.address.clone();
        let limit = self.config.connect_limit().min(ASK_LIMIT);
        let new = || Arc::new(Node::new(Place::At(server), true, limit, self.closed.clone()));
        lock(&self.map).nodes.entry(address).or_insert_with(new).clone()
    }

    /// Asks all nodes that are known who serves what.
    async fn refresh(&self) -> Result<(), RedisError> {
        let mut asked = self.asking.lock().await;
        if asked.is_some_and(|at| at.elapsed() < FRESH) {
            return Ok(());
        }
        let nodes: Vec<_> =
            lock(&self.map).nodes.iter().map(|(address, node)| (address.clone(), node.clone())).collect();
        let ranges = newest(nodes.into_iter().map(|(address, node)| view(address, node)).collect()).await?;
        for (_, _, address) in &ranges {
            self.node(address)?;
        }
        let mut map = lock(&self.map);
        // A connection that is older than the node's part as a primary has too low a floor for tokens.
        let serves = |ranges: &[Range], address: &str| ranges.iter().any(|range| range.2 == address);
        for (address, node) in &map.nodes {
            if serves(&ranges, address) && !serves(&map.ranges, address) {
                node.close();
            }
        }
        let seeds = self.config.hosts();
        map.nodes.retain(|address, _| seeds.contains(address) || serves(&ranges, address));
        map.ranges = ranges;
        *asked = Some(Instant::now());
        Ok(())
    }
}

/// A node's view of the slots. One that belongs to the majority counts before one that does not, then the later one.
fn view(address: String, node: Arc<Node>) -> Question<Vec<Range>> {
    Box::pin(async move {
        let slots = match node.ask(redis::cmd("CLUSTER").arg("SLOTS")).await {
            Err(error) if error.to_string().contains("cluster support disabled") => {
                return Err(problem("NOCLUSTER", "it is no node of a cluster".to_owned()));
            }
            slots => slots?,
        };
        // Who may not ask for it is believed as well as the others.
        let info = node.ask(redis::cmd("CLUSTER").arg("INFO")).await.unwrap_or(Value::Nil);
        let info = match &info {
            Value::VerbatimString { text, .. } => text.as_str(),
            other => text(Some(other)),
        };
        let line = |key: &str| info.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim_end();
        let epoch = line("cluster_current_epoch:").parse::<u64>().unwrap_or(0).min(u64::MAX >> 1);
        let newness = if line("cluster_state:") == "ok" { (1 << 63) | epoch } else { epoch };
        Ok((newness, ranges(&slots, &address)))
    })
}

fn ranges(slots: &Value, asked: &str) -> Vec<Range> {
    let range = |slot: &Value| {
        let [first, last, primary, ..] = parts(slot) else { return None };
        let part = |value| number(Some(value)).and_then(|n| u16::try_from(n).ok());
        let (host, port) = (text(parts(primary).first()), number(parts(primary).get(1))?);
        let host = if host == "?" { "" } else { host };
        let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        Some((part(first)?, part(last)?, whole(&address, Some(asked))))
    };
    parts(slots).iter().filter_map(range).collect()
}

/// A node that does not know its own address leaves it out: it is the one that was asked.
fn whole(address: &str, asked: Option<&str>) -> String {
    match (address.strip_prefix(':'), asked.and_then(|asked| asked.rsplit_once(':'))) {
        (Some(port), Some((host, _))) => format!("{host}:{port}"),
        _ => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_read_with_and_without_a_host() {
        let bulk = |text: &str| Value::BulkString(text.into());
        let node = |host: Value| Value::Array(vec![host, Value::Int(7001), bulk("id")]);
        let slots = Value::Array(vec![
            Value::Array(vec![Value::Int(0), Value::Int(99), node(bulk("h1")), node(bulk("h2"))]),
            Value::Array(vec![Value::Int(100), Value::Int(100), node(bulk("::1"))]),
            Value::Array(vec![Value::Int(101), Value::Int(16383), node(Value::Nil)]),
        ]);
        let expected = [(0, 99, "h1:7001"), (100, 100, "[::1]:7001"), (101, 16383, "seed:7001")];
        assert_eq!(ranges(&slots, "seed:6379"), expected.map(|(a, b, c)| (a, b, c.to_owned())));
    }
}
