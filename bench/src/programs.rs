//! How the peers in other languages are run. What must be built or fetched is kept beside this program, between the runs.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use conformance_tests::{Stop, ensure};

use crate::rows::{Backend, Row};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs");
const PYTHON: &str = "/usr/bin/python3";
/// What Curator needs, as Debian places it; the manifests of these name the rest.
const CURATOR: [&str; 2] = ["/usr/share/java/curator-recipes.jar", "/usr/share/java/slf4j-nop.jar"];

/// The command that starts a peer's program.
///
/// # Errors
/// What to install.
pub fn command(row: Row) -> Result<Command, Stop> {
    match row {
        Row::RedisPy => python("redis_py.py", "redis", "python3-redis"),
        Row::PythonRedisLock => python_redis_lock(),
        Row::Kazoo => python("kazoo_lock.py", "kazoo", "python3-kazoo"),
        Row::NodeRedlock => node_redlock(),
        Row::Curator => curator(),
        Row::GoMutex => go_mutex(),
        _ => Err(format!("{} is no program", row.label()).into()),
    }
}

/// Builds and fetches what is not there yet, so that it is no part of the run. What fails is told when it is needed.
pub fn prepare(backends: &[Backend]) {
    let rows = backends.iter().flat_map(|backend| backend.rows()).filter(|row| row.is_program());
    for row in rows {
        if let Err(stop) = command(*row) {
            eprintln!("{} is left out: {stop:?}", row.label());
        }
    }
}

/// The system's own Python, which sees the system's packages.
fn python(script: &str, module: &str, package: &str) -> Result<Command, Stop> {
    let found = Command::new(PYTHON).args(["-c", &format!("import {module}")]).output();
    let found = found.is_ok_and(|output| output.status.success());
    ensure!(found, "not installed; on Debian: apt-get install {package}");
    let mut command = Command::new(PYTHON);
    command.arg("-B").arg(format!("{SOURCES}/{script}"));
    Ok(command)
}

fn python_redis_lock() -> Result<Command, Stop> {
    let mut command = python("python_redis_lock.py", "redis", "python3-redis python3-pip")?;
    let modules = kept("python-redis-lock", include_str!("../programs/requirements.txt"), |folder| {
        let mut pip = Command::new(PYTHON);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--root-user-action", "ignore"])
            .args(["--no-deps", "--require-hashes", "--target"])
            .arg(folder)
            .args(["--requirement", &format!("{SOURCES}/requirements.txt")]);
        must_succeed(pip)
    });
    let modules = modules.map_err(|e| format!("cannot be fetched from PyPI ({e:?}); apt-get install python3-pip"))?;
    command.env("PYTHONPATH", modules);
    Ok(command)
}

fn node_redlock() -> Result<Command, Stop> {
    let modules = kept("node-redlock", include_str!("../programs/package.json"), |folder| {
        fs::copy(format!("{SOURCES}/package.json"), folder.join("package.json"))?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(folder);
        must_succeed(npm)
    });
    let modules = modules.map_err(|e| format!("cannot be fetched by npm ({e:?}); install Node.js with npm"))?;
    let mut command = Command::new("node");
    command.arg(format!("{SOURCES}/node_redlock.mjs")).env("BENCH_MODULES", modules);
    Ok(command)
}

fn curator() -> Result<Command, Stop> {
    for jar in CURATOR {
        let packages = "libcurator-recipes-java libslf4j-java default-jdk-headless";
        ensure!(Path::new(jar).exists(), "{jar} is missing; on Debian: apt-get install {packages}");
    }
    let jars = CURATOR.join(":");
    let classes = kept("curator", include_str!("../programs/CuratorBench.java"), |folder| {
        let mut javac = Command::new("javac");
        javac.args(["-cp", &jars, "-d"]).arg(folder).arg(format!("{SOURCES}/CuratorBench.java"));
        must_succeed(javac)
    })?;
    let mut command = Command::new("java");
    command
        .args(["-Xmx128m", "-XX:+UseSerialGC", "-cp"])
        .arg(format!("{}:{jars}", classes.display()))
        .arg("CuratorBench");
    Ok(command)
}

fn go_mutex() -> Result<Command, Stop> {
    const GOPATH: &str = "/usr/share/gocode";
    let client = Path::new(GOPATH).join("src/go.etcd.io/etcd/clientv3");
    ensure!(client.exists(), "not installed; on Debian: apt-get install golang-go golang-etcd-server-dev");
    let folder = kept("go-mutex", include_str!("../programs/go_mutex.go"), |folder| {
        let mut go = Command::new("go");
        go.arg("build").arg("-o").arg(folder.join("mutex")).arg(format!("{SOURCES}/go_mutex.go"));
        // With the packages of the system and without the network.
        go.env("GO111MODULE", "off").env("GOPATH", GOPATH).env("GOPROXY", "off").env_remove("GOFLAGS");
        go.env("GOCACHE", cache()?.join("go-cache"));
        must_succeed(go)
    })?;
    Ok(Command::new(folder.join("mutex")))
}

/// Beside this program, which is in the target folder.
fn cache() -> Result<PathBuf, Stop> {
    let program = std::env::current_exe()?;
    Ok(program.parent().ok_or("a program without a folder")?.join("bench-programs"))
}

/// A folder filled by `make`, once for each content of the source.
fn kept(name: &str, source: &str, make: impl FnOnce(&Path) -> Result<(), Stop>) -> Result<PathBuf, Stop> {
    let mut hasher = DefaultHasher::new();
    source.hash(&mut hasher);
    let parent = cache()?;
    let folder = parent.join(format!("{name}-{:016x}", hasher.finish()));
    if !folder.exists() {
        // Whole or not at all, also when the run is broken off.
        fs::create_dir_all(&parent)?;
        let fresh = tempfile::tempdir_in(&parent)?;
        make(fresh.path())?;
        fs::rename(fresh.path(), &folder)?;
    }
    Ok(folder)
}

fn must_succeed(mut command: Command) -> Result<(), Stop> {
    let output = command.output().map_err(|e| format!("{}: {e}", command.get_program().display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}: {said}", command.get_program().display(), output.status);
    Ok(())
}
