//! The backend: the device as the compiler sees it, and its probe.

use std::sync::Arc;

use rlx_backend::tuning::{Tuning, TuningKey};
use rlx_backend::{Backend, CompileCache, ExecutableGraph};
use rlx_driver::Device;
use rlx_gpu::{GpuApi, Transfers, backend};
use rlx_ir::lir::Step;
use rlx_ir::{LirModule, Result};
use rlx_kernel::KernelTarget;
use rlx_opt::{CompileOptions, Target};

use crate::gpu::{Gpu, Lowered, Which};

/// A device that wgpu drives: [`Device::Vulkan`], [`Device::OpenGl`], [`Device::Metal`], [`Device::DirectX`], in a page
/// [`Device::WebGpu`], or, as [`Device::Gpu`], the best adapter.
///
/// Every process opens a device once; its memory and pipelines are shared by all backends and executables of
/// the same device and limits.
///
/// ```no_run
/// use rlx_backend::Backend;
/// use rlx_driver::Device;
/// let backend = rlx_wgpu::WgpuBackend::new(Device::Vulkan);
/// match backend.probe() {
///     Ok(()) => println!("{}", backend.adapter_name()?),
///     Err(missing) => println!("{missing}"),
/// }
/// # Ok::<(), rlx_ir::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct WgpuBackend {
    which: Which,
}

impl WgpuBackend {
    /// The backend of `device`; whether there is one, [`Backend::probe`] says.
    pub fn new(device: Device) -> Self {
        WgpuBackend { which: Which { device, lowered: Lowered::default() } }
    }

    /// The same device under limits below its own.
    pub fn with_limits(self, lowered: Lowered) -> Self {
        WgpuBackend { which: Which { lowered, ..self.which } }
    }

    /// The name of the adapter that serves the device, with its driver.
    ///
    /// # Errors
    /// As [`Backend::probe`].
    pub fn adapter_name(&self) -> Result<String> {
        Ok(self.gpu()?.machine())
    }

    /// Whether the adapter is software on the processor.
    ///
    /// # Errors
    /// As [`Backend::probe`].
    pub fn is_software(&self) -> Result<bool> {
        Ok(self.gpu()?.info.device_type == wgpu::DeviceType::Cpu)
    }

    /// How many kernels were compiled for the device in this process.
    ///
    /// # Errors
    /// As [`Backend::probe`].
    pub fn pipeline_count(&self) -> Result<usize> {
        Ok(self.gpu()?.shared.kernel_count())
    }

    /// Bytes of device memory that this process holds.
    ///
    /// # Errors
    /// As [`Backend::probe`].
    pub fn memory_in_use(&self) -> Result<u64> {
        Ok(self.gpu()?.shared.memory_in_use())
    }

    /// How many bytes went between host and device in this process.
    ///
    /// # Errors
    /// As [`Backend::probe`].
    pub fn transfers(&self) -> Result<Transfers> {
        Ok(self.gpu()?.shared.transfers())
    }

    /// Closes the device in this process and frees its memory. Executables that use it report that it is lost;
    /// what is compiled later opens it again.
    ///
    /// # Errors
    /// As [`Backend::probe`].
    pub fn close(&self) -> Result<()> {
        self.gpu()?.destroy();
        Ok(())
    }

    /// Compiles as [`Backend::compile`] does, but for a device as `target` describes it. Where it promises more than
    /// there is, the driver rejects kernels.
    ///
    /// # Errors
    /// As [`Backend::compile`].
    pub fn compile_for(&self, lir: Arc<LirModule>, target: KernelTarget) -> Result<Box<dyn ExecutableGraph>> {
        backend::compile_for(self.gpu()?, target, lir, &Tuning::default())
    }

    /// Opens the device and runs the probe's kernel, awaiting both; afterwards [`Backend::probe`] and everything else find it open.
    /// A page has no other way, since no thread can wait there; elsewhere the first use opens the device.
    ///
    /// ```no_run
    /// # async fn example() -> rlx_ir::Result<()> {
    /// use rlx_driver::Device;
    /// let backend = rlx_wgpu::WgpuBackend::new(Device::WebGpu);
    /// backend.open().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Backend::probe`].
    pub async fn open(&self) -> Result<()> {
        let gpu = match Gpu::registry().opened(&self.which) {
            Some(gpu) => gpu,
            None => Gpu::registry().insert(&self.which, Gpu::opened_by(self.which).await?),
        };
        backend::probe_awaited(&*gpu, self).await
    }

    fn gpu(&self) -> Result<Arc<Gpu>> {
        Gpu::open(&self.which)
    }
}

impl Backend for WgpuBackend {
    fn name(&self) -> &str {
        self.which.device.feature()
    }

    fn machine(&self) -> Result<String> {
        self.adapter_name()
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
