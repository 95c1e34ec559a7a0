//! Can this server keep the promises as it is configured?

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::Promise::{Exclusion, Service, Survival};
use lock_core::{Diagnosis, ErrorKind, FencingToken, LockError};
use sqlx::AssertSqlSafe;
use sqlx::mysql::MySqlRow;
use tokio::time::Instant;

use crate::link::Open;
use crate::store::Store;

/// Round trips measured.
const PINGS: usize = 5;
/// Connections that one process may need.
const CONNECTIONS: u64 = 6;

/// What must be there, by name, type and key. Lengths are written differently by the two servers.
const COLUMNS: &str = "name varbinary PRI,owner varchar,token bigint,expires bigint,label varchar,since bigint,\
    next_owner varchar,next_since bigint,next_until bigint";

/// A statement for each right, which changes nothing. A server checks the right all the same.
const RIGHTS: [(&str, &str); 4] = [
    ("SELECT", "SELECT 1 FROM {table} LIMIT 0"),
    (
        "INSERT",
        "INSERT INTO {table} (name, owner, token, expires, label, since, next_owner, next_since, next_until)
            SELECT '', '', 0, 0, '', 0, '', 0, 0 FROM DUAL WHERE FALSE",
    ),
    ("UPDATE", "UPDATE {table} SET owner = '' WHERE FALSE"),
    ("DELETE", "DELETE FROM {table} WHERE FALSE"),
];

/// Looks at the server's settings, the table, the rights, and the clock.
pub(crate) async fn diagnose(store: &Store) -> Result<Diagnosis, LockError> {
    let mut link = store.watching().await?;
    let mut look = Look { store, link: &mut link };
    let version: Option<(String,)> = look.row("SELECT VERSION()").await?;
    let version = version.map_or_else(String::new, |(version,)| version);
    let is_mariadb = version.contains("MariaDB");
    let kind = if is_mariadb { "MariaDB" } else { "MySQL" };
    let number = version.split('-').next().unwrap_or_default();
    let mut it = Diagnosis::new(format!("{kind} {number} at {}", store.server()));
    release(&mut it, number, if is_mariadb { (10, 6) } else { (8, 0) });
    let isolation = if is_mariadb { "tx_isolation" } else { "transaction_isolation" };
    let settings: Option<Settings> = look
        .row(&format!(
            "SELECT CAST(@@global.read_only AS CHAR), CAST(@@global.innodb_flush_log_at_trx_commit AS CHAR),
                CONCAT_WS(', ', @@{isolation}, @@sql_mode, @@time_zone, CONCAT('wait_timeout ', @@wait_timeout)),
                CAST(@@max_user_connections AS CHAR), CURRENT_USER(), DATABASE()"
        ))
        .await?;
    let (read_only, flush, session, connections, account, database) = settings.unwrap_or_default();
    // A number, or a word where the server has more than two states.
    let read_only = !matches!(read_only.as_str(), "0" | "OFF");
    match read_only {
        false => it.kept(Service, "read_only", "off"),
        true => {
            it.broken(Service, "read_only", "on: no lock can be taken", "give the primary, or SET GLOBAL read_only=0")
        }
    }
    if let Ok(most @ 1..CONNECTIONS) = connections.parse::<u64>() {
        it.limited(
            Service,
            "connections",
            format!("max_user_connections is {most}, and one process may need {CONNECTIONS}"),
            "raise it",
        );
    }
    // What others get by default does not matter: each session of ours sets its own.
    it.kept(Exclusion, "sessions", format!("this library's run as {session}"));
    match flush.as_str() {
        "1" => it.kept(Survival, "disk", "a grant is on it before it is answered"),
        other => it.limited(
            Survival,
            "disk",
            format!("innodb_flush_log_at_trx_commit is {other}: a crash of the machine may forget grants"),
            "SET GLOBAL innodb_flush_log_at_trx_commit=1",
        ),
    }
    it.limited(
        Survival,
        "replicas",
        "a failover to one that lags forgets the last grants",
        "replicate semi-synchronously, or check fencing tokens at the resource",
    );
    // A server that refuses all writes tells nothing about rights.
    if look.table(&mut it).await? && !read_only {
        look.rights(&mut it, &account, &database).await?;
    }
    look.times(&mut it).await?;
    Ok(it)
}

type Settings = (String, String, String, String, String, String);

/// Both servers count up to now by two numbers.
fn release(it: &mut Diagnosis, number: &str, least: (u32, u32)) {
    let mut parts = number.split('.').map_while(|part| part.parse::<u32>().ok());
    match (parts.next(), parts.next()) {
        (Some(major), Some(minor)) if (major, minor) >= least => it.kept(Service, "version", number),
        _ => it.unknown(
            Service,
            "version",
            format!("{number} is not among what the suite runs against"),
            format!("take {}.{} or newer", least.0, least.1),
        ),
    }
}

