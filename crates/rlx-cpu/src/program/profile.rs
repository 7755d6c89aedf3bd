//! Where the time of runs went: for who asks the executable, and printed at its end with `RLX_PROFILE`.

use std::io::Write;
use std::time::Duration;

use rlx_backend::{StepProfile, StepProfiler};

use super::exec::CpuExecutable;

impl StepProfiler for CpuExecutable {
    fn start(&mut self) {
        let graph = &self.program.lir.graph;
        let steps = self.program.steps.iter().map(|s| StepProfile::new(graph.label(s.node)));
        self.profile = Some(steps.collect());
    }

    fn stop(&mut self) {
        self.profile = None;
    }

    fn steps(&self) -> &[StepProfile] {
        self.profile.as_deref().unwrap_or_default()
    }
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
