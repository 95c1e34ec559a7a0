//! Living together: the locks of other libraries and ours exclude each other, both ways. See docs/neighbours.md.

mod client;
mod programs;
mod scenarios;

use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use conformance_tests::harnesses::etcd::EtcdHarness;
use conformance_tests::harnesses::redis::RedisHarness;
use conformance_tests::harnesses::zk::ZkHarness;
use conformance_tests::{Harness, Instance, Stop};
use libtest_mimic::{Arguments, Trial};
use lock_core::LockManager;
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, OnceCell};

use client::Client;
use scenarios::Scenario;

/// How many scenarios run at once, unless `--test-threads` says otherwise: they wait more than they work.
const THREADS: usize = 12;

/// No scenario takes longer. The first ones wait for compilers.
const SCENARIO_LIMIT: Duration = Duration::from_secs(240);

/// A client of another library.
struct Neighbour {
    name: &'static str,
    /// What to install when it does not run.
    packages: &'static str,
    backend: Arc<Backend>,
    /// What stands before our name in its own.
    prefix: &'static str,
    /// How it is run, but for its arguments; builds it first where it must be built.
    program: fn() -> Result<Command, Stop>,
    building: Mutex<()>,
}

/// A server that all neighbours of a backend share.
struct Backend {
    harness: Box<dyn Harness>,
    instance: OnceCell<Arc<dyn Instance>>,
}

impl Backend {
    fn new(harness: impl Harness) -> Arc<Self> {
        Arc::new(Self { harness: Box::new(harness), instance: OnceCell::new() })
    }

    async fn instance(&self) -> Result<&Arc<dyn Instance>, Stop> {
        self.instance.get_or_try_init(|| self.harness.start()).await
    }

    /// Our side, as a user has it.
    async fn locks(self: &Arc<Self>) -> Result<LockManager, Stop> {
        let (this, url) = (Arc::clone(self), self.instance().await?.url());
        Ok(LockManager::builder().connect(async move { this.harness.connect(&url).await }).await?)
    }
}

impl Neighbour {
    /// A process of theirs that is ready to lock `name`. It gives up what it holds so long after its death.
    async fn client(self: &Arc<Self>, name: &str, ttl: Duration) -> Result<Client, Stop> {
        let address = self.backend.instance().await?.address().ok_or("the server has no address")?;
        let mut command = {
            let _one_at_a_time = self.building.lock().await;
            tokio::task::spawn_blocking(self.program).await?.map_err(|e| self.missing(&e))?
        };
        command.arg(address.to_string()).arg(format!("{}{name}", self.prefix)).arg(ttl.as_secs().to_string());
        Client::start(command).await.map_err(|e| self.missing(&e))
    }

    fn missing(&self, e: &Stop) -> Stop {
        format!("{} does not run: {e:?}; if it is not installed: apt-get install {}", self.name, self.packages).into()
    }
}

/// Those who exclude with us, and one who does not.
fn neighbours() -> (Vec<Arc<Neighbour>>, Arc<Neighbour>) {
    let (redis, zk, etcd) =
        (Backend::new(RedisHarness), Backend::new(ZkHarness { members: 1 }), Backend::new(EtcdHarness { members: 1 }));
    let row = |name, backend: &Arc<Backend>, prefix, program, packages| {
        Arc::new(Neighbour { name, packages, backend: Arc::clone(backend), prefix, program, building: Mutex::new(()) })
    };
    // The last one does not exclude with us, and the scenarios must tell.
    let folder = "/suite/locks/";
    let stranger = row("kazoo-by-default", &zk, folder, programs::kazoo_by_default, "python3-kazoo");
    let neighbours = vec![
        row("redis-py", &redis, "", programs::redis_py, "python3-redis"),
        row("redlock-py", &redis, "", programs::redlock_py, "python3-redis python3-pip"),
        row("kazoo", &zk, folder, programs::kazoo, "python3-kazoo"),
        row("curator", &zk, folder, programs::curator, "default-jdk-headless libcurator-recipes-java"),
        row("go-mutex", &etcd, "", programs::go_mutex, "golang-go golang-etcd-server-dev"),
        row("lock-service", &etcd, "", programs::lock_service, "python3"),
        row("etcdctl", &etcd, "", programs::etcdctl, "etcd-client"),
    ];
    (neighbours, stranger)
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    let runtime = match Runtime::new() {
        Ok(runtime) => Arc::new(runtime),
        Err(e) => {
            eprintln!("cannot start the runtime: {e}");
            return ExitCode::FAILURE;
        }
    };
    let (neighbours, stranger) = neighbours();
    let trial = |neighbour: &Arc<Neighbour>, name: &str, scenario: Scenario| {
        let (runtime, neighbour) = (Arc::clone(&runtime), Arc::clone(neighbour));
        Trial::test(format!("{}::{name}", neighbour.name), move || {
            let bounded = async { tokio::time::timeout(SCENARIO_LIMIT, scenario(neighbour)).await };
            match runtime.block_on(bounded) {
                Ok(outcome) => outcome.map_err(|stop| format!("{stop:?}").into()),
                Err(_) => Err(format!("not done within {SCENARIO_LIMIT:?}").into()),
            }
        })
    };
    let mut trials = vec![trial(&stranger, "is_caught", |n| Box::pin(scenarios::is_caught(n)))];
    // The longest ones first.
    for (name, scenario) in scenarios::ALL {
        trials.extend(neighbours.iter().map(|neighbour| trial(neighbour, name, scenario)));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    // The servers must end before the process does.
    drop((neighbours, stranger));
    conclusion.exit_code()
}
