//! A list of dispatches bound to numbers and memory: extents, bind groups, and the submission of it all.

use std::sync::Arc;

use rlx_backend::StepProfile;
use rlx_backend::executor::{Output, Step};
use rlx_gpu::dispatch::{Bound, BoundLimits};
use rlx_ir::{ErrorKind, Result};

use crate::gpu::Gpu;
use crate::memory::{DeviceBuffer, Range};
use crate::pipeline::Pipeline;
use crate::program::Kernel;
use crate::timing::{self, Timer};

/// Where the buffers of a module are.
pub(crate) type Place = Option<Range>;

/// Bind groups are kept for this many sets of memory: buffers of handles that outputs feed change places with every run.
const LINKS: usize = 2;

/// Bind groups, and the memory they are of.
struct Link {
    places: Vec<Range>,
    groups: Vec<wgpu::BindGroup>,
}

/// Steps bound to the same dimensions.
pub(crate) struct Sequence {
    pub(crate) bound: Bound<Arc<Pipeline>>,
    /// The uniforms of all dispatches.
    memory: DeviceBuffer,
    /// The last set of memory first.
    links: Vec<Link>,
}

impl Sequence {
    /// Room for these steps; with the numbers of `like`, where it is given.
    ///
    /// # Errors
    /// More extents than the device takes, or memory that cannot be had.
    pub(crate) fn new<'s>(
        gpu: &Gpu,
        max_groups: u32,
        steps: impl Iterator<Item = &'s Step<Arc<Kernel>>>,
        like: Option<&Sequence>,
    ) -> Result<Sequence> {
        let limits = BoundLimits {
            align: u64::from(gpu.limits.min_uniform_buffer_offset_alignment.max(16)),
            most_bytes: gpu.limits.max_uniform_buffer_binding_size,
            max_groups,
        };
        let bound = Bound::new(steps, limits, like.map(|like| &like.bound));
        let bound = bound.map_err(|e| e.with_device(gpu.name.name()))?;
        let memory = DeviceBuffer::uniforms(gpu, bound.bytes.len() as u64)?;
        Ok(Sequence { bound, memory, links: Vec::new() })
    }

    /// Copies the numbers to the device, before anything submitted later.
    ///
    /// # Errors
    /// What the driver reports.
    pub(crate) fn upload(&mut self, gpu: &Gpu) -> Result<()> {
        if std::mem::replace(&mut self.bound.changed, false) && !self.bound.places.is_empty() {
            self.memory.write(gpu, &self.bound.bytes)?;
        }
        Ok(())
    }

    /// Lets go of memory that it was bound to.
    pub(crate) fn unlink(&mut self) {
        self.links.clear();
    }

    /// Makes sure that the first link is to `places`.
    ///
    /// # Errors
    /// A buffer without memory, or what the driver reports.
    fn link(&mut self, gpu: &Gpu, places: &[Place], faults: &DeviceBuffer) -> Result<()> {
        let same = |link: &Link| {
            let now = self.bound.used.iter().map(|&b| places[b].as_ref());
            link.places.iter().map(Some).eq(now)
        };
        if let Some(at) = self.links.iter().position(same) {
            self.links[..=at].rotate_right(1);
            return Ok(());
        }
        let place = |b: usize| {
            let missing = || gpu.error(ErrorKind::Internal, format!("buffer {b} has no memory"));
            places[b].as_ref().ok_or_else(missing)
        };
        let (faults, mut lists) = (faults.whole(), Vec::new());
        let uniforms: Vec<Range> = self.bound.places.iter().map(|&(at, n)| self.memory.part(at, n)).collect();
        for (dispatch, uniforms) in self.bound.dispatches().zip(&uniforms) {
            let mut ranges = vec![uniforms];
            for &buffer in &dispatch.buffers {
                ranges.push(place(buffer)?);
            }
            ranges.extend(dispatch.can_fail.then_some(&faults));
            lists.push((&dispatch.code.layout, ranges));
        }
        let groups = gpu.checked(&|| "binding buffers".to_string(), || {
            let group = |(layout, ranges): &(&wgpu::BindGroupLayout, Vec<&Range>)| {
                let entries: Vec<_> = ranges.iter().enumerate().map(|(i, r)| r.entry(i as u32)).collect();
                let description = wgpu::BindGroupDescriptor { label: None, layout, entries: &entries };
                gpu.device.create_bind_group(&description)
            };
            lists.iter().map(group).collect()
        })?;
        let places = self.bound.used.iter().map(|&b| place(b).cloned()).collect::<Result<_>>()?;
        self.links.truncate(LINKS - 1);
        self.links.insert(0, Link { places, groups });
        Ok(())
    }

    /// Submits the dispatches and then what `after` records; the fault record is cleared first. Where the steps' times are asked for, it waits for
    /// them.
    ///
    /// # Errors
    /// A buffer without memory, or what the driver reports.
    pub(crate) fn submit(
        &mut self,
        gpu: &Gpu,
        name: &str,
        places: &[Place],
        faults: &DeviceBuffer,
        times: Option<&mut [StepProfile]>,
        after: impl FnOnce(&mut wgpu::CommandEncoder),
    ) -> Result<wgpu::SubmissionIndex> {
        self.link(gpu, places, faults)?;
        let busy =
            if times.is_some() { timing::busy(self.bound.steps(), &self.bound.grids) } else { Vec::new() };
        let timer = if busy.contains(&true) { Some(Timer::new(gpu, busy.len())?) } else { None };
        let index = gpu.checked(&|| format!("running {name:?}"), || {
            let mut encoder = gpu.device.create_command_encoder(&Default::default());
            encoder.clear_buffer(&faults.raw, 0, None);
            match &timer {
                None => self.record(&mut encoder.begin_compute_pass(&Default::default()), 0..usize::MAX),
                Some(timer) => {
                    let steps = self.bound.steps().enumerate().filter(|(i, _)| busy[*i]);
                    steps.for_each(|(i, dispatches)| {
                        self.record(&mut timer.pass(&mut encoder, i), dispatches)
                    });
                    timer.collect(&mut encoder);
                }
            }
            after(&mut encoder);
            gpu.queue.submit([encoder.finish()])
        })?;
        if let Some((timer, times)) = timer.zip(times) {
            timer.add_to(gpu, index.clone(), &busy, times)?;
        }
        Ok(index)
    }

    /// Records some of the dispatches.
    fn record(&self, pass: &mut wgpu::ComputePass<'_>, which: std::ops::Range<usize>) {
        let all = self.bound.dispatches().zip(&self.links[0].groups).zip(&self.bound.grids);
        for ((dispatch, group), grid) in all.take(which.end).skip(which.start) {
            if let Some((x, y)) = *grid {
                pass.set_pipeline(&dispatch.code.raw);
                pass.set_bind_group(0, group, &[]);
                pass.dispatch_workgroups(x, y, 1);
            }
        }
    }
}

/// Where an output of the present run is on the device: as many bytes as it has.
pub(crate) fn output_range(gpu: &Gpu, output: &Output, places: &[Place]) -> Result<Range> {
    let missing = || gpu.error(ErrorKind::Internal, format!("buffer {} has no memory", output.buffer));
    let place = places[output.buffer].clone().ok_or_else(missing)?;
    Ok(Range { bytes: crate::memory::whole_words(output.bytes as u64), ..place })
}
