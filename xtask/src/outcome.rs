//! What a suite did, read from what its runner printed.
//!
//! Counts come from the runner's own summary lines. A test that is itself a suite of cases (the ONNX node
//! cases, random graphs, model goldens) prints its own counts, which are then used instead:
//!
//! ```text
//! @counts passed=812 failed=0
//! @skip 841 cases whose op is not built
//! ```
//! The `@skip` lines stand alone as well: a test that lacks its data prints one and returns.

use crate::scores::{self, Scores};

/// Counts of one suite, with the reasons for what it skipped and what went wrong.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub passed: u64,
    pub failed: u64,
    /// How many, and why: every skip is named in the report.
    pub skips: Vec<(u64, String)>,
    /// Said below the table when the suite failed.
    pub notes: Vec<String>,
    /// What a suite without tests did, kept with its result: so many executions.
    pub detail: String,
    /// What holds on each device, kept with its result.
    pub scores: Scores,
}

impl Outcome {
    pub fn pass() -> Self {
        Outcome { passed: 1, ..Self::default() }
    }

    pub fn fail(note: impl Into<String>) -> Self {
        Outcome { failed: 1, notes: vec![note.into()], ..Self::default() }
    }

    pub fn skip(reason: impl Into<String>) -> Self {
        Outcome { skips: vec![(1, reason.into())], ..Self::default() }
    }

    pub fn skipped(&self) -> u64 {
        self.skips.iter().map(|(n, _)| n).sum()
    }

    pub fn add(&mut self, other: Outcome) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skips.extend(other.skips);
        self.notes.extend(other.notes);
        self.detail.push_str(&other.detail);
        scores::add(&mut self.scores, &other.scores);
    }

    /// Counts what passed as tests of the public contract on a device.
    pub fn of_contract(mut self, device: &str) -> Outcome {
        self.scores.entry(device.to_owned()).or_default().contract += self.passed;
        self
    }

    /// Reads what `cargo test`, a test binary or `cargo nextest` printed.
    pub fn read(output: &str) -> Outcome {
        let mut runner = Outcome { scores: scores::read(output), ..Outcome::default() };
        let mut own: Option<Outcome> = None;
        let mut summary: Option<(u64, u64)> = None;
        for line in output.lines() {
            let line = line.trim();
            if let Some(rest) = line.strip_prefix("test result: ") {
                runner.passed += count_before(rest, " passed");
                runner.failed += count_before(rest, " failed");
            } else if line.starts_with("Summary [") {
                let (passed, failed) = summary.get_or_insert_default();
                *passed += count_before(line, " passed");
                *failed += count_before(line, " failed") + count_before(line, " timed out");
            } else if let Some(rest) = line.strip_prefix("@counts ") {
                let own = own.get_or_insert_default();
                own.passed += value_of(rest, "passed=");
                own.failed += value_of(rest, "failed=");
            } else if let Some(rest) = line.strip_prefix("@skip ") {
                let (count, reason) = rest.split_once(' ').unwrap_or((rest, "no reason given"));
                runner.skips.push((count.parse().unwrap_or(1), reason.to_owned()));
            } else if let Some(name) = ignored_test(line) {
                runner.skips.push((1, name));
            }
        }
        if let Some((passed, failed)) = summary {
            // It shows what failing tests printed, their own results among it.
            (runner.passed, runner.failed) = (passed, failed);
        }
        if let Some(own) = own {
            // The test function around the cases fails when a case does: count the cases, not the function.
            runner.failed = if own.failed > 0 { own.failed } else { runner.failed };
            runner.passed = own.passed;
        }
        runner
    }
}

/// `test name ... ignored, reason` and nextest's `SKIP [ ] crate name`.
fn ignored_test(line: &str) -> Option<String> {
    if let Some(rest) = line.strip_prefix("test ") {
        let (name, state) = rest.split_once(" ... ")?;
        return state.starts_with("ignored").then(|| format!("{name}: {state}"));
    }
    let rest = line.strip_prefix("SKIP [")?;
    Some(format!("{}: ignored", rest.split_once(']')?.1.trim()))
}

/// The number that stands just before `word` (0 when it does not occur).
fn count_before(text: &str, word: &str) -> u64 {
    let Some(end) = text.find(word) else { return 0 };
    let digits = text[..end].rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or("");
    digits.parse().unwrap_or(0)
}

fn value_of(text: &str, key: &str) -> u64 {
    text.split_whitespace().find_map(|word| word.strip_prefix(key)?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_cargo_test_results_and_names_ignored_tests() {
        let out = Outcome::read(
            "test a ... ok\ntest b::c ... ignored, needs a GPU\n\
             test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
             test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
        );
        assert_eq!((out.passed, out.failed), (5, 1));
        assert_eq!(out.skips, [(1, "b::c: ignored, needs a GPU".to_owned())]);
    }

    #[test]
    fn reads_nextest_summaries() {
        let out = Outcome::read(
            "     Summary [   0.2s] 14 tests run: 12 passed, 1 failed, 1 timed out, 3 skipped\n",
        );
        assert_eq!((out.passed, out.failed), (12, 2));
    }

    #[test]
    fn what_a_failing_test_printed_is_not_counted_beside_the_summary() {
        let out = Outcome::read(
            "test result: FAILED. 0 passed; 1 failed; 0 ignored\n\
             Summary [   0.2s] 3 tests run: 2 passed, 1 failed, 0 skipped\n",
        );
        assert_eq!((out.passed, out.failed), (2, 1));
    }

    #[test]
    fn cases_counted_by_the_test_itself_replace_the_function_count() {
        let out = Outcome::read(
            "@counts passed=10 failed=2\n@skip 5 cases whose op is not built\n\
             test result: FAILED. 0 passed; 1 failed; 0 ignored\n",
        );
        assert_eq!((out.passed, out.failed, out.skipped()), (10, 2, 5));
    }

    #[test]
    fn a_failing_function_is_not_hidden_by_cases_that_all_passed() {
        let out = Outcome::read("@counts passed=10 failed=0\ntest result: FAILED. 0 passed; 1 failed\n");
        assert_eq!((out.passed, out.failed), (10, 1));
    }
}
