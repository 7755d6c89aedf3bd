//! Runs: bind groups, and the one submission of a run with the copies of what comes back.

use std::ops::Range;

use rlx_gpu::dispatch::{Bound, FAULT_BYTES};
use rlx_gpu::memory::whole_words;
use rlx_gpu::{Back, Bindings, Submission};
use rlx_ir::Result;

use crate::gpu::Gpu;
use crate::memory;
use crate::pipeline::Pipeline;
use crate::timing::Timer;

impl Gpu {
    /// The bind groups of all dispatches.
    ///
    /// # Errors
    /// A buffer without memory, or what the driver reports.
    pub(crate) fn groups(&self, bindings: &Bindings<'_, Gpu>) -> Result<Vec<wgpu::BindGroup>> {
        let mut lists = Vec::with_capacity(bindings.bound.grids.len());
        for (at, dispatch) in bindings.bound.dispatches().enumerate() {
            lists.push((&dispatch.code.layout, bindings.ranges(self, at, dispatch, |range| range)?));
        }
        self.checked(&|| "binding buffers".to_string(), || {
            let group = |(layout, ranges): &(&wgpu::BindGroupLayout, Vec<&memory::Range>)| {
                let entries: Vec<_> = ranges.iter().enumerate().map(|(i, r)| r.entry(i as u32)).collect();
                let description = wgpu::BindGroupDescriptor { label: None, layout, entries: &entries };
                self.device.create_bind_group(&description)
            };
            lists.iter().map(group).collect()
        })
    }

    /// Submits the dispatches and then the copies of what comes back; the fault record is cleared first. Where the steps' times are
    /// asked for, it waits for them.
    ///
    /// # Errors
    /// What the driver reports.
    pub(crate) fn run(&self, groups: &[wgpu::BindGroup], work: Submission<'_, Gpu>) -> Result<()> {
        let Submission { name, bindings: Bindings { bound, faults, .. }, back, times } = work;
        let busy = if times.is_some() { bound.busy() } else { Vec::new() };
        let timer = if busy.contains(&true) { Some(Timer::new(self, busy.len())?) } else { None };
        let index = self.checked(&|| format!("running {name:?}"), || {
            let mut encoder = self.device.create_command_encoder(&Default::default());
            encoder.clear_buffer(&faults.buffer, 0, None);
            match &timer {
                None => {
                    record(bound, groups, &mut encoder.begin_compute_pass(&Default::default()), 0..usize::MAX)
                }
                Some(timer) => {
                    let steps = bound.steps().enumerate().filter(|(i, _)| busy[*i]);
                    steps.for_each(|(i, dispatches)| {
                        record(bound, groups, &mut timer.pass(&mut encoder, i), dispatches)
                    });
                    timer.collect(&mut encoder);
                }
            }
            if let Some(back) = &back {
                record_copies(&mut encoder, back, faults);
            }
            self.queue.submit([encoder.finish()])
        })?;
        if let Some((timer, times)) = timer.zip(times) {
            timer.add_to(self, index.clone(), &busy, times)?;
        }
        back.map_or(Ok(()), |back| back.to.map(self, back.fault_at + FAULT_BYTES, index))
    }
}

/// Records some of the dispatches.
fn record(
    bound: &Bound<std::sync::Arc<Pipeline>>,
    groups: &[wgpu::BindGroup],
    pass: &mut wgpu::ComputePass<'_>,
    which: Range<usize>,
) {
    let all = bound.dispatches().zip(groups).zip(&bound.grids);
    for ((dispatch, group), grid) in all.take(which.end).skip(which.start) {
        if let Some((x, y)) = *grid {
            pass.set_pipeline(&dispatch.code.raw);
            pass.set_bind_group(0, group, &[]);
            pass.dispatch_workgroups(x, y, 1);
        }
    }
}

fn record_copies(encoder: &mut wgpu::CommandEncoder, back: &Back<'_, Gpu>, faults: &memory::Range) {
    let to = back.to.buffer.memory();
    for output in back.outputs {
        let (from, bytes) = (&output.from, whole_words(output.bytes) as u64);
        encoder.copy_buffer_to_buffer(&from.buffer, from.offset, to, output.at as u64, bytes);
    }
    encoder.copy_buffer_to_buffer(&faults.buffer, 0, to, back.fault_at as u64, FAULT_BYTES as u64);
}
