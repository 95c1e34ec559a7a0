//! etcd, on servers that the harness starts itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{
    AlarmAction, AlarmOptions, AlarmType, Client, ConnectOptions, GetOptions, KeyValue, PutOptions, SortOrder,
    SortTarget, Txn, TxnOp,
};
use lock_core::{DistributedLock, LockError, LockName, Owner};
use lock_etcd::{EtcdConfig, EtcdLock};

use crate::servers::etcd::{Etcd, EtcdServer};
use crate::{Entry, Harness, Instance, Need, Server, Stop};

/// etcd: an instance is a cluster of its own.
#[derive(Clone, Copy, Debug)]
pub struct EtcdHarness {
    /// How many members it has.
    pub members: usize,
}

#[async_trait]
impl Harness for EtcdHarness {
    fn name(&self) -> &str {
        "etcd"
    }

    fn lacks(&self, _need: Need) -> Option<&'static str> {
        None
    }

    async fn start(&self) -> Result<Arc<dyn Instance>, Stop> {
        let server = EtcdServer::of(Etcd::with(&[]), self.members).await?;
        let store = EtcdStore { hosts: vec![format!("127.0.0.1:{}", server.port())], login: None };
        Ok(Arc::new(EtcdInstance { store, server }))
    }

    async fn connect(&self, url: &str) -> Result<Arc<dyn DistributedLock>, LockError> {
        Ok(Arc::new(EtcdLock::connect(EtcdConfig::from_url(url)?).await?))
    }
}

#[derive(Debug)]
struct EtcdInstance {
    store: EtcdStore,
    server: EtcdServer,
}

#[async_trait]
impl Instance for EtcdInstance {
    fn url(&self) -> String {
        format!("etcd://{}", self.server.hosts())
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
        Some(format!("etcd://{address}"))
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.server.members().iter().map(|member| ([127, 0, 0, 1], member.port()).into()).collect()
    }

    fn url_via_all(&self, addresses: &[SocketAddr]) -> Option<String> {
        let hosts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        Some(format!("etcd://{}", hosts.join(",")))
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(&self.server)
    }

    async fn put_foreign(&self, name: &LockName, kind: usize) -> Result<bool, Stop> {
        self.store.put_foreign(name, kind).await
    }

    async fn refuse_writes(&self, refuse: bool) -> Result<(), Stop> {
        let mut client = self.store.client().await?;
        let member = client.status().await?.header().ok_or("an answer without a header")?.member_id();
        let mut options = AlarmOptions::new();
        options.with_member(member);
        let action = if refuse { AlarmAction::Activate } else { AlarmAction::Deactivate };
        client.alarm(action, AlarmType::Nospace, Some(options)).await?;
        Ok(())
    }

    async fn wipe(&self) -> Result<(), Stop> {
        self.server.wipe().await
    }
}

/// The suite's own way into the store.
#[derive(Clone)]
pub(crate) struct EtcdStore {
    /// Host and port of each member.
    pub(crate) hosts: Vec<String>,
    pub(crate) login: Option<(String, String)>,
}

impl std::fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The password is nobody's business.
        write!(f, "EtcdStore({})", self.hosts.join(","))
    }
}

impl EtcdStore {
    /// A client for one look: it must not outlive the runtime of its case.
    async fn client(&self) -> Result<Client, Stop> {
        let login = self.login.as_ref().map(|(user, password)| ConnectOptions::new().with_user(user, password));
        Ok(Client::connect(&self.hosts, login).await?)
    }

    /// As [`Instance::peek`].
    pub(crate) async fn peek(&self, name: &LockName) -> Result<Option<Entry>, Stop> {
        let mut client = self.client().await?;
        let Some(first) = contenders(&mut client, name).await?.into_iter().next() else { return Ok(None) };
        let answer = client.lease_client().time_to_live(first.lease(), None).await?;
        // Whole seconds, cut; a lease that has ended takes its keys along in a moment.
        let Ok(left) = u64::try_from(answer.ttl()) else { return Ok(None) };
        let remaining = Duration::from_secs((left + 1).min(answer.granted_ttl().unsigned_abs()));
        Ok(Some(Entry { owner: part(name, &first)?.to_owned(), remaining: Some(remaining) }))
    }

    /// As [`Instance::remove`].
    pub(crate) async fn remove(&self, name: &LockName) -> Result<(), Stop> {
        let mut client = self.client().await?;
        let holder = contenders(&mut client, name).await?.into_iter().next();
        let data = below(&mut client, name).await?.into_iter().filter(|kv| kv.lease() == 0);
        for kv in holder.into_iter().chain(data) {
            client.delete(kv.key(), None).await?;
        }
        Ok(())
    }

    /// As [`Instance::replace_owner`].
    pub(crate) async fn replace_owner(&self, name: &LockName, ttl: Duration) -> Result<String, Stop> {
        let mut client = self.client().await?;
        let first = contenders(&mut client, name).await?.into_iter().next().ok_or("there is no entry to replace")?;
        let owner = Owner::random()?.to_string();
        let lease = client.lease_grant(i64::try_from(ttl.as_secs())?, None).await?.id();
        let put = TxnOp::put(
            format!("{}/{owner}", name.as_str()),
            "held 0 by hand",
            Some(PutOptions::new().with_lease(lease)),
        );
        client.txn(Txn::new().and_then([TxnOp::delete(first.key(), None), put])).await?;
        Ok(owner)
    }

    /// As [`Instance::residue`].
    pub(crate) async fn residue(&self, name: &LockName) -> Result<Vec<String>, Stop> {
        let all = below(&mut self.client().await?, name).await?;
        let shown =
            |kv: &KeyValue| format!("{} = {}", String::from_utf8_lossy(kv.key()), String::from_utf8_lossy(kv.value()));
        Ok(all.iter().map(shown).collect())
    }

    /// As [`Instance::put_foreign`]. The only foreign thing under a name that is in the way: a contender of another program, or data that somebody wrote over an entry.
    /// A key without a lease takes no part, which the backend's own tests look at.
    pub(crate) async fn put_foreign(&self, name: &LockName, kind: usize) -> Result<bool, Stop> {
        if kind > 0 {
            return Ok(false);
        }
        let mut client = self.client().await?;
        match contenders(&mut client, name).await?.first() {
            Some(held) => client.put(held.key(), "data", None).await?,
            None => {
                let lease = client.lease_grant(600, None).await?.id();
                let key = format!("{}/{lease:x}", name.as_str());
                client.put(key, "", Some(PutOptions::new().with_lease(lease))).await?
            }
        };
        Ok(true)
    }
}

/// The keys right below a name, the oldest first.
async fn below(client: &mut Client, name: &LockName) -> Result<Vec<KeyValue>, Stop> {
    let options = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend);
    let mut all = client.get(format!("{}/", name.as_str()), Some(options)).await?.take_kvs();
    all.retain(|kv| part(name, kv).is_ok_and(|part| !part.contains('/')));
    Ok(all)
}

async fn contenders(client: &mut Client, name: &LockName) -> Result<Vec<KeyValue>, Stop> {
    let mut all = below(client, name).await?;
    all.retain(|kv| kv.lease() != 0);
    Ok(all)
}

fn part<'a>(name: &LockName, kv: &'a KeyValue) -> Result<&'a str, Stop> {
    Ok(std::str::from_utf8(&kv.key()[name.as_str().len() + 1..])?)
}
