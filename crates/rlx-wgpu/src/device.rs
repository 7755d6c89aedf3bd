//! The device as the runtime uses it: see [`GpuApi`].

use std::sync::Arc;

use rlx_gpu::{
    Back, Bindings, GpuApi, Job, Limits, MatrixUnits, Registry, Shared, Signal, Stores, Submission, Usage,
    Which,
};
use rlx_ir::Result;
use rlx_kernel::{DeviceLimits, KernelTarget};
use rlx_opt::PoolSpec;

use crate::gpu::Gpu;
use crate::language::Language;
use crate::memory::{Range, Readback};
use crate::pipeline::Pipeline;

/// Kernels count elements with 32 bits, so no buffer may be larger.
const MOST_BYTES: u64 = i32::MAX as u64 & !0xff;

static OPENED: Registry<Gpu> = Registry::new();

impl GpuApi for Gpu {
    type Options = ();
    type Memory = wgpu::Buffer;
    type Range = Range;
    type Host = Readback;
    type Image = Pipeline;
    type Code = Pipeline;
    type Link = Vec<wgpu::BindGroup>;

    // In a page no thread can wait: what the device did arrives between two turns of its event loop. So devices are opened by
    // `WgpuBackend::open` there, runs are awaited (`ExecutableGraph::poll_collect`), and what would wait is an error, or gives up
    // turns where the page's host can suspend a call (`set_turn`).
    const WAITS: bool = !cfg!(target_family = "wasm");

    fn registry() -> &'static Registry<Gpu> {
        &OPENED
    }

    async fn new(which: &Which<()>) -> Result<Gpu> {
        Gpu::opened_by(which).await
    }

    fn shared(&self) -> &Shared<Gpu> {
        &self.shared
    }

    /// Metal gets kernels in its own language as they are, and its buffers have no lengths: nothing would keep kernels from a file within them. Nothing would keep
    /// matrices within workgroup memory, so where there are some, only this user's own are taken.
    fn stores(&self) -> Stores {
        match self.language {
            Language::Wgsl if self.matrices.is_some() => Stores::Sealed,
            Language::Wgsl => Stores::Guarded,
            Language::Msl => Stores::Nothing,
        }
    }

    fn computes(&self) -> bool {
        self.info.backend != wgpu::Backend::Noop
    }

    fn matrix_units(&self) -> Option<MatrixUnits> {
        *self.units.get_or_init(|| self.tried_units())
    }

    fn machine(&self) -> String {
        let wgpu::AdapterInfo { name, backend, driver_info, .. } = &self.info;
        let language = (*backend == wgpu::Backend::Metal).then(|| self.language.name());
        // Products on matrices have bits of their own.
        let units = self.matrix_units().map(|units| units.arch.name());
        let more: String = [language, units].into_iter().flatten().map(|of| format!(", {of}")).collect();
        format!("{name} ({backend}, {driver_info}{more})")
    }

    fn target(which: &Which<()>, opened: Option<&Gpu>) -> KernelTarget {
        let Some(gpu) = opened else { return KernelTarget::webgpu(which.device.feature()) };
        let limits = &gpu.limits;
        let size = |bytes: u64| bytes.min(MOST_BYTES) as usize;
        let within = DeviceLimits {
            max_bindings: limits.max_storage_buffers_per_shader_stage.min(64) as usize,
            max_workgroup: limits
                .max_compute_invocations_per_workgroup
                .min(limits.max_compute_workgroup_size_x),
            max_shared_bytes: limits.max_compute_workgroup_storage_size as usize,
            max_groups: limits.max_compute_workgroups_per_dimension,
            subgroup: gpu.subgroup,
        };
        let types = gpu.language.types(gpu.info.backend, gpu.device.features());
        let target = KernelTarget::new(which.device.feature(), types, within);
        let pool = PoolSpec {
            max_bytes: size(limits.max_buffer_size),
            max_buffer_bytes: size(limits.max_storage_buffer_binding_size),
            align: (limits.min_storage_buffer_offset_alignment as usize).max(64),
            exclusive_usage: true,
            ..target.pool
        };
        let is_processor = gpu.info.device_type == wgpu::DeviceType::Cpu;
        KernelTarget { pool, is_processor, ..target }
    }

    fn limits(&self) -> Limits {
        let (of, size) = (&self.limits, |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX));
        Limits {
            most_bound: size(of.max_storage_buffer_binding_size),
            most_buffer: size(of.max_buffer_size),
            uniform_align: u64::from(of.min_uniform_buffer_offset_alignment.max(16)),
            most_uniforms: of.max_uniform_buffer_binding_size,
        }
    }

    fn tick(&self) -> Option<f64> {
        let clock = self.device.features().contains(wgpu::Features::TIMESTAMP_QUERY);
        clock.then(|| f64::from(self.queue.get_timestamp_period()))
    }

    fn close(&self) {
        self.device.destroy();
        // What was under way calls back when the device is polled; an error of this poll is the loss itself.
        let _ = self.device.poll(wgpu::PollType::Poll);
    }

    fn wait(&self) -> Result<()> {
        let done = Arc::new(Signal::default());
        if !Self::WAITS {
            let done = Arc::clone(&done);
            self.queue.on_submitted_work_done(move || done.set(()));
        }
        self.poll(wgpu::PollType::wait_indefinitely(), &|| done.is_set())
    }

    fn allocate(&self, bytes: usize, usage: Usage, what: &str) -> Result<wgpu::Buffer> {
        let usage = match usage {
            Usage::Storage | Usage::Pool => wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC,
            Usage::Uniforms => wgpu::BufferUsages::UNIFORM,
            Usage::Times => wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
        };
        self.create(bytes, usage | wgpu::BufferUsages::COPY_DST, what)
    }

    fn range(memory: &wgpu::Buffer, offset: usize, bytes: usize) -> Range {
        Range { buffer: memory.clone(), offset: offset as u64, bytes: bytes as u64 }
    }

    fn write(&self, to: &wgpu::Buffer, offset: usize, bytes: &[u8]) -> Result<()> {
        let what = || format!("copying {} bytes to the device", bytes.len());
        self.checked(&what, || self.queue.write_buffer(to, offset as u64, bytes))
    }

    fn read(&self, back: Back<'_, Gpu>) -> Result<()> {
        self.submit_with(&|| "reading from the device".to_string(), Some(back), |_| ())
    }

    fn copy(&self, to: &wgpu::Buffer, from: &wgpu::Buffer, bytes: usize, what: &str) -> Result<()> {
        self.submit_with(&|| format!("copying {what}"), None, |encoder| {
            encoder.copy_buffer_to_buffer(from, 0, to, 0, bytes as u64);
        })
    }

    fn host(&self, bytes: usize) -> Result<Readback> {
        Readback::new(self, bytes)
    }

    fn compile_threads(&self) -> usize {
        // An OpenGL context serves one at a time.
        if self.is_opengl() { 1 } else { std::thread::available_parallelism().map_or(1, usize::from) }
    }

    fn compile(&self, job: &Job<'_>) -> Result<Pipeline> {
        self.pipeline(job)
    }

    fn load(&self, _: &Job<'_>, pipeline: Pipeline) -> Result<Pipeline> {
        Ok(pipeline)
    }

    fn link(&self, bindings: &Bindings<'_, Gpu>) -> Result<Vec<wgpu::BindGroup>> {
        self.groups(bindings)
    }

    fn submit(&self, groups: &mut Vec<wgpu::BindGroup>, work: Submission<'_, Gpu>) -> Result<()> {
        self.run(groups, work)
    }
}
