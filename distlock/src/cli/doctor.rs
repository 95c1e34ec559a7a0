//! `distlock doctor`: takes a lock on trial, looks at the backend, and gives a verdict for each promise.

use std::time::{Duration, Instant};

use distlock::{
    Diagnosis, ErrorKind, FencingToken, Finding, LockError, LockManager, LockName, Options, Promise, Verdict, escaped,
};
use serde_json::{Value, json};

use super::config::Config;
use super::connect;
use super::exit::{CONFIG, Failure, code};
use super::look::print;
use super::show;

/// What is taken on trial unless `--name` says otherwise.
pub(crate) const TRIAL: &str = "distlock doctor";
/// How long the trial waits for the name.
const WAIT: Duration = Duration::from_secs(3);
/// By when the trial's second request surely waits.
const HEAD_START: Duration = Duration::from_millis(200);
/// The contract's bound on a hand-over.
const PROMPT: Duration = Duration::from_secs(1);

pub(crate) async fn doctor(config: &Config, name: &LockName, json: bool) -> Result<u8, Failure> {
    let ttl = config.ttl.value;
    let (found, failed) = match connect(config, Options::new().ttl(ttl)).await {
        Ok(locks) => examine(&locks, name, ttl.get()).await,
        // What is wrong is on this side of the line.
        Err(failure) if failure.code == CONFIG => return Err(failure),
        Err(failure) => unreached(failure.message, failure.code),
    };
    print(if json { show::json_line(&as_json(&found)) } else { as_text(&found) })?;
    let broken = |finding: &&Finding| finding.promise.is_needed() && finding.verdict == Verdict::NotKept;
    let Some(first) = found.findings.iter().find(broken) else { return Ok(0) };
    let (promise, topic, value) = (first.promise.sentence(), first.topic, escaped(&first.value));
    Err(Failure::new(failed.unwrap_or(CONFIG), format!("not kept: {promise}: {topic}: {value}")))
}

/// The backend's own findings and those of the trial, with the exit code of what failed.
async fn examine(locks: &LockManager, name: &LockName, asked: Duration) -> (Diagnosis, Option<u8>) {
    // First, since some backends make their table or folder with the first lock.
    let tried = trial(locks, name).await;
    let mut found = match locks.diagnose().await {
        Ok(found) => found,
        Err(e) => return unreached(e.to_string(), code(e.kind())),
    };
    match tried {
        Ok(trial) => trial.note(&mut found, asked),
        Err(e) if e.kind() == ErrorKind::Timeout => {
            found.unknown(Promise::Service, "trial", e.to_string(), "run it again later, or give another --name");
        }
        Err(e) => {
            let advice = match e.kind() {
                ErrorKind::Denied => "if this user may use certain names alone, give one by --name",
                ErrorKind::InvalidTtl => "give another ttl in the configuration, or raise the limit at the server",
                _ => "see what else is not kept",
            };
            found.broken(Promise::Service, "trial", e.to_string(), advice);
            return (found, Some(code(e.kind())));
        }
    }
    (found, None)
}

fn unreached(message: String, code: u8) -> (Diagnosis, Option<u8>) {
    let mut found = Diagnosis::new("no answer that could be used");
    found.broken(Promise::Service, "connection", message, "mend this, and run it again");
    (found, Some(code))
}

/// What a lock showed that was taken, handed over and given back.
struct Trial {
    effective: Duration,
    taken: Duration,
    hand_over: Duration,
    tokens: [FencingToken; 2],
}

async fn trial(locks: &LockManager, name: &LockName) -> Result<Trial, LockError> {
    let request = || locks.lock(name.as_str()).wait(WAIT).label("distlock doctor");
    let start = Instant::now();
    let first = request().acquire().await?;
    let (taken, effective, token) = (start.elapsed(), first.ttl(), first.fencing_token());
    let give_back = async {
        tokio::time::sleep(HEAD_START).await;
        let released = Instant::now();
        first.release().await.map(|_| released)
    };
    let next = async {
        let next = request().acquire().await?;
        Ok((next, Instant::now()))
    };
    let (released, next) = tokio::join!(give_back, next);
    let (released, (next, got)) = (released?, next?);
    let tokens = [token, next.fencing_token()];
    next.release().await?;
    Ok(Trial { effective, taken, hand_over: got.saturating_duration_since(released), tokens })
}

impl Trial {
    fn note(self, found: &mut Diagnosis, asked: Duration) {
        let Self { effective, taken, hand_over, tokens: [first, second] } = self;
        found.kept(Promise::Service, "trial", format!("a lock was taken in {taken:.1?}, handed over and given back"));
        let value = format!("in {hand_over:.1?}");
        match hand_over < PROMPT {
            true => found.kept(Promise::Waiting, "hand-over", value),
            false => found.limited(Promise::Waiting, "hand-over", value, "look for what slows server or line"),
        }
        match effective <= asked {
            true => found.kept(Promise::Loss, "effective TTL", format!("{effective:?}, as asked for")),
            false => found.limited(
                Promise::Loss,
                "effective TTL",
                format!("{effective:?} where {asked:?} was asked for: a dead holder blocks for so long"),
                "lower the backend's least TTL where that matters",
            ),
        }
        let value = format!("{first}, then {second}");
        match second > first {
            true => found.kept(Promise::Fencing, "tokens", value),
            false => found.broken(Promise::Fencing, "tokens", value, "stop relying on them, and please report this"),
        }
        found.newest_token = found.newest_token.max(Some(second));
    }
}

fn as_text(found: &Diagnosis) -> String {
    let mut text = format!("{}\n", escaped(&found.server));
    for promise in Promise::ALL {
        let verdict = found.verdict(promise);
        let shown = if verdict == Verdict::NotKept { "NOT KEPT" } else { verdict.as_str() };
        text += &format!("\n{}: {shown}\n", promise.sentence());
        for finding in of(found, promise) {
            let mark = match finding.verdict {
                Verdict::Kept => "ok",
                Verdict::Limited => "but",
                Verdict::Unknown => "?",
                Verdict::NotKept => "NO",
            };
            text += &format!("  {mark:<4}{}: {}\n", finding.topic, escaped(&finding.value));
            if !finding.advice.is_empty() {
                text += &format!("      -> {}\n", escaped(&finding.advice));
            }
        }
    }
    if let Some(token) = found.newest_token {
        text += &format!(
            "\nno token so far is above {token}; a backend that takes this one's place gets fence_base={token}\n"
        );
    }
    text
}

fn of(found: &Diagnosis, promise: Promise) -> impl Iterator<Item = &Finding> {
    found.findings.iter().filter(move |finding| finding.promise == promise)
}

/// The keys are always the same; what is not known is null.
fn as_json(found: &Diagnosis) -> Value {
    let promises = Promise::ALL.map(|promise| {
        let findings = of(found, promise).map(
            |it| json!({"topic": it.topic, "value": it.value, "verdict": it.verdict.as_str(), "advice": it.advice}),
        );
        json!({
            "promise": promise.as_str(),
            "text": promise.sentence(),
            "needed": promise.is_needed(),
            "rules": promise.rules(),
            "verdict": found.verdict(promise).as_str(),
            "findings": findings.collect::<Vec<_>>(),
        })
    });
    json!({
        "server": found.server,
        "kept": Promise::ALL.iter().all(|it| !it.is_needed() || found.verdict(*it) != Verdict::NotKept),
        "promises": promises,
        "fence_base": found.newest_token.map(FencingToken::get),
    })
}
