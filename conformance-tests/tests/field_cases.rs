//! docs/field-cases.md against the code: each case stands there once, and each backend that it concerns has a test that runs on it or a reason.
#![cfg(all(feature = "etcd", feature = "mysql", feature = "redis", feature = "sqlite", feature = "zk"))]
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use conformance_tests::harnesses::etcd::EtcdHarness;
use conformance_tests::harnesses::memory::MemoryHarness;
use conformance_tests::harnesses::mysql::MysqlHarness;
use conformance_tests::harnesses::redis::RedisHarness;
use conformance_tests::harnesses::sqlite::SqliteHarness;
use conformance_tests::harnesses::zk::ZkHarness;
use conformance_tests::{Harness, case};

const BACKENDS: [&str; 6] = ["memory", "sqlite", "redis", "mysql", "zk", "etcd"];

/// All cases, and what each concerns: backends, the command line (`cli`), the part of a client above every backend (`client`).
const CASES: &str = "
    B01 redis, mysql, etcd; B02 all, cli; B05 all; B07 etcd; B08 all; B11 all; B12 all; B13 redis; B14 zk; B16 all, cli; B17 cli; B18 all; B20 all, cli;
    B22 mysql; B23 mysql, zk, etcd; B24 redis, zk; B27 redis; B30 redis; B31 redis; B33 client; B35 all, cli; B36 redis; B38 etcd; B39 redis, mysql;
    B41 mysql; B42 redis, mysql, zk, etcd; B43 redis; B44 all; B45 all; B47 zk; B48 zk, etcd; B49 cli; B50 etcd; B52 etcd; B53 redis; B54 redis; B55 mysql;
    B56 redis, mysql; B57 redis, mysql, zk; B58 all; B61 all, cli; B62 etcd; B63 zk; B65 zk; B67 zk, etcd; B68 all; B69 all; B70 zk; B71 redis; B72 client;
    B73 redis; B74 all; B75 redis, mysql, zk, etcd; B76 all; B77 all; B78 client, cli; B79 mysql; B80 mysql; B81 zk; B82 etcd; B83 redis, mysql; B84 all;
    B85 all; B86 redis, mysql, etcd; B87 all; B88 zk, etcd; B89 zk; B90 all; B91 cli; B92 redis, zk; B93 all; B94 redis; B95 client; B96 all; B97 redis;
    B98 redis, mysql, zk, etcd; B99 cli; B100 etcd; B101 redis, mysql; B102 zk; B103 cli; B104 redis; B105 zk";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn page() -> String {
    fs::read_to_string(root().join("docs/field-cases.md")).unwrap()
}

fn expected() -> BTreeMap<String, String> {
    let cases = CASES.split(';').filter_map(|case| case.trim().split_once(' '));
    cases.map(|(number, on)| (number.to_owned(), on.to_owned())).collect()
}

fn harness(backend: &str) -> Box<dyn Harness> {
    match backend {
        "memory" => Box::new(MemoryHarness::default()),
        "sqlite" => Box::new(SqliteHarness),
        "redis" => Box::new(RedisHarness),
        "mysql" => Box::new(MysqlHarness),
        "zk" => Box::new(ZkHarness { members: 1 }),
        _ => Box::new(EtcdHarness { members: 1 }),
    }
}

/// What a list such as `all, cli` stands for.
fn targets(list: &str) -> BTreeSet<&str> {
    let words = list.split(',').map(str::trim);
    words.flat_map(|word| if word == "all" { BACKENDS.to_vec() } else { vec![word] }).collect()
}

/// Where a test runs; `Err` when there is none by this name that runs.
fn runs_on(citation: &str) -> Result<BTreeSet<&'static str>, String> {
    let parts: Vec<_> = citation.split("::").collect();
    let (Some(package), Some(name)) = (parts.first(), parts.last()) else { return Err("no citation".into()) };
    if *package == "conformance" {
        let full = parts[1..].join("::");
        let case = case::all().find(|case| case.full_name() == full).ok_or("no case of the suite")?;
        // Where the harness cannot bring it about, the reason stands in docs/rules.md.
        let runs = |backend: &&str| case.needs.iter().all(|&need| harness(backend).lacks(need).is_none());
        return Ok(BACKENDS.into_iter().filter(runs).collect());
    }
    let inner = parts[1..parts.len() - 1].join("/");
    let files = ["tests", "src"]
        .into_iter()
        .flat_map(|folder| ["", "/tests"].map(|rest| root().join(format!("{package}/{folder}/{inner}{rest}.rs"))));
    let texts: Vec<_> = files.filter_map(|file| fs::read_to_string(file).ok()).collect();
    let found = texts.iter().find_map(|text| attributes(text, name)).ok_or("no such function")?;
    if !found.contains("test") {
        return Err("no test".into());
    }
    if found.contains("ignore") {
        return Err("it is ignored".into());
    }
    let words = format!("{inner}_{name}").replace("zookeeper", "zk").replace("mariadb", "mysql");
    let words: Vec<_> = words.split(['_', '/']).collect();
    let mut places: BTreeSet<_> = BACKENDS.into_iter().filter(|backend| words.contains(backend)).collect();
    match *package {
        "distlock" => drop(places.insert("cli")),
        "lock-core" => drop(places.insert("client")),
        package => places.extend(BACKENDS.into_iter().filter(|backend| package.strip_prefix("lock-") == Some(backend))),
    }
    Ok(places)
}

