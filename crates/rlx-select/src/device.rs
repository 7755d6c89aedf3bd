//! A device as graphs are compiled for it: its backend, and the threads it was given.

use std::sync::Arc;

use rlx_backend::{Backend, CompileCache, ExecutableGraph};
use rlx_driver::{Device, DeviceId};
use rlx_ir::{Error, ErrorKind, Graph, LirModule, Progress, Result};
use rlx_opt::{CompileOptions, Target};

use crate::panic_guard;
use crate::registry::{require_backend, threads_from_env, with_threads};
use crate::split::{PricesOf, SplitBackend, SplitPlan};
use crate::tuning::{Tuned, tuned};
/// A device, its backend and its threads: what measurements are made on, and what a session compiles for.
///
/// ```
/// use rlx_driver::Device;
/// use rlx_opt::CompileOptions;
/// use rlx_select::DeviceBackend;
/// # #[cfg(feature = "cpu")] {
/// let cpu = DeviceBackend::try_new(Device::Cpu)?;
/// println!("{}: {} threads", cpu.machine()?, cpu.threads().unwrap_or(1));
/// assert!(cpu.target(&CompileOptions::default())?.pool_spec().max_buffer_bytes > 0);
/// # }
/// # Ok::<(), rlx_ir::Error>(())
/// ```
#[derive(Clone)]
pub struct DeviceBackend {
    device: DeviceId,
    backend: Arc<dyn Backend>,
    /// Chosen by [`DeviceBackend::try_with_threads`].
    threads: Option<usize>,
    /// The backend once more, where ops may go to the CPU.
    split: Option<Arc<SplitBackend>>,
}

/// An executable, and the variants of its steps.
pub struct Built {
    /// The executable.
    pub exec: Box<dyn ExecutableGraph>,
    /// What was measured of its steps.
    pub tuned: Tuned,
}

impl DeviceBackend {
    /// The device with the backend of this process.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceUnavailable`] naming device, Cargo feature and what is missing.
    pub fn try_new(device: impl Into<DeviceId>) -> Result<Self> {
        let device = device.into();
        let backend = require_backend(device)?;
        panic_guard::call(device, "being probed", || backend.probe()).map_err(|e| {
            let message = match device.known() {
                Some(known) => format!("{device} (feature \"{}\") cannot be used: {e}", known.feature()),
                None => format!("{device} cannot be used: {e}"),
            };
            Error::new(ErrorKind::DeviceUnavailable, message).with_device(device.name()).with_source(e)
        })?;
        Ok(Self::with_backend(device, backend.into()))
    }

    /// The device with a backend of the caller's, which need not be registered.
    pub fn with_backend(device: impl Into<DeviceId>, backend: Arc<dyn Backend>) -> Self {
        DeviceBackend { device: device.into(), backend, threads: None, split: None }
    }

    /// The same device with its own pool of this many threads, if it is the CPU.
    ///
    /// # Errors
    /// An invalid number, or a device that does not use RLX's thread pool.
    pub fn try_with_threads(self, threads: usize) -> Result<Self> {
        let backend = with_threads(self.device, threads)?.into();
        Ok(DeviceBackend { backend, threads: Some(threads), ..self })
    }

    /// The same device, where the CPU runs the ops that the device cannot compute; the CPU itself stays as it is. `prices` is asked
    /// where a graph has several parts: [`crate::cost::cost_model`], usually.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceUnavailable`] in a build without the CPU's backend.
    pub fn with_cpu_fallback(self, prices: PricesOf) -> Result<Self> {
        let cpu = DeviceId::from(Device::Cpu);
        if self.device == cpu || self.split.is_some() {
            return Ok(self);
        }
        let cpu = DeviceBackend::try_new(cpu)?.backend;
        let split = Arc::new(SplitBackend::new(self.device, self.backend, cpu, prices));
        Ok(DeviceBackend { backend: Arc::clone(&split) as Arc<dyn Backend>, split: Some(split), ..self })
    }

    /// Whether ops may go to the CPU.
    pub fn has_cpu_fallback(&self) -> bool {
        self.split.is_some()
    }

    /// How the graph of a compiled module is divided between the device and the CPU; `None` without
    /// [`DeviceBackend::with_cpu_fallback`].
    ///
    /// # Errors
    /// An op that neither can compute.
    pub fn split_plan(&self, graph: &Graph, options: &CompileOptions) -> Result<Option<SplitPlan>> {
        let plan = |split: &Arc<SplitBackend>| split.plan(graph, options);
        panic_guard::call(self.device, "dividing a graph", || self.split.as_ref().map(plan).transpose())
    }

    /// The device.
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// Its compiler.
    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// The number of threads it computes with, if known.
    pub fn threads(&self) -> Option<usize> {
        self.threads.or_else(|| threads_from_env(self.device))
    }

    /// Instruction set, adapter, driver: what generated code depends on besides module and options.
    ///
    /// # Errors
    /// A device error.
    pub fn machine(&self) -> Result<String> {
        panic_guard::call(self.device, "describing the machine", || self.backend.machine())
    }

    /// What the compiler asks about the device.
    ///
    /// # Errors
    /// Options that make no sense for the device.
    pub fn target(&self, options: &CompileOptions) -> Result<Arc<dyn Target>> {
        panic_guard::call(self.device, "describing the device", || self.backend.target(options))
    }

    /// Compiles a module for the device, with its cached kernels and tuning results.
    ///
    /// # Errors
    /// What the device's compiler reports; [`ErrorKind::Cancelled`].
    pub fn executable(
        &self,
        lir: LirModule,
        options: &CompileOptions,
        cache: &CompileCache,
        progress: &Progress,
    ) -> Result<Built> {
        let tuned = tuned(self, &lir, options, &cache.tuning, progress)?;
        // The code was generated with the tuning results of that time; with newer results, it is generated again.
        let code = if tuned.tuning == cache.tuning { cache.code.clone() } else { Vec::new() };
        let cache = CompileCache { tuning: tuned.tuning.clone(), code };
        let compile = || self.backend.compile_cached(Arc::new(lir), options, &cache);
        Ok(Built { exec: panic_guard::call(self.device, "compiling", compile)?, tuned })
    }
}
