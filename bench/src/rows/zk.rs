//! ZooKeeper: the floor is the creation of an ephemeral node and its deletion, over one session.

use std::time::Duration;

use conformance_tests::Stop;
use zookeeper_client::{Acls, Client as Session, CreateMode, LockOptions, LockPrefix, OwnedLockClient};

use crate::workers::Client;

/// Where ours counts its own, so that each stands in a folder of its own.
const FLOOR: &str = "/bench-floor";
const RECIPE: &str = "/bench-recipe";

async fn session(url: &str) -> Result<Session, Stop> {
    let rest = url.strip_prefix("zk://").ok_or("not a URL of ZooKeeper")?;
    let hosts = rest.split('/').next().unwrap_or(rest);
    Ok(Session::connector().with_session_timeout(Duration::from_secs(30)).connect(hosts).await?)
}

async fn folder(session: &Session, path: &str) -> Result<(), Stop> {
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    match session.create(path, b"", &options).await {
        Ok(_) | Err(zookeeper_client::Error::NodeExists) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

pub struct Floor(Session);

impl Floor {
    pub async fn connect(url: &str) -> Result<Self, Stop> {
        let session = session(url).await?;
        folder(&session, FLOOR).await?;
        Ok(Self(session))
    }

    /// The round trip of a small read.
    pub async fn ping(&self) -> Result<(), Stop> {
        Ok(self.0.check_stat("/").await.map(drop)?)
    }
}

impl Client for Floor {
    type Held = String;

    async fn acquire(&self, name: &str) -> Result<String, Stop> {
        let path = format!("{FLOOR}/{name}");
        self.0.create(&path, b"", &CreateMode::Ephemeral.with_acls(Acls::anyone_all())).await?;
        Ok(path)
    }

    async fn release(&self, path: String) -> Result<(), Stop> {
        Ok(self.0.delete(&path, None).await?)
    }
}

/// The lock recipe of zookeeper-client, with the folder of each name made beforehand, at its first use.
pub struct Recipe(Session);

impl Recipe {
    pub async fn connect(url: &str) -> Result<Self, Stop> {
        let session = session(url).await?;
        folder(&session, RECIPE).await?;
        Ok(Self(session))
    }
}

impl Client for Recipe {
    type Held = OwnedLockClient;

    async fn acquire(&self, name: &str) -> Result<Self::Held, Stop> {
        let path = format!("{RECIPE}/{name}");
        let prefix = LockPrefix::new_curator(&path, "lock-")?;
        let ancestors = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let options = LockOptions::new(Acls::anyone_all()).with_ancestor_options(ancestors)?;
        Ok(self.0.lock(prefix, b"", options).await?.into_owned())
    }

    async fn release(&self, held: Self::Held) -> Result<(), Stop> {
        // Its guard only deletes in the background, of which nobody sees the end; so the node is deleted here, and then forgotten.
        let deleted = self.0.delete(held.lock_path(), None).await;
        std::mem::forget(held);
        Ok(deleted?)
    }
}
