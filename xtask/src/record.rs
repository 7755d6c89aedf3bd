//! Results of the heavy suites: kept in `xtask/results.json`, shown in `docs/testing.md`, and compared with what they cover.
//!
//! A heavy suite does not run every time, so its last result is committed, with its date and a hash of the files it
//! covers. When those files change, the test command says that the result is older than what it covers.

use crate::outcome::Outcome;
use crate::root;
use crate::scores::Scores;
use crate::suites::{SUITES, Suite};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

const FILE: &str = "xtask/results.json";
const PAGE: &str = "docs/testing.md";
const BEGIN: &str = "<!-- results: made by `cargo xtask test` and `cargo xtask docs`, do not edit -->\n";
const END: &str = "<!-- end of results -->";

/// The last run of one suite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The day, in UTC.
    pub date: String,
    passed: u64,
    pub failed: u64,
    skipped: u64,
    seconds: u64,
    /// What else the suite says of what it did.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    detail: String,
    /// What holds on each device.
    #[serde(default, skip_serializing_if = "Scores::is_empty")]
    pub scores: Scores,
    /// Hash of the files the suite covers, as they were.
    covered: String,
}

/// The last run of each heavy suite, by its name.
pub type Records = BTreeMap<String, Record>;

/// Keeps what a heavy suite did, if it ran; whether there is a new record.
///
/// # Errors
/// A file that cannot be read or written.
pub fn keep(suite: &Suite, outcome: &Outcome, seconds: f64) -> Result<bool, String> {
    if !suite.heavy || outcome.passed + outcome.failed == 0 {
        return Ok(false);
    }
    let record = Record {
        date: time::OffsetDateTime::now_utc().date().to_string(),
        passed: outcome.passed,
        failed: outcome.failed,
        skipped: outcome.skipped(),
        seconds: seconds.round() as u64,
        detail: outcome.detail.clone(),
        scores: outcome.scores.clone(),
        covered: hash(suite.covers)?,
    };
    let mut records = read()?;
    records.insert(suite.name.to_owned(), record);
    let text = serde_json::to_string_pretty(&records).map_err(|e| e.to_string())?;
    write(FILE, &(text + "\n"))?;
    Ok(true)
}

/// Makes the table of the page again from the records.
///
/// # Errors
/// A file that cannot be read or written, or a page without the table's marks.
pub fn write_table() -> Result<(), String> {
    let page = read_file(PAGE)?;
    write(PAGE, &with_table(&page, &table(&read()?))?)
}

/// The heavy suites whose result is missing, failed, or older than the files it covers, each with why.
///
/// # Errors
/// Records that cannot be read.
pub fn stale() -> Result<Vec<String>, String> {
    let records = read()?;
    let mut found = Vec::new();
    for suite in SUITES.iter().filter(|s| s.heavy) {
        match records.get(suite.name) {
            None => found.push(format!("{}: never run as a suite", suite.name)),
            Some(r) if r.failed > 0 => {
                found.push(format!("{}: {} failed on {}", suite.name, r.failed, r.date));
            }
            Some(r) if r.covered != hash(suite.covers)? => {
                found.push(format!(
                    "{}: {} passed on {}, what it covers changed since",
                    suite.name, r.passed, r.date
                ));
            }
            Some(_) => {}
        }
    }
    Ok(found)
}

/// A hash over path and content of every file under `paths` that git tracks or would track.
fn hash(paths: &[&str]) -> Result<String, String> {
    let mut list = Command::new("git");
    list.args(["ls-files", "--cached", "--others", "--exclude-standard", "-z", "--"]).args(paths);
    let listed = list.current_dir(root()).output().map_err(|e| format!("git: {e}"))?;
    if !listed.status.success() {
        return Err(format!("git: {}", String::from_utf8_lossy(&listed.stderr)));
    }
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let mut names: Vec<&str> = text.split('\0').filter(|n| !n.is_empty()).collect();
    names.sort_unstable();
    names.dedup();
    let mut hasher = blake3::Hasher::new();
    for name in names {
        // A file deleted but not yet committed counts as one without content.
        let content = fs::read(root().join(name)).unwrap_or_default();
        hasher.update(name.as_bytes()).update(blake3::hash(&content).as_bytes());
    }
    Ok(hasher.finalize().to_hex()[..16].to_owned())
}

