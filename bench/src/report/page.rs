//! The page `performance.md`: definitions, tables, plots, and the part that is written by hand.

use std::fmt::Write;

use super::plots::Plot;
use super::{tables, targets};
use crate::results::{Measure, Results};

/// A chapter: its title, what is measured in words, and which plots belong to it.
struct Chapter {
    title: &'static str,
    words: &'static str,
    table: fn(&Results) -> String,
    plots: Option<Measure>,
}

const CHAPTERS: [Chapter; 9] = [
    Chapter {
        title: "Uncontended cycles",
        words: "As many tasks as names, each of which acquires and releases a name of its own without a pause. A *cycle* is one acquire and one \
release; cycles per second are counted from the first call to the last return, and the latency of a cycle is the time inside the two calls. The *raw floor* is \
the least that the same driver could send for it over as many connections: on Redis `SET NX PX` and a script that compares and deletes; on MySQL and SQLite the \
insertion and the deletion of a row, each a commit; on ZooKeeper the creation and the deletion of an ephemeral node; on etcd a put-if-absent on a lease that is there already and a \
compared delete; in memory a mutex of the runtime. It has no fencing token, no renewal, no queue and no notice of loss. The bold figure is the median of the ratios to \
the floor of the same round.",
        table: tables::uncontended,
        plots: Some(Measure::Uncontended),
    },
    Chapter {
        title: "Contended, in one process",
        words: "Tasks of one process that share one client and want the same name again and again. Each grant is held for 1 ms, measured by the kernel, since \
the timers of runtimes round that up to 2. Beside the grants per second stand the grants of the least and of the most often served task: that is the *fairness*.",
        table: |results| tables::contended(results, Measure::Contended, "waiters"),
        plots: Some(Measure::Contended),
    },
    Chapter {
        title: "Contended, in as many processes",
        words: "The same with one task in each of so many processes, so that every hand-over goes through the server.",
        table: |results| tables::contended(results, Measure::ContendedProcesses, "processes"),
        plots: None,
    },
    Chapter {
        title: "Hand-over",
        words: "Two clients that share nothing but the server hand one name to each other: who has released asks again only when the other one holds, and holds for \
5 ms, so the waiter is always idle. The *latency* runs from the call of release to the return of acquire in the waiter. A *round trip* is the median of the smallest \
question to the same server in the same run, asked one at a time: `PING` on Redis and MySQL, a look at the root on ZooKeeper, a linearizable read on etcd, a `SELECT` on SQLite.",
        table: tables::hand_over,
        plots: Some(Measure::HandOver),
    },
    Chapter {
        title: "Requests for each grant, waiters in one process",
        words: "What reaches the server while tasks of one process want the same name, held for 1 ms, divided by the grants, in the middle half of a run. On Redis each request is seen by `MONITOR`, without \
the commands that run inside scripts; on MySQL statements, on ZooKeeper packets and on etcd messages of gRPC are counted by the server.",
        table: |results| tables::requests(results, Measure::Requests, "waiters"),
        plots: Some(Measure::Requests),
    },
    Chapter {
        title: "Requests for each grant, waiters in as many processes",
        words: "The same with one task in each of so many processes.",
        table: |results| tables::requests(results, Measure::RequestsProcesses, "processes"),
        plots: None,
    },
    Chapter {
        title: "Held names",
        words: "One process takes so many names with the default TTL of 30 s and holds them. Requests are counted over a third of the TTL and a little more, connections are the \
process's own at the server, memory is what the process took up beyond an empty manager, tasks are those of its runtime.",
        table: tables::held,
        plots: Some(Measure::Held),
    },
    Chapter {
        title: "The command line, and instructions",
        words: "From the start of the process to its end, one after the other: `distlock run NAME -- true` on a SQLite file that is there, `true` alone, and `flock FILE true`. \
Instructions of one cycle on the memory backend are counted by valgrind's callgrind, as the difference between many and few cycles.",
        table: tables::alone,
        plots: None,
    },
    Chapter {
        title: "Left out",
        words: "What could not be measured in this run, and why.",
        table: left_out,
        plots: None,
    },
];

const INTRODUCTION: &str = "# Performance\n
Made by `cargo run --release --manifest-path bench/Cargo.toml`; only the last chapter is written by hand, in `performance/tried.md`. The figures are in \
`performance/results.json`.\n
All rows of a measure run in turns, several times, on the same servers, which run on the same machine. Figures are medians, in brackets the least and the greatest of all rounds; ratios are \
taken round by round, so a machine whose speed drifts does not decide. Peers are used as they come, with their defaults. Some of them do less: rslock, distributed-lock, redis-py, \
node-redlock and `GET_LOCK` know no fencing token and no order of arrival, and most do not tell a holder that it has lost the lock. distributed-lock does not wait on Redis; it is asked again every 10 ms.\n\n";

pub fn page(results: &Results, plots: &[Plot], tried: &str) -> String {
    let mut text = INTRODUCTION.to_owned();
    if results.quick {
        text.push_str("**A quick run: few and short rounds. It says whether all works, not how fast it is.**\n\n");
    }
    let facts: Vec<_> = results.machine.iter().map(|(name, value)| vec![name.clone(), value.clone()]).collect();
    let _ = write!(text, "## Targets\n\n{}\n", targets::table(results));
    let _ = write!(text, "## Measured on\n\n{}\n", tables::table(&["".into(), "".into()], &facts));
    for chapter in &CHAPTERS {
        let _ = write!(text, "## {}\n\n{}\n\n{}\n", chapter.title, chapter.words, (chapter.table)(results));
        for plot in plots.iter().filter(|plot| Some(plot.measure) == chapter.plots) {
            let _ = write!(text, "![{}](performance/{})\n\n", plot.title, plot.file);
        }
    }
    let _ = write!(text, "## What was tried and lost\n\n{}", if tried.is_empty() { "Nothing yet.\n" } else { tried });
    text
}

fn left_out(results: &Results) -> String {
    if results.left_out.is_empty() {
        return "Nothing.\n".into();
    }
    // The cause stands at the beginning of what a tool says.
    let short = |reason: &str| reason.replace('\n', " ").chars().take(300).collect::<String>();
    let line = |(name, reason): &(String, String)| format!("- {name}: {}\n", short(reason));
    results.left_out.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{Backend, Row};

    #[test]
    fn the_page_holds_all_chapters_and_what_was_written_by_hand() {
        let mut results = Results { quick: true, ..Results::default() };
        results.machine.push(("kernel".into(), "6.1".into()));
        results.add((Backend::Redis, Measure::Held, Row::Ours, 1), &[("requests", 0.1)]);
        results.left_out.push(("Curator (ZooKeeper)".into(), "not\ninstalled".into()));
        let plot = Plot { file: "held.svg".into(), title: "Held".into(), measure: Measure::Held };
        let text = page(&results, &[plot], "Spinning lost.\n");
        for chapter in &CHAPTERS {
            assert!(text.contains(&format!("## {}\n", chapter.title)));
        }
        for part in
            ["quick run", "| kernel | 6.1 |", "![Held](performance/held.svg)", "- Curator (ZooKeeper): not installed"]
        {
            assert!(text.contains(part), "no {part}");
        }
        assert!(text.ends_with("## What was tried and lost\n\nSpinning lost.\n"));
    }
}
