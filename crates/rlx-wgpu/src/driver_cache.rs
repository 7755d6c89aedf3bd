//! What the driver made of kernels, cached in the user's cache folder: see [`rlx_backend::pipelines`].
//!
//! A driver's compiler may take longer than all that is before it. Vulkan gives its result as bytes that only the
//! same driver understands ([`wgpu::PipelineCache`]).

use rlx_backend::pipelines::Kept;
use rlx_ir::Result;

#[cfg(not(any(target_vendor = "apple", target_family = "wasm")))]
use crate::spirv;

/// The cached pipelines of one adapter.
#[derive(Debug)]
pub(crate) struct DriverCache {
    kept: Kept,
    /// Bytes that the driver gives of a cache that holds nothing.
    empty: usize,
}

impl DriverCache {
    /// The pipelines of the device's adapter; `None` where its driver gives none, or no one can keep them.
    pub(crate) fn open(device: &wgpu::Device, info: &wgpu::AdapterInfo) -> Option<Self> {
        if !device.features().contains(wgpu::Features::PIPELINE_CACHE) {
            return None;
        }
        let adapter = wgpu::util::pipeline_cache_key(info)?;
        let empty = create(device, None).get_data()?.len();
        let kept = Kept::of(&adapter, &[&info.name, &info.driver, &info.driver_info])?;
        Some(DriverCache { kept, empty })
    }

    /// Compiles a kernel with what is kept of it, and keeps what is new.
    ///
    /// # Errors
    /// What `compile` reports. A file that cannot be read or written only costs time.
    pub(crate) fn compile<T>(
        &self,
        device: &wgpu::Device,
        kernel: &str,
        compile: impl FnOnce(&wgpu::PipelineCache) -> Result<T>,
    ) -> Result<T> {
        let known = self.kept.load(kernel);
        let cache = create(device, known.as_deref());
        let made = compile(&cache)?;
        if let Some(data) = cache.get_data().filter(|data| data.len() > self.empty) {
            // A driver that took what it was given gives as much back.
            if known.is_none_or(|known| known.len() != data.len()) {
                self.kept.keep(kernel, &data);
            }
        }
        Ok(made)
    }

    /// The SPIR-V of an own kernel's text: what is kept of it, or what is written now and kept. `None` where naga rejects the text, so that wgpu says why.
    #[cfg(not(any(target_vendor = "apple", target_family = "wasm")))]
    pub(crate) fn spirv(&self, text: &str, exchanges: bool) -> Option<Vec<u32>> {
        let name = spirv::file_name(text);
        if let Some(words) = self.kept.load(&name).and_then(|bytes| spirv::from_bytes(&bytes)) {
            return Some(words);
        }
        let words = spirv::write(text, exchanges).ok()?;
        self.kept.keep(&name, &spirv::to_bytes(&words));
        Some(words)
    }

    /// Where there is no Vulkan, nothing is written for it.
    #[cfg(any(target_vendor = "apple", target_family = "wasm"))]
    pub(crate) fn spirv(&self, _: &str, _: bool) -> Option<Vec<u32>> {
        None
    }
}

/// A cache that holds what an earlier one gave, or nothing.
fn create(device: &wgpu::Device, data: Option<&[u8]>) -> wgpu::PipelineCache {
    let description = wgpu::PipelineCacheDescriptor { label: None, data, fallback: true };
    // SAFETY: `data` is what `PipelineCache::get_data` gave: `Kept` takes it from a file that it sealed with a hash,
    // in a folder that belongs to this user and that no one else may write (`make_own`), named for this adapter and
    // driver. wgpu compares its own header with the adapter, the driver and the length, and takes an empty cache where
    // they differ.
    unsafe { device.create_pipeline_cache(&description) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_driver_gave_is_taken_back() {
        use rlx_gpu::{GpuApi, Lowered, Which};

        use crate::gpu::Gpu;
        let limits = Lowered { max_memory_bytes: Some(1 << 28), ..Lowered::default() };
        let gpu = match Gpu::open(&Which { device: rlx_driver::Device::Vulkan, limits, options: () }) {
            Ok(gpu) if gpu.device.features().contains(wgpu::Features::PIPELINE_CACHE) => gpu,
            Ok(_) => return println!("@skip 1 the driver keeps no pipelines"),
            Err(missing) => return println!("@skip 1 {missing}"),
        };
        // Software drivers give a head and nothing else: here that is kept, too.
        let root = std::env::temp_dir().join(format!("rlx-pipelines-driver-{}", std::process::id()));
        // Nothing is left of an earlier run.
        let _ = std::fs::remove_dir_all(&root);
        let cache = DriverCache { kept: Kept::within(root.clone(), "adapter", &[]), empty: 0 };
        let compile = |cache: &wgpu::PipelineCache| {
            gpu.checked(&|| "a kernel".to_string(), || {
                let source = wgpu::ShaderSource::Wgsl("@compute @workgroup_size(1) fn main() {}".into());
                let module =
                    (gpu.device).create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
                gpu.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                    label: None,
                    layout: None,
                    module: &module,
                    entry_point: Some("main"),
                    compilation_options: Default::default(),
                    cache: Some(cache),
                })
            })
        };
        cache.compile(&gpu.device, "kernel", compile).unwrap();
        let path = cache.kept.path("kernel");
        let first = std::fs::read(&path).unwrap();
        let given = cache.kept.load("kernel").unwrap();
        assert_eq!(create(&gpu.device, Some(&given)).get_data().unwrap().len(), given.len());
        cache.compile(&gpu.device, "kernel", compile).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), first, "what was taken is not written again");
        std::fs::write(&path, b"damaged").unwrap();
        cache.compile(&gpu.device, "kernel", compile).unwrap();
        assert_eq!(std::fs::read(&path).unwrap().len(), first.len(), "what was damaged is written again");
        std::fs::remove_dir_all(root).unwrap();
    }
}
