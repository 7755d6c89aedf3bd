//! The device as the runtime uses it: see [`GpuApi`].

use std::task::{Context, Poll};

use rlx_gpu::memory::whole_words;
use rlx_gpu::{Bindings, GpuApi, Job, Limits, Registry, Shared, Submission, Usage, locked};
use rlx_ir::{Error, ErrorKind, Result};
use rlx_kernel::{DeviceLimits, KernelTarget, TypeSupport};
use rlx_opt::PoolSpec;

use crate::gpu::{Gpu, Which};
use crate::memory::{Range, Readback};
use crate::pipeline::Pipeline;
use crate::{WAITS, block_on};

/// Kernels count elements with 32 bits, so no buffer may be larger.
const MOST_BYTES: u64 = i32::MAX as u64 & !0xff;

static OPENED: Registry<Gpu> = Registry::new();

impl GpuApi for Gpu {
    type Which = Which;
    type Memory = wgpu::Buffer;
    type Range = Range;
    type Host = Readback;
    type Image = Pipeline;
    type Code = Pipeline;
    type Link = Vec<wgpu::BindGroup>;

    const WAITS: bool = WAITS;
    const STORES_KERNELS: bool = true;

    fn registry() -> &'static Registry<Gpu> {
        &OPENED
    }

    fn new(which: &Which) -> Result<Gpu> {
        if !WAITS {
            let message = "the device is not open, and opening it takes turns of the page's event loop";
            return Err(Error::new(ErrorKind::DeviceUnavailable, message)
                .with_device(which.device.name())
                .with_hint("await WgpuBackend::open first"));
        }
        block_on(Gpu::opened_by(*which))
    }

    fn shared(&self) -> &Shared<Gpu> {
        &self.shared
    }

    fn machine(&self) -> String {
        format!("{} ({}, {})", self.info.name, self.info.backend, self.info.driver_info)
    }

    fn target(which: &Which, opened: Option<&Gpu>) -> KernelTarget {
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
        };
        let int16 = gpu.device.features().contains(wgpu::Features::SHADER_I16);
        let types = if int16 { TypeSupport::WGSL_INT16 } else { TypeSupport::WGSL };
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

    fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    fn stray(&self) -> Option<Error> {
        locked(&self.stray).take()
    }

    fn wait(&self) -> Result<()> {
        self.poll(wgpu::PollType::wait_indefinitely())
    }

    fn poll_calls(&self, context: &mut Context<'_>) -> Poll<()> {
        self.poll_late(context)
    }

    fn allocate(&self, bytes: usize, usage: Usage, what: &str) -> Result<wgpu::Buffer> {
        let usage = match usage {
            Usage::Storage | Usage::Pool => wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC,
            Usage::Uniforms => wgpu::BufferUsages::UNIFORM,
        };
        self.create(bytes, usage | wgpu::BufferUsages::COPY_DST, what)
    }

    fn range(memory: &wgpu::Buffer, offset: usize, bytes: usize) -> Range {
        Range { buffer: memory.clone(), offset: offset as u64, bytes: whole_words(bytes) as u64 }
    }

    fn write(&self, to: &wgpu::Buffer, offset: usize, bytes: &[u8]) -> Result<()> {
        self.send(to, offset as u64, bytes)
    }

    fn read(&self, from: &Range, bytes: usize) -> Result<Vec<u8>> {
        self.download(from, bytes)
    }

    fn copy(&self, to: &wgpu::Buffer, from: &wgpu::Buffer, bytes: usize, what: &str) -> Result<()> {
        self.copy_words((from, 0), to, bytes, &format!("copying {what}")).map(drop)
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

    fn times_steps(&self) -> bool {
        self.has_clock()
    }

    fn submit(&self, groups: &mut Vec<wgpu::BindGroup>, work: Submission<'_, Gpu>) -> Result<()> {
        self.run(groups, work)
    }
}
