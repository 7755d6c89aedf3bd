//! Replaces what the device does not claim by simpler ops.
//!
//! Matches: a node without a native kernel (or, under `ForceCommon`, any with a decomposition). Makes: its own
//! decomposition, repeatedly. Legal because a decomposition computes the same results. Nodes that hold the
//! graph together and movement ops (which become views or copies) need no claim.
//!
//! ```text
//! %1 = Softmax(%0) {axis=-1} : [2, 3] f32    →   Reduce.Max, Sub, Exp, Reduce.Sum, Div
//! ```

use std::collections::BTreeMap;

use rlx_ir::{Error, ErrorKind, Graph, Node, Op, Result, decompose};

use crate::options::KernelDispatchPolicy;
use crate::passes::choose_layout;
use crate::pipeline::PassContext;
use crate::target::Target;

/// Whether a node is computed by no kernel of its own on any device: it is a view, a copy, or a border.
pub fn needs_no_kernel(op: &Op) -> bool {
    matches!(
        op,
        Op::Input { .. }
            | Op::Param { .. }
            | Op::Constant { .. }
            | Op::Result { .. }
            | Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Expand { .. }
            | Op::Slice { .. }
            | Op::Concat { .. }
    )
}

/// Why a node without a kernel cannot be on the device: its tensor has too many dimensions, or elements that are not moved.
pub fn no_movement(node: &Node, target: &dyn Target) -> Option<String> {
    let (shape, border) = (&node.shape, node.inputs.is_empty() || matches!(node.op, Op::Result { .. }));
    if shape.rank() > target.max_rank() {
        return Some(format!("tensors have at most {} dimensions", target.max_rank()));
    }
    // Nothing makes views of such elements, so a reshape of them is the same bytes.
    let same_bytes = border || matches!(node.op, Op::Reshape { .. });
    if !same_bytes && !target.moves(shape.dtype()) {
        return Some(format!("elements of {} are not moved", shape.dtype()));
    }
    target.lacks_movement(node)
}

/// Whether the device has the node without a kernel.
fn is_moved(node: &Node, context: &PassContext<'_>) -> bool {
    needs_no_kernel(&node.op) && no_movement(node, context.target).is_none()
}

fn is_allowed(node: &Node, context: &PassContext<'_>) -> bool {
    context.options.supported_ops.as_ref().is_none_or(|ops| ops.contains(&node.op.kind()))
}

/// Whether the device runs `node` by its own kernel under the options.
pub fn runs_natively(node: &Node, graph: &Graph, context: &PassContext<'_>) -> bool {
    is_allowed(node, context) && context.target.claim(node, graph).is_native()
}

/// Whether the device computes `node` by its reference semantics under the options.
pub fn runs_by_reference(node: &Node, graph: &Graph, context: &PassContext<'_>) -> bool {
    context.options.kernel_dispatch != KernelDispatchPolicy::ForceNative
        && is_allowed(node, context)
        && context.target.claim(node, graph) == crate::Claim::Reference
}

/// Whether the device will run `node`, as the caller gave it, by its own kernel: as it is, or with its channels where
/// [`choose_layout`] puts them. What is said of a graph before it is compiled is said by this.
pub fn will_run_natively(node: &Node, graph: &Graph, context: &PassContext<'_>) -> bool {
    runs_natively(node, graph, context)
        || choose_layout::moved(node, graph, context)
            .is_some_and(|(graph, id)| runs_natively(graph.node(id), &graph, context))
}

/// Runs the pass.
///
/// # Errors
/// [`ErrorKind::Unsupported`] naming the first node that nothing can compute, and why, with the ops of all others.
pub fn run(graph: &Graph, context: &PassContext<'_>) -> Result<Graph> {
    legal(graph, context, runs_natively)
}

/// The pass on a graph for which the layout has not been chosen yet: what another layout makes native stays as it is.
///
/// # Errors
/// As [`run`].
pub fn run_before_layout(graph: &Graph, context: &PassContext<'_>) -> Result<Graph> {
    legal(graph, context, will_run_natively)
}

fn legal(
    graph: &Graph,
    context: &PassContext<'_>,
    natively: fn(&Node, &Graph, &PassContext<'_>) -> bool,
) -> Result<Graph> {
    let policy = context.options.kernel_dispatch;
    let wanted = |node: &Node, graph: &Graph| {
        !is_moved(node, context)
            && match policy {
                KernelDispatchPolicy::PreferNative => !natively(node, graph, context),
                KernelDispatchPolicy::ForceCommon => true,
                KernelDispatchPolicy::ForceNative => false,
            }
    };
    if policy == KernelDispatchPolicy::PreferNative && !graph.nodes().iter().any(|node| wanted(node, graph)) {
        return Ok(graph.clone());
    }
    let legal = decompose::decompose_nodes(graph, wanted)?.unwrap_or_else(|| graph.clone());
    let runs = |node: &Node| {
        is_moved(node, context) || natively(node, &legal, context) || runs_by_reference(node, &legal, context)
    };
    let lacking: Vec<&Node> = legal.nodes().iter().filter(|node| !runs(node)).collect();
    match lacking.split_first() {
        Some((first, others)) => Err(unsupported(first, others, &legal, context)),
        None => Ok(legal),
    }
}

/// The error of the first node that nothing can compute, with the ops of all others.
fn unsupported(node: &Node, others: &[&Node], graph: &Graph, context: &PassContext<'_>) -> Error {
    let moved = needs_no_kernel(&node.op).then(|| no_movement(node, context.target)).flatten();
    let reason = match moved.map_or_else(|| context.target.claim(node, graph), crate::Claim::No) {
        crate::Claim::No(reason) => reason,
        crate::Claim::Reference if context.options.kernel_dispatch == KernelDispatchPolicy::ForceNative => {
            "there is a reference, but no kernel".to_string()
        }
        crate::Claim::Native | crate::Claim::Reference => {
            "it is not among the options' supported_ops".to_string()
        }
    };
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    others.iter().for_each(|other| *counts.entry(other.op.kind().to_string()).or_default() += 1);
    let list: Vec<String> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let others = if list.is_empty() { String::new() } else { format!("; nor for {}", list.join(", ")) };
    let name = context.target.name();
    let message = format!("{name} has no kernel for {} : {}: {reason}{others}", node.op.kind(), node.shape);
    graph.locate(node.id, Error::new(ErrorKind::Unsupported, message))
}
