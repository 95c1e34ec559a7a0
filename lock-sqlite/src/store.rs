//! The two connections to the file, and what is asked over them.

use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use lock_core::{
    AcquireRequest, Deadline, Effect, ErrorKind, FencingToken, Holder, HolderState, LockError, LockName, Owner,
    Released, WaitingRoom,
};
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Connection, FromRow, Sqlite, SqliteConnection};
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};

use crate::clock::{BootClock, utc};
use crate::file::FileId;
use crate::{errors, schema};

/// How long the place of the next one is kept for it without a sign of life. A dead one delays the others by no more.
pub(crate) const PLACE_KEPT: Duration = Duration::from_millis(700);
/// Every grant whose token is a multiple of this also sweeps the file.
const SWEEP_EVERY: i64 = 256;

/// A query with its arguments.
pub(crate) type Query<T> = sqlx::query::QueryAs<'static, Sqlite, T, SqliteArguments>;

/// The text of one of the files in `sql/`.
macro_rules! sql {
    ($name:literal) => {
        sqlx::query_as(include_str!(concat!("sql/", $name, ".sql")))
    };
}
pub(crate) use sql;

/// What lock, leases and waiters share.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) path: PathBuf,
    pub(crate) clock: BootClock,
    pub(crate) room: WaitingRoom,
    /// Carries every request that changes something, one after the other.
    writer: Link,
    /// Looks for changes while somebody waits, so that renewals do not queue behind looks. Opened when it is first needed.
    watcher: Link,
}

/// One connection, opened when needed, and opened anew when the path names another file than before.
#[derive(Debug, Default)]
struct Link(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    open: Option<Open>,
    opened: u32,
    closed: bool,
}

/// A connection with its file.
#[derive(Debug)]
pub(crate) struct Open {
    conn: SqliteConnection,
    file: FileId,
    path: PathBuf,
    broken: bool,
    /// How many connections this link has opened so far.
    pub(crate) generation: u32,
}

/// A connection for one's own until it is dropped.
pub(crate) type Held<'a> = MappedMutexGuard<'a, Open>;

impl Link {
    /// The connection to the file, which is created where it is missing.
    async fn open(&self, path: &Path, clock: &BootClock) -> Result<Held<'_>, LockError> {
        let mut state = self.0.lock().await;
        if state.closed {
            return Err(
                LockError::new(ErrorKind::Closed, "the connection to the file was closed").backend(crate::BACKEND)
            );
        }
        let here = FileId::of(path);
        if state.open.as_ref().is_none_or(|open| open.broken || here != Some(open.file)) {
            if let Some(old) = state.open.take() {
                // Waits for what is still on its way over the old connection, so that nothing of it comes after the new one's requests.
                let _ = old.conn.close().await;
            }
            let (conn, file) = schema::open(path, clock).await?;
            state.opened += 1;
            let generation = state.opened;
            state.open = Some(Open { conn, file, path: path.to_owned(), broken: false, generation });
        }
        MutexGuard::try_map(state, |state| state.open.as_mut())
            .map_err(|_| LockError::new(ErrorKind::Internal, "the connection vanished"))
    }

    async fn close(&self) {
        let mut state = self.0.lock().await;
        state.closed = true;
        if let Some(open) = state.open.take() {
            let _ = open.conn.close().await;
        }
    }
}

impl Open {
    /// Runs one statement to its end and answers its rows. To the end, because SQLite tells a failed commit there.
    pub(crate) async fn fetch<T>(&mut self, query: Query<T>) -> Result<Vec<T>, LockError>
    where
        T: Send + Unpin + for<'r> FromRow<'r, SqliteRow> + 'static,
    {
        query.fetch_all(&mut self.conn).await.map_err(|e| {
            let (error, reopen) = errors::from_sqlx(e, &self.path);
            self.broken |= reopen;
            error
        })
    }
}

impl Store {
    /// Opens nothing yet.
    pub(crate) fn new(path: PathBuf, clock: BootClock, room: WaitingRoom) -> Self {
        Self { path, clock, room, writer: Link::default(), watcher: Link::default() }
    }

