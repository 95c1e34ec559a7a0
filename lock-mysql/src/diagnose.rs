//! Can this server keep the promises as it is configured?

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::{Diagnosis, LockError, Verdict};
use sqlx::AssertSqlSafe;
use tokio::time::Instant;

use crate::link::Open;
use crate::store::Store;

/// Round trips measured.
const PINGS: u32 = 5;

/// Looks at the server's settings and clock.
pub(crate) async fn diagnose(store: &Store) -> Result<Diagnosis, LockError> {
    let mut link = store.watching().await?;
    let mut look = Look { store, link: &mut link };
    let version = look.text("SELECT VERSION()").await?.unwrap_or_default();
    let is_mariadb = version.contains("MariaDB");
    let kind = if is_mariadb { "MariaDB" } else { "MySQL" };
    let it = Diagnosis::new(format!("{kind} {}", version.split('-').next().unwrap_or_default()));
    let it = match look.text("SELECT IF(@@global.read_only, 'read-only', '')").await?.as_deref() {
        Some("") => it.finding("E2", Verdict::Good, "the server may be written"),
        _ => it.finding("E2", Verdict::Bad, "the server is read-only: no lock can be taken; give the primary"),
    };
    let flush = look.text("SELECT CAST(@@global.innodb_flush_log_at_trx_commit AS CHAR)").await?.unwrap_or_default();
    let it = match flush.as_str() {
        "1" => it.finding("M1", Verdict::Good, "a grant is on the disk before it is answered"),
        other => it.finding(
            "M1",
            Verdict::Limited,
            format!("innodb_flush_log_at_trx_commit is {other}: a crash of the server's machine may forget grants; set it to 1"),
        ),
    };
    let it = table(it, &mut look).await?;
    // The isolation that others get by default does not matter: each session of ours sets its own.
    let variable = if is_mariadb { "tx_isolation" } else { "transaction_isolation" };
    let session = format!("SELECT CONCAT_WS(', ', @@{variable}, @@sql_mode, @@time_zone)");
    let session = look.text(&session).await?.unwrap_or_default();
    let it = it.finding("M1", Verdict::Good, format!("sessions of this library run as {session}"));
    times(it, &mut look).await
}

struct Look<'a> {
    store: &'a Store,
    link: &'a mut Open,
}

impl Look<'_> {
    async fn text(&mut self, statement: &str) -> Result<Option<String>, LockError> {
        let query = sqlx::query(AssertSqlSafe(statement.to_owned()));
        let rows: Vec<(Option<String>,)> = self.link.rows(query).await.map_err(|e| self.store.told(e))?;
        Ok(rows.into_iter().next().and_then(|(text,)| text))
    }
}

async fn table(it: Diagnosis, look: &mut Look<'_>) -> Result<Diagnosis, LockError> {
    let query = sqlx::query(
        "SELECT CAST(ENGINE AS CHAR), CAST(TABLE_COMMENT AS CHAR) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?",
    )
    .bind(look.store.table.clone());
    let rows: Vec<(Option<String>, Option<String>)> = look.link.rows(query).await.map_err(|e| look.store.told(e))?;
    Ok(match rows.first() {
        None => {
            it.finding("M1", Verdict::Unknown, "the table is not there yet; the first acquire creates it where it may")
        }
        Some((Some(engine), Some(comment))) if engine == "InnoDB" && comment == "distlock layout 1" => {
            it.finding("M1", Verdict::Good, "the table is of layout 1, on InnoDB")
        }
        Some((engine, comment)) => it.finding(
            "M1",
            Verdict::Bad,
            format!("the table is not as this library makes it: engine {engine:?}, comment {comment:?}"),
        ),
    })
}

/// Latency and the difference of the clocks.
async fn times(it: Diagnosis, look: &mut Look<'_>) -> Result<Diagnosis, LockError> {
    let (mut best, mut apart) = (Duration::MAX, 0);
    for _ in 0..PINGS {
        let sent = Instant::now();
        let now = "SELECT CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS CHAR)";
        let theirs: i128 = look.text(now).await?.and_then(|text| text.parse().ok()).unwrap_or(0);
        let trip = sent.elapsed();
        if trip < best {
            best = trip;
            let ours = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
            apart = (i128::try_from(ours).unwrap_or(i128::MAX) - theirs) / 1000;
        }
    }
    let verdict = if best < Duration::from_millis(100) { Verdict::Good } else { Verdict::Limited };
    let latency = format!("a round trip takes {best:.1?}; a TTL should be at least 20 times as long");
    let clocks = if apart.abs() < 1000 { Verdict::Good } else { Verdict::Limited };
    let clock = format!("the clocks of server and client differ by {apart} ms; leases go by the server's alone");
    Ok(it.finding("M2", verdict, latency).finding("T3", clocks, clock))
}
