//! etcd: the floor is put-if-absent on a lease that is there already, and a compared delete.

use conformance_tests::Stop;
use etcd_client::{Client as Link, Compare, CompareOp, LockOptions, PutOptions, Txn, TxnOp};

use crate::workers::Client;

const TTL: i64 = 30;
const LONG: i64 = 3_600;

async fn link(url: &str) -> Result<Link, Stop> {
    let hosts = url.strip_prefix("etcd://").ok_or("not a URL of etcd")?;
    Ok(Link::connect([hosts.trim_end_matches('/')], None).await?)
}

pub struct Floor {
    link: Link,
    lease: i64,
}

impl Floor {
    pub async fn connect(url: &str) -> Result<Self, Stop> {
        let link = link(url).await?;
        let lease = link.lease_client().grant(LONG, None).await?.id();
        Ok(Self { link, lease })
    }

    /// The round trip of a small read.
    pub async fn ping(&self) -> Result<(), Stop> {
        Ok(self.link.kv_client().get("bench", None).await.map(drop)?)
    }
}

impl Client for Floor {
    type Held = (String, i64);

    async fn acquire(&self, name: &str) -> Result<Self::Held, Stop> {
        let key = format!("bench-floor/{name}");
        let put = TxnOp::put(key.clone(), "", Some(PutOptions::new().with_lease(self.lease)));
        let take = Txn::new().when([Compare::create_revision(key.clone(), CompareOp::Equal, 0)]).and_then([put]);
        let taken = self.link.kv_client().txn(take).await?;
        let revision = taken.header().ok_or("an answer without a header")?.revision();
        if taken.succeeded() { Ok((key, revision)) } else { Err("somebody else is on the floor".into()) }
    }

    async fn release(&self, (key, revision): Self::Held) -> Result<(), Stop> {
        let own = Compare::create_revision(key.clone(), CompareOp::Equal, revision);
        let given = Txn::new().when([own]).and_then([TxnOp::delete(key, None)]);
        let given = self.link.kv_client().txn(given).await?;
        if given.succeeded() { Ok(()) } else { Err("somebody else was on the floor".into()) }
    }
}

/// The server's own lock service, with a lease for each grant, whose end takes the key along.
pub struct LockService(Link);

impl LockService {
    pub async fn connect(url: &str) -> Result<Self, Stop> {
        Ok(Self(link(url).await?))
    }
}

impl Client for LockService {
    type Held = i64;

    async fn acquire(&self, name: &str) -> Result<Self::Held, Stop> {
        let lease = self.0.lease_client().grant(TTL, None).await?.id();
        let options = LockOptions::new().with_lease(lease);
        self.0.lock_client().lock(format!("bench-service/{name}"), Some(options)).await?;
        Ok(lease)
    }

    async fn release(&self, lease: i64) -> Result<(), Stop> {
        Ok(self.0.lease_client().revoke(lease).await.map(drop)?)
    }
}
