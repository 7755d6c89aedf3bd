//! Puts fixed operands into the memory format the device wants.
//!
//! Matches: an operand that depends on parameters and constants alone, where the device names a format
//! ([`crate::Target::pack_format`]). Makes: an [`Op::Pack`] in front of it, shared by all that want the same.
//! Legal because packing is numerically the identity; since its operand is fixed it becomes part of the init
//! program and runs once, not at every run.
//!
//! ```text
//! %1 = Param {name="w"} : [4, 3] f32          %1 = Param {name="w"} : [4, 3] f32
//! %2 = MatMul(%0, %1) : [2, 3] f32      →     %2 = Pack(%1) {format=MatMulRhs} : [4, 3] f32
//!                                             %3 = MatMul(%0, %2) : [2, 3] f32
//! ```

use rlx_ir::{Graph, Node, NodeId, Op, Result};

use crate::facts;
use crate::pipeline::PassContext;
use crate::rewrite::Rewriter;

/// Runs the pass.
///
/// # Errors
/// [`rlx_ir::ErrorKind::Internal`] when a rewritten node is rejected.
pub fn run(graph: &Graph, context: &PassContext<'_>) -> Result<Graph> {
    let fixed = facts::fixed_nodes(graph);
    let mut r = Rewriter::new(graph);
    for node in graph.nodes() {
        let wanted = formats(node, graph, &fixed, context);
        if wanted.iter().all(Option::is_none) {
            r.keep(node)?;
            continue;
        }
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for (&id, format) in node.inputs.iter().zip(wanted) {
            let id = r.new_id(id);
            inputs.push(match format {
                Some(format) => r.emit(Op::Pack { format }, &[id])?,
                None => id,
            });
        }
        r.keep_with(node, &inputs)?;
    }
    Ok(r.finish(false))
}

/// The format the device wants for each input; none for those that are not fixed, or packed already.
fn formats(
    node: &Node,
    graph: &Graph,
    fixed: &[bool],
    context: &PassContext<'_>,
) -> Vec<Option<rlx_ir::op::PackFormat>> {
    let fixed_itself = fixed[node.id.index()];
    let of = |(i, id): (usize, &NodeId)| {
        let packed = matches!(graph.node(*id).op, Op::Pack { .. });
        if fixed_itself || !fixed[id.index()] || packed {
            return None;
        }
        context.target.pack_format(node, i, graph)
    };
    node.inputs.iter().enumerate().map(of).collect()
}
