//! The subcommands that look at locks or break them.

use std::io::{self, Write};
use std::time::SystemTime;

use distlock::{FencingToken, Holder, LockManager, Options, Page, Released, Revoke, escaped};
use serde_json::{Value, json};

use super::args::Command;
use super::config::{Config, Sourced, WaitLimit};
use super::doctor::doctor;
use super::exit::{Failure, NO, SOFTWARE};
use super::report::Report;
use super::{connect, name_of, show};

/// How many holders are asked for at once.
const PAGE: usize = 500;

pub(crate) async fn look(command: Command, config: &Config, report: Report) -> Result<u8, Failure> {
    // A bad name is refused before any connection.
    let name = match &command {
        Command::Inspect { name, .. } | Command::Revoke { name, .. } => Some(name_of(name)?),
        Command::Doctor { name, json } => return doctor(config, &name_of(name)?, *json).await,
        _ => None,
    };
    let locks = connect(config, Options::new()).await?;
    match (command, name) {
        (Command::Inspect { json, .. }, Some(name)) => {
            let holder = locks.inspect(name.as_str()).await?;
            match (holder, json) {
                (Some(holder), true) => print(show::json_line(&show::json(&holder, SystemTime::now())))?,
                (Some(holder), false) => print(show::full(&holder, SystemTime::now()))?,
                (None, true) => print(show::json_line(&show::json_free(&name)))?,
                (None, false) => print(format!("{name}: free\n"))?,
            }
            Ok(0)
        }
        (Command::Revoke { token, now, .. }, Some(name)) => {
            let how = if now { Revoke::Now } else { Revoke::Mark };
            match locks.revoke(name.as_str(), token.map(FencingToken::new), how).await? {
                Released::Released => {
                    report.info(format!("lock '{name}' is revoked"));
                    Ok(0)
                }
                Released::NotHeld => {
                    let which = token.map_or_else(String::new, |token| format!(" with fencing token {token}"));
                    Err(Failure::new(NO, format!("lock '{name}' is not held{which}; nothing was changed")))
                }
            }
        }
        (Command::List { prefix, json }, _) => list(&locks, &prefix, json).await,
        _ => Err(Failure::new(SOFTWARE, "this subcommand needs no backend")),
    }
}

async fn list(locks: &LockManager, prefix: &str, json: bool) -> Result<u8, Failure> {
    let mut all: Vec<Holder> = Vec::new();
    loop {
        let page = match all.last() {
            Some(last) => Page::after(last.name.clone(), PAGE),
            None => Page::first(PAGE),
        };
        let some = locks.list(prefix, page).await?;
        let more = some.len() >= PAGE;
        all.extend(some);
        if !more {
            break;
        }
    }
    let now = SystemTime::now();
    if json {
        let all: Vec<Value> = all.iter().map(|holder| show::json(holder, now)).collect();
        print(show::json_line(&Value::from(all)))?;
    } else if !all.is_empty() {
        let lines: String = all.iter().map(|holder| show::line(holder) + "\n").collect();
        print(format!("NAME\tSTATE\tTOKEN\tLEFT\tLABEL\n{lines}"))?;
    }
    Ok(0)
}

/// The effective values and where they come from.
pub(crate) fn config(config: &Config, json: bool) -> Result<u8, Failure> {
    let wait = match config.wait.value {
        WaitLimit::For(limit) => humantime::format_duration(limit).to_string(),
        WaitLimit::Forever => "forever".to_owned(),
        WaitLimit::Never => "never".to_owned(),
    };
    let rows = [
        ("url", row(&config.url, distlock::redact(&config.url.value))),
        ("namespace", row(&config.namespace, config.namespace.value.as_str().to_owned())),
        ("ttl", row(&config.ttl, humantime::format_duration(config.ttl.value.get()).to_string())),
        ("wait", row(&config.wait, wait)),
    ];
    if json {
        let rows =
            rows.into_iter().map(|(key, (value, origin))| (key.to_owned(), json!({"value": value, "origin": origin})));
        print(show::json_line(&Value::Object(rows.collect())))?;
    } else {
        let file = match &config.file {
            Some(file) => escaped(&file.value.to_string_lossy()).to_string(),
            None => "none".to_owned(),
        };
        let mut text = format!("# configuration file: {file}\n");
        for (key, (value, origin)) in rows {
            text += &format!("{key} = \"{}\"  # {origin}\n", escaped(&value));
        }
        print(&text)?;
    }
    Ok(0)
}

fn row<T>(sourced: &Sourced<T>, shown: String) -> (String, String) {
    (shown, sourced.origin.to_string())
}

/// A reader that has gone away, such as `head`, is no failure.
pub(crate) fn print(text: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(SOFTWARE, format!("cannot write to stdout: {e}")))
        }
        _ => Ok(()),
    }
}
