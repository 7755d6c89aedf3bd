//! A device and the CPU together: what the device cannot compute, the CPU does.
//!
//! A graph with an op that the device does not have is rejected by default. [`DeviceBackend::with_cpu_fallback`] gives leave to
//! divide it: see [`plan`] for what runs where. Each part is compiled for its device by the usual pipeline, and what one computes
//! and another reads goes through the host's memory. To everything else the two are one device that compiles whole graphs
//! ([`rlx_backend::whole_graph`]), so that parameters, dimensions, handles and errors are what they are elsewhere.
//!
//! Ops that find out how large their results are run on the CPU. What hangs on the number that one found is an ordinary dynamic
//! dimension of the parts behind it.

mod device;
mod plan;

use std::sync::Arc;

use rlx_backend::whole_graph::{self, GraphTarget, Shared};
use rlx_backend::{Backend, Claim, ExecutableGraph, Target};
use rlx_driver::{Device, DeviceId};
use rlx_ir::{Graph, LirModule, Result};
use rlx_opt::pipeline::PassContext;
use rlx_opt::{CompileOptions, Precision};

use self::device::Split;
use self::plan::Side;
pub use self::plan::{Crossing, PricesOf, SplitPart, SplitPlan};
use crate::device_ext::computes;
use crate::panic_guard;

/// The backend of a device that may leave ops to the CPU.
pub(crate) struct SplitBackend {
    name: String,
    device: (DeviceId, Arc<dyn Backend>),
    cpu: Arc<dyn Backend>,
    prices: PricesOf,
    shared: Arc<Shared<Split>>,
}

impl SplitBackend {
    pub(crate) fn new(
        device: DeviceId,
        backend: Arc<dyn Backend>,
        cpu: Arc<dyn Backend>,
        prices: PricesOf,
    ) -> Self {
        let name = format!("{}+{}", backend.name(), cpu.name());
        SplitBackend { name, device: (device, backend), cpu, prices, shared: Arc::default() }
    }

    /// How a graph is divided under these options.
    pub(crate) fn plan(&self, graph: &Graph, options: &CompileOptions) -> Result<SplitPlan> {
        self.split(options)?.plan(graph)
    }

    fn split(&self, options: &CompileOptions) -> Result<Split> {
        // The types were chosen when the whole graph was compiled.
        let options = CompileOptions {
            precision: Precision::F32,
            policy: None,
            param_bindings: Default::default(),
            dim_binding: Default::default(),
            dim_ranges: Vec::new(),
            ..options.clone()
        };
        let side = |device: DeviceId, backend: &Arc<dyn Backend>| -> Result<_> {
            let target = panic_guard::call(device, "describing the device", || backend.target(&options))?;
            Ok(Side { device, backend: Arc::clone(backend), target, prices: self.prices })
        };
        let (device, cpu) = (side(self.device.0, &self.device.1)?, side(Device::Cpu.into(), &self.cpu)?);
        let (name, shared) = (self.name.clone(), Arc::clone(&self.shared));
        Ok(Split { name, machine: self.machine()?, device, cpu, options, shared })
    }

    /// What one of the two computes.
    fn graph_target(&self, options: &CompileOptions) -> Result<GraphTarget> {
        let (device, cpu) = (self.device.1.target(options)?, self.cpu.target(options)?);
        let (rank, options) = (device.max_rank().max(cpu.max_rank()), options.clone());
        let claims = move |node: &rlx_ir::Node, graph: &Graph| {
            let by = |target: &dyn Target| {
                computes(node, graph, &PassContext { target, options: &options, is_body: false })
            };
            if by(&*device) || by(&*cpu) { Claim::Native } else { cpu.claim(node, graph) }
        };
        let target = GraphTarget::new(self.name.clone(), claims);
        Ok(target.with_max_rank(rank).with_moves(|_| true).with_found_sizes())
    }
}

impl Backend for SplitBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn machine(&self) -> Result<String> {
        Ok(format!("{} with {}", self.device.1.machine()?, self.cpu.machine()?))
    }

    fn probe(&self) -> Result<()> {
        self.device.1.probe()?;
        self.cpu.probe()
    }

    fn target(&self, options: &CompileOptions) -> Result<Arc<dyn Target>> {
        Ok(Arc::new(self.graph_target(options)?))
    }

    fn compile(&self, lir: Arc<LirModule>, options: &CompileOptions) -> Result<Box<dyn ExecutableGraph>> {
        let target = self.graph_target(options)?;
        whole_graph::compile(Arc::new(self.split(options)?), &target, lir)
    }

    fn drain(&self) -> Result<()> {
        self.device.1.drain()?;
        self.cpu.drain()
    }
}
