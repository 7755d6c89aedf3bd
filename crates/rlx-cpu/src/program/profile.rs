//! Where the time of runs went: `RLX_PROFILE`.

use std::time::Duration;

use rlx_backend::StepProfile;

/// Whether `RLX_PROFILE` asks for the steps' times.
pub(crate) fn profiling_asked() -> bool {
    std::env::var_os("RLX_PROFILE").is_some_and(|v| !v.is_empty() && v != "0")
}

/// Prints the steps that ran, the longest first.
pub(crate) fn report(name: &str, steps: &[StepProfile]) {
    let mut ran: Vec<&StepProfile> = steps.iter().filter(|s| s.runs > 0).collect();
    ran.sort_by_key(|s| std::cmp::Reverse(s.least));
    let all: Duration = ran.iter().map(|s| s.least).sum();
    eprintln!("{name}: {} steps, {:.1} µs as the sum of each step's shortest run", ran.len(), micros(all));
    for step in ran {
        let mean = micros(step.total) / step.runs as f64;
        eprintln!("{:>10.2} µs least {mean:>10.2} µs mean  {}", micros(step.least), step.name);
    }
}

fn micros(d: Duration) -> f64 {
    d.as_secs_f64() * 1e6
}
