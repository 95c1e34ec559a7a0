//! MySQL: a server whose clock is set, and one that many wait at.

use std::time::{Duration, Instant};

use conformance_tests::counters;
use conformance_tests::harnesses::mysql::MysqlHarness;
use conformance_tests::proxy::Proxy;
use conformance_tests::servers::mysql::MysqlServer;
use conformance_tests::{Stop, ensure, eventually};
use futures_util::future::join_all;
use lock_core::{LockManager, LostReason, Released, Revoke};

use crate::clock::WallClock;
use crate::ms;

async fn manager(port: u16) -> Result<LockManager, Stop> {
    crate::manager(MysqlHarness, format!("mysql://app:se%3Acret%2F1@127.0.0.1:{port}/locks?ssl-mode=disabled")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn mysql_with_its_clock_set_ends_leases_and_their_holders_know() -> Result<(), Stop> {
    let clock = WallClock::new()?;
    let environment = clock.environment();
    let environment = environment.each_ref().map(|(name, value)| (*name, value.as_str()));
    let server = MysqlServer::start_in(&environment, &[]).await?;
    let line = Proxy::start(([127, 0, 0, 1], server.port()).into()).await?;
    let (locks, other) = (manager(server.port()).await?, manager(line.address().port()).await?);
    let first = locks.lock("n").ttl(ms(6_000)).acquire().await?;
    let waiting = tokio::spawn(other.lock("n").ttl(ms(6_000)).wait(Duration::from_secs(30)).acquire());
    tokio::time::sleep(ms(300)).await;

    clock.set(3_600)?;
    let second = tokio::time::timeout(ms(1_500), waiting).await.map_err(|_| "the waiter is not let in")???;
    let told = tokio::time::timeout(first.ttl() / 3 + ms(500), first.lost()).await;
    ensure!(told == Ok(LostReason::TakenOver), "the first holder was told {told:?}");
    ensure!(second.fencing_token() > first.fencing_token(), "the token did not rise over a clock that was set");
    drop(first);

    clock.set(-3_600)?;
    tokio::time::sleep(second.ttl()).await;
    ensure!(second.is_held(), "a clock that was set back cost the lock: {:?}", second.lost_reason());
    // Its holder is cut off before the clock is set back again: the row would live for an hour, and an operator frees it.
    let token = second.fencing_token();
    line.refuse(true);
    line.cut();
    clock.set(-7_200)?;
    ensure!(second.lost().await == LostReason::Expired, "the holder waits for the server's clock");
    let released = locks.revoke("n", Some(token), Revoke::Now).await?;
    ensure!(released == Released::Released, "a row that outlives its TTL cannot be revoked: {released:?}");
    drop(second);
    let third = locks.lock("n").ttl(ms(6_000)).wait(ms(2_000)).acquire().await?;
    ensure!(third.fencing_token() > token, "the token did not rise over a clock that was set back");
    third.release().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn mysql_is_asked_as_by_one_while_two_hundred_wait() -> Result<(), Stop> {
    let server = MysqlServer::start(&[]).await?;
    let locks = manager(server.port()).await?;
    let guard = locks.lock("n").ttl(ms(2_000)).acquire().await?;
    let waiters = (0..200).map(|_| tokio::spawn(locks.lock("n").ttl(ms(2_000)).wait_forever().acquire()));
    let waiters: Vec<_> = waiters.collect();
    let admin = sqlx::mysql::MySqlConnectOptions::new().host("127.0.0.1").port(server.port());
    let admin = admin.username("admin").password("admin");
    let count = async || counters::mysql(&admin).await.map(|seen| seen.requests);
    // Until all have asked once and stand in the line of their process.
    let (mut last, mut calm) = (count().await?, false);
    for _ in 0..20 {
        tokio::time::sleep(ms(500)).await;
        let now = count().await?;
        calm = now - last < 60;
        last = now;
        if calm {
            break;
        }
    }
    ensure!(calm, "two hundred waiters do not come to rest");
    let (before, start) = (count().await?, Instant::now());
    tokio::time::sleep(ms(3_000)).await;
    let rate = (count().await? - before) as f64 / start.elapsed().as_secs_f64();
    // Twenty looks a second and two renewals, and what each count needs for its own login.
    ensure!(rate <= 40.0, "{rate:.1} statements a second while nothing happens");
    ensure!(guard.is_held(), "the holder's renewals came too late: {:?}", guard.lost_reason());
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
    join_all(waiters).await;
    guard.release().await?;
    ensure!(eventually(ms(2_000), || async { matches!(locks.inspect("n").await, Ok(None)) }).await, "a waiter stayed");
    Ok(locks.close().await?)
}
