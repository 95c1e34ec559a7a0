//! The effective configuration: flags, then the environment, then one file, then the defaults.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use distlock::{ErrorKind, LockError, Namespace, Ttl, escaped};

use super::args::{self, Globals};
use super::exit::{CONFIG, Failure, USAGE};
use super::file::{self, FileValue, Settings};
use super::paths;

/// A value, and where it came from.
#[derive(Clone, Debug)]
pub(crate) struct Sourced<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Flag(&'static str),
    Env(&'static str),
    File(PathBuf, usize),
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => write!(f, "{name}"),
            Self::Env(name) => write!(f, "{name}"),
            Self::File(path, line) => write!(f, "{} line {line}", escaped(&path.to_string_lossy())),
            Self::Default => f.write_str("default"),
        }
    }
}

impl Origin {
    /// A bad flag is a usage error; a bad variable or file is a configuration error.
    fn refuse(&self, what: &str, why: impl fmt::Display) -> Failure {
        let code = if matches!(self, Self::Flag(_)) { USAGE } else { CONFIG };
        Failure::new(code, format!("{what} from {self}: {}", escaped(&why.to_string())))
    }
}

/// How long `run` waits for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitLimit {
    Forever,
    For(Duration),
    Never,
}

/// The values that count.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) url: Sourced<String>,
    pub(crate) namespace: Sourced<Namespace>,
    pub(crate) ttl: Sourced<Ttl>,
    pub(crate) wait: Sourced<WaitLimit>,
    /// The file that was read, if any.
    pub(crate) file: Option<Sourced<PathBuf>>,
}

impl Config {
    /// Puts the layers together; `ttl` and `wait` are the flags of `run`.
    pub(crate) fn load(globals: &Globals, ttl: Option<&str>, wait: Option<&str>) -> Result<Self, Failure> {
        let file = find_file(globals)?;
        let settings = match &file {
            Some(file) => file::read(&file.value)?,
            None => Settings::default(),
        };
        let from = |value: Option<FileValue>| {
            let (value, path) = (value?, file.as_ref()?.value.clone());
            Some(Sourced { value: value.text, origin: Origin::File(path, value.line) })
        };
        let url = layered(globals.url.clone(), "--url", "DISTLOCK_URL", from(settings.url))?;
        let namespace =
            layered(globals.namespace.clone(), "--namespace", "DISTLOCK_NAMESPACE", from(settings.namespace))?;
        let ttl = layered(ttl.map(OsString::from), "--ttl", "DISTLOCK_TTL", from(settings.ttl))?;
        let wait = layered(wait.map(OsString::from), "--wait", "DISTLOCK_WAIT", from(settings.wait))?;
        Ok(Self {
            url: match url {
                Some(url) => url,
                None => Sourced { value: paths::default_url()?, origin: Origin::Default },
            },
            namespace: parsed(namespace, "the namespace", Namespace::default(), |text| {
                Namespace::new(text).map_err(|e| e.to_string())
            })?,
            ttl: parsed(ttl, "the TTL", Ttl::DEFAULT, |text| {
                args::duration(text).and_then(|span| Ttl::new(span).map_err(|e| e.to_string()))
            })?,
            wait: parsed(wait, "the wait limit", WaitLimit::Forever, wait_limit)?,
            file,
        })
    }

    /// A `Config` error of the library, with the origin of the URL beside it.
    pub(crate) fn explain(&self, err: LockError) -> Failure {
        let url = match err.kind() {
            ErrorKind::Config => "the URL".to_owned(),
            // Which server was not reached is not known wherever the time ran out.
            ErrorKind::Unavailable => escaped(&distlock::redact(&self.url.value)).to_string(),
            _ => return err.into(),
        };
        let origin = match &self.url.origin {
            Origin::Default => "is the default".to_owned(),
            origin => format!("is from {origin}"),
        };
        let failure = Failure::from(err);
        Failure { message: format!("{} ({url} {origin})", failure.message), ..failure }
    }
}

fn wait_limit(text: &str) -> Result<WaitLimit, String> {
    // A limit beyond ten years is none: it could not be told from one.
    const ENDLESS: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
    match text {
        "forever" => Ok(WaitLimit::Forever),
        _ => match args::duration(text)? {
            span if span > ENDLESS => Ok(WaitLimit::Forever),
            span => Ok(WaitLimit::For(span)),
        },
    }
}

/// The first layer that has the value. An empty variable counts as unset, as a shell user means it.
fn layered(
    flag: Option<OsString>,
    flag_name: &'static str,
    env_name: &'static str,
    file: Option<Sourced<String>>,
) -> Result<Option<Sourced<String>>, Failure> {
    let (value, origin) = match (flag, env(env_name)) {
        (Some(value), _) => (value, Origin::Flag(flag_name)),
        (None, Some(value)) => (value, Origin::Env(env_name)),
        (None, None) => return Ok(file),
    };
    match value.into_string() {
        Ok(value) => Ok(Some(Sourced { value, origin })),
        Err(_) => Err(origin.refuse("the value", "it is not UTF-8")),
    }
}

fn parsed<T>(
    text: Option<Sourced<String>>,
    what: &str,
    default: T,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Sourced<T>, Failure> {
    let Some(Sourced { value: text, origin }) = text else {
        return Ok(Sourced { value: default, origin: Origin::Default });
    };
    match parse(&text) {
        Ok(value) => Ok(Sourced { value, origin }),
        Err(why) => Err(origin.refuse(&format!("{what} '{}'", escaped(&text)), why)),
    }
}

fn env(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.as_bytes().is_empty())
}

/// A file that was named must exist; of the usual places the first that exists is taken.
fn find_file(globals: &Globals) -> Result<Option<Sourced<PathBuf>>, Failure> {
    let named = match (&globals.config, env("DISTLOCK_CONFIG")) {
        (Some(path), _) => Some(Sourced { value: path.clone(), origin: Origin::Flag("--config") }),
        (None, Some(path)) => Some(Sourced { value: path.into(), origin: Origin::Env("DISTLOCK_CONFIG") }),
        (None, None) => None,
    };
    if named.is_some() {
        return Ok(named);
    }
    for path in [paths::user_config(), Some(Path::new("/etc/distlock.toml").to_owned())].into_iter().flatten() {
        // A file that cannot be looked at is not passed over: it may say that the locks are elsewhere.
        match path.try_exists() {
            Ok(false) => {}
            Ok(true) => return Ok(Some(Sourced { value: path, origin: Origin::Default })),
            Err(e) => return Err(file::unreadable(&path, &e)),
        }
    }
    Ok(None)
}
