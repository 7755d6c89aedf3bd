//! What a list of dispatches is bound to: extents, bind groups, and the submission of it all.

use std::sync::Arc;

use rlx_backend::extents::Values;
use rlx_ir::{Error, ErrorKind, Result};

use crate::gpu::Gpu;
use crate::memory::{DeviceBuffer, Range};
use crate::pipeline::Pipeline;
use crate::program::{Dispatch, Program, ProgramStep};

/// The uniforms of a list of dispatches, in one buffer.
pub(crate) struct Uniforms {
    memory: DeviceBuffer,
    /// Where each dispatch's lie, and how many bytes.
    places: Vec<(u64, u64)>,
    /// The workgroups of each dispatch; `None` where there is nothing to do.
    pub(crate) grids: Vec<Grid>,
}

/// How many workgroups in two dimensions; `None` for none.
pub(crate) type Grid = Option<(u32, u32)>;

impl Uniforms {
    /// Room for the uniforms of `dispatches`.
    pub(crate) fn new<'a>(gpu: &Gpu, dispatches: impl Iterator<Item = &'a Dispatch>) -> Result<Uniforms> {
        let align = u64::from(gpu.limits.min_uniform_buffer_offset_alignment.max(16));
        let (mut places, mut end) = (Vec::new(), 0);
        for dispatch in dispatches {
            let bytes = dispatch.uniform_bytes();
            let most = gpu.limits.max_uniform_buffer_binding_size;
            if bytes > most {
                let message = format!("{bytes} bytes of extents, the device takes {most}");
                return Err(gpu.error(ErrorKind::Unsupported, message));
            }
            places.push((end, bytes));
            end = (end + bytes).next_multiple_of(align);
        }
        Ok(Uniforms { memory: DeviceBuffer::uniforms(gpu, end)?, places, grids: Vec::new() })
    }

    /// Copies the uniforms of the dispatches of `steps` for these values to the device; gives the workgroups.
    ///
    /// # Errors
    /// Sizes above what kernels count to, or more workgroups than the device dispatches.
    pub(crate) fn write<'a>(
        &mut self,
        program: &Program,
        steps: impl Iterator<Item = &'a ProgramStep>,
        values: &Values<'_>,
    ) -> Result<Vec<Grid>> {
        let mut bytes = vec![0; self.memory.len() as usize];
        let mut grids = Vec::with_capacity(self.places.len());
        let dispatches = steps.flat_map(|step| {
            let idle = step.is_idle(values);
            step.dispatches.iter().map(move |dispatch| (dispatch, idle))
        });
        for ((dispatch, idle), &(at, size)) in dispatches.zip(&self.places) {
            if idle {
                grids.push(None);
                continue;
            }
            bytes[at as usize..(at + size) as usize].copy_from_slice(&dispatch.uniform_values(values)?);
            let groups = values.get(dispatch.groups).max(0);
            let grid = rlx_kernel::grid(groups, program.target.limits.max_groups).ok_or_else(|| {
                Error::new(
                    ErrorKind::OutOfMemory,
                    format!("{groups} workgroups, more than the device dispatches"),
                )
            })?;
            grids.push((groups > 0).then_some(grid));
        }
        if !self.places.is_empty() {
            self.memory.write(&program.gpu, &bytes)?;
        }
        Ok(grids)
    }

    fn range(&self, dispatch: usize) -> Range<'_> {
        let (offset, bytes) = self.places[dispatch];
        Range { buffer: &self.memory, offset, bytes }
    }
}

/// The bind group of each dispatch of a list.
pub(crate) struct Bound {
    groups: Vec<wgpu::BindGroup>,
}

impl Bound {
    /// Binds `dispatches` to where `range` says the module's buffers are.
    ///
    /// # Errors
    /// A buffer without memory, or what the driver reports.
    pub(crate) fn new<'a, 'r>(
        program: &Program,
        dispatches: impl Iterator<Item = &'a Dispatch>,
        uniforms: &Uniforms,
        faults: &DeviceBuffer,
        range: impl Fn(usize) -> Result<Range<'r>>,
    ) -> Result<Bound> {
        let mut lists = Vec::new();
        for (i, dispatch) in dispatches.enumerate() {
            let mut ranges = vec![uniforms.range(i)];
            for &buffer in &dispatch.buffers {
                ranges.push(range(buffer)?);
            }
            ranges.extend(dispatch.can_fail.then(|| faults.whole()));
            lists.push((&dispatch.pipeline, ranges));
        }
        let device = &program.gpu.device;
        let groups = program.gpu.checked(&|| "binding buffers".to_string(), || {
            let group = |(pipeline, ranges): &(&Arc<Pipeline>, Vec<Range<'_>>)| {
                let entries: Vec<_> = ranges.iter().enumerate().map(|(i, r)| r.entry(i as u32)).collect();
                device.create_bind_group(&wgpu::BindGroupDescriptor {
                    label: None,
                    layout: &pipeline.layout,
                    entries: &entries,
                })
            };
            lists.iter().map(group).collect()
        })?;
        Ok(Bound { groups })
    }

    /// Submits the dispatches and then what `after` records.
    ///
    /// # Errors
    /// What the driver reports.
    pub(crate) fn submit<'a>(
        &self,
        program: &Program,
        dispatches: impl Iterator<Item = &'a Dispatch>,
        grids: &[Grid],
        faults: &DeviceBuffer,
        after: impl FnOnce(&mut wgpu::CommandEncoder),
    ) -> Result<()> {
        let gpu = &program.gpu;
        gpu.checked(&|| format!("running {:?}", program.lir.name), || {
            let mut encoder = gpu.device.create_command_encoder(&Default::default());
            encoder.clear_buffer(&faults.raw, 0, None);
            {
                let mut pass = encoder.begin_compute_pass(&Default::default());
                for ((dispatch, group), grid) in dispatches.zip(&self.groups).zip(grids) {
                    if let Some((x, y)) = *grid {
                        pass.set_pipeline(&dispatch.pipeline.raw);
                        pass.set_bind_group(0, group, &[]);
                        pass.dispatch_workgroups(x, y, 1);
                    }
                }
            }
            after(&mut encoder);
            gpu.queue.submit([encoder.finish()]);
        })
    }
}