    /// The writing connection; creates the file where it is missing.
    pub(crate) async fn writer(&self) -> Result<Held<'_>, LockError> {
        self.writer.open(&self.path, &self.clock).await
    }

    /// The looking connection; creates the file where it is missing.
    pub(crate) async fn watcher(&self) -> Result<Held<'_>, LockError> {
        self.watcher.open(&self.path, &self.clock).await
    }

    /// The writing connection; `None` when there is no file, and so no lease in it.
    pub(crate) async fn existing_writer(&self) -> Result<Option<Held<'_>>, LockError> {
        if self.file_exists() { self.writer().await.map(Some) } else { Ok(None) }
    }

    /// Whether there is a file that can hold a lease.
    pub(crate) fn file_exists(&self) -> bool {
        FileId::of(&self.path).is_some()
    }

    pub(crate) async fn close(&self) {
        self.watcher.close().await;
        self.writer.close().await;
    }

    /// Takes the name, or renews an own entry of an earlier try; `None` when it is not to be had.
    ///
    /// # Errors
    /// Those of the way to the file.
    pub(crate) async fn take(&self, request: &AcquireRequest) -> Result<Option<Taken>, LockError> {
        let mut writer = self.writer().await?;
        let sent = request.clock.now();
        let now = self.clock.now();
        let expires = now.saturating_add(micros(request.ttl.get()));
        let query: Query<(i64,)> = sql!("take");
        let rows = writer
            .fetch(
                query
                    .bind(key(&request.name))
                    .bind(request.owner.to_string())
                    .bind(self.clock.boot().to_owned())
                    .bind(now)
                    .bind(micros(request.ttl.get()))
                    .bind(request.label.to_string())
                    .bind(utc()),
            )
            .await?;
        let Some((token,)) = rows.first() else { return Ok(None) };
        if token % SWEEP_EVERY == 0 {
            // Should it fail, a later one will do; the grant stands.
            let _ = self.sweep(&mut writer).await;
        }
        if self.clock.now() >= expires {
            // It lay on the way for longer than it was to live. The retry meets it as its own, or as expired.
            return Err(LockError::new(ErrorKind::Unavailable, "the grant came after its time to live")
                .with_effect(Effect::Unknown)
                .advice("take a longer TTL, or look for what slows the disk"));
        }
        Ok(Some(Taken { token: *token, sent, expires }))
    }

    /// The live lease of the name and the live place of the next one.
    pub(crate) async fn state(&self, open: &mut Open, name: &LockName) -> Result<NameState, LockError> {
        let query: Query<StateRow> = sql!("state");
        let rows = open.fetch(query.bind(key(name)).bind(self.clock.boot().to_owned()).bind(self.clock.now())).await?;
        let Some((owner, token, remaining, label, since, next_owner, next_since, next_remaining)) =
            rows.into_iter().next()
        else {
            return Err(LockError::new(ErrorKind::Internal, "no answer about the name"));
        };
        Ok(NameState {
            lease: match (owner, token, remaining, label, since) {
                (Some(owner), Some(token), Some(remaining), Some(label), Some(since)) => {
                    Some(LeaseRow { owner, token, remaining, label, since })
                }
                _ => None,
            },
            next: match (next_owner, next_since, next_remaining) {
                (Some(owner), Some(since), Some(remaining)) => Some(NextRow { owner, since, remaining }),
                _ => None,
            },
        })
    }

    /// Takes the request's place as the next one, if no live one has waited longer.
    pub(crate) async fn line_up(&self, request: &AcquireRequest, since: i64) -> Result<(), LockError> {
        let mut writer = self.writer().await?;
        let query: Query<()> = sql!("line_up");
        let query = query
            .bind(key(&request.name))
            .bind(request.owner.to_string())
            .bind(self.clock.boot().to_owned())
            .bind(self.clock.now())
            .bind(since)
            .bind(micros(PLACE_KEPT));
        writer.fetch(query).await.map(drop)
    }

    /// Removes the owner's place as the next one.
    pub(crate) async fn leave(&self, name: &LockName, owner: &Owner) -> Result<(), LockError> {
        let Some(mut writer) = self.existing_writer().await? else { return Ok(()) };
        let query: Query<()> = sql!("leave");
        writer.fetch(query.bind(key(name)).bind(owner.to_string())).await.map(drop)
    }

    /// Removes the owner's entry and tells this process's waiters.
    pub(crate) async fn release(&self, name: &LockName, owner: &Owner) -> Result<Released, LockError> {
        let Some(mut writer) = self.existing_writer().await? else {
            return Ok(Released::NotHeld);
        };
        let query: Query<(bool,)> = sql!("release");
        let query =
            query.bind(key(name)).bind(owner.to_string()).bind(self.clock.boot().to_owned()).bind(self.clock.now());
        let rows = writer.fetch(query).await?;
        self.room.poke(name);
        Ok(if rows == [(true,)] { Released::Released } else { Released::NotHeld })
    }

    /// Removes what dead holders and waiters left, so that the file does not grow with the names that were ever used.
    async fn sweep(&self, writer: &mut Open) -> Result<(), LockError> {
        let queries: [Query<()>; 2] = [sql!("sweep_locks"), sql!("sweep_next")];
        for query in queries {
            writer.fetch(query.bind(self.clock.boot().to_owned()).bind(self.clock.now())).await?;
        }
        Ok(())
    }
}

