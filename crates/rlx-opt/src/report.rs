//! The dispatch report: for each op kind of a graph, whether it runs natively, decomposed, or not at all.

use std::collections::BTreeMap;
use std::fmt;

use rlx_ir::{Graph, Node, NodeId, Op, OpKind, decompose};

use crate::dispatch::KernelDispatchConfig;
use crate::options::{KernelDispatchPolicy, Precision};
use crate::passes::legalize::{needs_no_kernel, no_movement, runs_by_reference, will_run_natively};
use crate::pipeline::PassContext;
use crate::precision::{self, PrecisionReport};

/// How the nodes of one kind get computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DispatchPath {
    /// By the device's own kernel.
    Native,
    /// By decomposition into ops that the device has; an op from outside that has no decomposition, by its reference.
    CommonIr,
    /// By another op that the device claims.
    Rewritten,
    /// Not at all.
    Unsupported,
}

impl fmt::Display for DispatchPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            DispatchPath::Native => "native",
            DispatchPath::CommonIr => "common IR",
            DispatchPath::Rewritten => "rewritten",
            DispatchPath::Unsupported => "unsupported",
        })
    }
}

/// The nodes of one kind that run the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindDispatchSummary {
    /// The op.
    pub kind: OpKind,
    /// How many nodes.
    pub node_count: usize,
    /// How they run.
    pub path: DispatchPath,
    /// The op's name; `Custom (reference)` for ops from outside that are computed by their reference semantics.
    pub logical_name: &'static str,
}

/// What legalising a graph for a device found.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelDispatchReport {
    /// The device's name.
    pub backend_name: String,
    /// The policy that was applied.
    pub policy: KernelDispatchPolicy,
    /// How many op kinds the device has kernels for.
    pub supported_claim_count: usize,
    /// One line for each kind and path in the graph.
    pub summaries: Vec<KindDispatchSummary>,
    /// The kinds that were decomposed.
    pub common_lowered_kinds: Vec<OpKind>,
    /// The nodes nothing can compute.
    pub still_unsupported: Vec<(NodeId, OpKind)>,
    /// Whether the graph can be compiled.
    pub compile_ready: bool,
    /// The arithmetic asked for and used, once the graph was compiled.
    pub precision: Option<PrecisionReport>,
}

impl fmt::Display for KernelDispatchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} ({:?}, {} kinds claimed)",
            self.backend_name, self.policy, self.supported_claim_count
        )?;
        writeln!(f, "{:<20} {:>6}  path", "op", "nodes")?;
        for s in &self.summaries {
            writeln!(f, "{:<20} {:>6}  {}", s.logical_name, s.node_count, s.path)?;
        }
        let ready = if self.compile_ready { "ready to compile" } else { "cannot be compiled" };
        write!(f, "{ready}")?;
        match &self.precision {
            Some(precision) => write!(f, "\n{precision}"),
            None => Ok(()),
        }
    }
}

/// How the device of `context` would compute each kind of node in `graph`.
pub fn analyze(graph: &Graph, context: &PassContext<'_>) -> KernelDispatchReport {
    let config = KernelDispatchConfig { policy: context.options.kernel_dispatch, ..Default::default() };
    let kernel = |node: &Node, graph: &Graph| match () {
        () if needs_no_kernel(&node.op) => match no_movement(node, context.target) {
            None => Kernel::Own,
            Some(_) => Kernel::None,
        },
        () if will_run_natively(node, graph, context) => Kernel::Own,
        () if runs_by_reference(node, graph, context) => Kernel::Reference,
        () => Kernel::None,
    };
    let mut report = analyze_with(graph, context.target.name(), &kernel, config);
    report.supported_claim_count = report.summaries.iter().filter(|s| s.path == DispatchPath::Native).count();
    report
}

/// What arithmetic the compiled `graph` uses. A wish for a shorter one that came to nothing is logged.
pub fn precision_of(graph: &Graph, context: &PassContext<'_>) -> PrecisionReport {
    let report = precision::analyze(graph, context.options, Some(context.target));
    if precision::is_short(context.options) && report.used == Precision::F32 {
        let (asked, device) = (&report.requested, context.target.name());
        tracing::warn!(graph = graph.name, asked, device, "most of the arithmetic stays f32");
    }
    report
}

/// By what a device computes a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// A kernel.
    Own,
    /// The op's reference semantics.
    Reference,
    /// Nothing.
    None,
}

