//! Movement between an elementwise op and the reduction that alone reads it, put in front of the op, where the reduction then takes it
//! in as its producer.
//!
//! [`simplify`](super::super::simplify) sinks transposes and reshapes below elementwise ops. What is in front of a reduction would be
//! computed as its operand is read (`producers.rs`), but for the movement in between:
//!
//! ```text
//! %1 = Mul(%0, %0) : [8, 64, 24, 32] f32                        %1 = Transpose(%0) {perm=[0, 2, 1, 3]} : [8, 24, 64, 32] f32
//! %2 = Transpose(%1) {perm=[0, 2, 1, 3]} : [8, 24, 64, 32] f32  %2 = Mul(%1, %1) : [8, 24, 64, 32] f32
//! %3 = Reduce(%2) {op=Sum, axes=[3]} : [8, 24, 64] f32     →    %3 = Reduce(%2) {op=Sum, axes=[3]} : [8, 24, 64] f32
//! ```
//!
//! Only reductions, which read their operand in any order. Legal because the op computes each element by itself.

use rlx_ir::{Graph, Node, NodeId, Op, Result};

use super::producers::is_moved;
use crate::facts;
use crate::pipeline::PassContext;
use crate::rewrite::Rewriter;

/// An elementwise op, the movement behind it, and the reduction that reads what is moved.
struct Moved {
    producer: NodeId,
    movement: Vec<NodeId>,
    reduction: NodeId,
}

/// The graph with such movement in front of the ops, if there is any that helps.
///
/// # Errors
/// [`rlx_ir::ErrorKind::Internal`] when a moved op is rejected.
pub(super) fn run(graph: &Graph, context: &PassContext<'_>) -> Result<Option<Graph>> {
    if !graph.nodes().iter().any(is_reduction) {
        return Ok(None);
    }
    let (users, outputs) = (facts::users(graph), facts::output_flags(graph));
    let only_user = |node: &Node| match users[node.id.index()][..] {
        [user] if !outputs[node.id.index()] => Some(graph.node(user)),
        _ => None,
    };
    let find = |producer: &Node| {
        let (mut movement, mut at) = (Vec::new(), only_user(producer)?);
        while is_moved(at) {
            movement.push(at.id);
            at = only_user(at)?;
        }
        let moves = !movement.is_empty() && is_reduction(at);
        let found = Moved { producer: producer.id, movement, reduction: at.id };
        (moves && of_one_value(producer, graph)).then_some(found)
    };
    let pointwise = graph.nodes().iter().filter(|n| n.op.is_pointwise());
    let mut found: Vec<Moved> = pointwise.filter_map(find).collect();
    if found.is_empty() {
        return Ok(None);
    }
    // Whether the device takes an op in is known once the reduction reads it.
    let (moved, places) = moved(graph, &found)?;
    let takes = |&[producer, reduction]: &[NodeId; 2]| {
        context.target.fuses_producer(moved.node(producer), moved.node(reduction), &moved)
    };
    let taken: Vec<bool> = places.iter().map(takes).collect();
    if !taken.contains(&false) {
        return Ok(Some(moved));
    }
    let mut taken = taken.into_iter();
    found.retain(|_| taken.next() == Some(true));
    if found.is_empty() { Ok(None) } else { Ok(Some(self::moved(graph, &found)?.0)) }
}

fn is_reduction(node: &Node) -> bool {
    matches!(node.op, Op::Reduce { .. })
}

/// Whether it reads scalars and one value of its own dimensions, so that no more is moved before it than behind it.
fn of_one_value(node: &Node, graph: &Graph) -> bool {
    let mut whole = node.inputs.iter().filter(|&&id| graph.shape(id).rank() > 0);
    let Some(first) = whole.next() else { return false };
    graph.shape(*first).dims() == node.shape.dims() && whole.all(|id| id == first)
}

/// The graph with `found` in that order; each producer and reduction there.
fn moved(graph: &Graph, found: &[Moved]) -> Result<(Graph, Vec<[NodeId; 2]>)> {
    let mut rewriter = Rewriter::new(graph);
    let mut of_reduction = vec![None; graph.len()];
    let mut later = vec![false; graph.len()];
    for of in found {
        of_reduction[of.reduction.index()] = Some(of);
        later[of.producer.index()] = true;
        of.movement.iter().for_each(|id| later[id.index()] = true);
    }
    let mut places = Vec::with_capacity(found.len());
    for node in graph.nodes().iter().filter(|n| !later[n.id.index()]) {
        let Some(of) = of_reduction[node.id.index()] else {
            rewriter.keep(node)?;
            continue;
        };
        let producer = graph.node(of.producer);
        let mut inputs = Vec::with_capacity(producer.inputs.len());
        for &id in &producer.inputs {
            let mut at = rewriter.new_id(id);
            if graph.shape(id).rank() > 0 {
                for &step in &of.movement {
                    at = rewriter.emit(graph.node(step).op.clone(), &[at])?;
                }
            }
            inputs.push(at);
        }
        let computed = rewriter.emit(producer.op.clone(), &inputs)?;
        rewriter.replace(of.producer, computed);
        places.push([computed, rewriter.keep_with(node, &[computed])?]);
    }
    Ok((rewriter.finish(false), places))
}
