//! M: at most one holder, judged by itself.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use lock_core::{Clock, Deadline};

use crate::bench::{SLACK, give_back, ms};
use crate::case::cases;
use crate::child::{Child, Task};
use crate::{Bench, Outcome, ensure};

cases! { "mutual_exclusion":
    a_held_name_is_busy_for_everybody: [M1 M3];
    many_tasks_and_an_unprotected_counter: [M1];
    several_clients_and_an_unprotected_counter: [M1 R1];
    several_processes_and_an_unprotected_file: [M1] needs [Processes];
    many_names_at_once_do_not_mix: [M1];
    a_contender_does_not_prolong_the_lease: [M3 T4];
    two_tasks_of_one_manager_contend: [M3];
    validity_has_its_margin: [M2];
    validity_counts_from_the_send: [M2];
    a_frozen_process_knows_at_its_first_look: [M2 L2] needs [Processes];
    owners_are_new_for_each_acquisition: [M3] needs [Processes];
}

async fn a_held_name_is_busy_for_everybody(b: &Bench) -> Outcome {
    let (holder, other, name) = (b.client().await?, b.client().await?, b.name());
    let lease = holder.take(&name, b.ttl(20_000)).await?;
    for _ in 0..20 {
        ensure!(holder.is_busy(&name).await?, "the holder's client was granted a held name");
        ensure!(other.is_busy(&name).await?, "another client was granted a held name");
    }
    give_back(lease).await?;
    ensure!(!other.is_busy(&name).await?, "a released name is busy");
    Ok(())
}

async fn many_tasks_and_an_unprotected_counter(b: &Bench) -> Outcome {
    count_under_lock(b, 1, 8, 15).await
}

async fn several_clients_and_an_unprotected_counter(b: &Bench) -> Outcome {
    count_under_lock(b, 4, 3, 10).await
}

