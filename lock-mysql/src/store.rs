//! The table: what is asked of it, and over which connection.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{
    AcquireRequest, Batch, Deadline, Effect, ErrorKind, LockError, LockName, Owner, Released, WaitingRoom, bounded,
};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::BACKEND;
use crate::config::MysqlConfig;
use crate::errors::{NO_RIGHT, NO_SUCH_THREAD, NO_TABLE};
use crate::link::{Dialer, Failure, Held, Links, Open};
use crate::renew::{Renew, Renewed};
use crate::row::{NameState, Row, key, micros};
use crate::statement::{Arg, MOST_NAMES, Statements};
use crate::wait::PACE;
use crate::waiters::Waiters;

/// Connections for renewals, releases and clean-up, which so never stand behind a waiter.
const KEEPING: usize = 2;
/// Connections for taking names.
const TAKING: usize = 2;
/// Connections for polls and for the operator's view.
const WATCHING: usize = 1;

/// How long the place of the next one is kept for it without a sign of life. A dead one delays the others by no more.
pub(crate) const PLACE_KEPT: Duration = Duration::from_millis(700);
/// The least TTL. A grant waits for the server's disk, and one that takes longer than its TTL is none.
pub(crate) const LEAST_TTL: Duration = Duration::from_millis(100);
/// How long the row of a free name is kept, since it carries the token on. A new row's token is the server's time, so only a server clock
/// that is set back by more than this could make a token fall.
const IDLE_KEPT: Duration = Duration::from_secs(600);
/// One request in so many sweeps, and takes away so many rows: more than requests can leave.
const SWEEP_EVERY: u8 = 64;
const SWEEP_AT_MOST: u64 = 256;

/// What lock, leases and waiters share.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) statements: Statements,
    /// The name of the table.
    pub(crate) table: String,
    pub(crate) room: WaitingRoom,
    pub(crate) waiters: Waiters,
    pub(crate) renewals: Batch<Renew, Renewed>,
    /// The bound on a request that brings none.
    pub(crate) limit: Duration,
    /// The poll on its way. Whoever waits for it may leave, and the connection must not suffer from that.
    pub(crate) polling: tokio::sync::Mutex<Option<JoinHandle<Result<u64, LockError>>>>,
    dialer: Arc<Dialer>,
    keeping: Links,
    taking: Links,
    watching: Links,
}

/// A grant.
pub(crate) struct Taken {
    pub(crate) token: u64,
    /// The moment before the request was sent, on the holder's clock.
    pub(crate) sent: Deadline,
}

impl Store {
    /// Opens nothing yet.
    pub(crate) fn new(config: &MysqlConfig) -> Self {
        let dialer = Arc::new(Dialer::new(config));
        Self {
            statements: Statements::new(config.table()),
            table: config.table().to_owned(),
            room: WaitingRoom::new(PACE),
            waiters: Waiters::default(),
            renewals: Batch::new(MOST_NAMES),
            limit: config.operation_limit(),
            polling: tokio::sync::Mutex::default(),
            keeping: Links::new(&dialer, KEEPING),
            taking: Links::new(&dialer, TAKING),
            watching: Links::new(&dialer, WATCHING),
            dialer,
        }
    }

