//! A run from its begin to its verdict.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_core::{AcquireRequest, Acquisition, Clock, LockName, Owner, Wait};
use tempfile::TempDir;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::LONGEST_TTL;
use super::checker::{check, recovery_bound};
use super::ground::Ground;
use super::history;
use super::plan::{Strike, strikes};
use super::progress::Progress;
use super::record::{Promises, Record, Struck};
use super::register::Registers;
use super::report;
use super::strike::{Field, Slot, forgets_on_restart};
use super::verdict::Verdict;
use super::watch::{StallWatch, StoreWatch};
use super::worker::Command;
use crate::proxy::Proxy;
use crate::{Stop, eventually};

/// What to do, for how long, and how hard.
#[derive(Clone, Debug)]
pub struct Torture {
    /// How long faults are made.
    pub span: Duration,
    /// Which faults come when, and what the workers choose.
    pub seed: u64,
    /// How many workers.
    pub workers: usize,
    /// How many names they fight for.
    pub names: usize,
    /// Where histories, verdict and picture go.
    pub report: Option<PathBuf>,
    /// Ends as soon as something is found that no fault excuses, for whoever only wants to know whether and when.
    pub hasty: bool,
    /// Says nothing while it runs.
    pub silent: bool,
}

impl Default for Torture {
    fn default() -> Self {
        let span = Duration::from_secs(60);
        Self { span, seed: 1, workers: 4, names: 3, report: None, hasty: false, silent: false }
    }
}

/// How often whoever is in haste looks at what is written down.
const LOOK: Duration = Duration::from_millis(1_500);

/// How long workers may take to end, beside the leases that they wait for.
const END: Duration = Duration::from_secs(30);

impl Torture {
    /// Tortures, and judges.
    ///
    /// # Errors
    /// What kept it from being carried out; what it found is in the verdict.
    ///
    /// # Cancel safety
    /// Dropping it ends the workers and the server.
    pub async fn run(&self, ground: Ground) -> Result<Verdict, Stop> {
        let temporary = tempfile::tempdir()?;
        let begun = Instant::now();
        let (faults, left_out) = ground.faults();
        let mut schedule = strikes(self.seed, &faults, self.span, self.workers, self.names);
        // Whoever is in haste begins with what shows most, on names that nobody takes.
        let first = faults.iter().filter(|fault| self.hasty && fault.needs_no_worker());
        let first =
            first.map(|fault| Strike { at: Duration::ZERO, fault: fault.name, victim: 0, span: Duration::ZERO });
        schedule.splice(0..0, first);
        let registers = Registers::open().await?;
        let (field, promises) = self.field(ground, &registers, &temporary).await?;
        let from = field.now();
        let (stalls, store) = (StallWatch::begin(), StoreWatch::begin(&field.ground, &field.names[0]).await?);

        let mut progress = Progress::begin(self.span, self.silent);
        let (mut under_way, mut alone, mut struck) = (JoinSet::new(), JoinSet::new(), Vec::<Struck>::new());
        let mut next_look = LOOK;
        let mut coming = schedule.iter().copied().peekable();
        while begun.elapsed() < self.span {
            while let Some(strike) = coming.next_if(|strike| strike.at <= begun.elapsed()) {
                let fault = faults.iter().copied().find(|fault| fault.name == strike.fault);
                let (field, fault) = (Arc::clone(&field), fault.ok_or("a fault that is not in the table")?);
                // Those who are on their own excuse nobody while they are under way.
                let set = if fault.is_alone() { &mut alone } else { &mut under_way };
                set.spawn(async move { field.strike(fault, strike).await });
            }
            while let Some(done) = under_way.try_join_next().or_else(|| alone.try_join_next()) {
                struck.push(done?);
            }
            let last = struck.last().map_or("", |struck| &struck.fault);
            progress.show(registers.grants(), struck.len(), registers.refused(), last);
            if self.hasty && begun.elapsed() > next_look && under_way.is_empty() {
                next_look = begun.elapsed() + LOOK;
                let mut soon = self.record(&field, promises, from, &struck)?;
                soon.writes = registers.so_far();
                let mut findings = check(&soon);
                findings.retain(|finding| !finding.is_of_an_end());
                if findings.iter().any(|finding| finding.excuse.is_none()) {
                    return Ok(Verdict::of(self, &field.ground, &soon, findings, left_out, begun.elapsed()));
                }
            }
            sleep(Duration::from_millis(20)).await;
        }
        progress.show(registers.grants(), struck.len(), registers.refused(), "the last faults end");
        for set in [&mut under_way, &mut alone] {
            while let Some(done) = set.join_next().await {
                struck.push(done?);
            }
        }
        struck.sort_by_key(|struck| struck.from);
        // Work must go on after the last fault.
        let before = registers.grants();
        let bound = Duration::from_nanos(recovery_bound(promises));
        eventually(bound, || async { registers.grants() > before }).await;
        let still = self.end_workers(&field).await;
        let mut record = self.record(&field, promises, from, &struck)?;
        record.writes = registers.so_far();
        record.stalls = stalls.end();
        [record.free, record.slow] = store.end();
        record.left = still;
        record.left.extend(self.residue(&field, &record).await);
        record.span = (from, field.now());
        progress.end();

        let findings = check(&record);
        let verdict = Verdict::of(self, &field.ground, &record, findings, left_out, begun.elapsed());
        if let Some(folder) = &self.report {
            report::write(folder, temporary.path(), &record, &verdict)?;
        } else if !verdict.is_clean() && !self.hasty {
            let folder = std::env::temp_dir().join(format!("torture-{}-{}", self.seed, std::process::id()));
            report::write(&folder, temporary.path(), &record, &verdict)?;
            eprintln!("torture: histories and picture are in {}", folder.display());
        }
        Ok(verdict)
    }