/// A grant.
pub(crate) struct Taken {
    pub(crate) token: i64,
    /// The moment before the request was sent, on the holder's clock.
    pub(crate) sent: Deadline,
    /// When the entry expires, on the file's clock.
    pub(crate) expires: i64,
}

type StateRow =
    (Option<String>, Option<i64>, Option<i64>, Option<String>, Option<i64>, Option<String>, Option<i64>, Option<i64>);

/// What the file says about one name.
pub(crate) struct NameState {
    pub(crate) lease: Option<LeaseRow>,
    pub(crate) next: Option<NextRow>,
}

/// A live lease.
pub(crate) struct LeaseRow {
    pub(crate) owner: String,
    pub(crate) token: i64,
    pub(crate) remaining: i64,
    pub(crate) label: String,
    pub(crate) since: i64,
}

/// The live place of the next one.
pub(crate) struct NextRow {
    pub(crate) owner: String,
    pub(crate) since: i64,
    pub(crate) remaining: i64,
}

impl LeaseRow {
    /// Whether the lock was revoked: nobody holds it while its time runs out.
    pub(crate) fn is_revoked(&self) -> bool {
        self.owner.is_empty()
    }

    pub(crate) fn into_holder(self, name: LockName) -> Holder {
        let state = match self.owner.parse::<Owner>() {
            _ if self.is_revoked() => HolderState::Revoked,
            Ok(_) => HolderState::Held,
            Err(_) => HolderState::Foreign,
        };
        let mut holder = Holder::new(name, self.owner, state);
        holder.token = Some(FencingToken::new(self.token.unsigned_abs()));
        holder.label = Some(self.label).filter(|label| !label.is_empty());
        holder.since = Some(UNIX_EPOCH + span(self.since));
        holder.remaining = Some(span(self.remaining));
        holder
    }
}

impl NameState {
    /// Who stands in the way: the holder, or the one that the free name is set aside for.
    pub(crate) fn into_holder(self, name: &LockName) -> Option<Holder> {
        if let Some(lease) = self.lease {
            return Some(lease.into_holder(name.clone()));
        }
        let next = self.next?;
        let mut holder = Holder::new(name.clone(), next.owner, HolderState::Reserved);
        holder.remaining = Some(span(next.remaining));
        Some(holder)
    }
}

/// A name as the file has it: its bytes, so that different bytes are different names and sort as bytes.
pub(crate) fn key(name: &LockName) -> Vec<u8> {
    name.as_str().into()
}

pub(crate) fn micros(span: Duration) -> i64 {
    // A TTL is at most a year.
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

pub(crate) fn span(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}
