//! What a worker does with names of its own, at which nobody else aims anything: whatever they show is the backend's doing.

use std::time::{Duration, Instant};

use lock_core::{FencingToken, LockName, Page, Released, Revoke};
use tokio::time::sleep;

use super::history::Answer;
use super::hold::{Request, Taken, Way};
use super::record::Promises;
use super::worker::Hand;
use super::{LONGEST_TTL, SLACK};
use crate::Stop;

/// Names that differ, and that a careless backend takes for one.
const TWINS: [(&str, &str); 6] = [("a", "A"), ("b", " b"), ("c", "c "), ("d\0x", "d\0y"), ("e", "e/"), ("f%2F", "f/")];

/// Probes one thing after the other, for ever.
pub(super) async fn probe(hand: Hand) -> Result<(), Stop> {
    let mut prober = Prober { hand, doubtful: None };
    loop {
        match prober.hand.dice.roll(9) {
            0 => prober.twins().await,
            1 => prober.pages().await,
            2 => prober.free().await,
            3 => prober.wrong_token().await,
            4 => prober.lapse().await,
            6 => prober.marked().await,
            7 => prober.gives_up().await,
            5 => prober.hand.inspect(&prober.hand.quiet.clone(), None).await,
            _ => prober.long_names().await,
        }
        sleep(prober.hand.dice.span(20, 200)).await;
    }
}

struct Prober {
    hand: Hand,
    /// When something failed last: it may have left an entry, which its TTL takes.
    doubtful: Option<Instant>,
}

impl Prober {
    fn own(&self, name: &str) -> String {
        format!("{}{name}", self.hand.prefix)
    }

    /// Whether nothing can be left of what failed before.
    fn certain(&self) -> bool {
        self.doubtful.is_none_or(|at| at.elapsed() > LONGEST_TTL * 2 + Duration::from_secs(5))
    }

    /// Takes a name that must be free.
    async fn take(&mut self, name: String, renewed: bool) -> Option<Taken> {
        let ttl = Duration::from_millis(1_500);
        let (certain, shown) = (self.certain(), format!("{name:?}"));
        match self.hand.ask(Request { name, ttl, limit: None, renewed, cancel: None }).await {
            Ok(taken) => return Some(taken),
            Err(Answer::Busy) if certain => {
                self.hand.odd("N1", format!("{shown} is busy, and nobody but this task uses it"));
            }
            Err(_) => self.doubtful = Some(Instant::now()),
        }
        None
    }

    async fn give(&mut self, taken: Taken) {
        if !self.hand.look(&taken) {
            self.doubtful = Some(Instant::now());
        }
        if !self.hand.end(taken, Way::Release).await {
            self.doubtful = Some(Instant::now());
        }
    }

    async fn twins(&mut self) {
        for (one, other) in TWINS {
            self.both(self.own(one), self.own(other)).await;
        }
    }

    async fn long_names(&mut self) {
        let long = |end: &str| self.own(&format!("{}{end}", "l".repeat(300)));
        self.both(long("x"), long("y")).await;
    }

    async fn both(&mut self, one: String, other: String) {
        let Some(first) = self.take(one, true).await else { return };
        if let Some(second) = self.take(other, true).await {
            self.give(second).await;
        }
        self.give(first).await;
    }

    /// Three held names are listed once each, page by page, and nothing else under their prefix.
    async fn pages(&mut self) {
        let prefix = self.own("page-");
        let mut all = Vec::new();
        for number in 0..3 {
            all.extend(self.take(format!("{prefix}{number}"), true).await);
        }
        if all.len() == 3 && self.certain() {
            let (mut page, mut seen) = (Page::first(2), Vec::new());
            for _ in 0..3 {
                let Ok(holders) = self.hand.locks.list(&prefix, page).await else { break };
                let Some(last) = holders.last() else {
                    self.pages_seen(&prefix, &seen, &all);
                    break;
                };
                page = Page::after(last.name.clone(), 2);
                seen.extend(holders.into_iter().map(|holder| holder.name));
            }
            if seen.len() > 4 {
                self.pages_seen(&prefix, &seen, &all);
            }
        }
        for taken in all {
            self.give(taken).await;
        }
    }

    fn pages_seen(&self, prefix: &str, seen: &[LockName], all: &[Taken]) {
        let names: Vec<_> = all.iter().map(|taken| taken.guard.name().clone()).collect();
        // Each was held from before the list to after it.
        if all.iter().all(|taken| self.hand.look(taken)) && seen != names {
            self.hand
                .odd("O3", format!("the list of {prefix:?} shows {seen:?} in pages of two, and {names:?} are held"));
        }
    }

