//! The backend: the device as the compiler sees it, and its probe.

use std::path::PathBuf;
use std::sync::Arc;

use rlx_backend::tuning::{Tuning, TuningKey};
use rlx_backend::{Backend, CompileCache, ExecutableGraph, libraries};
use rlx_driver::Device;
use rlx_ir::lir::Step;
use rlx_ir::{ErrorKind, LirModule, Result};
use rlx_kernel::{DeviceLimits, KernelTarget, Launches, dispatch};
use rlx_opt::{CompileOptions, PoolSpec, Target};

use crate::gpu::{Gpu, Which};
use crate::program::{SimtExecutable, program};

/// Kernels count elements with 32 bits, so no buffer may be larger.
const MOST_BYTES: usize = i32::MAX as usize & !0xff;

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
        Ok(self.gpu()?.kernel_count())
    }

    /// Bytes of device memory that this process's executables hold.
    ///
    /// # Errors
    /// As [`Backend::probe`].
    pub fn memory_in_use(&self) -> Result<u64> {
        Ok(self.gpu()?.memory_in_use())
    }

    fn gpu(&self) -> Result<Arc<Gpu>> {
        Gpu::open(&self.which)
    }

    fn kernel_target(&self, limits: Option<&Gpu>) -> KernelTarget {
        let full = KernelTarget::full(self.which.device.feature());
        let limits = DeviceLimits {
            max_workgroup: limits.map_or(full.limits.max_workgroup, |gpu| gpu.max_workgroup),
            max_shared_bytes: limits.map_or(full.limits.max_shared_bytes, |gpu| gpu.shared_bytes),
            // HIP counts the invocations of a dispatch with 32 bits.
            max_groups: if self.which.device == Device::Rocm { 1 << 21 } else { full.limits.max_groups },
            ..full.limits
        };
        let pool = PoolSpec { max_buffer_bytes: MOST_BYTES, ..full.pool };
        KernelTarget { limits, pool, ..full }
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
        let gpu = self.gpu()?;
        gpu.probed
            .get_or_init(|| {
                if rlx_backend::probe::doubles(self)? {
                    return Ok(());
                }
                let message = format!("{} computes wrongly", gpu.machine);
                Err(gpu.error(ErrorKind::DeviceUnavailable, message).with_hint("use another driver"))
            })
            .clone()
    }

    fn drain(&self) -> Result<()> {
        Gpu::opened(&self.which).map_or(Ok(()), |gpu| gpu.wait())
    }

    fn target(&self, _: &CompileOptions) -> Result<Arc<dyn Target>> {
        // Without the device, what every device has: graphs can be checked against it all the same.
        Ok(Arc::new(self.kernel_target(self.gpu().ok().as_deref())))
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
        let gpu = self.gpu()?;
        let target = self.kernel_target(Some(&gpu));
        let target = KernelTarget { pool: target.pool.for_options(options), ..target };
        rlx_opt::verify_lir::verify_program(&lir, &target)?;
        let tuning: &Tuning = &cache.tuning;
        let launches = Launches::of(&lir, &target, &|step| dispatch::variant(step, &lir, &target, tuning))?;
        let program = program(gpu, target, lir, &launches)?;
        Ok(Box::new(SimtExecutable::new(Arc::new(program))?))
    }

    fn tuning_key(&self, lir: &LirModule, step: &Step) -> Result<Option<TuningKey>> {
        let gpu = self.gpu()?;
        dispatch::tuning_key(step, lir, &self.kernel_target(Some(&gpu)))
    }
}
