//! Runs: bind groups, and the one submission of a run with the copies of what comes back.
//!
//! Where the steps of a run are timed, each is a compute pass of its own, so such a run takes a little longer than others.

use std::ops::Range;
use std::sync::Arc;

use rlx_gpu::dispatch::Bound;
use rlx_gpu::{Bindings, Submission};
use rlx_ir::Result;

use crate::gpu::Gpu;
use crate::memory;
use crate::pipeline::Pipeline;

/// Steps whose times are in one query set: as many as it may have, two notes for each.
const STEPS: usize = wgpu::QUERY_SET_MAX_QUERIES as usize / 2;
/// Bytes of the notes of a step.
const NOTES: usize = 2 * wgpu::QUERY_SIZE as usize;

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

    /// Submits the dispatches and then the copies of what comes back; the fault record is cleared first. A run without work, of tensors that
    /// have no elements, submits nothing.
    ///
    /// # Errors
    /// What the driver reports.
    pub(crate) fn run(&self, groups: &[wgpu::BindGroup], work: Submission<'_, Gpu>) -> Result<()> {
        let Submission { name, bindings: Bindings { bound, faults, .. }, mut back, times } = work;
        let nothing = bound.grids.iter().all(Option::is_none) && times.is_none();
        if let Some(back) =
            back.as_mut().filter(|back| nothing && back.arrivals.iter().all(|one| one.from == *faults))
        {
            back.to.bring_zeros();
            return Ok(());
        }
        let clock = match &times {
            Some(times) => Some((times, self.query_sets(times.busy.len())?)),
            None => None,
        };
        self.submit_with(&|| format!("running {name:?}"), back, |encoder| {
            encoder.clear_buffer(&faults.buffer, 0, None);
            let Some((times, sets)) = clock else {
                let pass = &mut encoder.begin_compute_pass(&Default::default());
                return record(bound, groups, pass, 0..usize::MAX);
            };
            for (step, dispatches) in bound.steps().enumerate().filter(|(step, _)| times.busy[*step]) {
                record(bound, groups, &mut timed_pass(encoder, &sets, step), dispatches);
            }
            for (i, set) in sets.iter().enumerate() {
                let steps = (times.busy.len() - i * STEPS).min(STEPS);
                let at = (NOTES * i * STEPS) as u64;
                encoder.resolve_query_set(set, 0..2 * steps as u32, times.notes, at);
            }
        })
    }

    /// Room for what the clock says before and behind each of so many steps.
    fn query_sets(&self, steps: usize) -> Result<Vec<wgpu::QuerySet>> {
        self.checked(&|| "timing the steps".to_string(), || {
            let set = |from: usize| {
                let (ty, count) = (wgpu::QueryType::Timestamp, 2 * (steps - from).min(STEPS) as u32);
                self.device.create_query_set(&wgpu::QuerySetDescriptor { label: None, ty, count })
            };
            (0..steps).step_by(STEPS).map(set).collect()
        })
    }
}

/// The pass of a step that is timed: the device notes its clock before and behind it.
fn timed_pass<'e>(
    encoder: &'e mut wgpu::CommandEncoder,
    sets: &[wgpu::QuerySet],
    step: usize,
) -> wgpu::ComputePass<'e> {
    let first = 2 * (step % STEPS) as u32;
    encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
        label: None,
        timestamp_writes: Some(wgpu::ComputePassTimestampWrites {
            query_set: &sets[step / STEPS],
            beginning_of_pass_write_index: Some(first),
            end_of_pass_write_index: Some(first + 1),
        }),
    })
}

/// Records some of the dispatches.
fn record(
    bound: &Bound<Arc<Pipeline>>,
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
