//! Where the programs of servers come from.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// This machine; or a folder with a whole system in it, such as debootstrap makes, which `CONFORMANCE_ROOT` names and only root can start programs in.
/// So the suite runs against other versions than the machine has.
#[derive(Clone, Debug)]
pub(crate) struct System(Option<PathBuf>);

impl System {
    /// The one that the environment names.
    pub(crate) fn chosen() -> Self {
        Self(std::env::var_os("CONFORMANCE_ROOT").map(PathBuf::from))
    }

    /// Whether it has a program, looked for where Debian puts them. This machine is taken to have all.
    pub(crate) fn has(&self, program: &str) -> bool {
        let Some(root) = &self.0 else { return true };
        ["usr/bin", "usr/sbin"].iter().any(|folder| root.join(folder).join(program).is_file())
    }

    /// Starts one of its programs. The process is the program itself.
    pub(crate) fn command(&self, program: &str) -> Command {
        let Some(root) = &self.0 else { return Command::new(program) };
        let mut command = Command::new("chroot");
        command.arg(root).arg(program);
        command
    }

    /// A new folder that its programs can see.
    pub(crate) fn folder(&self) -> std::io::Result<TempDir> {
        match &self.0 {
            None => tempfile::tempdir(),
            Some(root) => tempfile::tempdir_in(root.join("tmp")),
        }
    }

    /// A path in such a folder, as its programs see it.
    pub(crate) fn seen(&self, path: &Path) -> String {
        match &self.0 {
            None => path.display().to_string(),
            Some(root) => format!("/{}", path.strip_prefix(root).unwrap_or(path).display()),
        }
    }
}
