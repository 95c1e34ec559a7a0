//! The examples as a user runs them. From backend to backend nothing differs but `DISTLOCK_URL`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::{Ended, Lab, Running, read, until};
use nix::sys::signal::Signal;

/// A sale that takes longer than this on a busy machine, a restart of the server included, hangs.
const SALE_BOUND: Duration = Duration::from_secs(120);

/// The program of an example, as `cargo test` has built it.
fn program(example: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_distlock")).with_file_name("examples").join(example);
    let build = "build it: cargo build -p distlock --examples, with the features of this test";
    assert!(path.is_file(), "{} is missing; {build}", path.display());
    // `cargo test --test examples` alone does not build the examples.
    let built = fs::metadata(&path).unwrap().modified().unwrap();
    let sources = read(path.with_extension("d"));
    for source in sources.split_once(": ").unwrap().1.split_whitespace() {
        let changed = fs::metadata(source).unwrap().modified().unwrap();
        assert!(changed <= built, "{} is older than {source}; {build}", path.display());
    }
    path
}

fn example(lab: &Lab, example: &str, args: &[&str]) -> Command {
    let mut command = lab.clean(program(example));
    command.env("DISTLOCK_URL", lab.url()).args(args);
    command
}

/// A sale over the lab's backend, with its books in `shop` of the lab's folder. Three hundred buyers are enough for every race and do not wear
/// out a busy machine; `FLASH_SALE_BUYERS=1000` sends as many as the example does by itself.
fn sale(lab: &Lab, shop: &str, args: &[&str]) -> Running {
    let buyers = std::env::var("FLASH_SALE_BUYERS").unwrap_or_else(|_| "300".into());
    let mut command = example(lab, "flash_sale", args);
    if !args.contains(&"--buyers") {
        command.args(["--buyers", &buyers]);
    }
    command.arg("--shop").arg(lab.path(shop));
    lab.spawn(command)
}

/// The sales in both books, as `buyer token`.
fn books(lab: &Lab, shop: &str) -> [Vec<String>; 2] {
    ["book-0", "book-1"].map(|book| read(lab.path(shop).join(book)).lines().map(str::to_owned).collect())
}

fn sold(lab: &Lab, shop: &str) -> usize {
    books(lab, shop).iter().map(Vec::len).sum()
}

/// Crowds come one after the other: all at once, on two cores, they would measure each other.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A sale that has ended sold exactly what there was, and turned no buyer away.
#[track_caller]
fn is_exact(lab: &Lab, shop: &str, ended: &Ended) {
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert!(ended.out.contains("sold      200 of 200: exact\n"), "{ended:?}");
    assert!(ended.out.contains(" 0 buyers gave up\n"), "{ended:?}");
    for book in books(lab, shop) {
        assert_eq!(book.len(), 100, "{book:?}");
    }
    println!("{}", ended.out);
}

#[test]
fn the_flash_sale_is_exact_in_memory() {
    let _alone = alone();
    let lab = Lab::at("memory:");
    let ended = sale(&lab, "shop", &[]).wait_within(SALE_BOUND);
    is_exact(&lab, "shop", &ended);
}

#[test]
fn the_flash_sale_is_exact_over_sqlite_and_when_one_of_two_processes_is_killed() {
    let _alone = alone();
    let lab = Lab::new();
    let ended = sale(&lab, "plain", &[]).wait_within(SALE_BOUND);
    is_exact(&lab, "plain", &ended);

    let [victim, survivor] = [(); 2].map(|()| sale(&lab, "killed", &["--ttl", "2s"]));
    until("the sale to be under way", || sold(&lab, "killed") > 20);
    victim.signal(Signal::SIGKILL);
    // The survivor sells the rest, whoever sold until now.
    assert!(sold(&lab, "killed") < 200, "killed too late to mean anything");
    is_exact(&lab, "killed", &survivor.wait_within(SALE_BOUND));
}

