//! The backend: the device as the compiler sees it, and its probe.

use std::path::PathBuf;
use std::sync::Arc;

use rlx_backend::tuning::TuningKey;
use rlx_backend::{Backend, CompileCache, ExecutableGraph, libraries};
use rlx_driver::Device;
use rlx_gpu::{GpuApi, backend};
use rlx_ir::lir::Step;
use rlx_ir::{LirModule, Result};
use rlx_opt::{CompileOptions, Target};

use crate::gpu::{Gpu, Which};

/// A GPU of NVIDIA's ([`Device::Cuda`]) or AMD's ([`Device::Rocm`]) by the vendor's own driver and compiler, which are loaded at run
/// time: first from the folders that [`libraries::LIBRARY_PATH`] names.
///
/// Every process opens a GPU once; its kernels and weights are shared by all executables. Which GPUs a process sees, the vendors'
/// variables say (`CUDA_VISIBLE_DEVICES`, `HIP_VISIBLE_DEVICES`).
///
/// ```
/// use rlx_backend::Backend;
/// use rlx_driver::Device;
/// let backend = rlx_simt::SimtBackend::new(Device::Cuda);
/// match backend.probe() {
///     Ok(()) => println!("{}", backend.machine()?),
///     Err(missing) => println!("{missing}"),
/// }
/// # Ok::<(), rlx_ir::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SimtBackend {
    which: Which,
}

impl SimtBackend {
    /// The first GPU of `device`; whether there is one, [`Backend::probe`] says.
    pub fn new(device: Device) -> Self {
        SimtBackend {
            which: Which { device, folders: libraries::folders(), ordinal: 0, max_memory_bytes: None },
        }
    }

    /// GPU number `ordinal` as the driver counts, from 0.
    #[must_use]
    pub fn with_ordinal(mut self, ordinal: usize) -> Self {
        self.which.ordinal = ordinal;
        self
    }

    /// The driver and the compiler from these folders, where they are there.
    #[must_use]
    pub fn with_library_folders(mut self, folders: Vec<PathBuf>) -> Self {
        self.which.folders = folders;
        self
    }

    /// At most so many bytes of device memory for all executables of this backend together: for sharing a GPU.
    #[must_use]
    pub fn with_max_memory(mut self, bytes: u64) -> Self {
        self.which.max_memory_bytes = Some(bytes);
        self
    }

    /// How many GPUs the driver finds.
    ///
    /// # Errors
    /// As [`Backend::probe`].
    pub fn gpu_count(&self) -> Result<usize> {
        Gpu::count(&self.which)
    }

    /// How many kernels were compiled for the GPU in this process.
    ///
    /// # Errors
    /// As [`Backend::probe`].
    pub fn kernel_count(&self) -> Result<usize> {
        Ok(self.gpu()?.shared.kernel_count())
    }

    /// Bytes of device memory that this process's executables hold.
    ///
    /// # Errors
    /// As [`Backend::probe`].
    pub fn memory_in_use(&self) -> Result<u64> {
        Ok(self.gpu()?.shared.memory_in_use())
    }

    fn gpu(&self) -> Result<Arc<Gpu>> {
        Gpu::open(&self.which)
    }
}

impl Backend for SimtBackend {
    fn name(&self) -> &str {
        self.which.device.feature()
    }

    fn machine(&self) -> Result<String> {
        Ok(self.gpu()?.machine.clone())
    }

    fn probe(&self) -> Result<()> {
        backend::probe::<Gpu>(&self.which, self)
    }

    fn drain(&self) -> Result<()> {
        backend::drain::<Gpu>(&self.which)
    }

    fn target(&self, _: &CompileOptions) -> Result<Arc<dyn Target>> {
        Ok(backend::target::<Gpu>(&self.which))
    }

    fn compile(&self, lir: Arc<LirModule>, options: &CompileOptions) -> Result<Box<dyn ExecutableGraph>> {
        self.compile_cached(lir, options, &CompileCache::default())
    }

    fn compile_cached(
        &self,
        lir: Arc<LirModule>,
        options: &CompileOptions,
        cache: &CompileCache,
    ) -> Result<Box<dyn ExecutableGraph>> {
        backend::compile::<Gpu>(&self.which, lir, options, cache)
    }

    fn tuning_key(&self, lir: &LirModule, step: &Step) -> Result<Option<TuningKey>> {
        backend::tuning_key::<Gpu>(&self.which, lir, step)
    }
}
