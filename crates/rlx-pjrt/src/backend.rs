//! The backend: the device as the compiler sees it, its probe, and compiling for devices that are not here.

use std::path::PathBuf;
use std::sync::Arc;

use rlx_backend::whole_graph::{self, GraphTarget};
use rlx_backend::{Backend, ExecutableGraph};
use rlx_driver::Device;
use rlx_ir::{Error, ErrorKind, Graph, LirModule, Result};
use rlx_opt::{CompileOptions, Target};

use crate::client::{self, AheadOfTime};
use crate::device::Tpu;
use crate::load::{self, Plugin};
use crate::stablehlo;

/// The first device of a PJRT plugin: a TPU's, or any other that the variable `RLX_PJRT_PLUGIN` names.
///
/// ```
/// use rlx_backend::Backend;
/// match rlx_pjrt::PjrtBackend::new().probe() {
///     Ok(()) => println!("there is a TPU"),
///     Err(missing) => println!("{missing}"),
/// }
/// ```
#[derive(Debug, Clone, Default)]
pub struct PjrtBackend {
    plugin: Option<PathBuf>,
}

impl PjrtBackend {
    /// The plugin that is installed; whether there is one, [`Backend::probe`] says.
    pub fn new() -> Self {
        PjrtBackend::default()
    }

    /// The plugin in this file.
    #[must_use]
    pub fn with_plugin(mut self, file: impl Into<PathBuf>) -> Self {
        self.plugin = Some(file.into());
        self
    }

    fn files(&self) -> Vec<PathBuf> {
        self.plugin.clone().map_or_else(load::candidates, |file| vec![file])
    }

    /// Compiles a graph for a topology that the plugin knows, such as `v5e:2x2`, without a device. The graph is a module's, scheduled for
    /// [`target`], and every dimension is a number; parameters are arguments, too.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceUnavailable`] without a plugin; what the plugin's compiler reports.
    pub fn compile_ahead(&self, graph: &Graph, topology: &str) -> Result<AheadOfTime> {
        let module = stablehlo::module(graph)?;
        client::compile_ahead(&Plugin::load(&self.files())?, topology, &module.text)
    }
}

/// The target of all such devices: what StableHLO has text for.
pub fn target() -> GraphTarget {
    GraphTarget::new(Device::Tpu.feature(), stablehlo::claim)
}

impl Backend for PjrtBackend {
    fn name(&self) -> &str {
        Device::Tpu.feature()
    }

    fn machine(&self) -> Result<String> {
        use rlx_backend::whole_graph::GraphDevice;
        Ok(Tpu::open(&self.files())?.machine().to_owned())
    }

    fn probe(&self) -> Result<()> {
        let tpu = Tpu::open(&self.files())?;
        if rlx_backend::probe::doubles(self)? {
            return Ok(());
        }
        use rlx_backend::whole_graph::GraphDevice;
        let message = format!("{} computes wrongly", tpu.machine());
        Err(Error::new(ErrorKind::DeviceUnavailable, message).with_device(Device::Tpu.name()))
    }

    fn target(&self, _: &CompileOptions) -> Result<Arc<dyn Target>> {
        Ok(Arc::new(target()))
    }

    fn compile(&self, lir: Arc<LirModule>, _: &CompileOptions) -> Result<Box<dyn ExecutableGraph>> {
        whole_graph::compile(Tpu::open(&self.files())?, &target(), lir)
    }
}
