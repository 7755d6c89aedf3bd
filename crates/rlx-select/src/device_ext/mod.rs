//! What each device can do. Every answer is derived from the backend's own claims: there is no second list.
//!
//! ```
//! use rlx_runtime::{Device, fastest_among, full_name};
//! assert_eq!(fastest_among(&[Device::Cpu, Device::Metal, Device::Mlx]), Device::Mlx);
//! assert_eq!(full_name(Device::Vulkan), "Vulkan");
//! ```
//!
//! Support queries accept graphs without outputs; legalising and reports need only the backend, not the device:
//!
//! ```
//! use rlx_ir::{DType, Graph, GraphExt, Op, Shape};
//! use rlx_runtime::*;
//! let mut graph = Graph::new("waves");
//! let x = graph.input("x", Shape::new(&[4], DType::F32));
//! let y = graph.exp(x);
//! graph.sin(y);
//! assert!(is_available(Device::Cpu) && available_devices().contains(&Device::Cpu));
//! assert!(supports(Device::Cpu, &Op::MatMul) && supports_graph(Device::Cpu, &graph));
//! assert!(devices_for(&graph).contains(&Device::Cpu) && first_unsupported_op(Device::Cpu, &graph).is_none());
//! let report = dispatch_report_for_device(&graph, Device::Cpu)?;
//! assert!(report.compile_ready);
//! let common = CompileOptions::new().kernel_dispatch(KernelDispatchPolicy::ForceCommon);
//! let (legal, report) = legalize_graph_for_device_with_report(graph.clone(), Device::Cpu)?;
//! assert!(report.compile_ready && supports_graph_with_options(Device::Cpu, &legal, &common));
//!
//! // A device without a backend can do nothing, and says what is missing.
//! assert_eq!(first_unsupported_op(Device::Tpu, &graph), Some((0, &graph.nodes()[0].op)));
//! assert!(legalize_graph_for_device(graph, Device::Tpu).unwrap_err().contains("no backend in this build"));
//! drain_device(Device::Cpu);
//! # Ok::<(), String>(())
//! ```

mod example;

use std::sync::Arc;

use rlx_backend::Backend;
use rlx_driver::{Device, DeviceId};
use rlx_ir::{Error, Graph, Node, Op, Result, verify_ok};
use rlx_opt::passes::legalize;
use rlx_opt::pipeline::PassContext;
use rlx_opt::{CompileOptions, KernelDispatchReport, Target, report};

use crate::registry::{registered, require_backend};
use crate::{or_panic, panic_guard};
/// Whether `device` can be used now: a backend in this build and a live probe of the driver, or a backend
/// given to [`crate::registry::register_backend`].
///
/// ```
/// # use rlx_runtime::*;
/// assert!(is_available(Device::Cpu));
/// ```
pub fn is_available(device: Device) -> bool {
    unavailable_reason(device).is_none()
}

/// Why `device` cannot be used; `None` when it can.
pub fn unavailable_reason(device: impl Into<DeviceId>) -> Option<Error> {
    let device = device.into();
    if registered(device).is_some() {
        return None;
    }
    let probe = |backend: Box<dyn Backend>| panic_guard::call(device, "being probed", || backend.probe());
    require_backend(device).and_then(probe).err()
}

/// The devices that can be used now.
///
/// ```
/// # use rlx_runtime::*;
/// assert!(available_devices().contains(&Device::Cpu));
/// ```
pub fn available_devices() -> Vec<Device> {
    Device::all().iter().copied().filter(|&d| is_available(d)).collect()
}

/// Of Metal, MLX and GPU, those that can be used now; none elsewhere than on Apple's systems.
///
/// ```
/// # use rlx_runtime::*;
/// assert_eq!(available_apple_devices().is_empty(), !cfg!(target_vendor = "apple"));
/// ```
pub fn available_apple_devices() -> Vec<Device> {
    if !cfg!(target_vendor = "apple") {
        return Vec::new();
    }
    [Device::Metal, Device::Mlx, Device::Gpu].into_iter().filter(|&d| is_available(d)).collect()
}

