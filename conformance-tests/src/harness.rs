//! What a backend brings so that the suite can run against it.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{DistributedLock, LockError, LockName};

use crate::Stop;
use crate::proxy::Proxy;

/// A backend under test: how to start an instance of it, and how to reach one.
///
/// It is cheap to build and starts nothing by itself: the test binary builds it again in each child process.
/// What its functions cannot do, they answer with a [`Stop`]; a case that meets one fails. The suite drops none of their
/// futures but at the end of a case that has failed by taking too long.
#[async_trait]
pub trait Harness: Debug + Send + Sync + 'static {
    /// The backend's name, as the report shows it.
    fn name(&self) -> &str;

    /// Why this harness cannot offer what some cases need; `None` where it can. The reason stands in the report.
    ///
    /// What the backend's declared [`Reach`](lock_core::Reach) makes possible must be offered, unless the harness is [partial](Self::is_partial).
    fn lacks(&self, need: Need) -> Option<&'static str>;

    /// Whether the instance belongs to somebody else, so that a run cannot prove all: it must not be stopped or wiped.
    fn is_partial(&self) -> bool {
        false
    }

    /// Starts an instance that shares nothing with any other.
    async fn start(&self) -> Result<Arc<dyn Instance>, Stop>;

    /// A fresh client of the instance at `url`, sharing nothing with other clients, as another process would have it.
    ///
    /// # Errors
    /// What the backend's own connecting says.
    async fn connect(&self, url: &str) -> Result<Arc<dyn DistributedLock>, LockError>;
}

/// A running backend, and the suite's own way into its store, past the backend's code. It ends when it is dropped.
///
/// The functions that a [`Need`] names are called only where the harness does not lack it.
#[async_trait]
pub trait Instance: Debug + Send + Sync + 'static {
    /// Where clients reach it.
    fn url(&self) -> String;

    /// What stands under a name in the store; `None` when the name is free or its time has run out.
    async fn peek(&self, name: &LockName) -> Result<Option<Entry>, Stop>;

    /// Removes the entry by hand, as an operator would, past the library.
    async fn remove(&self, name: &LockName) -> Result<(), Stop>;

    /// Puts an entry of another owner, which lives for `ttl`, in the place of whatever stands there. The owner's text is what
    /// [`peek`](Self::peek) will show.
    async fn replace_owner(&self, name: &LockName, ttl: Duration) -> Result<String, Stop>;

    /// Everything in the store that bears the name, but for an idle fencing counter that vanishes by itself, or is bounded.
    async fn residue(&self, name: &LockName) -> Result<Vec<String>, Stop>;

    /// Where its server listens ([`Need::Network`]).
    fn address(&self) -> Option<SocketAddr> {
        None
    }

    /// A proxy before its server, or before all of them where they send clients to each other ([`Need::Network`]).
    async fn proxy(&self) -> Result<Proxy, Stop> {
        Ok(Proxy::start(self.address().ok_or("the harness names no address of its server")?).await?)
    }

    /// The URL that leads to this instance through a [proxy](Self::proxy) at `address` ([`Need::Network`]).
    fn url_via(&self, _address: SocketAddr) -> Option<String> {
        None
    }

    /// Where its members listen, the first at [`address`](Self::address) ([`Need::Network`]).
    fn addresses(&self) -> Vec<SocketAddr> {
        self.address().into_iter().collect()
    }

    /// The URL that leads to its members through proxies in front of them, in the order of [`addresses`](Self::addresses).
    fn url_via_all(&self, addresses: &[SocketAddr]) -> Option<String> {
        self.url_via(*addresses.first()?)
    }

    /// Control over its server ([`Need::Freeze`] for `stop` and `resume`, [`Need::Server`] for the rest).
    fn server(&self) -> Option<&dyn Server> {
        None
    }

    /// Puts something under the name that is no lock's, such as an application's data, of any kind that the store knows
    /// ([`Need::Foreign`]); `kind` counts from 0, and `false` says that there is no such kind.
    async fn put_foreign(&self, _name: &LockName, _kind: usize) -> Result<bool, Stop> {
        Ok(false)
    }

    /// Makes the server refuse to write, as one does that became a replica, or lets it write again ([`Need::Refusal`]).
    async fn refuse_writes(&self, _refuse: bool) -> Result<(), Stop> {
        Err("this instance cannot be made read-only".into())
    }

    /// Forgets all data, as a server does that lost its disk ([`Need::Wipe`]). No client is connected meanwhile.
    async fn wipe(&self) -> Result<(), Stop> {
        Err("this instance cannot be wiped".into())
    }
}

/// Control over the process of a server.
#[async_trait]
pub trait Server: Send + Sync {
    /// Freezes it (SIGSTOP): connections stay, answers stop.
    fn stop(&self) -> Result<(), Stop>;

    /// Lets it go on (SIGCONT).
    fn resume(&self) -> Result<(), Stop>;

    /// Ends it at once (SIGKILL).
    fn kill(&self) -> Result<(), Stop>;

    /// Starts it again on the same address, with what data it keeps, and waits until it answers. Ends it first where it runs.
    async fn restart(&self) -> Result<(), Stop>;

    /// Ends or freezes the member that leads the others, where there are several.
    async fn strike_leader(&self, _kill: bool) -> Result<(), Stop> {
        Err("it has no leader".into())
    }

    /// Starts and resumes whatever does not run, and waits until all answers.
    async fn mend(&self) -> Result<(), Stop> {
        self.resume()
    }
}

/// What stands under a name in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The owner's text as stored.
    pub owner: String,
    /// How long it still lives; `None` when it has no time to live.
    pub remaining: Option<Duration>,
}

/// What a case needs of a harness beyond clients and a look into the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Need {
    /// The backend is reached over TCP, so that a proxy can stand between.
    Network,
    /// A server that can be stopped and continued, or whatever stops the store from answering for a while.
    Freeze,
    /// A server that can be killed and restarted, too.
    Server,
    /// The data can be lost.
    Wipe,
    /// Other processes can contend.
    Processes,
    /// The store can hold things that are no locks under the name of one.
    Foreign,
    /// The server can refuse writes while it answers.
    Refusal,
}

impl Need {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Network, Self::Freeze, Self::Server, Self::Wipe, Self::Processes, Self::Foreign, Self::Refusal];
}
