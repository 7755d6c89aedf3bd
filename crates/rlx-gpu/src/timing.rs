//! The times of steps, from notes of a device's clock.

use std::time::Duration;

use rlx_backend::StepProfile;
use rlx_ir::Result;

use crate::api::{GpuApi, Times, Usage};
use crate::memory::Buffer;

/// Bytes of the notes of a step.
const NOTES: usize = 2 * size_of::<u64>();

/// What the device notes during one run.
pub(crate) struct Timer<G: GpuApi> {
    notes: Buffer<G>,
    busy: Vec<bool>,
    tick: f64,
}

impl<G: GpuApi> Timer<G> {
    /// For steps of which these do anything; `None` where none does, or there is no clock.
    ///
    /// # Errors
    /// Memory that cannot be had.
    pub(crate) fn new(gpu: &G, busy: Vec<bool>) -> Result<Option<Self>> {
        let Some(tick) = gpu.tick().filter(|_| busy.contains(&true)) else { return Ok(None) };
        let notes = Buffer::new(gpu, NOTES * busy.len(), Usage::Times, "times")?;
        Ok(Some(Timer { notes, busy, tick }))
    }

    /// What is submitted with the run.
    pub(crate) fn times(&self) -> Times<'_, G> {
        Times { notes: self.notes.memory(), busy: &self.busy }
    }

    /// Waits for the run, and adds what its steps took.
    ///
    /// # Errors
    /// Memory that cannot be had, or a fault of the device.
    pub(crate) fn add_to(&self, gpu: &G, times: &mut [StepProfile]) -> Result<()> {
        let notes = self.notes.read(gpu, NOTES * self.busy.len())?;
        let (notes, _) = notes.as_chunks();
        let notes: Vec<u64> = notes.iter().map(|&note| u64::from_ne_bytes(note)).collect();
        add_times(&notes, self.tick, &self.busy, times);
        Ok(())
    }
}

/// Adds what steps took. `notes` has two for each step, before and behind it, in ticks of `nanos` nanoseconds; `ran` says which of them did anything.
fn add_times(notes: &[u64], nanos: f64, ran: &[bool], times: &mut [StepProfile]) {
    let took = |from: u64, to: u64| Duration::from_nanos((to.saturating_sub(from) as f64 * nanos) as u64);
    let first = ran.iter().position(|&ran| ran).map_or(0, |i| notes[2 * i]);
    for (i, time) in times.iter_mut().enumerate().filter(|(i, _)| ran.get(*i) == Some(&true)) {
        let [began, ended] = [notes[2 * i], notes[2 * i + 1]];
        time.add(took(first, began), took(began, ended));
    }
}