/// The attributes of a function, in one text.
fn attributes(text: &str, name: &str) -> Option<String> {
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let at = lines.iter().position(|line| {
        line.split("fn ").nth(1).is_some_and(|rest| rest.strip_prefix(name).is_some_and(|rest| rest.starts_with('(')))
    })?;
    let above = lines[..at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
    Some(above.filter(|line| line.starts_with("#[")).copied().collect())
}

/// What is wrong with the table.
fn mistakes(page: &str) -> Vec<String> {
    let (mut wrong, mut seen) = (Vec::new(), BTreeSet::new());
    let expected = expected();
    for line in page.lines().filter(|line| line.starts_with("| B")) {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [number, what, on, tests, reasons] = cells[..] else {
            wrong.push(format!("not five cells: {line}"));
            continue;
        };
        if !seen.insert(number) {
            wrong.push(format!("{number} stands twice"));
        }
        if expected.get(number).map(String::as_str) != Some(on) {
            wrong.push(format!("{number} concerns {:?}, not '{on}'", expected.get(number)));
        }
        if what.len() < 20 {
            wrong.push(format!("{number} does not say what failed"));
        }
        let mut covered = BTreeSet::new();
        for citation in tests.split('`').skip(1).step_by(2) {
            match runs_on(citation) {
                Ok(places) => covered.extend(places),
                Err(why) => wrong.push(format!("{number} cites {citation}: {why}")),
            }
        }
        for reason in reasons.split("; ").filter(|reason| !reason.is_empty()) {
            match reason.split_once(": ") {
                Some((places, text)) if text.len() >= 15 => covered.extend(targets(places)),
                _ => wrong.push(format!("{number} gives no reason in '{reason}'")),
            }
        }
        for place in targets(on).difference(&covered) {
            wrong.push(format!("{number} has neither a test nor a reason for {place}"));
        }
    }
    wrong.extend(
        expected.keys().filter(|number| !seen.contains(number.as_str())).map(|number| format!("{number} is missing")),
    );
    wrong
}

#[test]
fn each_case_has_its_tests_or_a_reason_on_each_backend() {
    assert_eq!(expected().len(), 83);
    let page = page();
    let wrong = mistakes(&page);
    assert!(wrong.is_empty(), "{wrong:#?}");
    let cited =
        page.lines().filter(|line| line.starts_with("| B")).map(|line| line.matches('`').count() / 2).sum::<usize>();
    println!("{cited} citations");
}

/// A check that cannot fail checks nothing.
#[test]
fn what_is_wrong_in_the_table_is_found() {
    let page = page();
    let row = |number: &str| page.lines().find(|line| line.starts_with(&format!("| {number} "))).unwrap();
    let (first, reasoned) = (row("B01"), row("B86"));
    let citation = first.split('`').nth(1).unwrap();
    let reason = reasoned.trim_matches('|').rsplit('|').next().unwrap();
    for (spoilt, found) in [
        (page.replace(first, ""), "B01 is missing"),
        (page.replace(first, &format!("{first}\n{first}")), "B01 stands twice"),
        (page.replacen(citation, "conformance::owner::nothing", 1), "no case of the suite"),
        (page.replacen(citation, "lock-redis::faults::nothing", 1), "no such function"),
        (page.replacen(citation, "lock-redis::faults::refused", 1), "no test"),
        (page.replace(reason, " "), "B86 has neither a test nor a reason for etcd"),
        (page.replace(first, &first.replacen("redis, mysql, etcd", "redis", 1)), "B01 concerns"),
    ] {
        let wrong = mistakes(&spoilt);
        assert!(wrong.iter().any(|text| text.contains(found)), "'{found}' is not in {wrong:?}");
    }
    let ignored = format!("#[test]\n#[{}]\n// why\nfn a() {{", "ignore");
    assert!(attributes(&ignored, "a").unwrap().contains("ignore"));
}
