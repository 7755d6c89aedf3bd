//! A list of dispatches bound to numbers and memory: extents, bind groups, and the submission of it all.

use std::sync::Arc;

use rlx_backend::executor::{Output, Step};
use rlx_backend::extents::Values;
use rlx_ir::{Error, ErrorKind, NodeId, Result};
use rlx_kernel::KernelTarget;

use crate::gpu::Gpu;
use crate::memory::{DeviceBuffer, Range};
use crate::program::{Dispatch, Kernel};

/// How many workgroups in two dimensions; `None` for none.
type Grid = Option<(u32, u32)>;

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
    steps: Vec<Arc<Kernel>>,
    /// The first dispatch of each step.
    first: Vec<usize>,
    /// The workgroups of each dispatch; `None` where there is nothing to do.
    grids: Vec<Grid>,
    /// The uniforms of all dispatches, on the device and as they are to be there, and where each dispatch's are.
    memory: DeviceBuffer,
    bytes: Vec<u8>,
    places: Vec<(u64, u64)>,
    /// Whether `bytes` differ from what the device has.
    changed: bool,
    /// The buffers that dispatches use.
    used: Vec<usize>,
    /// The last set of memory first.
    links: Vec<Link>,
    /// The dispatches that can fail, with their nodes.
    pub(crate) can_fail: Arc<Vec<(u32, NodeId)>>,
}

