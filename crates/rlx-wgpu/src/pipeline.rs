//! Compute pipelines: made from kernels, several at a time, and kept by the kernel's hash for as long as the
//! device is open. Sizes are no part of a kernel, so new dimensions need no new pipeline.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rlx_ir::{Error, ErrorKind, Result};
use rlx_kernel::ir::Access;
use rlx_kernel::render::{self, WgslOptions};
use rlx_kernel::{Kernel, KernelHash};

use crate::gpu::{Gpu, locked};

/// A kernel as the device runs it, and how its bindings are laid out: see [`rlx_kernel::render`].
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) raw: wgpu::ComputePipeline,
    pub(crate) layout: wgpu::BindGroupLayout,
}

/// A kernel that cannot be compiled, and why.
pub(crate) type Refused = (KernelHash, Error);

impl Gpu {
    /// The pipelines of `kernels`, by hash; what is not there yet is compiled.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] for a kernel that the driver refuses, and which one.
    pub(crate) fn pipelines<'k>(
        &self,
        kernels: impl IntoIterator<Item = &'k Arc<Kernel>>,
    ) -> std::result::Result<HashMap<KernelHash, Arc<Pipeline>>, Refused> {
        let mut found = HashMap::new();
        let mut missing: Vec<(KernelHash, &Kernel)> = Vec::new();
        {
            let known = locked(&self.pipelines);
            for kernel in kernels {
                let hash = kernel.hash();
                match known.get(&hash) {
                    Some(pipeline) => _ = found.insert(hash, Arc::clone(pipeline)),
                    None if missing.iter().any(|(h, _)| *h == hash) => {}
                    None => missing.push((hash, kernel)),
                }
            }
        }
        if missing.is_empty() {
            return Ok(found);
        }
        let made = self.compile_all(&missing)?;
        let mut known = locked(&self.pipelines);
        for ((hash, _), pipeline) in missing.iter().zip(made) {
            let pipeline = Arc::clone(known.entry(*hash).or_insert(pipeline));
            found.insert(*hash, pipeline);
        }
        Ok(found)
    }

    /// Compiles on as many threads as the driver makes use of; an OpenGL context serves one at a time.
    fn compile_all(
        &self,
        kernels: &[(KernelHash, &Kernel)],
    ) -> std::result::Result<Vec<Arc<Pipeline>>, Refused> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if self.info.backend == wgpu::Backend::Gl { 1 } else { cores.min(kernels.len()) };
        let started = std::time::Instant::now();
        let next = AtomicUsize::new(0);
        let done: Vec<Mutex<Option<Result<Arc<Pipeline>>>>> =
            kernels.iter().map(|_| Mutex::new(None)).collect();
        let work = || {
            while let Some((i, (_, kernel))) =
                Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, kernels.get(i)?)))
            {
                *locked(&done[i]) = Some(self.compile(kernel).map(Arc::new));
            }
        };
        std::thread::scope(|scope| {
            (1..threads).for_each(|_| _ = scope.spawn(work));
            work();
        });
        tracing::debug!(device = %self.name, count = kernels.len(), took = ?started.elapsed(), "compiled pipelines");
        let lost = || Err(self.error(ErrorKind::Internal, "a pipeline that nobody compiled"));
        let compiled = done.into_iter().map(|slot| locked(&slot).take().unwrap_or_else(lost));
        compiled.zip(kernels).map(|(made, (kernel, _))| made.map_err(|e| (*kernel, e))).collect()
    }

    fn compile(&self, kernel: &Kernel) -> Result<Pipeline> {
        let source = render::wgsl(kernel, WgslOptions::default())?;
        let buffers = kernel.buffers.iter().map(|b| b.access == Access::Read);
        let read_only: Vec<bool> = buffers.chain(kernel.can_fail().then_some(false)).collect();
        self.compile_wgsl(&kernel.name, &source, &read_only)
    }

    /// Compiles WGSL whose binding 0 is the uniforms, and bindings from 1 on storage buffers.
    pub(crate) fn compile_wgsl(&self, name: &str, source: &str, read_only: &[bool]) -> Result<Pipeline> {
        let entry = |binding: u32, ty| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
            count: None,
        };
        let mut entries = vec![entry(0, wgpu::BufferBindingType::Uniform)];
        for (i, &read_only) in read_only.iter().enumerate() {
            entries.push(entry(i as u32 + 1, wgpu::BufferBindingType::Storage { read_only }));
        }
        let (device, label) = (&self.device, Some(name));
        self.checked(&|| format!("kernel {name:?}"), || {
            let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
                label,
                source: wgpu::ShaderSource::Wgsl(source.into()),
            });
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
                // Every kernel writes its workgroup memory before it reads it; the interpreter checks that.
                compilation_options: wgpu::PipelineCompilationOptions {
                    zero_initialize_workgroup_memory: false,
                    ..Default::default()
                },
                cache: None,
            });
            Pipeline { raw, layout }
        })
    }
}