    /// What is free cannot be revoked, and is shown as free.
    async fn free(&mut self) {
        let name = self.own("free");
        for how in [Revoke::Mark, Revoke::Now] {
            match self.hand.locks.revoke(&name, None, how).await {
                Ok(Released::NotHeld) => {}
                Ok(Released::Released) => self.hand.odd("O3", "a name that nobody has ever held was revoked"),
                Err(error) if error.is_retryable() => {}
                Err(error) => self.hand.odd("E1", format!("revoking a free name: {error}")),
            }
        }
        self.hand.inspect(&name, None).await;
    }

    /// Revoking under another token changes nothing.
    async fn wrong_token(&mut self) {
        let Some(taken) = self.take(self.own("token"), true).await else { return };
        let wrong = FencingToken::new(taken.guard.fencing_token().get() + 1_000);
        let name = taken.guard.name().as_str().to_owned();
        if let Ok(Released::Released) = self.hand.locks.revoke(&name, Some(wrong), Revoke::Mark).await {
            self.hand.odd("O3", "a lock was revoked under a token that it does not bear");
        }
        self.hand.inspect(&name, Some(&taken)).await;
        self.give(taken).await;
    }

    /// A mark keeps everybody out.
    async fn marked(&mut self) {
        let name = self.own("mark");
        // Not renewed, so that it can learn of it by being told alone.
        let (ttl, renewed) = (LONGEST_TTL, self.hand.dice.chance(500));
        let request = Request { name, ttl, limit: None, renewed, cancel: None };
        let Ok(taken) = self.hand.ask(request).await else { return self.doubtful = Some(Instant::now()) };
        let name = taken.guard.name().as_str().to_owned();
        self.hand.mark(&taken).await;
        self.steal(name).await;
        self.doubtful = Some(Instant::now());
        self.hand.end(taken, Way::Lapse).await;
    }

    /// Whoever gives up waiting leaves no place behind for longer than a disturbed line may keep it there.
    async fn gives_up(&mut self) {
        let name = self.own("queue");
        let Some(first) = self.take(name.clone(), true).await else { return };
        let ms = Duration::from_millis;
        let (limit, cancel) = if self.hand.dice.chance(500) { (1_000, Some(ms(50))) } else { (100, None) };
        let ask = |limit, cancel| Request { name: name.clone(), ttl: ms(1_500), limit, renewed: true, cancel };
        if let Ok(stolen) = self.hand.ask(ask(Some(ms(limit)), cancel)).await {
            self.give(stolen).await;
        }
        self.give(first).await;
        let is_local = Promises::of(self.hand.locks.capabilities()).local;
        let end = Instant::now() + if is_local { ms(1_000) } else { LONGEST_TTL * 3 };
        loop {
            match self.hand.ask(ask(None, None)).await {
                Ok(taken) => return self.give(taken).await,
                Err(Answer::Busy) if Instant::now() < end => sleep(ms(100)).await,
                Err(Answer::Busy) if self.certain() => {
                    return self.hand.odd("W3", "who gave up waiting left its place in the queue");
                }
                Err(_) => return self.doubtful = Some(Instant::now()),
            }
        }
    }

    /// Asks for what is held, and may not get it.
    async fn steal(&mut self, name: String) {
        let ttl = Duration::from_millis(1_500);
        let request = Request { name, ttl, limit: None, renewed: true, cancel: None };
        if let Ok(stolen) = self.hand.ask(request).await {
            self.hand.stay(&stolen, Duration::from_millis(5)).await;
            self.hand.end(stolen, Way::Release).await;
        }
    }

    /// What has run out is not shown, and nobody gets it before.
    async fn lapse(&mut self) {
        let Some(taken) = self.take(self.own("lapse"), false).await else { return };
        let name = taken.guard.name().as_str().to_owned();
        let ttl = taken.guard.ttl();
        self.hand.stay(&taken, ttl * 3 / 4).await;
        self.steal(name.clone()).await;
        self.hand.stay(&taken, ttl).await;
        // The guard goes on living, so that nobody removes what should be gone. Before that, nobody could object to what is shown.
        let expiry = Promises::of(self.hand.locks.capabilities()).expiry();
        sleep(Duration::from_nanos(expiry) + SLACK + Duration::from_millis(200)).await;
        self.hand.inspect(&name, None).await;
        self.doubtful = Some(Instant::now());
        self.hand.end(taken, Way::Lapse).await;
    }
}