    /// A connection for renewals and releases.
    pub(crate) async fn keeping(&self) -> Result<Held<'_>, LockError> {
        self.keeping.get().await
    }

    /// Host and port.
    pub(crate) fn server(&self) -> &str {
        &self.dialer.server
    }

    /// The connection for looking.
    pub(crate) async fn watching(&self) -> Result<Held<'_>, LockError> {
        self.watching.get().await
    }

    pub(crate) async fn close(&self) {
        for links in [&self.watching, &self.taking, &self.keeping] {
            links.close().await;
        }
    }

    /// Takes the name, or renews an own entry of an earlier try; `None` when it is not to be had.
    pub(crate) async fn take(&self, request: &AcquireRequest) -> Result<Option<Taken>, LockError> {
        let (owner, ttl) = (&request.owner, effective_ttl(request));
        let args = [
            Arg::Bytes(key(&request.name)),
            Arg::Text(owner.to_string()),
            Arg::Int(micros(ttl)),
            Arg::Text(request.label.to_string()),
        ];
        let (mut may_dial, mut may_create) = (true, true);
        loop {
            // What an earlier try left on its way must not arrive after this one.
            if let Some(link) = self.settle(owner).await? {
                link.close().await;
            }
            let mut link = self.taking.get().await?;
            let sent = request.clock.now();
            match link.change(&self.statements.take, &args, Some(owner)).await {
                Ok(0) => return Ok(None),
                Ok(_) if request.clock.has_passed(Deadline::valid_until(sent, ttl)) => {
                    return Err(LockError::new(ErrorKind::Unavailable, "the grant came after its time to live")
                        .with_effect(Effect::Unknown)
                        .advice("take a longer TTL, or look for what slows the server"));
                }
                Ok(token) => return Ok(Some(Taken { token, sent })),
                Err(e) if e.code == Some(NO_TABLE) && may_create => {
                    may_create = false;
                    self.create(&mut link).await?;
                }
                // A connection that died while it was idle is nothing to speak of.
                Err(e) if e.broke && may_dial => may_dial = false,
                Err(e) => return Err(self.told(e)),
            }
        }
    }

    /// The live lease of the name and the live place of the next one.
    pub(crate) async fn state(&self, link: &mut Open, name: &LockName) -> Result<NameState, LockError> {
        let rows = self.read(link, std::slice::from_ref(name)).await?;
        Ok(rows.first().map_or_else(NameState::default, |row| row.state(Duration::ZERO)))
    }

    /// As [`state`](Self::state), over a connection for taking.
    pub(crate) async fn state_to_take(&self, name: &LockName) -> Result<NameState, LockError> {
        let mut link = self.taking.get().await?;
        self.state(&mut link, name).await
    }

    /// The rows of some names.
    pub(crate) async fn read(&self, link: &mut Open, names: &[LockName]) -> Result<Vec<Row>, LockError> {
        let mut found = Vec::new();
        for names in names.chunks(MOST_NAMES) {
            let names: Vec<_> = names.iter().map(key).collect();
            found.extend(self.rows(link.rows(self.statements.state.query_in(&[], &names)).await)?);
        }
        Ok(found)
    }

    /// Takes the request's place as the next one, if no live one has waited longer.
    pub(crate) async fn line_up(&self, request: &AcquireRequest, waited: Duration) -> Result<(), LockError> {
        let args = [
            Arg::Bytes(key(&request.name)),
            Arg::Text(request.owner.to_string()),
            Arg::Int(micros(waited)),
            Arg::Int(micros(PLACE_KEPT)),
        ];
        let mut link = self.taking.get().await?;
        let done = link.change(&self.statements.line_up, &args, Some(&request.owner)).await;
        self.waiters.changed(&request.name);
        self.counted(done).map(drop)
    }

    /// Removes the owner's place as the next one.
    pub(crate) async fn leave(&self, link: &mut Open, name: &LockName, owner: &Owner) -> Result<(), LockError> {
        let args = [Arg::Bytes(key(name)), Arg::Text(owner.to_string())];
        let done = link.change(&self.statements.leave, &args, None).await;
        self.counted(done).map(drop)
    }

    /// Ends the owner's lease and tells this process's waiters. `Err` with `true` when the connection broke.
    pub(crate) async fn release(&self, link: &mut Open, name: &LockName, owner: &Owner) -> Result<Released, Failure> {
        let args = [Arg::Bytes(key(name)), Arg::Text(owner.to_string())];
        let done = link.change(&self.statements.release, &args, None).await;
        self.waiters.changed(name);
        self.room.poke(name);
        match done {
            Ok(1) => Ok(Released::Released),
            Ok(_) => Ok(Released::NotHeld),
            Err(e) if e.code == Some(NO_TABLE) => Ok(Released::NotHeld),
            Err(e) => Err(e),
        }
    }

    /// Removes whatever the owner left, after what may still be on its way (rule U1).
    pub(crate) async fn abandon(&self, name: &LockName, owner: &Owner) -> Result<Released, LockError> {
        match self.settle(owner).await? {
            // The other connections may lead nowhere just as the suspect did.
            Some(mut link) => {
                let released = self.erase(&mut link, name, owner).await;
                link.close().await;
                released
            }
            None => self.erase(&mut *self.keeping().await?, name, owner).await,
        }
    }

    async fn erase(&self, link: &mut Open, name: &LockName, owner: &Owner) -> Result<Released, LockError> {
        self.leave(link, name, owner).await?;
        self.release(link, name, owner).await.map_err(|e| self.told(e))
    }

    /// Ends each connection over which a request of this owner may still be on its way, and waits until the server has. Answers the new
    /// connection over which it did, if there was anything to do.
    async fn settle(&self, owner: &Owner) -> Result<Option<Open>, LockError> {
        let mut link = None;
        while let Some(nonce) = self.dialer.suspect(owner) {
            if link.is_none() {
                link = Some(self.dialer.dial().await?);
            }
            let Some(link) = &mut link else { continue };
            let session = self.ask(link, "SELECT CAST(IS_USED_LOCK(?) AS SIGNED)", &nonce).await?;
            if let Some(session) = session {
                match link.plain(format!("KILL CONNECTION {session}")).await {
                    Err(e) if e.code != Some(NO_SUCH_THREAD) => return Err(self.told(e)),
                    _ => {}
                }
            }
            // A session gives its locks back last when it ends, so after whatever it was doing.
            if self.ask(link, "SELECT CAST(GET_LOCK(?, 2) AS SIGNED)", &nonce).await? == Some(1) {
                self.dialer.acquit(&nonce);
            }
        }
        Ok(link)
    }

    async fn ask(&self, link: &mut Open, question: &'static str, nonce: &str) -> Result<Option<i64>, LockError> {
        let answer: Result<Vec<(Option<i64>,)>, _> = link.rows(sqlx::query(question).bind(nonce.to_owned())).await;
        Ok(answer.map_err(|e| self.told(e))?.first().and_then(|(number,)| *number))
    }

    /// Reads all names that this process waits for, and answers a number that differs when something about them does.
    pub(crate) async fn poll(&self) -> Result<u64, LockError> {
        let names = self.waiters.names();
        let mut link = self.watching().await?;
        let at = Instant::now();
        let rows = self.read(&mut link, &names).await?;
        self.waiters.note(at, &names, &rows);
        Ok(rows.iter().fold(0, |sum, row| sum ^ fingerprint(row)))
    }

    /// Now and then, removes rows that nobody needs, so that the table does not grow with the names that were ever used.
    pub(crate) async fn sweep_sometimes(&self, owner: &Owner) {
        if owner.as_bytes()[0].is_multiple_of(SWEEP_EVERY) {
            // Should it fail, a later one will do.
            let _ = bounded(self.limit / 4, self.sweep()).await;
        }
    }

    pub(crate) async fn sweep(&self) -> Result<(), LockError> {
        let mut link = self.watching().await?;
        let idle = Arg::Int(micros(IDLE_KEPT));
        let query = self.statements.idle.query(&[idle.clone(), Arg::Uint(SWEEP_AT_MOST)]);
        let names: Vec<(Vec<u8>,)> = self.rows(link.rows(query).await)?;
        for names in names.chunks(MOST_NAMES) {
            let names: Vec<_> = names.iter().map(|(name,)| name.clone()).collect();
            // Not again where others are at work: another time will do.
            link.execute(self.statements.sweep.query_in(std::slice::from_ref(&idle), &names), None)
                .await
                .map_err(|e| self.told(e))?;
        }
        Ok(())
    }

    /// Creates the table. Many processes may at once.
    async fn create(&self, link: &mut Open) -> Result<(), LockError> {
        link.plain(self.statements.schema.clone()).await.map_err(|e| self.told(e))
    }

    /// What a statement left in LAST_INSERT_ID; nothing where the table is missing, for then it has no rows.
    pub(crate) fn counted(&self, done: Result<u64, Failure>) -> Result<u64, LockError> {
        match done {
            Err(e) if e.code == Some(NO_TABLE) => Ok(0),
            done => done.map_err(|e| self.told(e)),
        }
    }

    /// The rows that a statement brought; none where the table is missing.
    pub(crate) fn rows<T>(&self, rows: Result<Vec<T>, Failure>) -> Result<Vec<T>, LockError> {
        match rows {
            Err(e) if e.code == Some(NO_TABLE) => Ok(Vec::new()),
            rows => rows.map_err(|e| self.told(e)),
        }
    }

    /// Who lacks the table, and the right to make it, is told how it is made.
    pub(crate) fn told(&self, failure: Failure) -> LockError {
        let schema = self.statements.schema.split_whitespace().collect::<Vec<_>>().join(" ");
        let may_not_create = || failure.error.to_string().contains("CREATE command denied");
        match failure.code {
            Some(code) if code == NO_TABLE || (code == NO_RIGHT && may_not_create()) => failure.error.backend(BACKEND).advice(format!(
                "let somebody with the right to do so create the table by: {schema}; and grant SELECT, INSERT, UPDATE and DELETE on it"
            )),
            _ => failure.error,
        }
    }
}

/// The TTL that is granted.
pub(crate) fn effective_ttl(request: &AcquireRequest) -> Duration {
    request.ttl.get().max(LEAST_TTL)
}

fn fingerprint(row: &Row) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    let state = row.state(Duration::ZERO);
    let lease = state.lease.map(|lease| lease.owner);
    (&row.name, lease, state.next.map(|next| next.owner)).hash(&mut hasher);
    hasher.finish()
}