fn table(records: &Records) -> String {
    let mut table = String::from("| suite | what | date | result |\n|---|---|---|---|\n");
    for suite in SUITES.iter().filter(|s| s.heavy) {
        let (date, result) = match records.get(suite.name) {
            Some(r) => (r.date.as_str(), r.result()),
            None => ("–", "not yet run as a suite".to_owned()),
        };
        table.push_str(&format!("| `{}` | {} | {date} | {result} |\n", suite.name, suite.about));
    }
    table
}

impl Record {
    /// What it counted, in words.
    pub fn result(&self) -> String {
        let mut text = format!("{} passed", self.passed);
        for (n, what) in [(self.failed, "failed"), (self.skipped, "skipped")] {
            if n > 0 {
                text.push_str(&format!(", {n} {what}"));
            }
        }
        text.push_str(&format!(", {} s", self.seconds));
        if self.detail.is_empty() { text } else { format!("{text}: {}", self.detail) }
    }
}

/// The page with its table exchanged.
fn with_table(page: &str, table: &str) -> Result<String, String> {
    let missing = || format!("{PAGE} lacks the marks between which results stand");
    let start = page.find(BEGIN).ok_or_else(missing)? + BEGIN.len();
    let end = start + page[start..].find(END).ok_or_else(missing)?;
    Ok(format!("{}{table}{}", &page[..start], &page[end..]))
}

/// The committed records.
///
/// # Errors
/// A file that cannot be read.
pub fn read() -> Result<Records, String> {
    serde_json::from_str(&read_file(FILE)?).map_err(|e| format!("{FILE}: {e}"))
}

fn read_file(name: &str) -> Result<String, String> {
    fs::read_to_string(root().join(name)).map_err(|e| format!("{name}: {e}"))
}

fn write(name: &str, text: &str) -> Result<(), String> {
    fs::write(root().join(name), text).map_err(|e| format!("{name}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_table_says_what_the_records_say() {
        let page = read_file(PAGE).unwrap();
        let made = with_table(&page, &table(&read().unwrap())).unwrap();
        assert_eq!(page, made, "run `cargo xtask docs`");
    }

    #[test]
    fn every_record_is_of_a_heavy_suite_that_covers_files() {
        let records = read().unwrap();
        for name in records.keys() {
            assert!(SUITES.iter().any(|s| s.heavy && s.name == name), "{name} is no heavy suite");
        }
        for suite in SUITES.iter().filter(|s| s.heavy) {
            let nothing = hash(&["no/such/folder"]).unwrap();
            for path in suite.covers {
                assert_ne!(hash(&[path]).unwrap(), nothing, "{}: nothing is at {path}", suite.name);
            }
            assert!(!suite.covers.is_empty(), "{} covers nothing", suite.name);
        }
    }

    #[test]
    fn a_suite_without_a_record_is_stale_and_the_table_says_so() {
        let text = table(&Records::new());
        assert!(text.contains("not yet run as a suite"));
        let record = Record {
            date: "2026-01-02".into(),
            passed: 3,
            failed: 1,
            skipped: 0,
            seconds: 9,
            scores: Scores::new(),
            detail: String::new(),
            covered: String::new(),
        };
        assert_eq!(record.result(), "3 passed, 1 failed, 9 s");
        let detail = "1000000 executions in 8 s".into();
        assert_eq!(
            Record { detail, ..record }.result(),
            "3 passed, 1 failed, 9 s: 1000000 executions in 8 s"
        );
    }
}
