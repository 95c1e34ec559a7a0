//! The folder with all of a run: histories, faults, verdict, picture.

use std::path::Path;

use super::record::Record;
pub use super::timeline::draw as timeline;
use super::verdict::Verdict;
use crate::Stop;

/// Writes it; what was there under the same names is replaced.
///
/// # Errors
/// What the operating system says.
pub fn write(folder: &Path, histories: &Path, record: &Record, verdict: &Verdict) -> Result<(), Stop> {
    std::fs::create_dir_all(folder)?;
    for entry in std::fs::read_dir(histories)? {
        let entry = entry?;
        std::fs::copy(entry.path(), folder.join(entry.file_name()))?;
    }
    std::fs::write(folder.join("faults.json"), serde_json::to_string_pretty(&record.faults)?)?;
    std::fs::write(folder.join("register.json"), serde_json::to_string(&record.writes)?)?;
    std::fs::write(folder.join("verdict.json"), serde_json::to_string_pretty(&verdict.to_json())?)?;
    std::fs::write(folder.join("verdict.txt"), format!("{verdict}\n"))?;
    std::fs::write(folder.join("timeline.svg"), timeline(record, &verdict.findings))?;
    Ok(())
}
