//! How the neighbours are run. What must be built or fetched is kept between the runs.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use conformance_tests::{Stop, ensure};

/// Where the sources of the neighbours are.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/neighbours");

/// What Curator needs, as Debian places it; the manifests of these name the rest.
const CURATOR: &str = "/usr/share/java/curator-recipes.jar:/usr/share/java/slf4j-nop.jar";

pub(crate) fn redis_py() -> Result<Command, Stop> {
    Ok(python("redis_lock.py"))
}

pub(crate) fn redlock_py() -> Result<Command, Stop> {
    let wanted = include_str!("../../neighbours/requirements.txt");
    let modules = kept("redlock-py", wanted, |folder| {
        let mut pip = Command::new("/usr/bin/python3");
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--root-user-action", "ignore"])
            // Built with what the system has; redis-py is there already.
            .args(["--no-build-isolation", "--no-deps", "--require-hashes", "--target"])
            .arg(folder)
            .args(["--requirement", &format!("{SOURCES}/requirements.txt")]);
        must_succeed(pip)
    })?;
    let mut command = python("redlock_client.py");
    command.env("PYTHONPATH", modules);
    Ok(command)
}

pub(crate) fn kazoo() -> Result<Command, Stop> {
    let mut command = python("kazoo_lock.py");
    command.env("EXTRA_LOCK_PATTERNS", "-lock-");
    Ok(command)
}

pub(crate) fn kazoo_by_default() -> Result<Command, Stop> {
    Ok(python("kazoo_lock.py"))
}

pub(crate) fn curator() -> Result<Command, Stop> {
    let classes = kept("curator", include_str!("../../neighbours/CuratorLock.java"), |folder| {
        let mut javac = Command::new("javac");
        javac.args(["-cp", CURATOR, "-d"]).arg(folder).arg(format!("{SOURCES}/CuratorLock.java"));
        must_succeed(javac)
    })?;
    let mut command = Command::new("java");
    command
        .args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"])
        .arg(format!("{}:{CURATOR}", classes.display()))
        .arg("CuratorLock");
    Ok(command)
}

pub(crate) fn go_mutex() -> Result<Command, Stop> {
    let folder = kept("go-mutex", include_str!("../../neighbours/etcd_mutex.go"), |folder| {
        let mut go = Command::new("go");
        go.arg("build").arg("-o").arg(folder.join("mutex")).arg(format!("{SOURCES}/etcd_mutex.go"));
        // With the packages of the system and without the network.
        go.env("GO111MODULE", "off").env("GOPATH", "/usr/share/gocode").env("GOPROXY", "off").env_remove("GOFLAGS");
        go.env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("neighbours/go-cache"));
        must_succeed(go)
    })?;
    Ok(Command::new(folder.join("mutex")))
}

pub(crate) fn lock_service() -> Result<Command, Stop> {
    Ok(python("lock_service.py"))
}

pub(crate) fn etcdctl() -> Result<Command, Stop> {
    let mut command = Command::new("bash");
    command.arg(format!("{SOURCES}/etcdctl.sh"));
    Ok(command)
}

/// The system's own Python, which sees the system's packages.
fn python(script: &str) -> Command {
    let mut command = Command::new("/usr/bin/python3");
    command.arg("-B").arg(format!("{SOURCES}/{script}"));
    command
}

/// A folder filled by `make`, once for each content of the source.
fn kept(name: &str, source: &str, make: impl FnOnce(&Path) -> Result<(), Stop>) -> Result<PathBuf, Stop> {
    let mut hasher = DefaultHasher::new();
    source.hash(&mut hasher);
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR")).join("neighbours");
    let folder = parent.join(format!("{name}-{:016x}", hasher.finish()));
    if !folder.exists() {
        // Whole or not at all, also when the run is broken off or another one does the same.
        fs::create_dir_all(&parent)?;
        let fresh = tempfile::tempdir_in(&parent)?;
        make(fresh.path())?;
        let renamed = fs::rename(fresh.path(), &folder);
        ensure!(renamed.is_ok() || folder.exists(), "{}: {renamed:?}", folder.display());
    }
    Ok(folder)
}

fn must_succeed(mut command: Command) -> Result<(), Stop> {
    let output = command.output().map_err(|e| format!("{}: {e}", command.get_program().display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}: {said}", command.get_program().display(), output.status);
    Ok(())
}