/// The available devices that can compute every node of `graph`.
///
/// ```
/// # use rlx_runtime::*;
/// # let mut g = Graph::new("sum");
/// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
/// # let y = g.add(x, w);
/// # g.set_outputs(vec![y]);
/// assert!(devices_for(&g).contains(&Device::Cpu));
/// ```
pub fn devices_for(graph: &Graph) -> Vec<Device> {
    available_devices().into_iter().filter(|&d| supports_graph(d, graph)).collect()
}

/// The static order of preference, fastest first.
const PRIORITY: [Device; 12] = [
    Device::Tpu,
    Device::Cuda,
    Device::Rocm,
    Device::Mlx,
    Device::Metal,
    Device::Ane,
    Device::Gpu,
    Device::Vulkan,
    Device::DirectX,
    Device::OpenGl,
    Device::WebGpu,
    Device::Cpu,
];

/// The available device that is first in the static order of preference.
///
/// ```
/// # use rlx_runtime::*;
/// assert_eq!(fastest_device(), fastest_among(&available_devices()));
/// ```
pub fn fastest_device() -> Device {
    fastest_among(&available_devices())
}

/// The one of `devices` that is first in the static order of preference; `Cpu` when there is none.
///
/// ```
/// # use rlx_runtime::*;
/// assert_eq!(fastest_among(&[Device::Cpu, Device::Metal, Device::Mlx]), Device::Mlx);
/// assert_eq!(fastest_among(&[]), Device::Cpu);
/// ```
pub fn fastest_among(devices: &[Device]) -> Device {
    PRIORITY.into_iter().find(|d| devices.contains(d)).unwrap_or(Device::Cpu)
}

/// The device's name; for the CPU with the BLAS it uses, if it uses one.
///
/// ```
/// # use rlx_runtime::*;
/// assert!(full_name(Device::Cpu).starts_with("CPU"));
/// ```
pub fn full_name(device: Device) -> &'static str {
    match device {
        #[cfg(feature = "cpu")]
        Device::Cpu => match rlx_cpu::blas::Provider::chosen() {
            Some(provider) => provider.of_cpu(),
            None => device.name(),
        },
        _ => device.name(),
    }
}

/// Whether `CompiledGraph::run_slots` works on `device`: true for every usable device,
/// if necessary through host-visible copies.
///
/// ```
/// # use rlx_runtime::*;
/// assert!(supports_run_slots(Device::Cpu));
/// ```
pub fn supports_run_slots(device: Device) -> bool {
    is_available(device)
}

/// Blocks until `device` is idle, whichever thread or graph gave it work. The CPU computes within each call, and a
/// device without a backend has no work, so for them the call returns at once. `CompiledGraph::drain` waits for one
/// graph's work.
///
/// # Panics
/// If [`try_drain_device`] fails, with its error as the message.
///
/// ```
/// # use rlx_runtime::*;
/// drain_device(Device::Cpu);
/// ```
#[track_caller]
pub fn drain_device(device: Device) {
    or_panic(try_drain_device(device));
}

/// As [`drain_device`].
///
/// # Errors
/// A device error.
pub fn try_drain_device(device: Device) -> Result<()> {
    match require_backend(device) {
        Ok(backend) => panic_guard::call(device, "waiting", || backend.drain()),
        Err(_) => Ok(()),
    }
}

/// A device's target for some options.
struct Query {
    device: DeviceId,
    target: Arc<dyn Target>,
    options: CompileOptions,
}

impl Query {
    fn new(device: impl Into<DeviceId>, options: &CompileOptions) -> Result<Self> {
        let device = device.into();
        let backend = require_backend(device)?;
        let target = panic_guard::call(device, "describing the device", || backend.target(options))?;
        Ok(Query { device, target, options: options.clone() })
    }

