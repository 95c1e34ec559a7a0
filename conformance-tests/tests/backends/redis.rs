//! Redis: what its monitor sees, what it throws away and refuses, its polls, its clock.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use conformance_tests::harnesses::redis::RedisHarness;
use conformance_tests::proxy::Proxy;
use conformance_tests::servers::redis::RedisServer;
use conformance_tests::{Stop, ensure, eventually};
use futures_util::future::join_all;
use lock_core::{ErrorKind, LockManager, LostReason, Released, Revoke};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue};

use crate::clock::WallClock;
use crate::ms;

fn url(server: &RedisServer) -> String {
    format!("redis://127.0.0.1:{}/", server.port())
}

async fn manager(server: &RedisServer) -> Result<LockManager, Stop> {
    crate::manager(RedisHarness, url(server)).await
}

/// A connection beside the library.
#[derive(Clone)]
struct Raw(MultiplexedConnection);

impl Raw {
    async fn to(server: &RedisServer) -> Result<Self, Stop> {
        Ok(Self(redis::Client::open(url(server))?.get_multiplexed_async_connection().await?))
    }

    async fn run<T: FromRedisValue>(&mut self, line: &str) -> Result<T, Stop> {
        let mut cmd = Cmd::new();
        line.split(' ').for_each(|word| {
            cmd.arg(word);
        });
        Ok(cmd.query_async(&mut self.0).await?)
    }

    /// How many scripts were run so far.
    async fn scripts(&mut self) -> Result<u64, Stop> {
        let stats: String = self.run("INFO commandstats").await?;
        let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next());
        Ok(calls.unwrap_or("0").parse()?)
    }
}

