//! An opened device: its queue and limits, and every driver fault as a typed error.

use std::sync::{Arc, OnceLock};

use rlx_driver::Device;
use rlx_gpu::{GpuApi, Health, MatrixUnits, Shared, Which, out_of_memory};
use rlx_ir::{Error, ErrorKind, Result};
use rlx_tile::Arch;

use crate::adapter;
use crate::driver_cache::DriverCache;
use crate::language::{self, Language};
use crate::{matrices, trusted};

/// What is used where the adapter has it: what the driver compiled, a clock, elements of 16 bits in buffers; and what a language needs.
const WANTED: wgpu::Features =
    wgpu::Features::PIPELINE_CACHE.union(wgpu::Features::TIMESTAMP_QUERY).union(wgpu::Features::SHADER_I16);

/// An opened device.
pub struct Gpu {
    pub(crate) shared: Shared<Gpu>,
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) info: wgpu::AdapterInfo,
    pub(crate) limits: wgpu::Limits,
    /// Where the driver gives what it compiled.
    pub(crate) driver_cache: Option<DriverCache>,
    /// Whether it takes SPIR-V that wgpu does not look into.
    pub(crate) takes_spirv: bool,
    /// What its kernels are written in.
    pub(crate) language: Language,
    /// Invocations of a subgroup, where kernels exchange values within them.
    pub(crate) subgroup: Option<u32>,
    /// The matrix units that the adapter offers, and the device was opened with.
    pub(crate) matrices: Option<Arch>,
    /// Those units, once they were tried.
    pub(crate) units: OnceLock<Option<MatrixUnits>>,
}

/// What wgpu reports of a call that did `what`.
fn fault(device: Device, what: &str, error: wgpu::Error) -> Error {
    match error {
        wgpu::Error::OutOfMemory { .. } => out_of_memory(device, what),
        _ => Error::new(ErrorKind::Device, format!("{what}: {error}")).with_device(device.name()),
    }
    .with_source(error)
}

impl Gpu {
    /// Opens the device.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceUnavailable`] when there is no adapter, [`ErrorKind::Device`] when it does not open.
    pub(crate) async fn opened_by(which: &Which<()>) -> Result<Gpu> {
        let (name, lowered) = (which.device, which.limits);
        let adapter = adapter::choose(name).await?;
        let limits = adapter::limits(&adapter, &lowered);
        let info = adapter.get_info();
        // What wgpu was not asked for, it rejects in a kernel's text.
        let without = if lowered.only_words { wgpu::Features::SHADER_I16 } else { wgpu::Features::empty() };
        let matrices = matrices::offered(&info, adapter.features(), &adapter.cooperative_matrix_properties())
            .filter(|_| !lowered.only_words);
        let wanted = WANTED.difference(without).union(language::wanted(info.backend, info.device_type));
        let cooperative = matrices == Some(Arch::Coop16);
        let wanted = if cooperative { wanted.union(matrices::FEATURES) } else { wanted };
        let subgroup = adapter::subgroup(&info, adapter.features()).filter(|_| !lowered.no_subgroups);
        let wanted = if subgroup.is_some() { wanted.union(wgpu::Features::SUBGROUP) } else { wanted };
        let description = wgpu::DeviceDescriptor {
            label: Some("rlx"),
            required_limits: limits.clone(),
            required_features: adapter.features() & wanted,
            experimental_features: match cooperative {
                true => trusted::experimental(),
                false => wgpu::ExperimentalFeatures::disabled(),
            },
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            ..Default::default()
        };
        let (device, queue) = adapter.request_device(&description).await.map_err(|e| {
            Error::new(ErrorKind::Device, format!("{} does not open: {e}", info.name))
                .with_device(name.name())
                .with_source(e)
        })?;
        let health = Health::new(name);
        let told = Arc::clone(&health);
        device.set_device_lost_callback(move |reason, message| told.lose(format!("{reason:?}: {message}")));
        let told = Arc::clone(&health);
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            told.stray(Error::new(ErrorKind::Device, error.to_string()).with_device(name.name()));
        }));
        tracing::debug!(device = %name, adapter = %info.name, driver = %info.driver_info, "opened");
        let driver_cache = DriverCache::open(&device, &info);
        let language = Language::offered(info.backend, device.features());
        let takes_spirv = info.backend == wgpu::Backend::Vulkan
            && device.features().contains(wgpu::Features::PASSTHROUGH_SHADERS);
        let shared = Shared::new(health, lowered);
        let units = OnceLock::new();
        let gpu = Gpu {
            shared,
            device,
            queue,
            info,
            limits,
            driver_cache,
            takes_spirv,
            language,
            subgroup,
            matrices,
            units,
        };
        Ok(Gpu { language: gpu.accepted(), ..gpu })
    }

    /// Calls `f`; what the driver or wgpu reports meanwhile on this thread is the error. A page reports it later: then it is
    /// the error of the run that is awaited next.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] or [`ErrorKind::Device`], saying what was being done.
    pub(crate) fn checked<T>(&self, what: &dyn Fn() -> String, f: impl FnOnce() -> T) -> Result<T> {
        self.alive()?;
        let memory = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let validation = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let internal = self.device.push_error_scope(wgpu::ErrorFilter::Internal);
        let value = f();
        let found = (internal.pop(), validation.pop(), memory.pop());
        let first = async move { [found.0.await, found.1.await, found.2.await].into_iter().flatten().next() };
        self.reported(what, first, fault)?;
        Ok(value)
    }

    /// Waits for what is to be waited for, which `done` tells where the device calls back by itself: in a page.
    ///
    /// # Errors
    /// [`ErrorKind::Device`]; in a page as [`GpuApi::in_turns`].
    pub(crate) fn poll(&self, what: wgpu::PollType, done: &dyn Fn() -> bool) -> Result<()> {
        if !Self::WAITS {
            return self.in_turns(done);
        }
        self.alive()?;
        let polled = self.device.poll(what);
        self.alive()?;
        polled
            .map(|_| ())
            .map_err(|e| self.error(ErrorKind::Device, format!("waiting for the device: {e}")).with_source(e))
    }
}
