//! Puts fixed operands into the memory format the device wants.
//!
//! Matches: an operand that depends on parameters and constants alone, where the device names a format
//! ([`crate::Target::pack_format`]). Makes: an [`Op::Pack`] in front of it, shared by all that want the same.
//! Legal because packing is numerically the identity; since its operand is fixed it becomes part of the init
//! program and runs once, not at every run. Under [`Numerics::Fast`] a device may name a format for an algorithm that rounds
//! otherwise ([`crate::Target::fast_pack_format`]).
//!
//! ```text
//! %1 = Param {name="w"} : [4, 3] f32          %1 = Param {name="w"} : [4, 3] f32
//! %2 = MatMul(%0, %1) : [2, 3] f32      →     %2 = Pack(%1) {format=MatMulRhs} : [4, 3] f32
//!                                             %3 = MatMul(%0, %2) : [2, 3] f32
//! ```

use rlx_ir::{Graph, Node, Op, Result};

use crate::facts;
use crate::options::Numerics;
use crate::pipeline::PassContext;
use crate::rewrite::Rewriter;

/// Runs the pass.
///
/// # Errors
/// [`rlx_ir::ErrorKind::Internal`] when a rewritten node is rejected.
pub fn run(graph: &Graph, context: &PassContext<'_>) -> Result<Graph> {
    let (fixed, users) = (facts::fixed_nodes(graph), facts::users(graph));
    let mut r = Rewriter::new(graph);
    for node in graph.nodes() {
        let wanted = |i: usize| format_of((node, i), graph, (&fixed, &users), context);
        if (0..node.inputs.len()).all(|i| wanted(i).is_none()) {
            r.keep(node)?;
            continue;
        }
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for (i, &id) in node.inputs.iter().enumerate() {
            let id = r.new_id(id);
            inputs.push(match wanted(i) {
                Some(format) => r.emit(Op::Pack { format }, &[id])?,
                None => id,
            });
        }
        r.keep_with(node, &inputs)?;
    }
    Ok(r.finish(false))
}

/// The format the device wants for input `i`; none if that is not fixed, or packed already.
fn format_of(
    (node, i): (&Node, usize),
    graph: &Graph,
    (fixed, users): (&[bool], &facts::Users),
    context: &PassContext<'_>,
) -> Option<rlx_ir::op::PackFormat> {
    let id = node.inputs[i];
    let packed = matches!(graph.node(id).op, Op::Pack { .. });
    if fixed[node.id.index()] || !fixed[id.index()] || packed {
        return None;
    }
    match context.options.numerics {
        Numerics::Strict => context.target.pack_format(node, i, graph),
        Numerics::Fast => context.target.fast_pack_format(node, i, graph, users),
    }
}
