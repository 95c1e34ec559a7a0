//! Text that means harm, in names, settings and in the store: it forges no line, moves no cursor and turns no text around.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::redis::Redis;
use common::{Ended, Lab};
use sqlx::{Connection, SqliteConnection};

/// Each has what a terminal or a log would obey: escapes of seven and of eight bits, line ends of three kinds, a bell, a direction, nothing to be seen.
const EVIL: [&str; 8] = [
    "a\x1b[2J\x1b]0;title\x07b",
    "a\ndistlock: lock 'b' is revoked",
    "a\r\ta\x0b\x0c\x08b",
    "a\u{9b}31m\u{85}b",
    "a\u{202e}\u{2066}b\u{200f}",
    "a\u{2028}\u{2029}\u{200b}\u{feff}\u{e0041}b",
    "a\x7fb",
    "'; DROP TABLE locks; --\"`\\%_*?[x]{}$(id)",
];

/// What is printed has visible characters, and line ends, and tabs between the columns of a list.
#[track_caller]
fn is_harmless(ended: &Ended, lines: [usize; 2]) {
    for (text, lines) in [(&ended.out, lines[0]), (&ended.err, lines[1])] {
        for c in text.chars() {
            let visible = c.escape_debug().len() == 1 || matches!(c, '\'' | '"' | '\\' | '\n' | '\t');
            assert!(visible, "{c:?} in {ended:?}");
        }
        assert_eq!(text.lines().count(), lines, "{ended:?}");
    }
}

/// Runs the tool, which must end with this code and print so many lines.
#[track_caller]
fn run(lab: &Lab, args: &[&str], code: i32, lines: [usize; 2]) -> Ended {
    let ended = lab.run_in_time(args, code, &[]);
    assert_eq!(ended.code(), code, "{args:?}: {ended:?}");
    is_harmless(&ended, lines);
    ended
}

#[test]
fn names_labels_and_prefixes() {
    for evil in EVIL {
        let lab = Lab::new();
        let holder = lab.hold(evil, &["--label", evil]);
        run(&lab, &["-v", "run", evil, "--no-wait", "--", "true"], 75, [0, 2]);
        run(&lab, &["run", evil, "--wait", "300ms", "--", "true"], 124, [0, 1]);
        run(&lab, &["list"], 0, [2, 0]);
        run(&lab, &["list", "--prefix", evil], 0, [2, 0]);
        let shown = run(&lab, &["inspect", evil, "--json"], 0, [1, 0]).out;
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!((shown["name"].as_str(), shown["label"].as_str()), (Some(evil), Some(evil)), "{shown}");
        run(&lab, &["list", "--json"], 0, [1, 0]);
        let lines = run(&lab, &["inspect", "plain"], 0, [1, 0]).out.lines().count();
        assert_eq!(lines, 1);
        let full = lab.run(&["inspect", evil]);
        is_harmless(&full, [6, 0]);
        run(&lab, &["-v", "revoke", evil, "--token", "1"], 1, [0, 1]);
        run(&lab, &["-v", "revoke", evil, "--now"], 0, [0, 1]);
        drop(holder);
        let doctor = lab.run(&["doctor", "--name", evil]);
        is_harmless(&doctor, [doctor.out.lines().count(), 0]);
        run(&lab, &["doctor", "--name", evil, "--json"], 0, [1, 0]);
        // Nothing but the one name was ever touched.
        assert_eq!(lab.run(&["list"]).out, "");
    }
}

#[test]
fn what_the_library_says_of_itself() {
    for evil in EVIL {
        let lab = Lab::new();
        let mut tool = lab.tool(&["-vv", "--namespace", evil, "run", evil, "--label", evil, "--", "true"]);
        tool.env("NO_COLOR", "1");
        let ended = lab.spawn(tool).wait();
        assert_eq!(ended.code(), 0, "{ended:?}");
        is_harmless(&ended, [0, ended.err.lines().count()]);
        // A line starts with the tool's name, or with a time of the log.
        let is_whole = |line: &str| line.starts_with("distlock: ") || line.starts_with("20");
        let forged = ended.err.lines().find(|line| !is_whole(line) || line.starts_with("distlock: lock 'b'"));
        assert_eq!(forged, None, "{ended:?}");
    }
}

