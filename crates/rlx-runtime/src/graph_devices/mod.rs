//! One graph on several devices, with fallback: [`GraphDevices`].
//!
//! It keeps the graph, its parameters and one executable for each device that was used, chooses a device
//! (see [`rlx_select::device_policy`]), and tries the next device of a chain if one fails. A fallback is never silent:
//! each failed attempt is recorded ([`GraphDevices::last_attempts`]) and logged as a warning. The parameters are stored
//! in this object, so they stay intact whatever happens to a device's executable.
//!
//! ```
//! use rlx_ir::{DType, Graph, Shape, op::BinaryOp};
//! use rlx_runtime::{Device, GraphDevices};
//! let mut graph = Graph::new("add");
//! let shape = Shape::new(&[2], DType::F32);
//! let (x, w) = (graph.input("x", shape.clone()), graph.param("w", shape.clone()));
//! let y = graph.binary(BinaryOp::Add, x, w, shape);
//! graph.set_outputs(vec![y]);
//!
//! let mut devices = GraphDevices::new(graph);
//! devices.set_param("w", &[1.0, 2.0]);
//! assert_eq!(devices.run(Device::Cpu, &[("x", &[3.0, 4.0])])?, [[4.0, 6.0]]);
//!
//! // Without CUDA the chain goes on to the CPU, and says so.
//! let (device, outputs) = devices.run_try(&[Device::Cuda, Device::Cpu], &[("x", &[3.0, 4.0])])?;
//! assert_eq!((device, outputs), (Device::Cpu, vec![vec![4.0, 6.0]]));
//! assert_eq!(devices.last_attempts()[0].0, Device::Cuda);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod chain;
mod choice;
mod own;
mod params;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

pub use choice::{Choice, ChoiceReason};
use rlx_driver::{Device, DeviceId};
use rlx_ir::clock::Instant;
use rlx_ir::{Error, ErrorKind, Graph, Op, Result, Weight};
use rlx_select::device_policy::{
    DeviceFallbackError, DevicePolicy, check_usable, devices_for_with_policy, nothing_usable,
};
use rlx_select::or_panic;
use rlx_select::verdicts::Verdicts;
use rlx_select::{env, panic_guard};

use crate::compiled::CompiledGraph;
use crate::device_bench::{self, DeviceBenchResult, Verdict};
use crate::session::Session;
/// Inputs of a run: f32 values by name.
pub(crate) type Inputs<'a> = &'a [(&'a str, &'a [f32])];

/// An executable and its compile time.
#[derive(Debug)]
struct Compiled {
    graph: CompiledGraph,
    compile_ns: u64,
}

/// A graph, its parameters, and its executables on several devices.
#[derive(Debug)]
pub struct GraphDevices {
    graph: Graph,
    policy: DevicePolicy,
    /// Those that the policy, the machine and the graph allow.
    devices: Vec<Device>,
    compiled: BTreeMap<DeviceId, Compiled>,
    /// Every parameter that was set, in its declared type; shared with the executables.
    params: BTreeMap<String, Arc<Weight>>,
    attempts: Vec<(Device, String)>,
    /// Those on devices outside of the list, too.
    all_attempts: Vec<(DeviceId, String)>,
    /// The choice of the cost models, once computed.
    cheapest: OnceLock<Device>,
    verdicts: Verdicts,
}

impl GraphDevices {
    /// The graph on all devices that can run it.
    ///
    /// # Panics
    /// As [`GraphDevices::with_policy`].
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// let mut devices = GraphDevices::new(g);
    /// devices.set_param("w", &[10.0, 20.0]);
    /// assert_eq!(devices.run(Device::Cpu, &[("x", &[1.0, 2.0])])?, [[11.0, 22.0]]);
    /// # Ok::<(), String>(())
    /// ```
    pub fn new(graph: Graph) -> Self {
        Self::with_policy(graph, DevicePolicy::default())
    }

    /// The graph on the devices that can run it and that `policy` allows.
    ///
    /// # Panics
    /// If `RLX_KERNEL_DISPATCH` is invalid.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// let devices = GraphDevices::with_policy(g, DevicePolicy::only([Device::Cpu]));
    /// assert_eq!(devices.devices(), [Device::Cpu]);
    /// ```
    pub fn with_policy(graph: Graph, policy: DevicePolicy) -> Self {
        let devices = devices_for_with_policy(&graph, &policy);
        GraphDevices {
            graph,
            policy,
            devices,
            compiled: BTreeMap::new(),
            params: BTreeMap::new(),
            attempts: Vec::new(),
            all_attempts: Vec::new(),
            cheapest: OnceLock::new(),
            verdicts: Verdicts::default(),
        }
    }

