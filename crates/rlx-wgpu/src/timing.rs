//! How long the steps of a run take on the device.
//!
//! The device notes its clock before and behind each step. A step is then a compute pass of its own, so a run that is timed takes a little longer than
//! one that is not, and the host waits for it.

use rlx_backend::StepProfile;
use rlx_gpu::timing::add_times;
use rlx_gpu::{Buffer, HostMemory};
use rlx_ir::Result;

use crate::gpu::Gpu;
use crate::memory::Readback;

/// Steps whose times are in one query set: as many as it may have, two notes for each.
const STEPS: usize = wgpu::QUERY_SET_MAX_QUERIES as usize / 2;
/// Bytes of a note.
const NOTE: usize = 8;

/// Notes of the clock for some steps.
pub(crate) struct Timer {
    sets: Vec<wgpu::QuerySet>,
    steps: usize,
    notes: Buffer<Gpu>,
    back: Readback,
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
        let (bytes, usage) =
            (2 * NOTE * steps, wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC);
        let notes = Buffer::by(gpu, bytes, "times", |bytes, what| gpu.create(bytes, usage, what))?;
        Ok(Timer { sets, steps, notes, back: Readback::new(gpu, bytes)? })
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
            encoder.resolve_query_set(set, 0..2 * steps as u32, self.notes.memory(), at);
        }
        let (notes, back) = (self.notes.memory(), self.back.buffer.memory());
        encoder.copy_buffer_to_buffer(notes, 0, back, 0, self.notes.size() as u64);
    }

    /// Waits for the run, and adds what its steps took; `ran` says which of them did anything.
    ///
    /// # Errors
    /// A fault of the device.
    pub(crate) fn add_to(
        mut self,
        gpu: &Gpu,
        after: wgpu::SubmissionIndex,
        ran: &[bool],
        times: &mut [StepProfile],
    ) -> Result<()> {
        let bytes = 2 * NOTE * self.steps;
        self.back.map(gpu, bytes, after)?;
        self.back.wait(gpu)?;
        let mut notes = vec![0; 2 * self.steps];
        self.back.copy(gpu, 0, bytemuck::cast_slice_mut(&mut notes))?;
        add_times(&notes, f64::from(gpu.queue.get_timestamp_period()), ran, times);
        Ok(())
    }
}