#[test]
fn settings() {
    for evil in EVIL {
        let lab = Lab::new();
        run(&lab, &["--namespace", evil, "config"], 0, [5, 0]);
        let shown = run(&lab, &["--namespace", evil, "config", "--json"], 0, [1, 0]).out;
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(shown["namespace"]["value"].as_str(), Some(evil));
        for args in [
            &["run", "x", "--ttl", evil, "--", "true"][..],
            &["run", "x", "--wait", evil, "--", "true"],
            &["--config", evil, "config"],
        ] {
            let ended = lab.run(args);
            assert!([64, 78].contains(&ended.code()), "{ended:?}");
            is_harmless(&ended, [0, 1]);
        }
        // The parser of the arguments has its own form, of several lines.
        for args in [
            &[evil][..],
            &["run", "x", "--kill-after", evil, "--", "true"],
            &["revoke", "x", "--token", evil],
            &["inspect", "x", evil],
        ] {
            let (ended, plain) = (
                lab.run(args),
                lab.run(&args.iter().map(|arg| if *arg == evil { "evil" } else { *arg }).collect::<Vec<_>>()),
            );
            assert_eq!(ended.code(), 64, "{ended:?}");
            is_harmless(&ended, [0, plain.err.lines().count()]);
        }
        for url in [
            format!("memory:?{evil}=1"),
            format!("{evil}://h/"),
            format!("redis://h/{evil}"),
            format!("sqlite:///{evil}/x?a=b"),
            format!("mysql://u@h/d?table={evil}"),
        ] {
            for command in [&["inspect", "x"][..], &["config"]] {
                let ended = lab.run(&[&["--url", &*url], command].concat());
                is_harmless(&ended, if command == ["config"] { [5, 0] } else { [0, 1] });
            }
        }
        std::fs::write(lab.path("config.toml"), format!("url = \"memory:\"\n'{}' = 3\n", evil.replace('\'', "")))
            .unwrap();
        let file = lab.path("config.toml");
        run(&lab, &["--config", file.to_str().unwrap(), "config"], 78, [0, 1]);
        let command = format!("no-{evil}");
        run(&lab, &["run", "x", "--", &command], 127, [0, 1]);
    }
}

/// Rows that another program wrote into the file of the locks: texts that mean harm, and numbers at the ends of their range.
#[test]
fn a_hostile_sqlite_file() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for (i, evil) in EVIL.iter().enumerate() {
        for number in [i64::MIN, -1, 0, i64::MAX] {
            let lab = Lab::new();
            let holder = lab.hold(&format!("n{i}"), &[]);
            runtime.block_on(async {
                let mut file = SqliteConnection::connect(lab.url()).await.unwrap();
                let changed = sqlx::query(
                    "UPDATE locks SET name = ?1, owner = ?2, label = ?2, since = ?3, token = ?3, expires = ?4",
                )
                .bind(evil.as_bytes())
                .bind(evil)
                .bind(number)
                .bind(i64::MAX)
                .execute(&mut file)
                .await;
                assert_eq!(changed.unwrap().rows_affected(), 1);
            });
            drop(holder);
            let full = lab.run(&["inspect", evil]);
            assert_eq!(full.code(), 0, "{full:?}");
            is_harmless(&full, [full.out.lines().count(), 0]);
            assert!((5..=7).contains(&full.out.lines().count()), "{full:?}");
            run(&lab, &["inspect", evil, "--json"], 0, [1, 0]);
            run(&lab, &["list"], 0, [2, 0]);
            run(&lab, &["list", "--json"], 0, [1, 0]);
            // No token is left above the greatest number, so that nothing more is granted.
            let full = number == i64::MAX;
            run(&lab, &["run", evil, "--no-wait", "--", "true"], if full { 70 } else { 75 }, [0, 1]);
            run(&lab, &["run", evil, "--wait", "300ms", "--", "true"], if full { 70 } else { 124 }, [0, 1]);
            assert_eq!(lab.run(&["revoke", evil, "--now"]).code(), 0);
        }
    }
}

/// The same in a server, as plain keys and as this library's own form with texts and numbers that are not.
#[test]
fn a_hostile_redis() {
    let server = Redis::start(&[]);
    let lab = Lab::at(server.url());
    for evil in EVIL {
        server.set(evil.as_bytes(), evil.as_bytes(), &["PX", "99999999999999"]);
        for (args, code, lines) in [
            (&["inspect", evil][..], 0, [4, 0]),
            (&["inspect", evil, "--json"], 0, [1, 0]),
            (&["list"], 0, [2, 0]),
            (&["list", "--json"], 0, [1, 0]),
            (&["run", evil, "--no-wait", "--", "true"], 75, [0, 1]),
            (&["-v", "revoke", evil, "--now"], 0, [0, 1]),
        ] {
            let ended = lab.run_in_time(args, code, &[]);
            assert_eq!(ended.code(), code, "{args:?}: {ended:?}");
            is_harmless(&ended, lines);
        }
    }
}
