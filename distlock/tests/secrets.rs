//! A password stands nowhere: in no message, no log of ours or of a driver, no `Debug`, no argument and no environment of a child.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::error::Error;
use std::io::Write;
use std::net::TcpListener;
use std::sync::{Mutex, Once};
use std::time::Duration;

use common::Lab;
use common::etcd::Etcd;
use common::mysql::Mysql;
use common::redis::{Redis, free_port};
use common::zk::Zk;
use distlock::Options;

const SECRET: &str = "s3cret";
/// As it is; in base64, with two other beginnings; as the numbers of its bytes; in hexadecimal digits.
const SHAPES: [&str; 6] = [SECRET, "czNjcmV0", "MzY3JldA", "zM2NyZX", "115, 51, 99, 114, 101, 116", "733363726574"];

#[track_caller]
fn has_none(text: &str, what: &str) {
    for shape in SHAPES {
        if let Some(at) = text.find(shape) {
            let around = text.get(at.saturating_sub(300)..(at + 100).min(text.len())).unwrap_or(text);
            panic!("{what}: the secret as {shape}: {around}");
        }
    }
}

/// All that was logged in this process, at every level, by us and by the drivers.
static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Kept;

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl log::Log for Kept {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        // Writing into memory does not fail.
        let _ = writeln!(Kept, "{} {} {}", record.level(), record.target(), record.args());
    }

    fn flush(&self) {}
}

fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing_subscriber::fmt().with_writer(|| Kept).with_ansi(false).with_max_level(tracing::Level::TRACE).init();
        log::set_logger(&Kept).unwrap();
        log::set_max_level(log::LevelFilter::Trace);
    });
}

/// Whatever can be made to fail with this URL, and whatever can be shown of what did not.
async fn as_a_library(url: &str) {
    listen();
    let options = Options::new().connect_timeout(Duration::from_secs(3)).operation_timeout(Duration::from_secs(2));
    has_none(&format!("{options:?} {:?}", options.clone().connect(url).await.map(|_| ())), "the options");
    let mut errors = Vec::new();
    match options.wait(Duration::from_secs(1)).connect(url).await {
        Err(error) => errors.push(error),
        Ok(locks) => {
            has_none(&format!("{locks:?}"), "the manager");
            let request = locks.lock("jobs/x");
            has_none(&format!("{request:?}"), "the request");
            match request.acquire().await {
                Ok(guard) => {
                    has_none(&format!("{guard:?}"), "the guard");
                    errors.extend(guard.release().await.err());
                }
                Err(error) => errors.push(error),
            }
            errors.extend(locks.inspect("jobs/x").await.err());
            errors.extend(locks.list("", distlock::Page::first(9)).await.err());
            let _ = locks.close().await;
        }
    }
    for error in errors {
        has_none(&format!("{error} {error:?} {error:#?}"), "an error");
        let mut cause = Error::source(&error);
        while let Some(error) = cause {
            has_none(&format!("{error} {error:?}"), "a source");
            cause = error.source();
        }
    }
}

/// The same at the command line, with the URL in a file, whence no child may learn it.
fn as_a_command(url: &str) {
    let lab = Lab::new();
    let file = lab.path("config.toml");
    std::fs::write(&file, format!("url = \"{url}\"\n")).unwrap();
    let show = "tr '\\0' ' ' </proc/$$/cmdline; tr '\\0' ' ' </proc/$PPID/cmdline; env";
    for args in [
        &["run", "jobs/x", "--wait", "1s", "--", "sh", "-c", show][..],
        &["-vv", "run", "jobs/x", "--no-wait", "--", "true"],
        &["inspect", "jobs/x", "--json"],
        &["list"],
        &["doctor", "--name", "jobs/x", "--json"],
        &["revoke", "jobs/x", "--now"],
        &["config"],
        &["config", "--json"],
    ] {
        let mut tool = lab.bare();
        tool.arg("--config").arg(&file).args(args);
        let ended = lab.spawn(tool).wait();
        has_none(&format!("{}\n{}", ended.out, ended.err), &args.join(" "));
        assert!(!ended.err.contains("panicked"), "{ended:?}");
    }
    // In the environment it goes on to the child, as everything there; it is said nowhere else.
    for args in [&["-vv", "run", "jobs/x", "--wait", "1s", "--", "true"][..], &["config"], &["inspect", "jobs/x"]] {
        let mut tool = lab.bare();
        tool.env("DISTLOCK_URL", url).args(args);
        let ended = lab.spawn(tool).wait();
        has_none(&format!("{ended:?}"), &args.join(" "));
    }
}

