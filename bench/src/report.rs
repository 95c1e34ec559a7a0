//! From the results to what people read: a summary on the terminal, and files.

mod page;
mod plots;
mod tables;
mod targets;

use std::fs;
use std::path::Path;

use conformance_tests::Stop;

use crate::results::Results;

const RESULTS: &str = "performance/results.json";
/// Written by hand, and put into the page as it is.
const TRIED: &str = "performance/tried.md";

/// Targets and main tables, for the terminal.
pub fn summary(results: &Results) -> String {
    format!("{}\n{}", targets::table(results), tables::uncontended(results))
}

/// Writes all files below a folder.
pub fn write(results: &Results, out: &Path) -> Result<(), Stop> {
    fs::create_dir_all(out.join("performance"))?;
    fs::write(out.join(RESULTS), serde_json::to_string(results)? + "\n")?;
    let plots = plots::draw(results, &out.join("performance"))?;
    let tried = fs::read_to_string(out.join(TRIED)).unwrap_or_default();
    fs::write(out.join("performance.md"), page::page(results, &plots, &tried))?;
    Ok(())
}

/// The same from the results of an earlier run.
pub fn write_again(out: &Path) -> Result<(), Stop> {
    let path = out.join(RESULTS);
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}; run the bench first", path.display()))?;
    write(&serde_json::from_str(&text)?, out)
}
