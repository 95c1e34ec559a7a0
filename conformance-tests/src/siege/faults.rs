//! What is done to the besieged.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::aio::MultiplexedConnection;

use super::NAME;
use crate::Stop;
use crate::process::Process;
use crate::servers::redis::patient_connection;

/// A seeded order of faults.
pub(super) struct Faults {
    admin: MultiplexedConnection,
    dice: u64,
    counts: BTreeMap<&'static str, usize>,
    stopped: Option<usize>,
}

/// What a fault did to the workers.
pub(super) struct Hit {
    pub(super) killed: Option<usize>,
}

impl Faults {
    pub(super) async fn new(url: &str, seed: u64) -> Result<Self, Stop> {
        let admin = patient_connection(url).await?;
        Ok(Self { admin, dice: seed, counts: BTreeMap::new(), stopped: None })
    }

    /// Waits a little, then strikes once.
    pub(super) async fn next(&mut self, workers: &[Process]) -> Result<Hit, Stop> {
        let pause = 200 + self.roll(900);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let victim = self.roll(workers.len() as u64) as usize;
        let mut killed = None;
        if let Some(stopped) = self.stopped.take() {
            workers[stopped].resume()?;
        }
        let fault = match self.roll(6) {
            0 | 1 => {
                workers[victim].kill()?;
                killed = Some(victim);
                "worker killed"
            }
            2 => {
                // Goes on at the next fault: 0.2 to 1.1 s, some of them longer than what is left of the TTL.
                workers[victim].stop()?;
                self.stopped = Some(victim);
                "worker stopped"
            }
            3 => {
                self.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await?;
                "subscribers killed"
            }
            4 => {
                self.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await?;
                "connections killed"
            }
            _ => {
                for key in self.keys("zset").await? {
                    redis::cmd("DEL").arg(key).exec_async(&mut self.admin).await?;
                }
                "queue deleted"
            }
        };
        *self.counts.entry(fault).or_default() += 1;
        Ok(Hit { killed })
    }

    pub(super) fn end(&mut self, workers: &[Process]) -> Result<(), Stop> {
        self.stopped.take().map_or(Ok(()), |stopped| workers[stopped].resume())
    }

    pub(super) fn total(&self) -> usize {
        self.counts.values().sum()
    }

    pub(super) fn counts(&self) -> Vec<(&'static str, usize)> {
        self.counts.iter().map(|(fault, count)| (*fault, *count)).collect()
    }

    /// Whatever is in the store but the idle counter of tokens, and what ends within seconds by itself.
    pub(super) async fn leftovers(&mut self) -> Result<Vec<String>, Stop> {
        let mut left: Vec<Vec<u8>> = self.keys("string").await?;
        for queue in self.keys("zset").await? {
            let waiters: u64 = redis::cmd("ZCOUNT")
                .arg(&queue)
                .arg("-inf")
                .arg("(5000000000000000")
                .query_async(&mut self.admin)
                .await?;
            if waiters > 0 {
                left.push(queue);
            }
        }
        Ok(left.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect())
    }

    async fn keys(&mut self, kind: &str) -> Result<Vec<Vec<u8>>, Stop> {
        let mut found = Vec::new();
        let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg(format!("{NAME}*")).query_async(&mut self.admin).await?;
        for key in keys {
            let is: String = redis::cmd("TYPE").arg(&key).query_async(&mut self.admin).await?;
            if is == kind {
                found.push(key);
            }
        }
        Ok(found)
    }

    async fn command(&mut self, words: &[&str]) -> Result<(), Stop> {
        let mut cmd = redis::cmd(words[0]);
        for word in &words[1..] {
            cmd.arg(word);
        }
        Ok(cmd.exec_async(&mut self.admin).await?)
    }

    /// A number below `sides`, from the seed alone (SplitMix64).
    fn roll(&mut self, sides: u64) -> u64 {
        self.dice = self.dice.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.dice;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % sides
    }
}
