//! The command line. It uses the public API alone; exit codes and messages live here and nowhere else.

mod args;
mod child;
mod config;
mod doctor;
mod exit;
mod file;
mod look;
mod paths;
mod report;
mod run;
mod show;
mod signals;
mod supervise;
mod terminal;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use clap::{CommandFactory, Parser};
use distlock::{LockError, LockManager, LockName, Options};

use args::{Cli, Command};
use config::{Config, Origin};
use exit::{Failure, SOFTWARE, USAGE};
use report::Report;

/// Runs the tool and answers its exit code.
pub(crate) fn main() -> u8 {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(err) => {
            let err = said_harmlessly(err);
            // Help and version are no errors; a closed stream is no reason to fail.
            let _ = err.print();
            return if err.use_stderr() { USAGE } else { 0 };
        }
    };
    let report = Report::new(cli.globals.verbose, cli.globals.quiet);
    if cli.globals.verbose >= 2 {
        tracing_subscriber::fmt()
            .with_writer(std::io::stderr)
            .with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG)
            .init();
    }
    match dispatch(cli, report) {
        Ok(code) => code,
        Err(failure) => {
            report.warn(&failure.message);
            failure.code
        }
    }
}

/// The same error about arguments in which what a terminal obeys is escaped: the parser quotes them as they are.
fn said_harmlessly(err: clap::Error) -> clap::Error {
    let args = std::env::args_os().map(|arg| report::harmless(&arg.to_string_lossy()));
    if err.use_stderr() { Cli::try_parse_from(args).err().unwrap_or(err) } else { err }
}

fn dispatch(cli: Cli, report: Report) -> Result<u8, Failure> {
    let globals = &cli.globals;
    match cli.command {
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "distlock", &mut script);
            look::print(&script).map(|()| 0)
        }
        Command::Config { json } => look::config(&Config::load(globals, None, None)?, json),
        // On the main thread: the command dies with the thread that started it.
        Command::Run(run) => block_on(run::run(globals, run, report)),
        command => {
            let config = Config::load(globals, None, None)?;
            block_on(look::look(command, &config, report))
        }
    }
}

fn block_on(work: impl Future<Output = Result<u8, Failure>>) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::new(SOFTWARE, format!("cannot start: {e}")))?;
    runtime.block_on(work)
}

/// Connects as the configuration says.
async fn connect(config: &Config, options: Options) -> Result<LockManager, Failure> {
    if config.url.origin == Origin::Default {
        paths::prepare_default()?;
    }
    let options = options.namespace(config.namespace.value.clone());
    options.connect(&config.url.value).await.map_err(|e| config.explain(e))
}

/// Checks a name before anything is done with it.
fn name_of(name: &OsStr) -> Result<LockName, LockError> {
    LockName::from_bytes(name.as_bytes())
}
