//! Runs the chosen suites and prints the table, the skips, and the closing line.

use crate::outcome::Outcome;
use crate::suites::Suite;
use crate::{devices, record};
use std::io::Write;
use std::time::Instant;

/// `--list`: the table of suites.
pub fn list(suites: &[Suite]) {
    for suite in suites {
        let kind = if suite.heavy { "  (with --all)" } else { "" };
        println!("{:<19} {:>5} s  {}{kind}", suite.name, suite.budget_s, suite.about);
    }
}

/// Runs them one after the other; true when nothing failed, and they took no longer than their budgets together.
///
/// The sum is what is promised. A single suite over its budget is shown in its row: on a machine that does other work as well, one
/// suite is slow at times while the others are not. One that takes twice its budget has failed.
pub fn run_all(suites: &[&Suite]) -> bool {
    println!(
        "{:<19} {:>7} {:>7} {:>7} {:>9} {:>7}  result",
        "suite", "passed", "failed", "skipped", "time", "budget"
    );
    let mut total = Outcome::default();
    let mut failed_suites = Vec::new();
    let begin = Instant::now();
    for suite in suites {
        print!("{:<19} ", suite.name);
        let _ = std::io::stdout().flush();
        let start = Instant::now();
        let mut outcome = suite.run();
        let seconds = start.elapsed().as_secs_f64();
        if let Some(late) = far_over_budget(suite, seconds).filter(|_| outcome.failed == 0) {
            outcome.add(Outcome::fail(late));
        }
        print_row(suite, &outcome, seconds);
        if let Err(e) = keep(suite, &outcome, seconds) {
            println!("the result is not recorded: {e}");
        }
        if outcome.failed > 0 {
            failed_suites.push((suite.name, outcome.notes.clone()));
        }
        outcome.skips =
            outcome.skips.into_iter().map(|(n, why)| (n, format!("{}: {why}", suite.name))).collect();
        total.add(outcome);
    }
    for (name, notes) in &failed_suites {
        println!("\n── {name} failed (whole output: target/xtask/{name}.log)");
        notes.iter().for_each(|note| println!("{note}"));
    }
    if !total.skips.is_empty() {
        println!("\nskipped:");
        total.skips.iter().for_each(|(n, why)| println!("{n:>6}  {why}"));
    }
    print_stale();
    if let Some(late) = over_budget(suites, begin.elapsed().as_secs_f64()) {
        println!("\n{late}");
        total.failed += 1;
    }
    println!("\n{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped());
    total.failed == 0
}

/// What to say where a suite took more than twice its budget.
fn far_over_budget(suite: &Suite, seconds: f64) -> Option<String> {
    let budget = suite.budget_s;
    (seconds > 2.0 * budget as f64).then(|| format!("{seconds:.0} s, more than twice {budget} s"))
}

/// What to say where all suites together took longer than their budgets.
fn over_budget(suites: &[&Suite], seconds: f64) -> Option<String> {
    let budget: u64 = suites.iter().map(|s| s.budget_s).sum();
    (seconds > budget as f64).then(|| format!("over budget: {seconds:.0} s of {budget} s"))
}

/// Old results of heavy suites are said, and fail nothing.
fn print_stale() {
    match record::stale() {
        Ok(stale) if stale.is_empty() => {}
        Ok(stale) => {
            println!("\nheavy suites to run again (cargo xtask test --suite NAME):");
            stale.iter().for_each(|line| println!("        {line}"));
        }
        Err(e) => println!("\nresults of heavy suites: {e}"),
    }
}

fn print_row(suite: &Suite, outcome: &Outcome, seconds: f64) {
    let result = result(outcome, seconds > suite.budget_s as f64);
    let (passed, failed, skipped) = (outcome.passed, outcome.failed, outcome.skipped());
    println!("{passed:>7} {failed:>7} {skipped:>7} {seconds:>7.1} s {:>5} s  {result}", suite.budget_s);
}

fn result(outcome: &Outcome, late: bool) -> &'static str {
    match outcome {
        o if o.failed > 0 => "FAILED",
        _ if late => "over budget",
        o if o.passed == 0 => "skipped",
        _ => "ok",
    }
}

/// Keeps the result of a heavy suite, and makes the pages that show it again.
fn keep(suite: &Suite, outcome: &Outcome, seconds: f64) -> Result<(), String> {
    if record::keep(suite, outcome, seconds)? {
        record::write_table()?;
        devices::write()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::SUITES;

    #[test]
    fn suites_are_over_budget_together() {
        let (first, second) = (&SUITES[0], &SUITES[1]);
        let both = (first.budget_s + second.budget_s) as f64;
        assert_eq!(over_budget(&[first, second], both - 1.0), None);
        assert!(
            over_budget(&[first, second], both + 1.0).is_some_and(|late| late.starts_with("over budget"))
        );
        assert!(over_budget(&[first], both).is_some());
    }

    #[test]
    fn a_suite_fails_from_twice_its_budget() {
        let twice = 2.0 * SUITES[0].budget_s as f64;
        assert_eq!(far_over_budget(&SUITES[0], twice), None);
        assert!(far_over_budget(&SUITES[0], twice + 1.0).is_some_and(|late| late.contains("twice")));
    }

    #[test]
    fn a_row_says_that_a_suite_was_late() {
        assert_eq!(result(&Outcome::pass(), false), "ok");
        assert_eq!(result(&Outcome::pass(), true), "over budget");
        assert_eq!(result(&Outcome::fail("x"), true), "FAILED");
    }
}
