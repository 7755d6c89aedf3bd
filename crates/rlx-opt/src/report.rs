//! The dispatch report: for each op kind of a graph, whether it runs natively, decomposed, or not at all.

use std::fmt;

use rlx_ir::{Graph, NodeId, OpKind, decompose};

use crate::options::KernelDispatchPolicy;
use crate::passes::legalize::{needs_no_kernel, runs_natively};
use crate::pipeline::PassContext;

/// How the nodes of one kind get computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DispatchPath {
    /// By the device's own kernel.
    Native,
    /// By decomposition into ops that the device has.
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

/// The nodes of one kind that go one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindDispatchSummary {
    /// The op.
    pub kind: OpKind,
    /// How many nodes.
    pub node_count: usize,
    /// Which way they go.
    pub path: DispatchPath,
    /// The op's name.
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
        write!(f, "{ready}")
    }
}

/// How the device of `context` would compute each kind of node in `graph`.
pub fn analyze(graph: &Graph, context: &PassContext<'_>) -> KernelDispatchReport {
    let mut counts: std::collections::BTreeMap<(OpKind, u8), usize> = Default::default();
    let (mut lowered, mut unsupported) = (Vec::new(), Vec::new());
    for node in graph.nodes() {
        let kind = node.op.kind();
        let native = needs_no_kernel(&node.op) || runs_natively(node, graph, context);
        let common = decompose::can_decompose(graph, node);
        let path = match context.options.kernel_dispatch {
            KernelDispatchPolicy::ForceNative if !native => DispatchPath::Unsupported,
            KernelDispatchPolicy::ForceCommon if common => DispatchPath::CommonIr,
            _ if native => DispatchPath::Native,
            _ if common => DispatchPath::CommonIr,
            _ => DispatchPath::Unsupported,
        };
        match path {
            DispatchPath::CommonIr if !lowered.contains(&kind) => lowered.push(kind),
            DispatchPath::Unsupported => unsupported.push((node.id, kind)),
            _ => {}
        }
        *counts.entry((kind, path as u8)).or_default() += 1;
    }
    let paths =
        [DispatchPath::Native, DispatchPath::CommonIr, DispatchPath::Rewritten, DispatchPath::Unsupported];
    let summaries: Vec<KindDispatchSummary> = counts
        .into_iter()
        .map(|((kind, path), node_count)| KindDispatchSummary {
            kind,
            node_count,
            path: paths[usize::from(path)],
            logical_name: kind.name(),
        })
        .collect();
    KernelDispatchReport {
        backend_name: context.target.name().to_string(),
        policy: context.options.kernel_dispatch,
        supported_claim_count: summaries.iter().filter(|s| s.path == DispatchPath::Native).count(),
        summaries,
        common_lowered_kinds: lowered,
        compile_ready: unsupported.is_empty(),
        still_unsupported: unsupported,
    }
}
