//! The few connections that carry all statements, dialled when needed and anew when they fail or are in doubt.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as PlainMutex, MutexGuard as PlainGuard, PoisonError};
use std::time::Duration;

use lock_core::{ErrorKind, LockError, Owner, bounded};
use sqlx::mysql::{MySqlConnectOptions, MySqlQueryResult, MySqlRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, FromRow, MySqlConnection, Row};
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};

use crate::BACKEND;
use crate::config::MysqlConfig;
use crate::errors::{self, from_driver, meaning_of};
use crate::statement::{Arg, Query, Statement};

/// How often a statement is sent again at once because of what others did.
const TRIES: usize = 24;

/// How long one of several servers may take until the next is tried.
const HOST_LIMIT: Duration = Duration::from_secs(1);

/// Opens connections.
pub(crate) struct Dialer {
    hosts: Vec<Host>,
    /// The number of the one that took writes last, and of the one that is tried next.
    good: AtomicUsize,
    next: AtomicUsize,
    /// Host and port, or several, as the URL names them.
    pub(crate) server: String,
    limit: Duration,
    closed: PlainMutex<bool>,
    /// Connections that were given up while a request of an owner was on its way over them.
    suspects: PlainMutex<Vec<(Owner, String)>>,
}

/// One of the servers.
#[derive(Debug)]
struct Host {
    address: String,
    options: MySqlConnectOptions,
}

