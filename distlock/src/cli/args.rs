//! The arguments, and the help that teaches them by example.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

/// Run commands under a lock that several machines share.
#[derive(Debug, Parser)]
#[command(name = "distlock", version, arg_required_else_help = true, after_help = OVERVIEW)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Args, Debug)]
pub(crate) struct Globals {
    /// Where the locks are kept, such as redis://host/ [default: a SQLite file; see `distlock config`]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<OsString>,
    /// Put PREFIX before each name
    #[arg(long, global = true, value_name = "PREFIX")]
    pub(crate) namespace: Option<OsString>,
    /// Read this configuration file, and no other
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Say more; twice shows what the library does
    #[arg(short, long, global = true, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    pub(crate) verbose: u8,
    /// Say nothing; the exit code tells
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command while holding a lock
    #[command(after_help = RUN)]
    Run(Run),
    /// Show who holds a lock
    #[command(after_help = INSPECT)]
    Inspect {
        /// The name of the lock
        name: OsString,
        /// Print JSON for scripts
        #[arg(long)]
        json: bool,
    },
    /// List the locks that are held
    #[command(after_help = LIST)]
    List {
        /// Only names that start with this
        #[arg(long, value_name = "PREFIX", default_value = "")]
        prefix: String,
        /// Print JSON for scripts
        #[arg(long)]
        json: bool,
    },
    /// Break a lock: tell its holder that it has lost it
    #[command(after_help = REVOKE)]
    Revoke {
        /// The name of the lock
        name: OsString,
        /// Only if the fencing token that `inspect` shows is still this one
        #[arg(long, value_name = "N")]
        token: Option<u64>,
        /// Free the name at once, though its holder may still be at work
        #[arg(long)]
        now: bool,
    },
    /// Check whether the backend can keep its promises as it is configured
    #[command(after_help = DOCTOR)]
    Doctor {
        /// The name that is taken on trial, for users who may not take any
        #[arg(long, value_name = "NAME", default_value = super::doctor::TRIAL)]
        name: OsString,
        /// Print JSON for scripts
        #[arg(long)]
        json: bool,
    },
    /// Show the effective configuration and where each value comes from
    #[command(after_help = CONFIG)]
    Config {
        /// Print JSON for scripts
        #[arg(long)]
        json: bool,
    },
    /// Print a completion script for a shell
    #[command(after_help = COMPLETIONS)]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// The name of the lock: 1 to 512 bytes of UTF-8
    pub(crate) name: OsString,
    /// How long the lock outlives a machine that dies; renewed while the command runs [default: 30s]
    #[arg(long, value_name = "TIME")]
    pub(crate) ttl: Option<String>,
    /// Wait at most so long for the lock, or `forever` [default: forever]
    #[arg(long, value_name = "TIME", conflicts_with = "no_wait")]
    pub(crate) wait: Option<String>,
    /// Do not wait: exit 75 when another holds the lock
    #[arg(short = 'n', long)]
    pub(crate) no_wait: bool,
    /// From TERM to KILL when the lock is lost; at most a third of the TTL
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    pub(crate) kill_after: Duration,
    /// Give the lock up and stop the command after this time
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) max_hold: Option<Duration>,
    /// What `inspect` shows as the holder [default: host and process]
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Exit with N instead of 75 (held) and 124 (wait limit reached)
    #[arg(short = 'E', long, value_name = "N")]
    pub(crate) conflict_exit_code: Option<u8>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// A span of time as `30s`, `1h 30min` or `250ms`; one too large to count is the greatest there is.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    use humantime::DurationError::NumberOverflow;
    match humantime::parse_duration(text) {
        Ok(span) => Ok(span),
        Err(NumberOverflow) => Ok(Duration::MAX),
        Err(e) => Err(format!("{e}; write it as 30s, 5min, 1h 30min or 250ms")),
    }
}

const OVERVIEW: &str = "\
Examples:
  distlock run nightly -- ./backup.sh
  distlock --url redis://10.0.0.1/ run nightly --no-wait -- ./backup.sh
  distlock inspect nightly

Without --url, DISTLOCK_URL or a configuration file the locks are in a SQLite file of this user
on this machine: $XDG_STATE_HOME/distlock/locks.db, or ~/.local/state/distlock/locks.db.

Environment: DISTLOCK_URL, DISTLOCK_NAMESPACE, DISTLOCK_TTL, DISTLOCK_WAIT, DISTLOCK_CONFIG.
Files: $XDG_CONFIG_HOME/distlock/config.toml (~/.config/...), else /etc/distlock.toml.
Flags win over the environment, the environment over the file.";

const RUN: &str = "\
Examples:
  distlock run nightly -- ./backup.sh            wait for the lock, then run
  distlock run nightly --no-wait -- ./backup.sh  skip when another run is at work (cron)
  distlock run deploy --wait 10min -- make push  give up after ten minutes
  distlock run job --ttl 10s --max-hold 1h -- ./job
  distlock run job -- sh -c './write --fence $DISTLOCK_FENCING_TOKEN'

The command gets DISTLOCK_NAME, DISTLOCK_OWNER, DISTLOCK_FENCING_TOKEN and DISTLOCK_TTL_MS added to
its environment, and a process group of its own. Signals sent to distlock reach that group once.
When the lock can no longer be renewed, the group gets TERM at --kill-after before the lock runs out
and KILL when it does; when the lock is found lost, TERM at once.
kill -9 of distlock kills the command too (Linux); processes that the command started, and that
outlive it, are left alone.

Exit codes: the command's own (128+n when signal n ended it; 126 not executable, 127 not found), or
  64 usage, bad name or TTL     75 held by another (--no-wait)   78 configuration
  69 backend unavailable        77 denied                        79 lock lost while running
  124 wait limit reached        128+n signal n came while waiting";

const INSPECT: &str = "\
Examples:
  distlock inspect nightly
  distlock inspect nightly --json | jq -r .state    free, held, reserved, revoked or foreign";

const LIST: &str = "\
Examples:
  distlock list
  distlock list --prefix order: --json | jq -r '.[].name'";

const REVOKE: &str = "\
Examples:
  distlock revoke nightly             the holder is told, and the name is free when its time has run out
  distlock revoke nightly --token 42  only if the grant that `inspect` showed still stands
  distlock revoke nightly --now       free at once: use it when the holder is known to be dead

Exit code 1: the name is not held, or its token is another; nothing was changed.";

const DOCTOR: &str = "\
Examples:
  distlock doctor
  distlock --url redis://10.0.0.1/ doctor
  distlock doctor --json | jq -r '.promises[] | \"\\(.verdict): \\(.text)\"'

It takes and gives back the lock `distlock doctor`, and looks at settings and rights. Promises are kept; kept, but;
not kept; or unknown, when this user may not look.

Exit codes: 0 when nothing that is needed is broken, whatever is limited or unknown; that of `run` where the lock cannot be
taken (69, 77, ..); else 78, some promise cannot be kept as the backend is configured.";

const CONFIG: &str = "\
Examples:
  distlock config
  distlock config --json | jq -r .url.value";

const COMPLETIONS: &str = "\
Examples:
  distlock completions bash > ~/.local/share/bash-completion/completions/distlock
  distlock completions zsh > ~/.zfunc/_distlock
  distlock completions fish > ~/.config/fish/completions/distlock.fish";
