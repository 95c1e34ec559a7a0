//! Two commands under one lock are never at work together, however the tools end.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::{BOUND, Lab, Running, lives, read, until};

/// Each command takes a file lock for as long as it lives, which the kernel frees with it; one that finds it taken has met another.
/// `9>&-` keeps the file lock from what the shell starts.
const WORK: &str = r#"
    exec 9>work.lock
    flock -n 9 || { echo overlap >>overlaps; exit 99; }
    echo $$ >>started
    i=0
    while [ $i -lt $ROUNDS ]; do sleep 0.02 9>&-; i=$((i+1)); done
"#;

/// Many rounds with several tools that end by themselves, by TERM or by kill -9, at random.
pub(crate) fn never(lab: &Lab, rounds: usize) {
    let mut seed = std::process::id() | 1;
    let mut random = move |below: u32| {
        // Numerical Recipes' generator is good enough to shuffle ends.
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) % below
    };
    let start = |length: u32| -> Running {
        let mut tool = lab.tool(&["run", "overlap", "--ttl", "400ms", "--", "sh", "-c", WORK]);
        tool.env("ROUNDS", length.to_string());
        lab.spawn(tool)
    };
    let begin = Instant::now();
    let started = || read(lab.path("started")).lines().count();
    let mut tools: Vec<Running> = (0..3).map(|_| start(random(6))).collect();
    for round in 0..rounds {
        let before = started();
        std::thread::sleep(Duration::from_millis(random(40).into()));
        let victim = random(3) as usize;
        match random(4) {
            0 => tools[victim].signal_if_alive(Signal::SIGKILL),
            1 => tools[victim].signal_if_alive(Signal::SIGTERM),
            _ => {}
        }
        for tool in &mut tools {
            if tool.is_over() {
                *tool = start(random(6));
            }
        }
        if round % 10 == 0 {
            until("the next command to start", || {
                for tool in &mut tools {
                    if tool.is_over() {
                        *tool = start(random(6));
                    }
                }
                started() > before
            });
        }
        assert_eq!(read(lab.path("overlaps")), "", "round {round}");
        assert!(begin.elapsed() < 4 * BOUND, "round {round}: too slow");
    }
    for tool in &mut tools {
        until("the last tools to end", || tool.is_over());
    }
    assert_eq!(read(lab.path("overlaps")), "");
    assert!(started() > rounds / 10, "only {} commands ran", started());
    let last = read(lab.path("started")).lines().last().unwrap().to_owned();
    until("the last command to end", || !lives(&last));
}

impl Running {
    fn signal_if_alive(&mut self, signal: Signal) {
        if !self.is_over() {
            self.signal(signal);
        }
    }
}
