//! The times of steps, from notes of a device's clock.

use std::time::Duration;

use rlx_backend::StepProfile;

/// Adds what steps took. `notes` has two for each step, before and behind it, in ticks of `nanos` nanoseconds; `ran` says which steps did anything.
pub fn add_times(notes: &[u64], nanos: f64, ran: &[bool], times: &mut [StepProfile]) {
    let took = |from: u64, to: u64| Duration::from_nanos((to.saturating_sub(from) as f64 * nanos) as u64);
    let first = ran.iter().position(|&ran| ran).map_or(0, |i| notes[2 * i]);
    for (i, time) in times.iter_mut().enumerate().filter(|(i, _)| ran.get(*i) == Some(&true)) {
        let [began, ended] = [notes[2 * i], notes[2 * i + 1]];
        time.add(took(first, began), took(began, ended));
    }
}