/// Some connections, of which a caller gets one that is free.
#[derive(Debug)]
pub(crate) struct Links {
    dialer: Arc<Dialer>,
    links: Box<[Mutex<Option<Open>>]>,
    turn: AtomicUsize,
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct Open {
    conn: MySqlConnection,
    dialer: Arc<Dialer>,
    /// The number of its server.
    at: usize,
    /// The name of a lock of the server that this session holds for life: by it others can tell whether the session has ended, and end it,
    /// without mistaking another session for it.
    nonce: String,
    broken: bool,
}

/// A connection for one's own until it is dropped.
pub(crate) type Held<'a> = MappedMutexGuard<'a, Open>;

/// Why a statement failed.
pub(crate) struct Failure {
    /// The server's number, where it answered.
    pub(crate) code: Option<u16>,
    /// Whether the connection broke, so that a new one may do.
    pub(crate) broke: bool,
    pub(crate) error: LockError,
}

/// The driver's options show the password.
impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Dialer {
    pub(crate) fn new(config: &MysqlConfig) -> Self {
        let host = |address: &String| Host { address: address.clone(), options: config.options(address) };
        let several = config.hosts().len() > 1;
        Self {
            hosts: config.hosts().iter().map(host).collect(),
            good: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            server: config.server(),
            limit: if several { config.connect_limit().min(HOST_LIMIT) } else { config.connect_limit() },
            closed: PlainMutex::new(false),
            suspects: PlainMutex::default(),
        }
    }

    /// Opens a connection; of several servers, to one that takes writes.
    pub(crate) async fn dial(self: &Arc<Self>) -> Result<Open, LockError> {
        let (first, mut failed) = (self.next.load(Ordering::Relaxed), None::<LockError>);
        for step in 0..self.hosts.len() {
            if *lock(&self.closed) {
                break;
            }
            let at = (first + step) % self.hosts.len();
            // Should this future be dropped, the next begins with the next.
            self.next.store((at + 1) % self.hosts.len(), Ordering::Relaxed);
            match self.dial_at(at).await {
                Ok(open) => {
                    self.next.store(at, Ordering::Relaxed);
                    self.good.store(at, Ordering::Relaxed);
                    return Ok(open);
                }
                // What stays wrong says more than what passes.
                Err(e) if failed.as_ref().is_none_or(LockError::is_retryable) => failed = Some(e),
                Err(_) => {}
            }
        }
        let closed = || LockError::new(ErrorKind::Closed, "the backend was closed").backend(BACKEND);
        Err(failed.unwrap_or_else(closed))
    }

    async fn dial_at(self: &Arc<Self>, at: usize) -> Result<Open, LockError> {
        let host = &self.hosts[at];
        let nonce = format!("distlock:{}", Owner::random()?);
        let opening = async {
            let mut conn = host.options.connect().await?;
            // Whatever the server's defaults are. One round trip.
            let settings = format!(
                "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
                 SET NAMES utf8mb4, SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', SESSION time_zone = '+00:00',
                     SESSION autocommit = 1, SESSION innodb_lock_wait_timeout = 1, SESSION lock_wait_timeout = 2,
                     SESSION wait_timeout = 28800, SESSION sql_safe_updates = 0;
                 SELECT GET_LOCK('{nonce}', 0), CAST(@@global.read_only AS CHAR)"
            );
            let row = sqlx::raw_sql(AssertSqlSafe(settings)).fetch_one(&mut conn).await?;
            Ok((row.try_get::<Option<i64>, _>(0)?, row.try_get::<String, _>(1)?, conn))
        };
        let opening = async { opening.await.map_err(|e| from_driver(e, &host.address)) };
        let (named, read_only, conn) =
            bounded(self.limit, opening).await.map_err(|e| e.with_effect(lock_core::Effect::NotApplied))?;
        if named != Some(1) {
            return Err(LockError::new(ErrorKind::Internal, "the server does not give a lock for the session")
                .advice("GET_LOCK must work; some clusters and proxies refuse it"));
        }
        // A single one answers the first write with why.
        if self.hosts.len() > 1 && !matches!(&*read_only, "0" | "OFF") {
            let detail = format!("none of the servers {} takes writes: {} is read-only", self.server, host.address);
            return Err(LockError::new(ErrorKind::Unavailable, detail)
                .with_effect(lock_core::Effect::NotApplied)
                .advice("wait for the failover, or SET GLOBAL read_only=0 on the primary"));
        }
        Ok(Open { conn, dialer: self.clone(), at, nonce, broken: false })
    }

    /// A connection over which a request of this owner may still be on its way.
    pub(crate) fn suspect(&self, owner: &Owner) -> Option<String> {
        lock(&self.suspects).iter().find(|(other, _)| other == owner).map(|(_, nonce)| nonce.clone())
    }

    pub(crate) fn acquit(&self, nonce: &str) {
        lock(&self.suspects).retain(|(_, other)| other != nonce);
    }

    fn accuse(&self, owner: Owner, nonce: &str) {
        /// More come together only if nobody asks after them: their owners were given up, and their entries ran out.
        const MOST: usize = 4096;
        let mut suspects = lock(&self.suspects);
        if suspects.len() == MOST {
            suspects.remove(0);
        }
        suspects.push((owner, nonce.to_owned()));
    }
}

impl Links {
    pub(crate) fn new(dialer: &Arc<Dialer>, count: usize) -> Self {
        let links = (0..count).map(|_| Mutex::default()).collect();
        Self { dialer: dialer.clone(), links, turn: AtomicUsize::new(0) }
    }

    /// A connection that is free, or the next that becomes free.
    pub(crate) async fn get(&self) -> Result<Held<'_>, LockError> {
        let mut link = self.any().await;
        // One that leads to a primary of before may still be answered, or never.
        let good = self.dialer.good.load(Ordering::Relaxed);
        if link.as_ref().is_none_or(|open| open.broken || open.at != good) {
            // Given up first: what was on its way over it is a suspect already.
            drop(link.take());
            *link = Some(self.dialer.dial().await?);
        }
        MutexGuard::try_map(link, Option::as_mut)
            .map_err(|_| LockError::new(ErrorKind::Internal, "a connection vanished"))
    }

    async fn any(&self) -> MutexGuard<'_, Option<Open>> {
        match self.links.iter().find_map(|link| link.try_lock().ok()) {
            Some(link) => link,
            None => {
                let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.links.len();
                self.links[turn].lock().await
            }
        }
    }

    pub(crate) async fn close(&self) {
        *lock(&self.dialer.closed) = true;
        for link in &self.links {
            if let Some(open) = link.lock().await.take() {
                open.close().await;
            }
        }
    }
}

