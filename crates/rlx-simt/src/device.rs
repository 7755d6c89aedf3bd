//! The device as the runtime uses it: see [`GpuApi`].

use std::sync::Arc;

use rlx_driver::Device;
use rlx_gpu::dispatch::Dispatch;
use rlx_gpu::{
    Back, Bindings, GpuApi, Job, Limits, MatrixUnits, Registry, Shared, Stores, Submission, Usage,
};
use rlx_ir::Result;
use rlx_kernel::{DeviceLimits, KernelTarget};
use rlx_opt::PoolSpec;

use crate::driver::{Code, DeviceMemory, Part};
use crate::gpu::{Gpu, Options, Which};
use crate::kernels::Image;
use crate::runs::{Link, Pages};

/// Kernels count the elements of each buffer with 32 bits, from where it begins, which is an address of 64 bits. Invocations of the last workgroup, which have
/// nothing to do, count beyond the end: at most 1,024 of them, with at most 64 elements each.
const MOST_ELEMENTS: usize = i32::MAX as usize & !0xffff;

/// Uniforms are read as integers of 32 bits; lines of the cache are this long.
const UNIFORM_ALIGN: u64 = 128;

static OPENED: Registry<Gpu> = Registry::new();

impl GpuApi for Gpu {
    type Options = Options;
    type Memory = DeviceMemory;
    type Range = Part;
    type Host = Pages;
    type Image = Image;
    type Code = Code;
    type Link = Link;

    fn registry() -> &'static Registry<Gpu> {
        &OPENED
    }

    async fn new(which: &Which) -> Result<Gpu> {
        Gpu::opened_by(which)
    }

    fn shared(&self) -> &Shared<Gpu> {
        &self.shared
    }

    /// Buffers have no lengths: nothing would keep a stranger's kernels within them.
    fn stores(&self) -> Stores {
        Stores::Sealed
    }

    fn machine(&self) -> String {
        self.machine.clone()
    }

    fn target(which: &Which, opened: Option<&Gpu>) -> KernelTarget {
        let full = KernelTarget::full(which.device.feature());
        let limits = DeviceLimits {
            max_workgroup: opened.map_or(full.limits.max_workgroup, |gpu| gpu.max_workgroup),
            max_shared_bytes: opened.map_or(full.limits.max_shared_bytes, |gpu| gpu.shared_bytes),
            // HIP counts the invocations of a dispatch with 32 bits.
            max_groups: if which.device == Device::Rocm { 1 << 21 } else { full.limits.max_groups },
            subgroup: opened.and_then(|gpu| gpu.warp),
            ..full.limits
        };
        let pool = PoolSpec { max_elements: MOST_ELEMENTS, ..full.pool };
        KernelTarget { limits, pool, ..full }
    }

    fn limits(&self) -> Limits {
        // A buffer has what there is; the driver says how much that is.
        let [most_bound, most_buffer] = [usize::MAX; 2];
        Limits { most_bound, most_buffer, uniform_align: UNIFORM_ALIGN, most_uniforms: u64::MAX }
    }

    fn blas(&self) -> Option<Result<&'static str>> {
        Some(self.blas_library()?.map(|library| library.name()))
    }

    fn matrix_units(&self) -> Option<MatrixUnits> {
        self.matrix_units
    }

    fn tick(&self) -> Option<f64> {
        // Events are read in parts of a millisecond, and noted in nanoseconds.
        Some(1.0)
    }

    fn wait(&self) -> Result<()> {
        self.alive()?;
        self.checked("waiting for the device", self.context.wait())
    }

    fn allocate(&self, bytes: usize, _: Usage, what: &str) -> Result<DeviceMemory> {
        self.checked(what, self.context.allocate(bytes))
    }

    fn range(memory: &DeviceMemory, offset: usize, bytes: usize) -> Part {
        memory.part(offset, bytes)
    }

    fn write(&self, to: &DeviceMemory, offset: usize, bytes: &[u8]) -> Result<()> {
        self.send(to.part(offset, bytes.len()), bytes)
    }

    fn read(&self, back: Back<'_, Gpu>) -> Result<()> {
        self.alive()?;
        self.give_copies(&back, "reading from the device")
    }

    fn copy(&self, to: &DeviceMemory, from: &DeviceMemory, bytes: usize, what: &str) -> Result<()> {
        let copied = self.context.on_device(to.part(0, bytes), from.part(0, bytes));
        self.checked(format_args!("copying {what}"), copied)
    }

    fn host(&self, bytes: usize) -> Result<Pages> {
        self.pages(bytes)
    }

    fn compile(&self, job: &Job<'_>) -> Result<Image> {
        self.image(job.source)
    }

    fn load(&self, job: &Job<'_>, image: Image) -> Result<Code> {
        self.load_image(job.source, image)
    }

    fn by_value(dispatch: &Dispatch<Arc<Code>>) -> bool {
        dispatch.by_value
    }

    fn link(&self, _: &Bindings<'_, Gpu>) -> Result<Link> {
        Ok(Link::default())
    }

    fn renumber(link: &mut Link) {
        // Uniforms and workgroups are part of a graph.
        *link = Link::default();
    }

    fn submit(&self, link: &mut Link, work: Submission<'_, Gpu>) -> Result<()> {
        self.give(link, work)
    }
}
