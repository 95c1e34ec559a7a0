//! What the figures were taken on.

use std::process::Command;

/// Name and value each; what cannot be learned is left out.
pub fn facts() -> Vec<(String, String)> {
    let mut facts = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        facts.extend(value.filter(|value| !value.is_empty()).map(|value| (name.to_owned(), value)));
    };
    let cores = std::thread::available_parallelism().map(|cores| cores.to_string()).ok();
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let model = read("/proc/cpuinfo").and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    add("date", said("date", &["-u", "+%Y-%m-%d"]));
    add("processors", cores.map(|cores| [Some(cores), model].into_iter().flatten().collect::<Vec<_>>().join(" x ")));
    add("kernel", read("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned()));
    add("load before the run", read("/proc/loadavg").and_then(|text| Some(text.split(' ').next()?.to_owned())));
    add("distlock", Some(env!("CARGO_PKG_VERSION").to_owned()));
    add("Rust", said("rustc", &["--version"]));
    add("Redis", said("redis-server", &["--version"]));
    add("MySQL", said("mariadbd", &["--version"]));
    add("ZooKeeper", debian("zookeeper"));
    add("etcd", said("etcd", &["--version"]));
    for package in ["python3-redis", "python3-kazoo", "libcurator-recipes-java", "golang-etcd-server-dev"] {
        add(package, debian(package));
    }
    facts
}

/// The first line of what a command says.
fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.lines().next()?.trim().to_owned())
}

fn debian(package: &str) -> Option<String> {
    said("dpkg-query", &["-W", "-f", "${Version}", package])
}