/// By what a device computes each node.
pub(crate) type KernelOf<'a> = &'a dyn Fn(&Node, &Graph) -> Kernel;

/// How each kind of node in `graph` gets computed where `kernel` says what there are kernels for.
pub(crate) fn analyze_with(
    graph: &Graph,
    backend: &str,
    kernel: KernelOf<'_>,
    config: KernelDispatchConfig,
) -> KernelDispatchReport {
    let mut counts: BTreeMap<(OpKind, u8, &'static str), usize> = BTreeMap::new();
    let (mut lowered, mut unsupported) = (Vec::new(), Vec::new());
    for node in graph.nodes() {
        let kind = node.op.kind();
        let (path, name) = path_of(node, graph, kernel, config);
        match path {
            DispatchPath::CommonIr if !lowered.contains(&kind) => lowered.push(kind),
            DispatchPath::Unsupported => unsupported.push((node.id, kind)),
            _ => {}
        }
        *counts.entry((kind, path as u8, name)).or_default() += 1;
    }
    let paths =
        [DispatchPath::Native, DispatchPath::CommonIr, DispatchPath::Rewritten, DispatchPath::Unsupported];
    let summaries = counts
        .into_iter()
        .map(|((kind, path, logical_name), node_count)| KindDispatchSummary {
            kind,
            node_count,
            path: paths[usize::from(path)],
            logical_name,
        })
        .collect();
    KernelDispatchReport {
        backend_name: backend.to_string(),
        policy: config.policy,
        supported_claim_count: 0,
        summaries,
        common_lowered_kinds: lowered,
        compile_ready: unsupported.is_empty(),
        precision: None,
        still_unsupported: unsupported,
    }
}

/// Whether the configuration asks for this node's decomposition, where there is one.
pub(crate) fn is_common(node: &Node, native: bool, config: KernelDispatchConfig) -> bool {
    let kind = node.op.kind();
    if (native && needs_no_kernel(&node.op)) || config.force_native_kinds.contains(&kind) {
        return false;
    }
    config.force_common_kinds.contains(&kind)
        || match config.policy {
            KernelDispatchPolicy::PreferNative => !native,
            KernelDispatchPolicy::ForceCommon => true,
            KernelDispatchPolicy::ForceNative => false,
        }
}

/// How a node runs, and what the device calls it.
fn path_of(
    node: &Node,
    graph: &Graph,
    kernel: KernelOf<'_>,
    config: KernelDispatchConfig,
) -> (DispatchPath, &'static str) {
    let name = node.op.kind().name();
    let has = kernel(node, graph);
    let common = is_common(node, has == Kernel::Own, config) && decompose::can_decompose(graph, node);
    match (common, has) {
        (true, _) if decomposes_into_kernels(node, graph, kernel, config) => (DispatchPath::CommonIr, name),
        (false, Kernel::Own) => (DispatchPath::Native, name),
        (false, Kernel::Reference) => (DispatchPath::CommonIr, BY_REFERENCE),
        _ => (DispatchPath::Unsupported, name),
    }
}

/// What reports call an op from outside that is computed by its reference semantics.
const BY_REFERENCE: &str = "Custom (reference)";

/// Whether there is a kernel for everything that `node` decomposes into.
fn decomposes_into_kernels(
    node: &Node,
    graph: &Graph,
    kernel: KernelOf<'_>,
    config: KernelDispatchConfig,
) -> bool {
    let mut alone = Graph::new("alone");
    alone.take_symbol_ranges(graph);
    let inputs: Vec<NodeId> = node
        .inputs
        .iter()
        .enumerate()
        .map(|(i, &id)| match &graph.node(id).op {
            Op::Constant { data } => alone.constant((**data).clone()),
            _ => alone.input(format!("i{i}"), graph.shape(id).clone()),
        })
        .collect();
    let copy = alone.push_node(Node::new(node.op.clone(), inputs, node.results().to_vec()));
    alone.set_outputs(vec![copy]);
    let wanted = |n: &Node, g: &Graph| is_common(n, kernel(n, g) == Kernel::Own, config);
    match decompose::decompose_nodes(&alone, wanted) {
        Ok(parts) => {
            let parts = parts.unwrap_or(alone);
            parts.nodes().iter().all(|n| kernel(n, &parts) != Kernel::None)
        }
        Err(_) => false,
    }
}
