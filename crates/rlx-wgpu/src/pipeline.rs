//! Compute pipelines: made from kernels, several at a time, and kept by the kernel's hash for as long as the
//! device is open. Sizes are no part of a kernel, so new dimensions need no new pipeline. What the driver made of
//! a kernel is cached on disk, where the driver gives it ([`crate::driver_cache`]).

use std::sync::Arc;

use rlx_backend::pipelines::in_parallel;
use rlx_ir::{Error, ErrorKind, Result};
use rlx_kernel::ir::Access;
use rlx_kernel::render::{self, WgslOptions};
use rlx_kernel::{Kernel, KernelHash};

use crate::gpu::{Gpu, locked};
use crate::trusted;

/// A kernel as the device runs it, and how its bindings are laid out: see [`rlx_kernel::render`].
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) raw: wgpu::ComputePipeline,
    pub(crate) layout: wgpu::BindGroupLayout,
}

/// What a pipeline is kept by: the kernel, and whether it is guarded.
pub(crate) type PipelineKey = (KernelHash, bool);

/// Where kernels come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Made in this process.
    Scheduled,
    /// Read from a file, which may be anyone's.
    Stored,
}

impl Origin {
    /// Whether a kernel must be kept from what its rules leave open. Those of schedules stay within their buffers and write
    /// workgroup memory before they read it; the interpreter checks that. One from a file may do neither, and an own kernel in a file
    /// may be given numbers that no schedule gives it. wgpu bounds indices on Vulkan, the renderer on OpenGL; and workgroup memory may hold what
    /// other programs left there.
    fn guarded(self) -> bool {
        self == Origin::Stored
    }
}

/// A time as events carry it.
fn micros(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A kernel that cannot be compiled, by its place, and why.
pub(crate) type Rejected = (usize, Error);

/// A kernel to be compiled, guarded or not.
struct Job<'k> {
    place: usize,
    key: PipelineKey,
    kernel: &'k Kernel,
}

/// A kernel in WGSL.
struct Code<'c> {
    name: &'c str,
    source: &'c str,
    read_only: &'c [bool],
    /// Whether its indices are bounded, and workgroup memory is cleared first.
    guarded: bool,
}

impl Gpu {
    /// The pipelines of distinct kernels, in their order; what is not there yet is compiled.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] for a kernel that the driver rejects, and which one.
    pub(crate) fn pipelines(
        &self,
        kernels: &[(KernelHash, Arc<Kernel>)],
        origin: Origin,
    ) -> std::result::Result<Vec<Arc<Pipeline>>, Rejected> {
        let mut found: Vec<Option<Arc<Pipeline>>> = {
            let known = locked(&self.pipelines);
            kernels.iter().map(|(hash, _)| known.get(&(*hash, origin.guarded())).cloned()).collect()
        };
        let missing = found.iter().zip(kernels).enumerate().filter(|(_, (found, _))| found.is_none());
        let jobs: Vec<Job<'_>> = missing
            .map(|(place, (_, (hash, kernel)))| Job { place, key: (*hash, origin.guarded()), kernel })
            .collect();
        if !jobs.is_empty() {
            let made = self.compile_all(&jobs)?;
            let mut known = locked(&self.pipelines);
            for (job, pipeline) in jobs.iter().zip(made) {
                found[job.place] = Some(Arc::clone(known.entry(job.key).or_insert(pipeline)));
            }
        }
        let lost = |place| (place, self.error(ErrorKind::Internal, "a kernel without a pipeline"));
        found.into_iter().enumerate().map(|(place, found)| found.ok_or_else(|| lost(place))).collect()
    }

    fn is_opengl(&self) -> bool {
        self.info.backend == wgpu::Backend::Gl
    }

    /// Compiles on as many threads as the driver makes use of; an OpenGL context serves one at a time.
    fn compile_all(&self, jobs: &[Job<'_>]) -> std::result::Result<Vec<Arc<Pipeline>>, Rejected> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if self.is_opengl() { 1 } else { cores.min(jobs.len()) };
        let started = rlx_ir::clock::Instant::now();
        let made = in_parallel(threads, jobs.len(), |i| self.compile(&jobs[i]).map(Arc::new));
        tracing::debug!(device = %self.name, count = jobs.len(), took = ?started.elapsed(), "compiled pipelines");
        made.into_iter().zip(jobs).map(|(made, job)| made.map_err(|e| (job.place, e))).collect()
    }

    fn compile(&self, job: &Job<'_>) -> Result<Pipeline> {
        let (kernel, (hash, guarded)) = (job.kernel, job.key);
        let started = rlx_ir::clock::Instant::now();
        let source =
            render::wgsl(kernel, WgslOptions { checked: guarded && self.is_opengl(), ..Default::default() })?;
        tracing::trace!(kernel = kernel.name, rendered_us = micros(started.elapsed()), "rendered a kernel");
        let buffers = kernel.buffers.iter().map(|b| b.access == Access::Read);
        let read_only: Vec<bool> = buffers.chain(kernel.can_fail().then_some(false)).collect();
        let code = Code { name: &kernel.name, source: &source, read_only: &read_only, guarded };
        match &self.driver_cache {
            Some(kept) => {
                let name = format!("{hash}{}", if guarded { "-guarded" } else { "" });
                kept.compile(&self.device, &name, |cache| self.compile_wgsl(&code, Some(cache)))
            }
            None => self.compile_wgsl(&code, None),
        }
    }

    /// Compiles WGSL whose binding 0 is the uniforms, and bindings from 1 on storage buffers.
    fn compile_wgsl(&self, code: &Code<'_>, cache: Option<&wgpu::PipelineCache>) -> Result<Pipeline> {
        let entry = |binding: u32, ty| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
            count: None,
        };
        let mut entries = vec![entry(0, wgpu::BufferBindingType::Uniform)];
        for (i, &read_only) in code.read_only.iter().enumerate() {
            entries.push(entry(i as u32 + 1, wgpu::BufferBindingType::Storage { read_only }));
        }
        let (device, label) = (&self.device, Some(code.name));
        self.checked(&|| format!("kernel {:?}", code.name), || {
            let started = rlx_ir::clock::Instant::now();
            let source = wgpu::ShaderSource::Wgsl(code.source.into());
            let description = wgpu::ShaderModuleDescriptor { label, source };
            let module = match code.guarded {
                true => device.create_shader_module(description),
                false => trusted::module(device, description),
            };
            let parsed = started.elapsed();
            let layout = device
                .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label, entries: &entries });
            let whole = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label,
                bind_group_layouts: &[Some(&layout)],
                immediate_size: 0,
            });
            let raw = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label,
                layout: Some(&whole),
                module: &module,
                entry_point: Some("main"),
                compilation_options: wgpu::PipelineCompilationOptions {
                    zero_initialize_workgroup_memory: code.guarded,
                    ..Default::default()
                },
                cache,
            });
            let driver = started.elapsed() - parsed;
            tracing::trace!(
                kernel = code.name,
                parsed_us = micros(parsed),
                driver_us = micros(driver),
                "compiled a kernel"
            );
            Pipeline { raw, layout }
        })
    }
}
