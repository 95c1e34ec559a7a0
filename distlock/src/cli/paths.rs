//! Where things are for this user, by the XDG base directory specification.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use distlock::escaped;
use nix::unistd::{User, getuid};
use url::Url;

use super::exit::{CONFIG, Failure};

/// The configuration file in the user's folder.
pub(crate) fn user_config() -> Option<PathBuf> {
    Some(base("XDG_CONFIG_HOME", ".config")?.join("distlock/config.toml"))
}

/// The URL of the SQLite file that holds the locks where nothing else is configured.
pub(crate) fn default_url() -> Result<String, Failure> {
    let file = base("XDG_STATE_HOME", ".local/state").map(|base| base.join("distlock/locks.db")).ok_or_else(|| {
        Failure::new(
            CONFIG,
            "no home folder is known for this user, so there is no default place for the locks; \
             set HOME, or give --url or DISTLOCK_URL",
        )
    })?;
    match Url::from_file_path(&file) {
        Ok(url) => Ok(format!("sqlite://{}", url.path())),
        // Only a relative path fails, and `base` gives none.
        Err(()) => Err(Failure::new(CONFIG, format!("{} cannot be written as a URL", shown(&file)))),
    }
}

/// Makes the folder of the default file, open to this user alone.
pub(crate) fn prepare_default() -> Result<(), Failure> {
    let Some(folder) = base("XDG_STATE_HOME", ".local/state").map(|base| base.join("distlock")) else {
        return Ok(());
    };
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(|e| {
        Failure::new(CONFIG, format!("{} cannot be made: {e}; give --url or DISTLOCK_URL", shown(&folder)))
    })
}

/// A folder that a variable names, else one below the home folder. A relative one counts as unset, as the specification has it.
fn base(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(variable).or_else(|| {
        // A service without HOME still finds the same file as the same user's shell.
        let home = absolute("HOME").or_else(|| User::from_uid(getuid()).ok().flatten().map(|user| user.dir));
        home.filter(|home| home.is_absolute()).map(|home| home.join(below_home))
    })
}

fn shown(path: &Path) -> String {
    escaped(&path.to_string_lossy()).to_string()
}
