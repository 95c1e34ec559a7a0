//! Instructions of a cycle on the memory backend, counted by valgrind, so that no other load on the machine changes them.

use std::path::Path;
use std::process::Command;

use conformance_tests::{Stop, ensure};

use crate::pace::Pace;
use crate::results::Results;
use crate::rows::Row;

/// Cycles of the run that is taken off, since it has all that the start costs.
const FEW: u64 = 200;

/// With the program of `cycles/`.
pub fn run(cycles: &Path, pace: &Pace, results: &mut Results) {
    for row in [Row::Ours, Row::OwnThread] {
        let many = FEW + pace.instructions;
        let few = counted(cycles, row, FEW);
        let each = few.and_then(|few| Ok((counted(cycles, row, many)? - few) as f64 / (many - FEW) as f64));
        let name = format!("instructions, {}", row.label());
        match each {
            Ok(each) => results.alone.entry(name).or_default().push(each),
            Err(stop) => results.left_out.push((name, format!("{stop:?}"))),
        }
    }
}

fn counted(program: &Path, row: Row, cycles: u64) -> Result<u64, Stop> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program);
    let output = valgrind.args([row.argument(), cycles.to_string()]).output();
    let output = output.map_err(|_| "valgrind is not installed; on Debian: apt-get install valgrind")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "under valgrind: {said}");
    Ok(collected(&said).ok_or_else(|| format!("valgrind did not say how many instructions: {said}"))?)
}

/// `==7== Collected : 1234`
fn collected(said: &str) -> Option<u64> {
    let line = said.lines().find(|line| line.contains("Collected :"))?;
    line.split_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_sum_is_found() {
        let said = "==7== \n==7== Events    : Ir\n==7== Collected : 123456\n==7== \n";
        assert_eq!(super::collected(said), Some(123_456));
        assert_eq!(super::collected("==7== Killed"), None);
    }
}
