//! The backend: the device as the compiler sees it, its probe, and packages without the device.

use std::sync::Arc;

use rlx_backend::{Backend, ExecutableGraph, Target};
use rlx_ir::{Error, ErrorKind, Graph, LirModule, Progress, Result};
use rlx_opt::{CompileOptions, CompilePipeline};

use crate::device::CoreMl;
use crate::program::Package;
use crate::runtime::PackageRuntime;
use crate::scope::Weights;
use crate::target::{NAME, target};

/// Which processors Core ML may use. It chooses among them for each operation by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ComputeUnits {
    /// All that there are.
    #[default]
    All,
    /// The processor alone.
    Cpu,
    /// Processor and GPU.
    CpuAndGpu,
    /// Processor and neural engine.
    CpuAndNeuralEngine,
}

/// The environment variable that says which processors Core ML may use: `all`, `cpu`, `cpu-gpu`, `cpu-ane`.
pub const COMPUTE_UNITS: &str = "RLX_COREML_UNITS";

impl ComputeUnits {
    /// What [`COMPUTE_UNITS`] says.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for another word.
    pub fn from_env() -> Result<ComputeUnits> {
        match std::env::var(COMPUTE_UNITS).as_deref() {
            Err(_) | Ok("" | "all") => Ok(ComputeUnits::All),
            Ok("cpu") => Ok(ComputeUnits::Cpu),
            Ok("cpu-gpu") => Ok(ComputeUnits::CpuAndGpu),
            Ok("cpu-ane") => Ok(ComputeUnits::CpuAndNeuralEngine),
            Ok(other) => {
                let message = format!("{COMPUTE_UNITS} is {other:?}, not one of all, cpu, cpu-gpu, cpu-ane");
                Err(Error::new(ErrorKind::Config, message))
            }
        }
    }
}

/// Apple's Core ML: the neural engine, the GPU or the processor of Apple systems, as it chooses.
///
/// Packages are written anywhere ([`compile`]); running them takes macOS 14 or iOS 17. The neural engine computes in 16-bit floats
/// only: graphs in `f32` run on the GPU and the processor, those compiled in `f16` on all of them.
///
/// ```
/// use rlx_backend::Backend;
/// match rlx_coreml::CoreMlBackend::new().probe() {
///     Ok(()) => println!("Core ML is there"),
///     Err(missing) => println!("{missing}"),
/// }
/// ```
#[derive(Debug, Clone, Default)]
pub struct CoreMlBackend {
    units: Option<ComputeUnits>,
    runtime: Option<Arc<dyn PackageRuntime>>,
}

impl CoreMlBackend {
    /// Core ML on the processors that [`COMPUTE_UNITS`] says.
    pub fn new() -> Self {
        CoreMlBackend::default()
    }

    /// Core ML on these processors.
    #[must_use]
    pub fn with_compute_units(mut self, units: ComputeUnits) -> Self {
        self.units = Some(units);
        self
    }

    /// With packages run by another runtime than the system's Core ML, on any system.
    #[must_use]
    pub fn with_runtime(mut self, runtime: Arc<dyn PackageRuntime>) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Which processors it may use.
    ///
    /// # Errors
    /// As [`ComputeUnits::from_env`].
    pub fn compute_units(&self) -> Result<ComputeUnits> {
        self.units.map_or_else(ComputeUnits::from_env, Ok)
    }

    /// What runs packages: the one that was brought, else the system's.
    fn runtime(&self) -> Result<Arc<dyn PackageRuntime>> {
        self.runtime.clone().map_or_else(|| system(self), Ok)
    }
}

/// Core ML itself.
#[cfg(any(target_os = "macos", target_os = "ios"))]
fn system(backend: &CoreMlBackend) -> Result<Arc<dyn PackageRuntime>> {
    Ok(Arc::new(crate::apple::System(backend.compute_units()?)))
}

/// What is missing where there is no Core ML.
#[cfg(not(any(target_os = "macos", target_os = "ios")))]
fn system(_: &CoreMlBackend) -> Result<Arc<dyn PackageRuntime>> {
    let message = format!("Core ML is part of Apple's systems, and this one is {}", std::env::consts::OS);
    Err(Error::new(ErrorKind::DeviceUnavailable, message).with_hint(
        "write a package here and run it there: rlx compile MODEL --device ane -o MODEL.mlpackage (rlx_coreml::compile)",
    ))
}

impl Backend for CoreMlBackend {
    fn name(&self) -> &str {
        NAME
    }

    fn machine(&self) -> Result<String> {
        Ok(self.runtime()?.machine())
    }

    fn probe(&self) -> Result<()> {
        self.runtime()?;
        if rlx_backend::probe::doubles(self)? {
            return Ok(());
        }
        Err(Error::new(ErrorKind::DeviceUnavailable, "Core ML computes wrongly"))
    }

    fn target(&self, _: &CompileOptions) -> Result<Arc<dyn Target>> {
        Ok(Arc::new(target()))
    }

    fn compile(&self, lir: Arc<LirModule>, _: &CompileOptions) -> Result<Box<dyn ExecutableGraph>> {
        let device = Arc::new(CoreMl::new(self.runtime()?));
        rlx_backend::whole_graph::compile(device, &target(), lir)
    }
}

/// Compiles a graph to a package, on any system. Every symbol is bound by `options` ([`CompileOptions::dim_binding`]), and `weights`
/// has a weight for each parameter.
///
/// # Errors
/// What the compiler reports, such as an op that Core ML does not have; as [`Package::of`].
pub fn compile(
    graph: &Graph,
    outputs: &[String],
    weights: &Weights<'_>,
    options: &CompileOptions,
    progress: &Progress,
) -> Result<Package> {
    let pipeline = CompilePipeline::new(Arc::new(target()), options.clone());
    let compiled = pipeline.compile_with_progress(graph, progress)?;
    Package::of(&compiled.lir.graph, outputs, weights)
}