    fn context(&self) -> PassContext<'_> {
        PassContext { target: &*self.target, options: &self.options, is_body: false }
    }

    /// Whether the device can compute the node, by its own kernel or by decomposition.
    fn computes(&self, node: &Node, graph: &Graph) -> bool {
        let run = || Ok(computes(node, graph, &self.context()));
        panic_guard::call(self.device, "answering the compiler", run).unwrap_or(false)
    }

    /// The graph in ops that the device has kernels for, as the compiler makes it.
    fn legal(&self, graph: &Graph) -> Result<Graph> {
        let run = || legalize::run_before_layout(graph, &self.context());
        panic_guard::call(self.device, "answering the compiler", run)
    }

    fn report(&self, graph: &Graph) -> Result<KernelDispatchReport> {
        let run = || Ok(report::analyze(graph, &self.context()));
        panic_guard::call(self.device, "answering the compiler", run)
    }
}

/// Whether the device computes the node, by its own kernel or by decomposition, whatever the rest of the graph is.
pub(crate) fn computes(node: &Node, graph: &Graph, context: &PassContext<'_>) -> bool {
    legalize::run_before_layout(&alone(node, graph), context).is_ok()
}

/// A graph of the node alone, its inputs given.
fn alone(node: &Node, graph: &Graph) -> Graph {
    let mut single = Graph::new("node");
    if node.inputs.is_empty() {
        let id = single.push_node(node.clone());
        single.set_outputs(vec![id]);
        return single;
    }
    if let Op::Result { .. } = node.op {
        // A result of a node with several outputs: the node itself is checked separately.
        single.input("result", node.shape.clone());
        return single;
    }
    let inputs = node.inputs.iter().enumerate();
    let inputs = inputs.map(|(i, &id)| single.input(format!("x{i}"), graph.shape(id).clone())).collect();
    let copy = Node::new(node.op.clone(), inputs, node.results().to_vec()).with_name(node.name.clone());
    let id = single.push_node(copy);
    single.set_outputs(vec![id]);
    single
}

/// Whether `device` can be used and compute `op` in f32 or the op's natural element type.
///
/// # Panics
/// If [`try_supports`] fails, with its error as the message.
///
/// ```
/// # use rlx_runtime::*;
/// assert!(supports(Device::Cpu, &Op::MatMul));
/// assert!(!supports(Device::Tpu, &Op::MatMul), "no backend in this build");
/// ```
#[track_caller]
pub fn supports(device: Device, op: &Op) -> bool {
    or_panic(try_supports(device, op))
}

/// As [`supports`].
///
/// # Errors
/// [`rlx_ir::ErrorKind::Config`] when `RLX_KERNEL_DISPATCH` is invalid.
pub fn try_supports(device: Device, op: &Op) -> Result<bool> {
    match example::graph_of(op) {
        Some((graph, id)) => try_supports_node(device, graph.node(id), &graph),
        None => Ok(false),
    }
}

/// Whether `device` can be used and compute `node` of `graph`, exact for its element types and attributes.
///
/// # Panics
/// If [`try_supports_node`] fails, with its error as the message.
///
/// ```
/// # use rlx_runtime::*;
/// # let mut g = Graph::new("sum");
/// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
/// # let y = g.add(x, w);
/// # g.set_outputs(vec![y]);
/// assert!(supports_node(Device::Cpu, g.node(g.outputs[0]), &g));
/// ```
#[track_caller]
pub fn supports_node(device: Device, node: &Node, graph: &Graph) -> bool {
    or_panic(try_supports_node(device, node, graph))
}

/// As [`supports_node`].
///
/// # Errors
/// As [`try_supports`].
pub fn try_supports_node(device: Device, node: &Node, graph: &Graph) -> Result<bool> {
    let options = CompileOptions::try_new()?;
    Ok(is_available(device) && Query::new(device, &options).is_ok_and(|q| q.computes(node, graph)))
}

