//! Where the torture takes place: a server of its own, or one that somebody else runs.

use std::net::SocketAddr;
use std::sync::Arc;

use lock_core::{DistributedLock, LockName};

use super::faults::{FAULTS, Fault, Wants};
use crate::harnesses::attached::Attached;
use crate::harnesses::memory::MemoryHarness;
use crate::harnesses::mysql::MysqlHarness;
use crate::harnesses::redis::RedisHarness;
use crate::harnesses::sqlite::SqliteHarness;
use crate::harnesses::zk::ZkHarness;
use crate::{Harness, Instance, Need, Stop};

/// A store under torture.
#[derive(Debug)]
pub struct Ground {
    harness: Arc<dyn Harness>,
    instance: Arc<dyn Instance>,
    scheme: String,
    members: usize,
    /// Before each name: on somebody's server nothing but the run's own names is touched.
    prefix: String,
}

/// Why a URL is no ground for a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

impl Ground {
    /// Whether a URL is acceptable, before anything is started.
    ///
    /// # Errors
    /// Why it is not; no part of it that may be secret is shown.
    pub fn check(url: &str, members: usize, yes_this_server: bool) -> Result<(), Refused> {
        let refused = |text: String| Err(Refused(text));
        let Some((scheme, rest)) = url.split_once(':') else {
            return refused("URL must be a scheme with a colon, such as redis:".into());
        };
        let known = ["memory", "sqlite", "redis", "mysql", "zk", "etcd"];
        if rest.is_empty() {
            match scheme {
                "etcd" if !cfg!(feature = "etcd") => return refused("build with --features etcd for etcd:".into()),
                scheme if known.contains(&scheme) => {}
                scheme => return refused(format!("'{scheme}' is none of {}", known.join(", "))),
            }
            if members != 1 && !["zk", "etcd"].contains(&scheme) {
                return refused("--members is for zk: and etcd:".into());
            }
            return if matches!(members, 1 | 3 | 5) { Ok(()) } else { refused("--members must be 1, 3 or 5".into()) };
        }
        if !yes_this_server {
            return refused(format!(
                "this URL names a server that the run has not started: it would be tortured, and so would whoever uses it. \
                 Give {scheme}: for a server of the run's own, or add --yes-this-server"
            ));
        }
        Attached::new(url).map(drop).map_err(|stop| Refused(format!("{stop:?}")))
    }

    /// Starts a server of the run's own for a bare scheme, or attaches to the one that the URL names.
    ///
    /// # Errors
    /// What kept the server from starting.
    ///
    /// # Cancel safety
    /// Dropping it ends the server.
    pub async fn open(url: &str, members: usize) -> Result<Self, Stop> {
        let harness: Arc<dyn Harness> = match url {
            "memory:" => Arc::new(MemoryHarness::default()),
            "sqlite:" => Arc::new(SqliteHarness),
            "redis:" => Arc::new(RedisHarness),
            "mysql:" => Arc::new(MysqlHarness),
            "zk:" => Arc::new(ZkHarness { members }),
            #[cfg(feature = "etcd")]
            "etcd:" => Arc::new(crate::harnesses::etcd::EtcdHarness { members }),
            url => Arc::new(Attached::new(url)?),
        };
        Self::over(harness, members).await
    }

    /// The ground that a harness brings.
    ///
    /// # Errors
    /// What kept the server from starting.
    ///
    /// # Cancel safety
    /// Dropping it ends the server.
    pub async fn over(harness: Arc<dyn Harness>, members: usize) -> Result<Self, Stop> {
        let instance = harness.start().await?;
        let scheme = harness.name().to_owned();
        let prefix = if harness.is_partial() {
            format!("torture-{:08x}-", getrandom::u32().map_err(|e| e.to_string())?)
        } else {
            "torture-".to_owned()
        };
        Ok(Self { harness, instance, scheme, members, prefix })
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) fn name(&self, number: usize) -> String {
        format!("{}{number}", self.prefix)
    }

    pub(super) fn scheme(&self) -> &str {
        &self.scheme
    }

    pub(super) fn instance(&self) -> &Arc<dyn Instance> {
        &self.instance
    }

    pub(super) fn harness(&self) -> &Arc<dyn Harness> {
        &self.harness
    }

    /// Whether workers are processes of their own.
    pub(super) fn has_processes(&self) -> bool {
        self.harness.lacks(Need::Processes).is_none()
    }

    pub(super) fn members(&self) -> usize {
        self.members
    }

    /// The URL as it may be shown.
    pub(super) fn shown(&self) -> String {
        let scheme = &self.scheme;
        if self.harness.is_partial() { format!("'{scheme}://...' --yes-this-server") } else { format!("{scheme}:") }
    }

    /// Where the proxies of each worker lead to, if there are lines.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        if self.harness.lacks(Need::Network).is_none() { self.instance.addresses() } else { Vec::new() }
    }

    pub(super) async fn connect(&self) -> Result<Arc<dyn DistributedLock>, Stop> {
        Ok(self.harness.connect(&self.instance.url()).await?)
    }

    pub(super) async fn residue(&self, name: &str) -> Result<Vec<String>, Stop> {
        self.instance.residue(&LockName::new(name)?).await
    }

    /// Why a fault cannot be made here.
    fn lacks(&self, fault: &Fault) -> Option<&'static str> {
        match fault.wants {
            Wants::Nothing => None,
            Wants::Processes => self.harness.lacks(Need::Processes),
            Wants::Threads => self.has_processes().then_some(""),
            Wants::Harness(need) => self.harness.lacks(need),
            Wants::Own(product) if product != self.scheme => Some(""),
            Wants::Own(_) => self.harness.is_partial().then_some("the server is not the run's own"),
            Wants::Members if self.members < 2 => Some(if ["zk", "etcd"].contains(&&*self.scheme) {
                "there is one member; --members 3 starts three"
            } else {
                ""
            }),
            Wants::Members => self.harness.is_partial().then_some("the server is not the run's own"),
        }
    }

    /// The faults that can be made here, and those that cannot, with the reason. Faults of another product are not spoken of.
    pub(super) fn faults(&self) -> (Vec<&'static Fault>, Vec<(&'static str, &'static str)>) {
        let (mut here, mut out) = (Vec::new(), Vec::new());
        for fault in FAULTS {
            match self.lacks(fault) {
                None => here.push(fault),
                Some("") => {}
                Some(reason) => out.push((fault.name, reason)),
            }
        }
        (here, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_of_somebody_elses_needs_a_yes() {
        assert_eq!(Ground::check("redis:", 1, false), Ok(()));
        assert_eq!(Ground::check("zk:", 3, false), Ok(()));
        let refused = |url: &str, members| Ground::check(url, members, false).err().map(|r| r.0).unwrap_or_default();
        assert!(refused("redis://u:hunter2@host/", 1).contains("--yes-this-server"));
        assert!(!refused("redis://u:hunter2@host/", 1).contains("hunter2"));
        assert!(refused("sqlite:///tmp/x.db", 1).contains("--yes-this-server"));
        assert!(refused("redis:", 3).contains("--members"));
        assert!(refused("zk:", 2).contains("--members"));
        assert!(refused("oracle:", 1).contains("none of"));
        assert!(refused("redis", 1).contains("scheme"));
        assert_eq!(Ground::check("redis://host/", 1, true), Ok(()));
    }
}
