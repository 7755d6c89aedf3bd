//! How long the steps of a run take on the device.
//!
//! The device notes its clock before and behind each step. A step is then a compute pass of its own, so a run that is timed takes a little longer than
//! one that is not, and the host waits for it.

use std::ops::Range;
use std::time::Duration;

use rlx_backend::StepProfile;
use rlx_ir::Result;

use crate::gpu::Gpu;
use crate::memory::{DeviceBuffer, Mapping};

/// Steps whose times are in one query set: as many as it may have, two notes for each.
const STEPS: usize = wgpu::QUERY_SET_MAX_QUERIES as usize / 2;
/// Bytes of a note.
const NOTE: usize = 8;

/// Notes of the clock for some steps.
pub(crate) struct Timer {
    sets: Vec<wgpu::QuerySet>,
    steps: usize,
    notes: DeviceBuffer,
    back: DeviceBuffer,
}

impl Gpu {
    /// Whether the device has a clock for [`Timer`].
    pub(crate) fn has_clock(&self) -> bool {
        self.device.features().contains(wgpu::Features::TIMESTAMP_QUERY)
    }
}

impl Timer {
    /// Room for the notes of so many steps.
    ///
    /// # Errors
    /// Memory that cannot be had.
    pub(crate) fn new(gpu: &Gpu, steps: usize) -> Result<Timer> {
        let sizes = (0..steps).step_by(STEPS).map(|from| 2 * (steps - from).min(STEPS) as u32);
        let sets = gpu.checked(&|| "timing the steps".to_string(), || {
            let ty = wgpu::QueryType::Timestamp;
            sizes
                .map(|count| {
                    gpu.device.create_query_set(&wgpu::QuerySetDescriptor { label: None, ty, count })
                })
                .collect()
        })?;
        let bytes = (2 * NOTE * steps) as u64;
        let (notes, back) = (DeviceBuffer::queries(gpu, bytes)?, DeviceBuffer::readback(gpu, bytes)?);
        Ok(Timer { sets, steps, notes, back })
    }

    /// The pass of a step.
    pub(crate) fn pass<'e>(
        &self,
        encoder: &'e mut wgpu::CommandEncoder,
        step: usize,
    ) -> wgpu::ComputePass<'e> {
        let first = 2 * (step % STEPS) as u32;
        encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
            label: None,
            timestamp_writes: Some(wgpu::ComputePassTimestampWrites {
                query_set: &self.sets[step / STEPS],
                beginning_of_pass_write_index: Some(first),
                end_of_pass_write_index: Some(first + 1),
            }),
        })
    }

    /// Copies the notes to where the host can read them.
    pub(crate) fn collect(&self, encoder: &mut wgpu::CommandEncoder) {
        for (i, set) in self.sets.iter().enumerate() {
            let steps = (self.steps - i * STEPS).min(STEPS);
            let at = (2 * NOTE * i * STEPS) as u64;
            encoder.resolve_query_set(set, 0..2 * steps as u32, &self.notes.raw, at);
        }
        encoder.copy_buffer_to_buffer(&self.notes.raw, 0, &self.back.raw, 0, self.back.len());
    }

    /// Waits for the run, and adds what its steps took; `ran` says which of them did anything.
    ///
    /// # Errors
    /// A fault of the device.
    pub(crate) fn add_to(
        &self,
        gpu: &Gpu,
        after: wgpu::SubmissionIndex,
        ran: &[bool],
        times: &mut [StepProfile],
    ) -> Result<()> {
        let bytes = 2 * NOTE * self.steps;
        let mapping: Mapping = self.back.map(gpu, bytes, after)?;
        mapping.wait(gpu)?;
        let mut notes = vec![0; 2 * self.steps];
        mapping.copy(gpu, 0, bytemuck::cast_slice_mut(&mut notes))?;
        let nanos = f64::from(gpu.queue.get_timestamp_period());
        let took = |from: u64, to: u64| Duration::from_nanos((to.saturating_sub(from) as f64 * nanos) as u64);
        let first = ran.iter().position(|&ran| ran).map_or(0, |i| notes[2 * i]);
        for (i, time) in times.iter_mut().enumerate().filter(|(i, _)| ran.get(*i) == Some(&true)) {
            let [began, ended] = [notes[2 * i], notes[2 * i + 1]];
            time.add(took(first, began), took(began, ended));
        }
        Ok(())
    }
}

/// Which steps have dispatches with workgroups.
pub(crate) fn busy(
    steps: impl Iterator<Item = Range<usize>>,
    grids: &[rlx_gpu::dispatch::Grid],
) -> Vec<bool> {
    steps.map(|dispatches| grids[dispatches].iter().any(Option::is_some)).collect()
}
