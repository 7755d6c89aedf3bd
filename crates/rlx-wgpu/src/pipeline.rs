//! Compute pipelines, made from kernels. Sizes are no part of a kernel, so new dimensions need no new pipeline. What the driver made of
//! a kernel is cached on disk, where the driver gives it ([`crate::driver_cache`]).

use rlx_gpu::{GpuApi, Job, Source};
use rlx_ir::{ErrorKind, Result};
use rlx_kernel::Kernel;
use rlx_kernel::ir::Access;
use rlx_kernel::render::{self, WgslOptions};

use crate::gpu::Gpu;
use crate::language::{self, Language};
use crate::trusted;

/// A kernel as the device runs it, and how its bindings are laid out: see [`rlx_kernel::render`].
#[derive(Debug)]
pub struct Pipeline {
    pub(crate) raw: wgpu::ComputePipeline,
    pub(crate) layout: wgpu::BindGroupLayout,
}

/// A time as events carry it.
fn micros(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The name of kernels in WGSL.
const ENTRY: &str = "main";
/// The name of kernels in Metal's language, whose functions cannot be called `main`.
const METAL_ENTRY: &str = "rlx_kernel";

/// A kernel in the device's language.
struct Code<'c> {
    name: &'c str,
    source: &'c str,
    read_only: &'c [bool],
    workgroup: u32,
    /// Whether it may be given to Vulkan as SPIR-V.
    passes: bool,
    /// Whether it exchanges values within subgroups.
    exchanges: bool,
    /// Whether its indices are bounded, and workgroup memory is cleared first.
    guarded: bool,
}

impl Gpu {
    /// Whether its contexts serve one thread at a time.
    pub(crate) fn is_opengl(&self) -> bool {
        self.info.backend == wgpu::Backend::Gl
    }

    /// The pipeline of a kernel. One that is guarded has its indices bounded, by wgpu on Vulkan and by the renderer on OpenGL; workgroup memory, which may
    /// hold what other programs left there, is cleared first.
    ///
    /// # Errors
    /// [`rlx_ir::ErrorKind::Device`] for a kernel that the driver rejects.
    pub(crate) fn pipeline(&self, job: &Job<'_>) -> Result<Pipeline> {
        let &Job { hash, source, guarded } = job;
        let started = rlx_ir::clock::Instant::now();
        let (text, buffers, workgroup, fails) = match source {
            Source::Kernel(kernel) => {
                (self.source(kernel, guarded)?, &kernel.buffers, kernel.workgroup, kernel.can_fail())
            }
            Source::Tiles(program) if self.matrices.is_some() && !guarded => {
                let entry = if self.language == Language::Msl { METAL_ENTRY } else { ENTRY };
                (rlx_tile::render::source(program, entry)?, &program.buffers, program.workgroup(), false)
            }
            Source::Tiles(_) => {
                let message = "a tile program for a device without matrix units, or from a file";
                return Err(self.error(ErrorKind::Internal, message));
            }
        };
        let name = source.name();
        tracing::trace!(kernel = name, rendered_us = micros(started.elapsed()), "rendered a kernel");
        let buffers = buffers.iter().map(|b| b.access == Access::Read);
        let read_only: Vec<bool> = buffers.chain(fails.then_some(false)).collect();
        let passes = self.takes_spirv && !guarded && self.fits(source);
        let exchanges = matches!(source, Source::Kernel(kernel) if kernel.subgroup.is_some());
        let code = Code { name, source: &text, read_only: &read_only, workgroup, passes, exchanges, guarded };
        match &self.driver_cache {
            Some(kept) => {
                let name = format!("{hash}{}", if guarded { "-guarded" } else { "" });
                kept.compile(&self.device, &name, |cache| self.compile_code(&code, Some(cache)))
            }
            None => self.compile_code(&code, None),
        }
    }

    fn source(&self, kernel: &Kernel, guarded: bool) -> Result<String> {
        match self.language {
            Language::Wgsl => {
                let opengl = self.is_opengl();
                let checked = guarded && opengl;
                let long_words = self.device.features().contains(wgpu::Features::SHADER_INT64);
                let opaque_uniforms = self.info.device_type == wgpu::DeviceType::Cpu;
                let options = WgslOptions {
                    checked,
                    divided_remainders: opengl,
                    long_words,
                    opaque_uniforms,
                    ..Default::default()
                };
                render::wgsl(kernel, options)
            }
            Language::Msl if guarded => {
                let message = "a kernel from a file cannot be kept within its buffers in Metal's language";
                Err(self.error(ErrorKind::Unsupported, message).with_hint("compile the model again"))
            }
            Language::Msl => render::msl(kernel, METAL_ENTRY),
        }
    }

    /// The language that the device takes kernels in: its own where its compiler accepts that, else WGSL.
    pub(crate) fn accepted(&self) -> Language {
        if self.language == Language::Wgsl {
            return Language::Wgsl;
        }
        let kernel = language::trial();
        let (hash, source) = (kernel.hash(), Source::Kernel(kernel.into()));
        match self.pipeline(&Job { hash, source: &source, guarded: false }) {
            Ok(_) => self.language,
            Err(why) => {
                tracing::warn!(device = %self.name(), %why, "Metal rejects kernels in its own language: they are in WGSL");
                Language::Wgsl
            }
        }
    }

    /// Compiles text whose binding 0 is the uniforms, and bindings from 1 on storage buffers.
    fn compile_code(&self, code: &Code<'_>, cache: Option<&wgpu::PipelineCache>) -> Result<Pipeline> {
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
            let (module, entry) = self.module(code);
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
                entry_point: Some(entry),
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

    /// Whether it is a kernel within the device's limits: of SPIR-V, wgpu does not look whether it is. Tile programs are none: their matrices need what is no part
    /// of SPIR-V's first version.
    fn fits(&self, source: &Source) -> bool {
        let Source::Kernel(kernel) = source else { return false };
        let limits = &self.limits;
        let most = limits.max_compute_invocations_per_workgroup.min(limits.max_compute_workgroup_size_x);
        let shared = kernel.shared_bytes() as u64;
        kernel.workgroup <= most && shared <= u64::from(limits.max_compute_workgroup_storage_size)
    }

    /// The module of a kernel, and the name of its function.
    fn module(&self, code: &Code<'_>) -> (wgpu::ShaderModule, &'static str) {
        let (device, label) = (&self.device, Some(code.name));
        if self.language == Language::Msl {
            let module = trusted::metal(device, label, code.source, METAL_ENTRY, code.workgroup);
            return (module, METAL_ENTRY);
        }
        let kept = self.driver_cache.as_ref().filter(|_| code.passes);
        if let Some(words) = kept.and_then(|kept| kept.spirv(code.source, code.exchanges)) {
            return (trusted::spirv(device, label, &words, ENTRY, code.workgroup), ENTRY);
        }
        let source = wgpu::ShaderSource::Wgsl(code.source.into());
        let description = wgpu::ShaderModuleDescriptor { label, source };
        let module = match code.guarded {
            true => device.create_shader_module(description),
            false => trusted::module(device, description),
        };
        (module, ENTRY)
    }
}
