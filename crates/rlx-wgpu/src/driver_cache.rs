//! What the driver made of kernels, cached in the user's cache folder.
//!
//! A driver's compiler may take longer than all that is before it. Vulkan gives its result as bytes that only the
//! same driver understands ([`wgpu::PipelineCache`]). Each kernel has a file of its own, in a folder for its adapter and
//! driver: `pipelines/ADAPTER/KERNEL.bin`. Files appear whole or not at all, those of one kernel mean the same anyone who
//! wrote them, and none grows: so processes need no lock.
//!
//! **Trust.** No driver checks these bytes as it checks code; they must be what it gave. That is why they never are in
//! artefacts, which people exchange, but only in a folder of the user's own that no one else may write. A hash seals
//! each file against damage; one that does not match is written again.

use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::SystemTime;

use rlx_backend::pipelines;
use rlx_ir::files::{io_error, is_missing, make_own, open_file, write_whole};
use rlx_ir::{Error, ErrorKind, Result};

/// The first bytes of a file.
const MAGIC: [u8; 8] = *b"RLXPIPE1";
const HASH: usize = 32;
/// The largest file that is read.
const MOST_BYTES: u64 = 64 << 20;

/// The cached pipelines of one adapter.
#[derive(Debug)]
pub(crate) struct DriverCache {
    /// Of all adapters.
    root: PathBuf,
    folder: PathBuf,
    /// Bytes that the driver gives of a cache that holds nothing.
    empty: usize,
    cleaned: Once,
}

impl DriverCache {
    /// The pipelines of the device's adapter; `None` where its driver gives none, or no one can keep them.
    pub(crate) fn open(device: &wgpu::Device, info: &wgpu::AdapterInfo) -> Option<Self> {
        if !device.features().contains(wgpu::Features::PIPELINE_CACHE) {
            return None;
        }
        let adapter = wgpu::util::pipeline_cache_key(info)?;
        let parts = [&info.name, &info.driver, &info.driver_info, env!("CARGO_PKG_VERSION")];
        let key = blake3::hash(parts.join("\n").as_bytes()).to_hex();
        let empty = create(device, None).get_data()?.len();
        let made = pipelines::folder().and_then(|root| make_own(&root).map(|()| root));
        let root = made.map_err(|e| tracing::warn!(error = %e, "compiled pipelines are not cached")).ok()?;
        let folder = root.join(format!("{adapter}-{}", &key[..16]));
        Some(DriverCache { root, folder, empty, cleaned: Once::new() })
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
        let path = self.folder.join(format!("{kernel}.bin"));
        let known = read(&path).unwrap_or_else(|e| {
            tracing::warn!(path = %path.display(), error = %e, "a cached pipeline is not used");
            None
        });
        let cache = create(device, known.as_deref());
        let made = compile(&cache)?;
        if let Some(data) = cache.get_data().filter(|data| data.len() > self.empty) {
            // A driver that took what it was given gives as much back.
            if known.is_none_or(|known| known.len() != data.len()) {
                self.keep(&path, &data);
            }
        }
        Ok(made)
    }

    fn keep(&self, path: &Path, data: &[u8]) {
        let written = make_own(&self.folder).and_then(|()| write(path, data));
        if let Err(e) = written {
            tracing::warn!(path = %path.display(), error = %e, "a compiled pipeline was not kept");
        }
        self.cleaned.call_once(|| pipelines::evict(&self.root, pipelines::LIMIT));
    }
}

/// A cache that holds what an earlier one gave, or nothing.
fn create(device: &wgpu::Device, data: Option<&[u8]>) -> wgpu::PipelineCache {
    let description = wgpu::PipelineCacheDescriptor { label: None, data, fallback: true };
    // SAFETY: `data` is what `PipelineCache::get_data` gave: `read` takes it from a file that `write` sealed with a hash,
    // in a folder that belongs to this user and that no one else may write (`make_own`), named for this adapter and
    // driver. wgpu compares its own header with the adapter, the driver and the length, and takes an empty cache where
    // they differ.
    unsafe { device.create_pipeline_cache(&description) }
}

fn write(path: &Path, data: &[u8]) -> Result<()> {
    use std::io::Write;
    let hash = blake3::hash(data);
    let mut parts = [&MAGIC[..], hash.as_bytes(), data].into_iter();
    write_whole(path, |file| parts.try_for_each(|part| file.write_all(part)).map_err(|e| io_error(path, e)))
}

/// What [`write`] wrote; `None` when there is no such file.
fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    use std::io::Read;
    let mut file = match open_file(path) {
        Err(e) if is_missing(&e) => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.by_ref().take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|e| io_error(path, e))?;
    let damaged = || Error::new(ErrorKind::Malformed, format!("{} is damaged", path.display()));
    let sealed = bytes.strip_prefix(&MAGIC).ok_or_else(damaged)?;
    let (hash, data) = sealed.split_first_chunk::<HASH>().ok_or_else(damaged)?;
    if bytes.len() as u64 > MOST_BYTES || blake3::hash(data).as_bytes() != hash {
        return Err(damaged());
    }
    // Noted for what goes when the folder is full; where it cannot be, files leave in another order.
    let _ = file.set_modified(SystemTime::now());
    Ok(Some(data.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_driver_gave_is_taken_back() {
        use crate::gpu::{Gpu, Lowered};
        let lowered = Lowered { max_memory_bytes: Some(1 << 28), ..Lowered::default() };
        let gpu = match Gpu::open(rlx_driver::Device::Vulkan, lowered) {
            Ok(gpu) if gpu.device.features().contains(wgpu::Features::PIPELINE_CACHE) => gpu,
            Ok(_) => return println!("@skip 1 the driver keeps no pipelines"),
            Err(missing) => return println!("@skip 1 {missing}"),
        };
        // Software drivers give a head and nothing else: here that is kept, too.
        let root = fresh("driver");
        let folder = root.join("adapter");
        let cache = DriverCache { root, folder, empty: 0, cleaned: Once::new() };
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
        let path = cache.folder.join("kernel.bin");
        let first = std::fs::read(&path).unwrap();
        let given = read(&path).unwrap().unwrap();
        assert_eq!(create(&gpu.device, Some(&given)).get_data().unwrap().len(), given.len());
        cache.compile(&gpu.device, "kernel", compile).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), first, "what was taken is not written again");
        std::fs::write(&path, b"damaged").unwrap();
        cache.compile(&gpu.device, "kernel", compile).unwrap();
        assert_eq!(std::fs::read(&path).unwrap().len(), first.len(), "what was damaged is written again");
        std::fs::remove_dir_all(&cache.root).unwrap();
    }

    fn fresh(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("rlx-pipelines-{name}-{}", std::process::id()));
        // Nothing is left of an earlier run.
        let _ = std::fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn what_is_written_is_read_and_any_damage_is_noticed() {
        let folder = fresh("read");
        make_own(&folder).unwrap();
        let path = folder.join("k.bin");
        assert_eq!(read(&path).unwrap(), None);
        write(&path, b"what a driver gave").unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some(&b"what a driver gave"[..]));
        let good = std::fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            std::fs::write(&path, &bad).unwrap();
            assert_eq!(read(&path).unwrap_err().kind(), ErrorKind::Malformed, "byte {at}");
            std::fs::write(&path, &good[..at]).unwrap();
            assert_eq!(read(&path).unwrap_err().kind(), ErrorKind::Malformed, "cut at {at}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
