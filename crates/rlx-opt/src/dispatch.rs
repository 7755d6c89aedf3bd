//! The dispatch report for a device that is known by its name and its op kinds alone.
//!
//! What a compile does is decided by [`crate::Target::claim`], exact per element type and attribute. These
//! functions answer the coarser question of tools: with kernels for these kinds, what becomes of this graph?
//!
//! ```
//! use rlx_ir::{DType, Graph, OpKind, Shape};
//! use rlx_opt::{KernelDispatchConfig, analyze_dispatch, format_dispatch_report};
//! let mut g = Graph::new("g");
//! let x = g.input("x", Shape::new(&[2, 3], DType::F32));
//! let y = g.softmax(x, -1, Shape::new(&[2, 3], DType::F32));
//! g.set_outputs(vec![y]);
//! let kernels = [OpKind::Activation, OpKind::Binary, OpKind::Reduce];
//! let report = analyze_dispatch(&g, "toy", &kernels, KernelDispatchConfig::default());
//! assert!(report.compile_ready);
//! assert_eq!(report.common_lowered_kinds, [OpKind::Softmax]);
//! println!("{}", format_dispatch_report(&report));
//! ```

use rlx_ir::sort::sort;
use rlx_ir::{Graph, Node, NodeId, OpKind, decompose};

use crate::options::KernelDispatchPolicy;
use crate::passes::legalize::needs_no_kernel;
use crate::report::{Kernel, KernelDispatchReport, analyze_with, is_common};

/// Which ops run on the device's own kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelDispatchConfig {
    /// What holds of all kinds that are not named below.
    pub policy: KernelDispatchPolicy,
    /// Kinds that are decomposed even where there is a kernel.
    pub force_common_kinds: &'static [OpKind],
    /// Kinds that are never decomposed: without a kernel they are unsupported.
    pub force_native_kinds: &'static [OpKind],
}

/// How each kind of node in `graph` gets computed by a device with kernels for `supported`.
pub fn analyze_dispatch(
    graph: &Graph,
    backend_name: &str,
    supported: &[OpKind],
    config: KernelDispatchConfig,
) -> KernelDispatchReport {
    let kernel = |node: &Node, _: &Graph| {
        let own = needs_no_kernel(&node.op) || supported.contains(&node.op.kind());
        if own { Kernel::Own } else { Kernel::None }
    };
    let mut report = analyze_with(graph, backend_name, &kernel, config);
    let mut kinds = supported.to_vec();
    sort(&mut kinds);
    kinds.dedup();
    report.supported_claim_count = kinds.len();
    report
}

/// `graph` with everything decomposed that a device with kernels for `supported` does not run itself, and the
/// report of what was done. Where the report is not `compile_ready`, the unsupported nodes are still there.
pub fn prepare_graph_for_backend_with_report(
    graph: Graph,
    backend_name: &str,
    supported: &[OpKind],
    config: KernelDispatchConfig,
) -> (Graph, KernelDispatchReport) {
    let report = analyze_dispatch(&graph, backend_name, supported, config);
    let wanted = |node: &Node, _: &Graph| {
        is_common(node, needs_no_kernel(&node.op) || supported.contains(&node.op.kind()), config)
    };
    // A decomposition that fails leaves the graph as it was; the report names its node as unsupported.
    match decompose::decompose_nodes(&graph, wanted) {
        Ok(Some(legal)) => (legal, report),
        _ => (graph, report),
    }
}

/// One message about all nodes that a device cannot run.
pub fn format_legalize_error(backend_name: &str, unsupported: &[(NodeId, OpKind)]) -> String {
    let mut kinds: Vec<OpKind> = unsupported.iter().map(|&(_, kind)| kind).collect();
    sort(&mut kinds);
    kinds.dedup();
    let of_kind = |kind: OpKind| {
        let nodes = unsupported.iter().filter(|(_, k)| *k == kind);
        let ids: Vec<String> = nodes.clone().take(4).map(|(id, _)| id.to_string()).collect();
        let more = nodes.count().saturating_sub(ids.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{kind} ({}{more})", ids.join(", "))
    };
    let list: Vec<String> = kinds.into_iter().map(of_kind).collect();
    format!(
        "{backend_name} has no kernel, and there is no decomposition into its kernels, for {}",
        list.join("; ")
    )
}

/// The report as a table.
pub fn format_dispatch_report(report: &KernelDispatchReport) -> String {
    report.to_string()
}