/// One sale in peace, and one in the middle of which the server is killed and started again.
#[allow(clippy::await_holding_lock, reason = "each of these tests has a runtime of its own, which may be blocked")]
#[cfg(any(feature = "redis", feature = "mysql", feature = "zk", feature = "etcd"))]
async fn is_exact_over(url: String, server: &dyn conformance_tests::Server) {
    let _alone = alone();
    let lab = Lab::at(url);
    let ended = sale(&lab, "plain", &[]).wait_within(SALE_BOUND);
    is_exact(&lab, "plain", &ended);

    let running = sale(&lab, "killed", &["--ttl", "10s"]);
    until("the sale to be under way", || sold(&lab, "killed") > 20);
    server.kill().unwrap();
    assert!(sold(&lab, "killed") < 200, "killed too late to mean anything");
    server.restart().await.unwrap();
    is_exact(&lab, "killed", &running.wait_within(SALE_BOUND));
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn the_flash_sale_is_exact_over_redis() {
    // What was answered is on the disk, so that a restart forgets nothing.
    let kept = ["--appendonly", "yes", "--appendfsync", "always"];
    let server = conformance_tests::servers::redis::RedisServer::start(&kept).await.unwrap();
    is_exact_over(format!("redis://127.0.0.1:{}/", server.port()), &server).await;
}

#[cfg(feature = "mysql")]
#[tokio::test]
async fn the_flash_sale_is_exact_over_mysql() {
    let server = conformance_tests::servers::mysql::MysqlServer::start(&[]).await.unwrap();
    is_exact_over(format!("mysql://app:se%3Acret%2F1@127.0.0.1:{}/locks", server.port()), &server).await;
}

#[cfg(feature = "zk")]
#[tokio::test]
async fn the_flash_sale_is_exact_over_zookeeper() {
    let server = conformance_tests::servers::zk::ZkServer::start().await.unwrap();
    is_exact_over(format!("zk://127.0.0.1:{}/sale", server.port()), &server).await;
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn the_flash_sale_is_exact_over_etcd() {
    let server = conformance_tests::servers::etcd::EtcdServer::start(&[]).await.unwrap();
    is_exact_over(format!("etcd://127.0.0.1:{}", server.port()), &server).await;
}

#[test]
fn a_sale_without_a_common_lock_is_found_out() {
    let _alone = alone();
    // Each process has a memory of its own.
    let lab = Lab::at("memory:");
    let args = ["--buyers", "1000", "--stock", "500"];
    let first = sale(&lab, "shop", &args);
    until("the first sale to begin", || sold(&lab, "shop") > 0);
    let second = sale(&lab, "shop", &args);
    let ended = [first, second].map(|sale| sale.wait_within(SALE_BOUND));
    assert!(ended.iter().any(|sale| sale.code() == 1 && sale.out.contains("sales written over")), "{ended:?}");
}

#[test]
fn ctrl_c_closes_the_shop_with_right_books() {
    let _alone = alone();
    let lab = Lab::new();
    let running = sale(&lab, "shop", &["--stock", "500"]);
    until("the sale to be under way", || sold(&lab, "shop") > 5);
    running.signal(Signal::SIGINT);
    let ended = running.wait_within(SALE_BOUND);
    assert_eq!(ended.code(), 130, "{ended:?}");
    assert!(ended.out.contains(" of 1000: right as far as it went\n"), "{ended:?}");
    assert_eq!((lab.state("flash-sale:0"), lab.state("flash-sale:1")), ("free".into(), "free".into()));
}

#[test]
fn the_fenced_row_refuses_the_late_writer() {
    let lab = Lab::new();
    let ended = lab.spawn(example(&lab, "fenced_row", &[])).wait_within(SALE_BOUND);
    assert_eq!(ended.code(), 0, "{ended:?}");
    for line in [
        ", held: true; about to write 70\n",
        ": accepted\n",
        ": refused, a greater token has written\n",
        "A: now sees that its lock is lost: ",
        "B: the balance is 150: nothing was lost\n",
    ] {
        assert!(ended.out.contains(line), "no '{line}' in {ended:?}");
    }
    let lab = Lab::at("memory:");
    let ended = lab.spawn(example(&lab, "fenced_row", &[])).wait();
    ended.says(1, &["fenced_row: ", "two processes"]);
}

#[test]
fn the_nightly_job_is_done_once_and_not_for_ever() {
    let lab = Lab::new();
    let ended = lab.spawn(example(&lab, "nightly_job", &[])).wait_within(SALE_BOUND);
    assert_eq!(ended.code(), 0, "{ended:?}");
    for line in [
        " does it tonight\n",
        "green: ",
        "red: cut off: ",
        "red: the counting thread saw the loss, and stops\n",
        "blue: done, ",
        "each night went as it should\n",
    ] {
        assert!(ended.out.contains(line), "no '{line}' in {ended:?}");
    }
}

#[test]
fn an_example_that_cannot_start_says_what_to_do() {
    let lab = Lab::at("mongo://localhost/");
    for name in ["flash_sale", "fenced_row", "nightly_job"] {
        lab.spawn(example(&lab, name, &[])).wait().says(1, &[name, "'mongo'", "memory, sqlite"]);
    }
}
