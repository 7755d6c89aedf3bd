//! The backend: the device as the compiler sees it, and its probe.

use std::sync::Arc;

use rlx_backend::tuning::{Tuning, TuningKey};
use rlx_backend::{Backend, CompileCache, ExecutableGraph};
use rlx_driver::Device;
use rlx_gpu::dispatch;
use rlx_ir::lir::Step;
use rlx_ir::{ErrorKind, LirModule, Result};
use rlx_kernel::{DeviceLimits, KernelTarget, Launches, TypeSupport};
use rlx_opt::{CompileOptions, PoolSpec, Target};

use crate::gpu::{Gpu, Lowered, Transfers, locked};
use crate::pipeline::Origin;
use crate::program::{WgpuExecutable, program};

/// Kernels count elements with 32 bits, so no buffer may be larger.
const MOST_BYTES: u64 = i32::MAX as u64 & !0xff;

/// What the cached kernels are called.
pub(crate) const KERNELS: &str = "kernels";

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
    device: Device,
    lowered: Lowered,
}

impl WgpuBackend {
    /// The backend of `device`; whether there is one, [`Backend::probe`] says.
    pub fn new(device: Device) -> Self {
        WgpuBackend { device, lowered: Lowered::default() }
    }

    /// The same device under limits below its own.
    pub fn with_limits(self, lowered: Lowered) -> Self {
        WgpuBackend { lowered, ..self }
    }

    /// The name of the adapter that serves the device, with its driver.
    ///
    /// # Errors
    /// As [`Backend::probe`].
    pub fn adapter_name(&self) -> Result<String> {
        let gpu = self.gpu()?;
        Ok(format!("{} ({}, {})", gpu.info.name, gpu.info.backend, gpu.info.driver_info))
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
        Ok(locked(&self.gpu()?.pipelines).len())
    }

    /// Bytes of device memory that this process holds.
    ///
    /// # Errors
    /// As [`Backend::probe`].
    pub fn memory_in_use(&self) -> Result<u64> {
        Ok(self.gpu()?.memory_in_use())
    }

    /// How many bytes went between host and device in this process.
    ///
    /// # Errors
    /// As [`Backend::probe`].
    pub fn transfers(&self) -> Result<Transfers> {
        Ok(self.gpu()?.transfers())
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
        compile_for(self.gpu()?, target, lir, &Tuning::default())
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
        let gpu = Gpu::open_awaited(self.device, self.lowered).await?;
        if let Some(probed) = gpu.probed.get() {
            return probed.clone();
        }
        let probed = match rlx_backend::probe::doubles_awaited(self).await {
            Ok(right) => self.judge(right),
            Err(e) => Err(e),
        };
        gpu.probed.get_or_init(|| probed).clone()
    }

    fn gpu(&self) -> Result<Arc<Gpu>> {
        Gpu::open(self.device, self.lowered)
    }

    fn kernel_target(&self, gpu: &Gpu) -> KernelTarget {
        let limits = &gpu.limits;
        let max_bindings = limits.max_storage_buffers_per_shader_stage.min(64) as usize;
        let size = |bytes: u64| bytes.min(MOST_BYTES) as usize;
        let within = DeviceLimits {
            max_bindings,
            max_workgroup: limits
                .max_compute_invocations_per_workgroup
                .min(limits.max_compute_workgroup_size_x),
            max_shared_bytes: limits.max_compute_workgroup_storage_size as usize,
            max_groups: limits.max_compute_workgroups_per_dimension,
        };
        let int16 = gpu.device.features().contains(wgpu::Features::SHADER_I16);
        let types = if int16 { TypeSupport::WGSL_INT16 } else { TypeSupport::WGSL };
        let target = KernelTarget::new(self.device.feature(), types, within);
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

    /// Adds two numbers on the device.
    fn try_kernel(&self) -> Result<()> {
        self.judge(rlx_backend::probe::doubles(self)?)
    }

    /// Whether the probe's result makes a usable device.
    fn judge(&self, right: bool) -> Result<()> {
        if right {
            return Ok(());
        }
        let gpu = self.gpu()?;
        let message = format!("{} ({}) computes wrongly", gpu.info.name, gpu.info.driver_info);
        Err(gpu.error(ErrorKind::DeviceUnavailable, message).with_hint("use another driver"))
    }
}

fn compile_for(
    gpu: Arc<Gpu>,
    target: KernelTarget,
    lir: Arc<LirModule>,
    tuning: &Tuning,
) -> Result<Box<dyn ExecutableGraph>> {
    rlx_opt::verify_lir::verify_program(&lir, &target)?;
    let started = rlx_ir::clock::Instant::now();
    let launches = Launches::of(&lir, &target, &|step| dispatch::variant(step, &lir, &target, tuning))?;
    let (count, took) = (launches.kernels.len(), started.elapsed());
    tracing::debug!(module = %lir.name, kernels = count, ?took, "made kernels");
    let program = program(gpu, target, lir, launches, Origin::Scheduled)?;
    Ok(Box::new(WgpuExecutable::new(Arc::new(program))?))
}

/// As [`compile_for`], by the kernels that another executable of the module left.
fn compile_stored(
    gpu: Arc<Gpu>,
    target: KernelTarget,
    lir: Arc<LirModule>,
    kernels: &[u8],
) -> Result<Box<dyn ExecutableGraph>> {
    rlx_opt::verify_lir::verify_program(&lir, &target)?;
    let started = rlx_ir::clock::Instant::now();
    let launches = Launches::from_bytes(kernels, &lir, &target)?;
    let (count, took) = (launches.kernels.len(), started.elapsed());
    tracing::debug!(module = %lir.name, kernels = count, ?took, "read kernels");
    let program = program(Arc::clone(&gpu), target, lir, launches, Origin::Stored).map_err(|e| {
        // Kernels that are made here compile: it is the file's fault, unless the device is gone.
        let rejected = matches!(e.kind(), ErrorKind::Device | ErrorKind::Internal) && gpu.alive().is_ok();
        let message = || format!("stored kernels: {}", e.message());
        if rejected { gpu.error(ErrorKind::Malformed, message()).with_source(e) } else { e }
    })?;
    Ok(Box::new(WgpuExecutable::new(Arc::new(program))?))
}

impl Backend for WgpuBackend {
    fn name(&self) -> &str {
        self.device.feature()
    }

    fn machine(&self) -> Result<String> {
        self.adapter_name()
    }

    fn probe(&self) -> Result<()> {
        self.gpu()?.probed.get_or_init(|| self.try_kernel()).clone()
    }

    fn drain(&self) -> Result<()> {
        Gpu::opened(self.device, self.lowered).map_or(Ok(()), |gpu| gpu.wait())
    }

    fn target(&self, _: &CompileOptions) -> Result<Arc<dyn Target>> {
        // Without the device, what every device has: graphs can be checked against it all the same.
        let target = match self.gpu() {
            Ok(gpu) => self.kernel_target(&gpu),
            Err(_) => KernelTarget::webgpu(self.device.feature()),
        };
        Ok(Arc::new(target))
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
        let target = self.kernel_target(&gpu);
        let target = KernelTarget { pool: target.pool.for_options(options), ..target };
        match cache.code.iter().find(|part| part.name == KERNELS) {
            Some(part) => compile_stored(gpu, target, lir, &part.bytes),
            None => compile_for(gpu, target, lir, &cache.tuning),
        }
    }

    fn tuning_key(&self, lir: &LirModule, step: &Step) -> Result<Option<TuningKey>> {
        let gpu = self.gpu()?;
        dispatch::tuning_key(step, lir, &self.kernel_target(&gpu))
    }
}