/// Each command that the server is sent, as it comes; not those of scripts.
fn monitor(server: &RedisServer) -> Result<mpsc::Receiver<String>, Stop> {
    let mut line = TcpStream::connect(("127.0.0.1", server.port()))?;
    line.write_all(b"MONITOR\r\n")?;
    let mut lines = BufReader::new(line).lines();
    lines.next().ok_or("the monitor does not begin")??;
    let (sender, seen) = mpsc::channel();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok).filter(|line| !line.contains(" lua] ")) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    Ok(seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_sent_one_command_for_a_lock_and_none_of_it_after_its_release() -> Result<(), Stop> {
    let server = RedisServer::start(&[]).await?;
    let (locks, mut raw, ttl) = (manager(&server).await?, Raw::to(&server).await?, ms(600));
    // The scripts are known to the server from here on.
    locks.lock("warm").ttl(ttl).acquire().await?.release().await?;
    let seen = monitor(&server)?;
    let mut owners = Vec::new();
    for round in 0..200_u32 {
        let guard = locks.lock("n").ttl(ttl).acquire().await?;
        let owner = guard.owner().to_string();
        // Some are held until they are being renewed, or nearly so.
        if round % 25 == 0 {
            tokio::time::sleep(ttl / 3 + Duration::from_micros(u64::from(round) * 20)).await;
        }
        guard.release().await?;
        raw.run::<String>(&format!("ECHO over:{owner}")).await?;
        owners.push((owner, round % 25 == 0));
    }
    tokio::time::sleep(ttl).await;
    raw.run::<String>("ECHO end").await?;
    let mut all = Vec::new();
    while let Ok(line) = seen.recv_timeout(Duration::from_secs(5)) {
        if line.ends_with("\"ECHO\" \"end\"") {
            break;
        }
        all.push(line);
    }
    for (owner, renewed) in owners {
        let mut lines = all.iter().filter(|line| line.contains(&owner));
        let before = lines.by_ref().take_while(|line| !line.contains("over:")).count();
        ensure!(before == 2 || (renewed && before > 2), "{before} commands for a lock that is taken and given back");
        ensure!(lines.next().is_none(), "a command came after the release");
    }
    Ok(locks.close().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_evicts_a_lock_and_its_holder_knows() -> Result<(), Stop> {
    let server = RedisServer::start(&["--maxmemory-samples", "1"]).await?;
    let (locks, mut raw) = (manager(&server).await?, Raw::to(&server).await?);
    let guard = locks.lock("n").ttl(ms(3_000)).acquire().await?;
    raw.run::<()>("CONFIG SET maxmemory-policy allkeys-random").await?;
    raw.run::<()>("CONFIG SET maxmemory 3mb").await?;
    let filler = "x".repeat(4_000);
    let mut count = 0;
    while raw.run::<u32>("EXISTS n").await? == 1 {
        for _ in 0..100 {
            count += 1;
            raw.run::<()>(&format!("SET filler{count} {filler}")).await?;
        }
        ensure!(count < 200_000, "the lock is not evicted");
    }
    let told = tokio::time::timeout(guard.ttl() / 3 + ms(500), guard.lost()).await;
    ensure!(told == Ok(LostReason::Removed), "the holder of an evicted lock was told {told:?}");
    ensure!(raw.run::<u32>("EXISTS n").await? == 0, "the evicted entry was made again");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_refuses_a_release_for_want_of_replicas_and_gets_it_later() -> Result<(), Stop> {
    let server = RedisServer::start(&[]).await?;
    let (locks, mut raw) = (manager(&server).await?, Raw::to(&server).await?);
    for (name, pause) in [("soon", 1_000), ("late", 3_000)] {
        let guard = locks.lock(name).ttl(ms(30_000)).acquire().await?;
        raw.run::<()>("CONFIG SET min-replicas-to-write 1").await?;
        let release = tokio::spawn(guard.release());
        tokio::time::sleep(ms(pause)).await;
        raw.run::<()>("CONFIG SET min-replicas-to-write 0").await?;
        match release.await? {
            Ok(released) => ensure!(released == Released::Released, "it answered {released:?}"),
            Err(error) => {
                let text = error.to_string();
                ensure!(pause > 2_000 && error.kind() == ErrorKind::Unavailable, "it answered {error:?}");
                ensure!(text.contains(name) && text.contains("runs out in 2"), "lock and end are not named: {text}");
            }
        }
        let free = eventually(ms(2_000), || {
            let mut raw = raw.clone();
            async move { raw.run::<u32>(&format!("EXISTS {name}")).await == Ok(0) }
        });
        ensure!(free.await, "the release did not go on");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_without_memory_renews_and_releases_what_is_held() -> Result<(), Stop> {
    let server = RedisServer::start(&[]).await?;
    let (locks, mut raw) = (manager(&server).await?, Raw::to(&server).await?);
    let guard = locks.lock("held").ttl(ms(1_500)).acquire().await?;
    raw.run::<()>("CONFIG SET maxmemory 1mb").await?;
    let end = Instant::now() + guard.ttl() * 2;
    while Instant::now() < end {
        let error = locks.lock("free").ttl(ms(1_500)).try_acquire().await.err();
        let kind = error.as_ref().map(lock_core::LockError::kind);
        ensure!(kind == Some(ErrorKind::Unavailable), "a server without memory answered {error:?}");
        ensure!(guard.is_held(), "a held lock was lost for want of memory: {:?}", guard.lost_reason());
        tokio::time::sleep(ms(100)).await;
    }
    ensure!(guard.release().await? == Released::Released, "a held lock was not released for want of memory");
    let left: Vec<String> = raw.run("KEYS free*").await?;
    ensure!(left.is_empty(), "half a lock is left: {left:?}");
    raw.run::<()>("CONFIG SET maxmemory 0").await?;
    Ok(locks.lock("free").acquire().await?.release().await.map(drop)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_asked_as_by_one_while_two_hundred_wait() -> Result<(), Stop> {
    let server = RedisServer::start(&[]).await?;
    let (locks, mut raw) = (manager(&server).await?, Raw::to(&server).await?);
    let guard = locks.lock("n").ttl(ms(2_000)).acquire().await?;
    let waiters = (0..200).map(|_| tokio::spawn(locks.lock("n").ttl(ms(2_000)).wait_forever().acquire()));
    let waiters: Vec<_> = waiters.collect();
    let queued =
        || async { locks.inspect("n").await.is_ok_and(|held| held.is_some_and(|held| held.waiters == Some(200))) };
    ensure!(eventually(Duration::from_secs(10), queued).await, "not all stand in the queue");
    let (before, start) = (raw.scripts().await?, Instant::now());
    tokio::time::sleep(ms(3_000)).await;
    let rate = (raw.scripts().await? - before) as f64 / start.elapsed().as_secs_f64();
    ensure!(rate <= 10.0, "{rate:.1} scripts a second while nothing happens");
    ensure!(guard.is_held(), "the holder's renewals came too late: {:?}", guard.lost_reason());
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
    join_all(waiters).await;
    guard.release().await?;
    Ok(locks.close().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_with_its_clock_set_ends_leases_and_their_holders_know() -> Result<(), Stop> {
    let clock = WallClock::new()?;
    let environment = clock.environment();
    let environment = environment.each_ref().map(|(name, value)| (*name, value.as_str()));
    let server = RedisServer::start_in(&environment, &[]).await?;
    let line = Proxy::start(([127, 0, 0, 1], server.port()).into()).await?;
    let locks = manager(&server).await?;
    let other = crate::manager(RedisHarness, format!("redis://{}/", line.address())).await?;
    let first = locks.lock("n").ttl(ms(6_000)).acquire().await?;
    let waiting = tokio::spawn(other.lock("n").ttl(ms(6_000)).wait(Duration::from_secs(30)).acquire());
    tokio::time::sleep(ms(300)).await;

    clock.set(3_600)?;
    let second = tokio::time::timeout(ms(1_500), waiting).await.map_err(|_| "the waiter is not let in")???;
    let told = tokio::time::timeout(first.ttl() / 3 + ms(500), first.lost()).await;
    ensure!(told.is_ok(), "the first holder does not know that its lease has ended");
    ensure!(second.fencing_token() > first.fencing_token(), "the token did not rise over a clock that was set");
    drop(first);

    // An hour back, and another: what is held lives longer, and is renewed as before.
    clock.set(-3_600)?;
    tokio::time::sleep(second.ttl()).await;
    ensure!(second.is_held(), "a clock that was set back cost the lock: {:?}", second.lost_reason());
    let token = second.fencing_token();
    // Its holder is cut off before the clock is set back again: the entry would live for an hour, and an operator frees it.
    line.refuse(true);
    line.cut();
    clock.set(-7_200)?;
    ensure!(second.lost().await == LostReason::Expired, "the holder waits for the server's clock");
    let released = locks.revoke("n", Some(token), Revoke::Now).await?;
    ensure!(released == Released::Released, "an entry that outlives its TTL cannot be revoked: {released:?}");
    drop(second);
    let third = locks.lock("n").ttl(ms(6_000)).wait(ms(2_000)).acquire().await?;
    third.release().await?;
    Ok(())
}