/// Reads and writes a number with a gap between: two at once would lose a count.
async fn count_under_lock(b: &Bench, clients: usize, tasks: usize, rounds: u64) -> Outcome {
    let (name, number, inside) = (b.name(), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut running = Vec::new();
    for _ in 0..clients {
        let locks = b.manager().await?;
        for _ in 0..tasks {
            let (locks, name, ttl) = (locks.clone(), name.clone(), b.ttl(10_000));
            let (number, inside) = (Arc::clone(&number), Arc::clone(&inside));
            running.push(tokio::spawn(async move {
                for _ in 0..rounds {
                    let guard = locks.lock(name.as_str()).ttl(ttl).acquire().await?;
                    ensure!(inside.fetch_add(1, Ordering::SeqCst) == 0, "two holders at once");
                    let seen = number.load(Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    number.store(seen + 1, Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.release().await?;
                }
                Ok(())
            }));
        }
    }
    for task in running {
        task.await??;
    }
    let (counted, wanted) = (number.load(Ordering::SeqCst), rounds * (clients * tasks) as u64);
    ensure!(counted == wanted, "{counted} of {wanted} turns were counted");
    Ok(())
}

async fn several_processes_and_an_unprotected_file(b: &Bench) -> Outcome {
    let (name, folder) = (b.name(), tempfile::tempdir()?);
    let path = folder.path().join("number");
    std::fs::write(&path, "0")?;
    let file = path.to_str().ok_or("the temporary folder's name is not UTF-8")?;
    let start = || Child::start(b, Task::Count(25), &name, b.ttl(10_000), file);
    let mut children = [start()?, start()?, start()?, start()?];
    for child in &mut children {
        child.expect("done").await?;
    }
    let counted = std::fs::read_to_string(&path)?;
    ensure!(counted == "100", "{counted} of 100 turns were counted");
    Ok(())
}

async fn many_names_at_once_do_not_mix(b: &Bench) -> Outcome {
    let (client, other) = (b.client().await?, b.client().await?);
    let names: Vec<_> = (0..50).map(|_| b.name()).collect();
    let mut held = Vec::new();
    for name in names.iter().step_by(2) {
        held.push(client.take(name, b.ttl(30_000)).await?);
    }
    for (i, name) in names.iter().enumerate() {
        ensure!(other.is_busy(name).await? == (i % 2 == 0), "name {i} of 50 is not as it should be");
    }
    for lease in held {
        give_back(lease).await?;
    }
    Ok(())
}

async fn a_contender_does_not_prolong_the_lease(b: &Bench) -> Outcome {
    let (holder, other, name) = (b.client().await?, b.client().await?, b.name());
    let ttl = b.ttl(800);
    let start = Instant::now();
    let lease = holder.take(&name, ttl).await?;
    let granted = Instant::now();
    let effective = lease.effective_ttl();
    let limit = b.end_of(effective) + SLACK;
    loop {
        // The same client first: an identity that two tasks share would show there.
        if let Some(next) = holder.try_take(&name, b.ttl(5_000)).await? {
            give_back(next).await?;
            break;
        }
        if let Some(next) = other.try_take(&name, b.ttl(5_000)).await? {
            give_back(next).await?;
            break;
        }
        let age = granted.elapsed();
        ensure!(
            age < limit,
            "contenders kept a lease of {effective:?} alive for {age:?}, granted within {:?}, now {:?}",
            granted - start,
            b.peek(&name).await
        );
        tokio::time::sleep(ms(20)).await;
    }
    ensure!(start.elapsed() >= ttl, "a lease of {ttl:?} ended after {:?}", start.elapsed());
    Ok(())
}

async fn two_tasks_of_one_manager_contend(b: &Bench) -> Outcome {
    let (locks, name) = (b.manager().await?, b.name());
    let guard = locks.lock(name.as_str()).ttl(b.ttl(10_000)).acquire().await?;
    for _ in 0..5 {
        let second = locks.lock(name.as_str()).ttl(b.ttl(10_000)).try_acquire().await?;
        ensure!(second.is_none(), "a second task of the manager got in");
    }
    let owner = guard.owner();
    guard.release().await?;
    let again = locks.lock(name.as_str()).ttl(b.ttl(10_000)).acquire().await?;
    ensure!(again.owner() != owner, "two acquisitions have the same owner");
    again.release().await?;
    Ok(())
}

async fn validity_has_its_margin(b: &Bench) -> Outcome {
    let (client, name, clock) = (b.client().await?, b.name(), Clock::system());
    let mut lease = client.take(&name, b.ttl(20_000)).await?;
    let latest = Deadline::valid_until(clock.now(), lease.effective_ttl());
    ensure!(lease.valid_until() <= latest, "the validity of a grant lacks its margin");
    lease.renew().await?;
    let latest = Deadline::valid_until(clock.now(), lease.effective_ttl());
    ensure!(lease.valid_until() <= latest, "the validity of a renewal lacks its margin");
    give_back(lease).await
}

async fn validity_counts_from_the_send(b: &Bench) -> Outcome {
    let (client, clock) = (b.client().await?, Clock::system());
    // The first request opens connections.
    give_back(client.take(&b.name(), b.ttl(5_000)).await?).await?;
    let name = b.name();
    let sent = clock.now();
    let lease = client.take(&name, b.ttl(20_000)).await?;
    let late = lease.valid_until().saturating_since(Deadline::valid_until(sent, lease.effective_ttl()));
    ensure!(late < ms(300), "the validity counts from {late:?} after the call");
    give_back(lease).await
}

async fn a_frozen_process_knows_at_its_first_look(b: &Bench) -> Outcome {
    let (client, name, ttl) = (b.client().await?, b.name(), b.ttl(1_000));
    let (mut child, token) = Child::holder(b, &name, ttl).await?;
    child.process().stop()?;
    let lease = client.wait_take(&name, b.ttl(20_000), b.end_of(ttl) + ttl + SLACK).await?;
    ensure!(lease.fencing_token().get() > token, "the token did not rise over a frozen holder");
    child.process().resume()?;
    child.expect("lost").await?;
    child.end_input();
    child.expect("released NotHeld").await?;
    ensure!(client.is_busy(&name).await?, "a holder that was woken removed its successor's lease");
    give_back(lease).await
}

async fn owners_are_new_for_each_acquisition(b: &Bench) -> Outcome {
    let mut owners = HashSet::new();
    let mut children = Vec::new();
    for _ in 0..8 {
        children.push(Child::start(b, Task::Owners(25), &b.name(), b.ttl(10_000), "")?);
    }
    for child in &mut children {
        for _ in 0..25 {
            owners.insert(child.expect("owner").await?);
        }
        child.expect("done").await?;
    }
    ensure!(owners.len() == 200, "{} of 200 owners are different", owners.len());
    Ok(())
}
