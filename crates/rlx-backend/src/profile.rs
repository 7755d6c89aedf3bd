//! Where a run's time goes: what an executable offers that can time its steps.
//!
//! A device without it says so: there is no profile of zeros. Measuring is off until [`StepProfiler::start`], since reading the
//! clock costs more than a short step, and an executable that does not measure must not pay for it.

use std::io::Write;
use std::time::Duration;

/// How long one step took, over some runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepProfile {
    /// The nodes of the model that it computes, as [`rlx_ir::Graph::label`] calls them.
    pub name: String,
    /// How often it ran.
    pub runs: u64,
    /// The sum of all runs.
    pub total: Duration,
    /// The shortest run.
    pub least: Duration,
    /// When the step began in the last run, from the run's first step on.
    pub began: Duration,
    /// How long the last run took.
    pub last: Duration,
}

impl StepProfile {
    /// Of a step that has not run.
    pub fn new(name: impl Into<String>) -> Self {
        let (total, began, last) = Default::default();
        StepProfile { name: name.into(), runs: 0, total, least: Duration::MAX, began, last }
    }

    /// Counts a run.
    pub fn add(&mut self, began: Duration, took: Duration) {
        self.runs += 1;
        self.total += took;
        self.least = self.least.min(took);
        (self.began, self.last) = (began, took);
    }

    /// The mean of all runs.
    pub fn mean(&self) -> Duration {
        self.total.checked_div(u32::try_from(self.runs).unwrap_or(u32::MAX)).unwrap_or_default()
    }
}

/// An executable that can time its steps.
pub trait StepProfiler {
    /// Starts measuring, and forgets what was measured before.
    fn start(&mut self);

    /// Stops measuring, and forgets.
    fn stop(&mut self);

    /// The times since measuring began, one for each of [`rlx_ir::LirModule::steps`] in their order; empty when it is off.
    fn steps(&self) -> &[StepProfile];
}

/// Whether `RLX_PROFILE` asks for the steps' times.
pub(crate) fn profiling_asked() -> bool {
    std::env::var_os("RLX_PROFILE").is_some_and(|v| !v.is_empty() && v != "0")
}

/// Prints the steps that ran, the longest first.
pub(crate) fn report(name: &str, steps: &[StepProfile]) {
    let mut ran: Vec<&StepProfile> = steps.iter().filter(|s| s.runs > 0).collect();
    ran.sort_by_key(|s| std::cmp::Reverse(s.least));
    let all: Duration = ran.iter().map(|s| s.least).sum();
    let (mut out, count) = (std::io::stderr().lock(), ran.len());
    // Where no one can read it, the run goes on.
    let _ =
        writeln!(out, "{name}: {count} steps, {:.1} µs as the sum of each step's shortest run", micros(all));
    for step in ran {
        let mean = micros(step.mean());
        let _ = writeln!(out, "{:>10.2} µs smallest {mean:>10.2} µs mean  {}", micros(step.least), step.name);
    }
}

fn micros(d: Duration) -> f64 {
    d.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_up() {
        let mut step = StepProfile::new("%1 MatMul");
        assert_eq!(step.mean(), Duration::ZERO);
        for (began, took) in [(5, 30), (7, 10), (6, 20)] {
            step.add(Duration::from_micros(began), Duration::from_micros(took));
        }
        let micros = |n| Duration::from_micros(n);
        assert_eq!((step.runs, step.total, step.least, step.mean()), (3, micros(60), micros(10), micros(20)));
        assert_eq!((step.began, step.last), (micros(6), micros(20)));
    }
}