struct Look<'a> {
    store: &'a Store,
    link: &'a mut Open,
}

impl Look<'_> {
    async fn row<T>(&mut self, statement: &str) -> Result<Option<T>, LockError>
    where
        T: for<'r> sqlx::FromRow<'r, MySqlRow>,
    {
        let query = sqlx::query(AssertSqlSafe(statement.to_owned()));
        let rows: Vec<T> = self.link.rows(query).await.map_err(|e| self.store.told(e))?;
        Ok(rows.into_iter().next())
    }

    /// Whether the table is there, as far as this user may see.
    async fn table(&mut self, it: &mut Diagnosis) -> Result<bool, LockError> {
        let table = &self.store.table;
        let seen: Option<(Option<String>, Option<String>, Option<String>)> = self
            .row(&format!(
                "SELECT CAST(ENGINE AS CHAR), CAST(TABLE_COMMENT AS CHAR), CAST((
                    SELECT GROUP_CONCAT(TRIM(CONCAT(COLUMN_NAME, ' ', DATA_TYPE, ' ', COLUMN_KEY)) ORDER BY ORDINAL_POSITION)
                    FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{table}') AS CHAR)
                FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{table}'"
            ))
            .await?;
        let Some((engine, comment, columns)) = seen else {
            let advice = "nothing to do, if this user may create it: the first lock does";
            it.unknown(Exclusion, "table", format!("{table} is not there, or not shown to this user"), advice);
            return Ok(false);
        };
        let (engine, comment, columns) =
            (engine.unwrap_or_default(), comment.unwrap_or_default(), columns.unwrap_or_default());
        if columns != COLUMNS || comment != "distlock layout 1" {
            it.broken(
                Exclusion,
                "table",
                format!("{table} is not as this library makes it: comment '{comment}', columns {columns}"),
                "name another one by ?table= in the URL; the statement for it is in docs/mysql.md",
            );
        } else if engine != "InnoDB" {
            it.broken(
                Exclusion,
                "table",
                format!("{table} is on {engine}, which forgets or damages rows in a crash"),
                format!("ALTER TABLE {table} ENGINE=InnoDB"),
            );
        } else {
            it.kept(Exclusion, "table", format!("{table}, layout 1, InnoDB"));
        }
        Ok(true)
    }

    async fn rights(&mut self, it: &mut Diagnosis, account: &str, database: &str) -> Result<(), LockError> {
        let table = &self.store.table;
        let mut missing = Vec::new();
        for (right, statement) in RIGHTS {
            let statement = statement.replace("{table}", &format!("`{table}`"));
            let denied = match self.link.plain(statement).await {
                Ok(()) => false,
                // A table of another form is told above.
                Err(e) => match self.store.told(e) {
                    e if e.kind() == ErrorKind::Unavailable => return Err(e),
                    e => e.kind() == ErrorKind::Denied,
                },
            };
            if denied {
                missing.push(right);
            }
        }
        if missing.is_empty() {
            it.kept(Service, "rights", "SELECT, INSERT, UPDATE and DELETE on the table");
            return Ok(());
        }
        let missing = missing.join(", ");
        // Only the removal of idle rows asks for DELETE.
        let note = if missing == "DELETE" { Diagnosis::limited } else { Diagnosis::broken };
        let (user, host) = account.rsplit_once('@').unwrap_or((account, "%"));
        let advice = format!("GRANT {missing} ON `{database}`.`{table}` TO '{user}'@'{host}'");
        note(it, Service, "rights", format!("this user lacks {missing} on {table}"), advice);
        Ok(())
    }

    /// Latency, the difference of the clocks, and a bound on the tokens.
    async fn times(&mut self, it: &mut Diagnosis) -> Result<(), LockError> {
        let (mut trips, mut best, mut ahead) = (Vec::with_capacity(PINGS), Duration::MAX, 0);
        for _ in 0..PINGS {
            let sent = Instant::now();
            let now = "SELECT CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS SIGNED)";
            let theirs: Option<(i64,)> = self.row(now).await?;
            let trip = sent.elapsed();
            trips.push(trip);
            let theirs = theirs.map_or(0, |(micros,)| micros);
            if trip < best {
                best = trip;
                let ours = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
                ahead = theirs.saturating_sub(i64::try_from(ours).unwrap_or(i64::MAX)) / 1000;
            }
            it.newest_token = Some(FencingToken::new(theirs.unsigned_abs()));
        }
        it.latency(&mut trips);
        it.clocks(ahead);
        Ok(())
    }
}