    async fn field(
        &self,
        ground: Ground,
        registers: &Registers,
        folder: &TempDir,
    ) -> Result<(Arc<Field>, Promises), Stop> {
        let lock = ground.connect().await?;
        let (promises, forgets) = (Promises::of(lock.capabilities()), forgets_on_restart(lock.capabilities()));
        lock.close().await?;
        let mut field = Field {
            names: (0..self.names).map(|number| ground.name(number)).collect(),
            quiet: format!("{}quiet", ground.prefix()),
            slots: Vec::new(),
            server: Mutex::default(),
            strays: Mutex::default(),
            folder: folder.path().to_owned(),
            register: registers.address().to_owned(),
            seed: self.seed,
            clock: Clock::system(),
            forgets_on_restart: forgets,
            ground,
        };
        for number in 0..self.workers {
            let mut lines = Vec::new();
            for address in field.ground.addresses() {
                lines.push(Proxy::start(address).await?);
            }
            let worker = field.worker(number, 0, &lines)?;
            field.slots.push(Mutex::new(Slot { number, generation: 0, worker, lines }));
        }
        Ok((Arc::new(field), promises))
    }

    /// What is written down until now.
    fn record(
        &self,
        field: &Field,
        promises: Promises,
        from: history::Nanos,
        struck: &[Struck],
    ) -> Result<Record, Stop> {
        let mut record = Record { promises, faults: struck.to_vec(), span: (from, field.now()), ..Record::default() };
        for slot in 0..self.workers {
            for generation in 0.. {
                let path = field.history(slot, generation);
                if !path.is_file() && !field.history(slot, generation + 1).is_file() {
                    break;
                }
                // One that was killed at once has written nothing.
                record.add(slot, generation, if path.is_file() { history::read(&path)? } else { Vec::new() });
            }
        }
        record.sort();
        Ok(record)
    }

    /// Tells all workers to end, and waits; who did not.
    async fn end_workers(&self, field: &Field) -> Vec<String> {
        let mut left = Vec::new();
        for slot in &field.slots {
            // One that has ended by itself is found by its history.
            let _ = slot.lock().await.worker.tell(Command::End);
        }
        for slot in &field.slots {
            let slot = slot.lock().await;
            let over = eventually(END + LONGEST_TTL * 2, || async { slot.worker.ended().is_some() }).await;
            match slot.worker.ended() {
                _ if !over => left.push(format!("worker {} does not end within {END:?} of being told to", slot.number)),
                Some(Err(how)) => left.push(format!("worker {} ended badly: {how}", slot.number)),
                _ => {}
            }
        }
        left
    }

    /// What stands in the store when all workers have ended and all TTLs are over.
    async fn residue(&self, field: &Field, record: &Record) -> Vec<String> {
        let mut names: Vec<&str> = record.attempts.iter().map(|attempt| &*attempt.name).collect();
        names.sort_unstable();
        names.dedup();
        let promises = record.promises;
        let leases = if promises.restart_adds_ttl { 2 } else { 1 };
        // A second for what is swept by others, and what is looked at on a busy machine.
        let limit = LONGEST_TTL * leases + Duration::from_nanos(promises.expiry()) + Duration::from_secs(6);
        let end = Instant::now() + limit;
        let mut left = Vec::new();
        // Whoever comes next clears away the places of dead waiters.
        if let Err(stop) = take_once(field, limit).await {
            left.push(format!("the names cannot be taken once more: {stop:?}"));
        }
        for name in names {
            loop {
                let found = match field.ground.residue(name).await {
                    Ok(found) => found,
                    Err(stop) => vec![format!("cannot be looked at: {stop:?}")],
                };
                if found.is_empty() {
                    break;
                }
                if Instant::now() > end {
                    left.extend(found.into_iter().map(|what| format!("{name:?}: {what}")));
                    break;
                }
                sleep(Duration::from_millis(100)).await;
            }
        }
        left
    }

    /// The command that does the same again.
    pub(super) fn command(&self, ground: &Ground) -> String {
        let Self { span, seed, workers, names, .. } = self;
        let members = if ground.members() > 1 { format!(" --members {}", ground.members()) } else { String::new() };
        format!(
            "cargo run --release -p conformance-tests --bin torture -- {} --seconds {} --seed {seed} --workers {workers} --names {names}{members}",
            ground.shown(),
            span.as_secs()
        )
    }
}

/// Takes each shared name once, and gives it back.
async fn take_once(field: &Field, limit: Duration) -> Result<(), Stop> {
    let lock = field.ground.connect().await?;
    for name in &field.names {
        let mut request = AcquireRequest::new(LockName::new(&**name)?, Owner::random()?);
        request.wait = Wait::Until(request.clock.now().after(limit));
        match lock.acquire(&request).await? {
            Acquisition::Granted(mut lease) => drop(lease.release().await?),
            Acquisition::Busy(_) => return Err(format!("{name} is held after all TTLs").into()),
        }
    }
    Ok(lock.close().await?)
}