/// Each backend's failures that need no server of its kind; `login` ends in an `@`.
fn broken(scheme: &str, tls: Option<&str>, login: &str, path: &str) -> Vec<String> {
    let at = |host: &str| format!("{scheme}://{login}{host}{path}");
    let (closed, hung_up, silent) = (free_port(), liar(b""), silent());
    let garbage = liar(b"\x16\x03\x01garbage\r\n\r\n");
    let mut urls: Vec<_> =
        [closed, hung_up, silent, garbage].iter().map(|port| at(&format!("127.0.0.1:{port}"))).collect();
    urls.extend([
        at("no-such-host.invalid:1"),
        at("127.0.0.1:1") + "?colour=red",
        at("127.0.0.1:1") + "?password=s3cret",
        at("127.0.0.1:1") + "#part",
        at("127.0.0.1:port"),
        at("127.0.0.1:99999"),
        at(""),
        at("[::1"),
        at("h,,k"),
        at("127.0.0.1:1") + "/%FF/x/y",
        // Mistakes in the password itself: what ends it too soon, and no host behind it.
        format!("{scheme}://app:s3cret/more@127.0.0.1:1{path}"),
        format!("{scheme}://app:s3cret#more@127.0.0.1:1{path}"),
        format!("{scheme}://app:more?s3cret@127.0.0.1:1{path}"),
        format!("{scheme}://app:s3cret%FF@127.0.0.1:1{path}"),
        format!("{scheme}://s3cret@127.0.0.1:1{path}"),
        format!("{scheme}://app:s3cret"),
        format!("{scheme}:app:s3cret@h"),
        format!("{scheme}s://app:s3cret@h{path}"),
        format!("unknown://{login}h{path}"),
    ]);
    urls.extend(tls.map(|tls| format!("{tls}://{login}127.0.0.1:{hung_up}{path}")));
    urls
}

/// The port of a server that says this much and hangs up, for as long as this process lives.
fn liar(says: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.and_then(|mut stream| stream.write_all(says));
        }
    });
    port
}

/// The port of a server that takes connections and does not answer, for as long as this process lives.
fn silent() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || listener.incoming().collect::<Vec<_>>());
    port
}

/// The first ones as a command, too; the rest differ only in what the library says.
fn tell(urls: &[String]) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for (i, url) in urls.iter().enumerate() {
        println!("{url}");
        runtime.block_on(as_a_library(url));
        if i % 3 == 0 {
            as_a_command(url);
        }
    }
    has_none(&String::from_utf8_lossy(&LOG.lock().unwrap()), "the log");
    assert!(!LOG.lock().unwrap().is_empty(), "nothing was listened to");
}

#[test]
fn redis() {
    let (server, open) = (Redis::start(&["--requirepass", SECRET]), Redis::start(&[]));
    server.tell(&[&format!("AUTH {SECRET}"), &format!("ACL SETUSER poor on >{SECRET} ~* &* +@all -eval -evalsha")]);
    let at = |login: &str, port: u16| format!("redis://{login}127.0.0.1:{port}/");
    let mut urls = vec![
        at(":s3cret@", server.port),
        at("poor:s3cret@", server.port),
        at("nobody:s3cret@", server.port),
        at(":s3cret@", open.port),
        at(":s3cret@", server.port) + "99",
        at(":s3cret@", server.port).replace("redis:", "rediss:"),
    ];
    urls.extend(broken("redis", Some("rediss"), ":s3cret@", "/"));
    tell(&urls);
}

#[test]
fn mysql() {
    let server = Mysql::start();
    for (user, grant) in
        [("good", "GRANT ALL ON locks.* TO 'good'@'%'"), ("poor2", "GRANT SELECT ON locks.* TO 'poor2'@'%'")]
    {
        server.run(&format!("CREATE USER '{user}'@'%' IDENTIFIED BY '{SECRET}'; {grant}"));
    }
    let mut urls = vec![
        server.url("good:s3cret"),
        server.url("poor2:s3cret"),
        server.url("app:s3cret"),
        server.url("nobody:s3cret"),
        server.url("good:s3cret") + "2",
        server.url("good:s3cret") + "?ssl-mode=required",
        server.url("good:s3cret") + "?ssl-mode=verify_ca&ssl-ca=/no/such/file",
        server.url("good:s3cret") + "?table=other",
        server.url("good:s3cret") + "?ssl-mode=s3cret@",
    ];
    urls.extend(broken("mysql", None, "app:s3cret@", "/locks"));
    tell(&urls);
}

#[test]
fn zk() {
    let (server, alone) = (Zk::start("maxSessionTimeout=60000"), Zk::without_quorum());
    let mut urls = vec![
        server.url("owner:s3cret@", "/guarded"),
        server.url("other:s3cret@", "/guarded"),
        alone.url("owner:s3cret@", "/x"),
        server.url("owner:s3cret@", "/x?a=b"),
    ];
    urls.extend(broken("zk", None, "app:s3cret@", "/x"));
    tell(&urls);
}

#[test]
fn etcd() {
    let (plain, guarded) = (Etcd::start(&[]), Etcd::start(&[]));
    guarded.guard();
    let mut urls = vec![
        guarded.url("app:s3cret@"),
        guarded.url("half:s3cret@"),
        guarded.url("other:s3cret@"),
        guarded.url("root:s3cret@"),
        plain.url("app:s3cret@"),
        plain.url("app:s3cret@").replace("etcd:", "etcds:"),
    ];
    urls.extend(broken("etcd", Some("etcds"), "app:s3cret@", ""));
    tell(&urls);
}