impl Sequence {
    /// Room for these steps; with the numbers of `like`, where it is given.
    ///
    /// # Errors
    /// More extents than the device takes, or memory that cannot be had.
    pub(crate) fn new<'s>(
        gpu: &Gpu,
        steps: impl Iterator<Item = &'s Step<Arc<Kernel>>>,
        like: Option<&Sequence>,
    ) -> Result<Sequence> {
        let align = u64::from(gpu.limits.min_uniform_buffer_offset_alignment.max(16));
        let (mut list, mut first, mut places, mut end) = (Vec::new(), Vec::new(), Vec::new(), 0);
        let (mut used, mut can_fail) = (Vec::new(), Vec::new());
        for step in steps {
            first.push(places.len());
            for dispatch in &step.kernel.dispatches {
                let bytes = dispatch.uniform_bytes();
                let most = gpu.limits.max_uniform_buffer_binding_size;
                if bytes > most {
                    let message = format!("{bytes} bytes of extents, the device takes {most}");
                    return Err(gpu.error(ErrorKind::Unsupported, message));
                }
                places.push((end, bytes));
                end = (end + bytes).next_multiple_of(align);
                used.extend_from_slice(&dispatch.buffers);
                can_fail.extend(dispatch.can_fail.then_some((dispatch.number, step.node)));
            }
            list.push(Arc::clone(&step.kernel));
        }
        rlx_ir::sort::sort(&mut used);
        used.dedup();
        let memory = DeviceBuffer::uniforms(gpu, end)?;
        Ok(Sequence {
            steps: list,
            first,
            grids: like.map_or_else(|| vec![None; places.len()], |like| like.grids.clone()),
            bytes: like.map_or_else(|| vec![0; memory.len() as usize], |like| like.bytes.clone()),
            memory,
            places,
            changed: true,
            used,
            links: Vec::new(),
            can_fail: like.map_or_else(|| Arc::new(can_fail), |like| Arc::clone(&like.can_fail)),
        })
    }

    /// Puts numbers into a step.
    ///
    /// # Errors
    /// Views that leave their buffers, sizes above what kernels count to, or more workgroups than the device dispatches.
    pub(crate) fn bind(&mut self, at: usize, target: &KernelTarget, values: &Values<'_>) -> Result<()> {
        let step = &self.steps[at];
        step.views.iter().try_for_each(|view| view.holds(values))?;
        let idle = step.is_idle(values);
        for (dispatch, at) in step.dispatches.iter().zip(self.first[at]..) {
            self.grids[at] = None;
            if idle {
                continue;
            }
            let (start, size) = self.places[at];
            let numbers = dispatch.uniform_values(values)?;
            self.bytes[start as usize..(start + size) as usize].copy_from_slice(&numbers);
            let groups = values.get(dispatch.groups).max(0);
            let grid = rlx_kernel::grid(groups, target.limits.max_groups).ok_or_else(|| {
                let message = format!("{groups} workgroups, more than the device dispatches");
                Error::new(ErrorKind::OutOfMemory, message)
            })?;
            self.grids[at] = (groups > 0).then_some(grid);
        }
        self.changed = true;
        Ok(())
    }

    /// Copies the numbers to the device, before anything submitted later.
    ///
    /// # Errors
    /// What the driver reports.
    pub(crate) fn upload(&mut self, gpu: &Gpu) -> Result<()> {
        if std::mem::replace(&mut self.changed, false) && !self.places.is_empty() {
            self.memory.write(gpu, &self.bytes)?;
        }
        Ok(())
    }

    /// Lets go of memory that it was bound to.
    pub(crate) fn unlink(&mut self) {
        self.links.clear();
    }

    fn dispatches(&self) -> impl Iterator<Item = &Dispatch> {
        self.steps.iter().flat_map(|step| &step.dispatches)
    }

    /// Makes sure that the first link is to `places`.
    ///
    /// # Errors
    /// A buffer without memory, or what the driver reports.
    fn link(&mut self, gpu: &Gpu, places: &[Place], faults: &DeviceBuffer) -> Result<()> {
        let same = |link: &Link| {
            let now = self.used.iter().map(|&b| places[b].as_ref());
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
        let uniforms: Vec<Range> = self.places.iter().map(|&(at, n)| self.memory.part(at, n)).collect();
        for (dispatch, uniforms) in self.dispatches().zip(&uniforms) {
            let mut ranges = vec![uniforms];
            for &buffer in &dispatch.buffers {
                ranges.push(place(buffer)?);
            }
            ranges.extend(dispatch.can_fail.then_some(&faults));
            lists.push((&dispatch.pipeline.layout, ranges));
        }
        let groups = gpu.checked(&|| "binding buffers".to_string(), || {
            let group = |(layout, ranges): &(&wgpu::BindGroupLayout, Vec<&Range>)| {
                let entries: Vec<_> = ranges.iter().enumerate().map(|(i, r)| r.entry(i as u32)).collect();
                let description = wgpu::BindGroupDescriptor { label: None, layout, entries: &entries };
                gpu.device.create_bind_group(&description)
            };
            lists.iter().map(group).collect()
        })?;
        let places = self.used.iter().map(|&b| place(b).cloned()).collect::<Result<_>>()?;
        self.links.truncate(LINKS - 1);
        self.links.insert(0, Link { places, groups });
        Ok(())
    }

    /// Submits the dispatches and then what `after` records; the fault record is cleared first.
    ///
    /// # Errors
    /// A buffer without memory, or what the driver reports.
    pub(crate) fn submit(
        &mut self,
        gpu: &Gpu,
        name: &str,
        places: &[Place],
        faults: &DeviceBuffer,
        after: impl FnOnce(&mut wgpu::CommandEncoder),
    ) -> Result<wgpu::SubmissionIndex> {
        self.link(gpu, places, faults)?;
        let groups = &self.links[0].groups;
        gpu.checked(&|| format!("running {name:?}"), || {
            let mut encoder = gpu.device.create_command_encoder(&Default::default());
            encoder.clear_buffer(&faults.raw, 0, None);
            {
                let mut pass = encoder.begin_compute_pass(&Default::default());
                for ((dispatch, group), grid) in self.dispatches().zip(groups).zip(&self.grids) {
                    if let Some((x, y)) = *grid {
                        pass.set_pipeline(&dispatch.pipeline.raw);
                        pass.set_bind_group(0, group, &[]);
                        pass.dispatch_workgroups(x, y, 1);
                    }
                }
            }
            after(&mut encoder);
            gpu.queue.submit([encoder.finish()])
        })
    }
}

/// Where an output of the present run is on the device: as many bytes as it has.
pub(crate) fn output_range(gpu: &Gpu, output: &Output, places: &[Place]) -> Result<Range> {
    let missing = || gpu.error(ErrorKind::Internal, format!("buffer {} has no memory", output.buffer));
    let place = places[output.buffer].clone().ok_or_else(missing)?;
    Ok(Range { bytes: crate::memory::whole_words(output.bytes as u64), ..place })
}