/// Whether `device` can be used and compute every node of `graph`. The graph need not have outputs.
///
/// # Panics
/// When `RLX_KERNEL_DISPATCH` is invalid; [`supports_graph_with_options`] does not read it.
///
/// ```
/// # use rlx_runtime::*;
/// # let mut g = Graph::new("sum");
/// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
/// # let y = g.add(x, w);
/// # g.set_outputs(vec![y]);
/// assert!(supports_graph(Device::Cpu, &g));
/// ```
#[track_caller]
pub fn supports_graph(device: Device, graph: &Graph) -> bool {
    supports_graph_with_options(device, graph, &or_panic(CompileOptions::try_new()))
}

/// As [`supports_graph`], under `options`.
///
/// ```
/// # use rlx_runtime::*;
/// # let mut g = Graph::new("sum");
/// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
/// # let y = g.add(x, w);
/// # g.set_outputs(vec![y]);
/// let options = CompileOptions::new().kernel_dispatch(KernelDispatchPolicy::ForceNative);
/// assert!(supports_graph_with_options(Device::Cpu, &g, &options));
/// ```
pub fn supports_graph_with_options(device: Device, graph: &Graph, options: &CompileOptions) -> bool {
    let legal = |q: Query| verify_ok(graph).is_ok() && q.legal(graph).is_ok();
    is_available(device) && Query::new(device, options).is_ok_and(legal)
}

/// The first node, in order, that `device` cannot compute: its position and op. Where the device cannot be
/// used at all, that is node 0.
///
/// # Panics
/// When `RLX_KERNEL_DISPATCH` is invalid; [`first_unsupported_op_with_options`] does not read it.
///
/// ```
/// # use rlx_runtime::*;
/// # let mut g = Graph::new("sum");
/// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
/// # let y = g.add(x, w);
/// # g.set_outputs(vec![y]);
/// assert!(first_unsupported_op(Device::Cpu, &g).is_none());
/// assert_eq!(first_unsupported_op(Device::Tpu, &g).map(|(at, _)| at), Some(0));
/// ```
#[track_caller]
pub fn first_unsupported_op(device: Device, graph: &Graph) -> Option<(usize, &Op)> {
    first_unsupported_op_with_options(device, graph, &or_panic(CompileOptions::try_new()))
}

/// As [`first_unsupported_op`], under `options`.
pub fn first_unsupported_op_with_options<'g>(
    device: Device,
    graph: &'g Graph,
    options: &CompileOptions,
) -> Option<(usize, &'g Op)> {
    first_unsupported(device.into(), graph, options)
}

/// As [`first_unsupported_op_with_options`], for any device that has a name.
pub(crate) fn first_unsupported<'g>(
    device: DeviceId,
    graph: &'g Graph,
    options: &CompileOptions,
) -> Option<(usize, &'g Op)> {
    let first = graph.nodes().first()?;
    let query = match Query::new(device, options) {
        Ok(query) if unavailable_reason(device).is_none() => query,
        _ => return Some((0, &first.op)),
    };
    if query.legal(graph).is_ok() {
        return None;
    }
    graph.nodes().iter().find(|node| !query.computes(node, graph)).map(|node| (node.id.index(), &node.op))
}

/// The graph with every node that `device` has no kernel for replaced by simpler nodes.
///
/// # Errors
/// A device without a backend, an invalid graph, or the first node that cannot be computed.
///
/// ```
/// # use rlx_runtime::*;
/// # let mut g = Graph::new("sum");
/// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
/// # let y = g.add(x, w);
/// # g.set_outputs(vec![y]);
/// let legal = legalize_graph_for_device(g, Device::Cpu)?;
/// assert!(supports_graph(Device::Cpu, &legal));
/// # Ok::<(), String>(())
/// ```
pub fn legalize_graph_for_device(graph: Graph, device: Device) -> Result<Graph, String> {
    legalize_graph_for_device_with_options(graph, device, &CompileOptions::try_new()?)
}