/// A request on its way. When its future is dropped, or the connection breaks under it, the connection is given up, and a request of an
/// owner makes it a suspect.
struct InFlight<'a> {
    broken: &'a mut bool,
    doubt: Option<(Owner, &'a str, &'a Dialer)>,
    answered: bool,
}

impl InFlight<'_> {
    /// An answer of the server, be it an error, ends all doubt.
    fn land<T>(mut self, answer: sqlx::Result<T>) -> sqlx::Result<T> {
        self.answered = match &answer {
            Ok(_) => true,
            Err(e) => errors::code(e).is_some(),
        };
        answer
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if !self.answered {
            *self.broken = true;
            if let Some((owner, nonce, dialer)) = self.doubt {
                dialer.accuse(owner, nonce);
            }
        }
    }
}

impl Open {
    /// Runs a statement that changes something, and answers what it left in LAST_INSERT_ID: never the number of rows, which tells nothing
    /// about whose they are. With an owner, what becomes of the statement matters when its answer does not come.
    pub(crate) async fn change(
        &mut self,
        statement: &Statement,
        args: &[Arg],
        owner: Option<&Owner>,
    ) -> Result<u64, Failure> {
        let done = self.change_by(|| statement.query(args), owner).await?;
        Ok(done.last_insert_id())
    }

    /// As [`change`](Self::change), for a statement whose parameters are a list.
    pub(crate) async fn change_by(
        &mut self,
        query: impl Fn() -> Query,
        owner: Option<&Owner>,
    ) -> Result<MySqlQueryResult, Failure> {
        let mut tries = TRIES;
        loop {
            tries -= 1;
            match self.execute(query(), owner).await {
                Err(e) if tries > 0 && e.code.is_some_and(errors::is_passing) => {}
                done => return done,
            }
        }
    }

    /// Runs a statement once.
    pub(crate) async fn execute(&mut self, query: Query, owner: Option<&Owner>) -> Result<MySqlQueryResult, Failure> {
        let (conn, in_flight) = self.depart(owner);
        let answer = in_flight.land(query.execute(conn).await);
        answer.map_err(|e| self.failure(e))
    }

    /// Runs a statement that reads.
    pub(crate) async fn rows<T>(&mut self, query: Query) -> Result<Vec<T>, Failure>
    where
        T: for<'r> FromRow<'r, MySqlRow>,
    {
        let (conn, in_flight) = self.depart(None);
        let answer = in_flight.land(query.fetch_all(conn).await);
        let rows = answer.and_then(|rows| rows.iter().map(T::from_row).collect::<sqlx::Result<Vec<T>>>());
        rows.map_err(|e| self.failure(e))
    }

    /// Runs a statement that has no parameters and cannot be prepared.
    pub(crate) async fn plain(&mut self, text: String) -> Result<(), Failure> {
        let (conn, in_flight) = self.depart(None);
        let answer = in_flight.land(sqlx::raw_sql(AssertSqlSafe(text)).execute(conn).await);
        answer.map(drop).map_err(|e| self.failure(e))
    }

    pub(crate) async fn close(self) {
        if !self.broken {
            // A line that is cut says so on its own.
            let _ = tokio::time::timeout(Duration::from_millis(500), self.conn.close()).await;
        }
    }

    fn depart(&mut self, owner: Option<&Owner>) -> (&mut MySqlConnection, InFlight<'_>) {
        let doubt = owner.map(|owner| (*owner, self.nonce.as_str(), &*self.dialer));
        (&mut self.conn, InFlight { broken: &mut self.broken, doubt, answered: false })
    }

    fn failure(&mut self, error: sqlx::Error) -> Failure {
        let (code, redial) = (errors::code(&error), meaning_of(&error).redial);
        self.broken |= redial;
        Failure {
            code,
            broke: redial && code.is_none(),
            error: from_driver(error, &self.dialer.hosts[self.at].address),
        }
    }
}

/// Nothing panics while it holds one of these locks, so the data is whole.
pub(crate) fn lock<T>(mutex: &PlainMutex<T>) -> PlainGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