    /// The graph under [`DevicePolicy::from_env`].
    ///
    /// # Panics
    /// If [`GraphDevices::try_from_env`] fails, with its error as the message.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// let devices = GraphDevices::from_env(g);
    /// println!("{:?}", devices.policy());
    /// ```
    #[track_caller]
    pub fn from_env(graph: Graph) -> Self {
        or_panic(Self::try_from_env(graph))
    }

    /// As [`GraphDevices::from_env`].
    ///
    /// # Errors
    /// [`ErrorKind::Config`] naming the variable whose value does not parse.
    pub fn try_from_env(graph: Graph) -> Result<Self> {
        rlx_opt::CompileOptions::try_new()?;
        Ok(Self::with_policy(graph, DevicePolicy::try_from_env()?))
    }

    /// The policy.
    pub fn policy(&self) -> &DevicePolicy {
        &self.policy
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The devices that can run the graph under the policy, determined when this was created (or at the last
    /// [`GraphDevices::invalidate_cache`] or [`GraphDevices::set_policy`]).
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// What was tried before the last success or failure: each device that failed, in order, and why. Empty if
    /// the first attempt succeeded.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut devices = GraphDevices::with_policy(g, DevicePolicy::only([Device::Cpu]));
    /// # devices.set_param("w", &[10.0, 20.0]);
    /// let (device, _) = devices.run_try(&[Device::Tpu, Device::Cpu], &[("x", &[1.0, 2.0])]).unwrap();
    /// assert_eq!((device, devices.last_attempts()[0].0), (Device::Cpu, Device::Tpu));
    /// ```
    pub fn last_attempts(&self) -> &[(Device, String)] {
        &self.attempts
    }

    /// The graph compiled for `device`, with every parameter set so far; compiled at the first call.
    ///
    /// # Errors
    /// As [`GraphDevices::try_compile`].
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut devices = GraphDevices::with_policy(g, DevicePolicy::only([Device::Cpu]));
    /// # devices.set_param("w", &[10.0, 20.0]);
    /// assert_eq!(devices.compile(Device::Cpu)?.device(), Device::Cpu);
    /// assert!(devices.compile(Device::Tpu).is_err());
    /// # Ok::<(), String>(())
    /// ```
    pub fn compile(&mut self, device: Device) -> Result<&mut CompiledGraph, String> {
        Ok(self.try_compile(device)?)
    }

    /// As [`GraphDevices::compile`].
    ///
    /// # Errors
    /// A device that is not available (with its Cargo feature), that the policy rules out, that cannot run the graph,
    /// or that fails to compile it.
    pub fn try_compile(&mut self, device: Device) -> Result<&mut CompiledGraph> {
        self.begin();
        if let Err(e) = self.ensure(device) {
            self.record(device, &e);
            return Err(e);
        }
        self.ensure(device)
    }

    /// The graph compiled for [`GraphDevices::fastest`].
    ///
    /// # Errors
    /// As [`GraphDevices::try_compile`].
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut devices = GraphDevices::with_policy(g, DevicePolicy::only([Device::Cpu]));
    /// # devices.set_param("w", &[10.0, 20.0]);
    /// assert_eq!(devices.compile_fastest()?.device(), devices.fastest());
    /// # Ok::<(), String>(())
    /// ```
    pub fn compile_fastest(&mut self) -> Result<&mut CompiledGraph, String> {
        let device = self.try_fastest()?;
        self.compile(device)
    }

    /// The graph compiled for [`GraphDevices::resolve`]'s device.
    ///
    /// # Errors
    /// As [`GraphDevices::try_resolve`] and [`GraphDevices::try_compile`].
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut devices = GraphDevices::with_policy(g, DevicePolicy::only([Device::Cpu]));
    /// # devices.set_param("w", &[10.0, 20.0]);
    /// assert_eq!(devices.compile_resolved(Some(Device::Cpu))?.device(), Device::Cpu);
    /// # Ok::<(), String>(())
    /// ```
    pub fn compile_resolved(&mut self, hint: Option<Device>) -> Result<&mut CompiledGraph, String> {
        let device = self.try_resolve(hint)?;
        self.compile(device)
    }

    /// The graph compiled for [`GraphDevices::resolve_with_inputs`]'s device.
    ///
    /// # Errors
    /// As [`GraphDevices::resolve_with_inputs`] and [`GraphDevices::try_compile`].
    pub fn compile_resolved_with_inputs(
        &mut self,
        hint: Option<Device>,
        inputs: &[(&str, &[f32])],
    ) -> Result<&mut CompiledGraph, String> {
        let device = self.try_resolve_with_inputs(hint, inputs)?;
        self.compile(device)
    }

    /// Compiles for all of [`GraphDevices::devices`]; returns those devices.
    ///
    /// # Errors
    /// The devices that failed and why. Successful compilations stay.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut devices = GraphDevices::with_policy(g, DevicePolicy::only([Device::Cpu]));
    /// # devices.set_param("w", &[10.0, 20.0]);
    /// assert_eq!(devices.warm_all()?, [Device::Cpu]);
    /// # Ok::<(), String>(())
    /// ```
    pub fn warm_all(&mut self) -> Result<Vec<Device>, String> {
        Ok(self.try_warm_all()?)
    }

    /// As [`GraphDevices::warm_all`].
    ///
    /// # Errors
    /// As [`GraphDevices::warm_all`].
    pub fn try_warm_all(&mut self) -> Result<Vec<Device>, DeviceFallbackError> {
        self.begin();
        for device in self.devices.clone() {
            if let Err(e) = self.ensure(device) {
                self.record(device, &e);
            }
        }
        match self.attempts.is_empty() {
            true if self.devices.is_empty() => Err(nothing_usable(&self.graph, &self.policy)),
            true => Ok(self.devices.clone()),
            false => Err(DeviceFallbackError { attempts: self.attempts.clone() }),
        }
    }

    /// Times every device on `inputs`, `runs` runs each after one to warm up; fastest first. Devices that fail are
    /// left out, recorded and logged. The winner is stored for these sizes.
    ///
    /// # Errors
    /// 0 runs, or no device that succeeded.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut devices = GraphDevices::with_policy(g, DevicePolicy::only([Device::Cpu]));
    /// # devices.set_param("w", &[10.0, 20.0]);
    /// let results = devices.benchmark(&[("x", &[1.0, 2.0])], 3)?;
    /// assert!(results[0].median_exec_ns > 0);
    /// # Ok::<(), String>(())
    /// ```
    pub fn benchmark(
        &mut self,
        inputs: &[(&str, &[f32])],
        runs: usize,
    ) -> Result<Vec<DeviceBenchResult>, String> {
        Ok(device_bench::try_benchmark_devices(self, inputs, runs)?)
    }

    /// Drops every executable and the benchmark results of this graph, and probes the devices again. Parameters stay.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut devices = GraphDevices::with_policy(g, DevicePolicy::only([Device::Cpu]));
    /// # devices.set_param("w", &[10.0, 20.0]);
    /// devices.invalidate_cache();
    /// assert_eq!(devices.run(Device::Cpu, &[("x", &[1.0, 2.0])])?, [[11.0, 22.0]], "parameters stay");
    /// # Ok::<(), String>(())
    /// ```
    pub fn invalidate_cache(&mut self) {
        while let Some((device, compiled)) = self.compiled.pop_first() {
            panic_guard::drop_quietly(device, compiled);
        }
        self.verdicts.forget(&self.graph);
        self.cheapest = OnceLock::new();
        self.devices = devices_for_with_policy(&self.graph, &self.policy);
    }

    /// Replaces the policy: the devices and their ranking are derived again. Executables of devices that it rules out
    /// are dropped.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut devices = GraphDevices::with_policy(g, DevicePolicy::only([Device::Cpu]));
    /// # devices.set_param("w", &[10.0, 20.0]);
    /// devices.set_policy(DevicePolicy::only([Device::Cpu]).with_benchmark_pick(3));
    /// assert_eq!(devices.policy().pick_strategy(), DevicePickStrategy::Benchmark { runs: 3 });
    /// ```
    pub fn set_policy(&mut self, policy: DevicePolicy) {
        self.policy = policy;
        self.cheapest = OnceLock::new();
        self.verdicts = Verdicts::default();
        self.devices = devices_for_with_policy(&self.graph, &self.policy);
        let gone: Vec<DeviceId> = self.compiled.keys().copied().filter(|&d| !self.policy.allows(d)).collect();
        gone.into_iter().for_each(|device| self.drop_executable(device));
    }

    /// The benchmark results of this graph, the latest last: those measured here, and those of earlier processes
    /// that were used here.
    pub fn verdicts(&self) -> &[Verdict] {
        self.verdicts.all()
    }

    /// The verdict for these sizes from at least `runs` runs, if there is one.
    pub(crate) fn known_verdict(&mut self, sizes: &[(String, usize)], runs: usize) -> Option<Verdict> {
        self.verdicts.find(&self.graph, &self.devices, sizes, runs)
    }

    /// Stores a verdict.
    pub(crate) fn remember(&mut self, verdict: Verdict) {
        self.verdicts.remember(&self.graph, &self.devices, verdict);
    }

    /// The compile time for `device`, if compiled.
    pub(crate) fn compile_ns(&self, device: Device) -> Option<u64> {
        self.compiled.get(&DeviceId::from(device)).map(|c| c.compile_ns)
    }

    /// Clears the attempts of the previous call.
    pub(crate) fn begin(&mut self) {
        self.attempts.clear();
        self.all_attempts.clear();
    }

    /// The executable of `device`, compiled if necessary.
    pub(crate) fn ensure(&mut self, device: impl Into<DeviceId>) -> Result<&mut CompiledGraph> {
        let device = device.into();
        match self.compiled.entry(device) {
            Entry::Occupied(entry) => {
                check_allowed(&self.policy, device)?;
                Ok(&mut entry.into_mut().graph)
            }
            Entry::Vacant(entry) => {
                check_usable(&self.graph, device, &self.policy)?;
                let start = Instant::now();
                let graph = build(&self.graph, device, &self.params)?;
                let compile_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
                Ok(&mut entry.insert(Compiled { graph, compile_ns }).graph)
            }
        }
    }

    /// Records that `device` failed.
    pub(crate) fn record(&mut self, device: impl Into<DeviceId>, error: &Error) {
        let device = device.into();
        tracing::warn!(
            %device,
            kind = error.kind().name(),
            reason = %error,
            graph = %self.graph.name,
            "a device failed"
        );
        self.all_attempts.push((device, error.to_string()));
        if let Some(known) = device.known() {
            self.attempts.push((known, error.to_string()));
        }
    }

    /// Drops the executable of `device`, if there is one.
    pub(crate) fn drop_executable(&mut self, device: impl Into<DeviceId>) {
        let device = device.into();
        if let Some(compiled) = self.compiled.remove(&device) {
            panic_guard::drop_quietly(device, compiled);
        }
    }
}

/// The environment's chain, which must parse wherever a chain is used.
fn env_chain<D: FromStr<Err: fmt::Display>>() -> Result<Vec<D>> {
    Ok(env::list(env::CHAIN)?.unwrap_or_default())
}

fn check_allowed(policy: &DevicePolicy, device: DeviceId) -> Result<()> {
    if policy.allows(device) {
        return Ok(());
    }
    let message = format!("{device} is ruled out by the policy");
    Err(Error::new(ErrorKind::DeviceUnavailable, message).with_device(device.name()))
}

/// Compiles the graph for a device and sets all stored parameters.
fn build(graph: &Graph, device: DeviceId, params: &BTreeMap<String, Arc<Weight>>) -> Result<CompiledGraph> {
    let mut compiled = Session::try_on(device)?.try_compile(graph.clone()).map_err(Error::from)?;
    let names: Vec<String> = compiled.params().iter().map(|p| p.name.clone()).collect();
    for name in names {
        if let Some(weight) = params.get(&name) {
            compiled.try_set_weight(&name, weight)?;
        }
    }
    Ok(compiled)
}

/// The names of a graph's parameters, in declaration order.
///
/// ```
/// use rlx_ir::{DType, Graph, Shape};
/// let mut graph = Graph::new("two");
/// graph.param("w", Shape::new(&[2], DType::F32));
/// graph.param("b", Shape::new(&[2], DType::F32));
/// assert_eq!(rlx_runtime::graph_param_names(&graph), ["w", "b"]);
/// ```
pub fn graph_param_names(graph: &Graph) -> Vec<String> {
    let name = |node: &rlx_ir::Node| match &node.op {
        Op::Param { name } => Some(name.to_string()),
        _ => None,
    };
    graph.params().filter_map(name).collect()
}