/// As [`legalize_graph_for_device`], under `options`.
///
/// # Errors
/// As [`legalize_graph_for_device`].
pub fn legalize_graph_for_device_with_options(
    graph: Graph,
    device: Device,
    options: &CompileOptions,
) -> Result<Graph, String> {
    Ok(try_legalize(&graph, device, options)?.0)
}

/// As [`legalize_graph_for_device`], with the report of what was done.
///
/// # Errors
/// As [`legalize_graph_for_device`].
///
/// ```
/// # use rlx_runtime::*;
/// # let mut g = Graph::new("sum");
/// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
/// # let y = g.add(x, w);
/// # g.set_outputs(vec![y]);
/// let (legal, report) = legalize_graph_for_device_with_report(g, Device::Cpu)?;
/// assert!(report.compile_ready && supports_graph(Device::Cpu, &legal));
/// # Ok::<(), String>(())
/// ```
pub fn legalize_graph_for_device_with_report(
    graph: Graph,
    device: Device,
) -> Result<(Graph, KernelDispatchReport), String> {
    Ok(try_legalize(&graph, device, &CompileOptions::try_new()?)?)
}

/// The legalising calls with typed errors.
///
/// # Errors
/// As [`legalize_graph_for_device`].
pub fn try_legalize(
    graph: &Graph,
    device: impl Into<DeviceId>,
    options: &CompileOptions,
) -> Result<(Graph, KernelDispatchReport)> {
    let query = Query::new(device, options)?;
    verify_ok(graph)?;
    let report = query.report(graph)?;
    Ok((query.legal(graph)?, report))
}

/// How `device` would compute each kind of node in `graph`.
///
/// # Errors
/// A device without a backend.
///
/// ```
/// # use rlx_runtime::*;
/// # let mut g = Graph::new("sum");
/// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
/// # let y = g.add(x, w);
/// # g.set_outputs(vec![y]);
/// let report = dispatch_report_for_device(&g, Device::Cpu)?;
/// assert!(report.compile_ready && report.still_unsupported.is_empty());
/// println!("{report}");
/// # Ok::<(), String>(())
/// ```
pub fn dispatch_report_for_device(graph: &Graph, device: Device) -> Result<KernelDispatchReport, String> {
    dispatch_report_for_device_with_options(graph, device, &CompileOptions::try_new()?)
}

/// As [`dispatch_report_for_device`], under `options`.
///
/// # Errors
/// As [`dispatch_report_for_device`].
pub fn dispatch_report_for_device_with_options(
    graph: &Graph,
    device: Device,
    options: &CompileOptions,
) -> Result<KernelDispatchReport, String> {
    Ok(dispatch_report_on(graph, device, options)?)
}

/// As [`dispatch_report_for_device_with_options`], for any device that has a name, with a typed error.
///
/// # Errors
/// As [`dispatch_report_for_device`].
///
/// ```
/// # use rlx_runtime::*;
/// # let mut g = Graph::new("exp");
/// # let x = g.input("x", Shape::new(&[2], DType::F32));
/// # let y = g.exp(x);
/// # g.set_outputs(vec![y]);
/// assert!(dispatch_report_on(&g, Device::Cpu, &CompileOptions::new())?.compile_ready);
/// # Ok::<(), Error>(())
/// ```
pub fn dispatch_report_on(
    graph: &Graph,
    device: impl Into<DeviceId>,
    options: &CompileOptions,
) -> Result<KernelDispatchReport> {
    let query = Query::new(device, options)?;
    Ok(named_report(query.report(graph)?, query.device))
}

/// The report under the name of a device outside of the list, whose backend may be another device's, which names itself.
pub fn named_report(mut report: KernelDispatchReport, device: DeviceId) -> KernelDispatchReport {
    if device.known().is_none() {
        report.backend_name = device.feature().to_owned();
    }
    report
}
