//! Leaves rows in the order that they are computed in, where that spares transposes.
//!
//! Matches: an op that computes each row by itself (a matmul by a matrix, a norm or a softmax over the last dimension), whose rows were
//! transposed. Makes: the op on the rows as they were, and the transpose of its result. That one sinks through what follows
//! ([`super::simplify`]) and meets the transpose back, or becomes part of how the next op reads its operand. Legal because a row is the
//! same wherever it stands. Attention modules that want the sequence first are written like that: their input is transposed from
//! `[b, s, e]` to `[s, b, e]`, and their result back.
//!
//! ```text
//! %2 = Transpose(%0) {perm=[1, 0, 2]} : [5, 2, 4] f32
//! %3 = MatMul(%2, %1) : [5, 2, 3] f32
//! %4 = Transpose(%3) {perm=[1, 0, 2]} : [2, 5, 3] f32     →     %2 = MatMul(%0, %1) : [2, 5, 3] f32
//! ```
//!
//! Whether it spares anything depends on all that reads the rows. So what follows is tried on its own (`trial.rs`), and the transpose is moved
//! only where fewer elements are read out of order afterwards.

mod trial;

use rlx_ir::{Dim, Graph, Node, NodeId, Op, Result};

use super::simplify::Simplifier;
use super::simplify::dims::{groups, keeps_order, permuted};
use crate::pipeline::PassContext;

/// Runs the pass.
///
/// # Errors
/// [`rlx_ir::ErrorKind::Internal`] when a moved op is rejected.
pub fn run(graph: &Graph, context: &PassContext<'_>) -> Result<Graph> {
    let transposed =
        |node: &&Node| is_of_rows(node, graph) && TransposedRows::of(graph, node.inputs[0]).is_some();
    if !graph.nodes().iter().any(|node| transposed(&node)) {
        return Ok(graph.clone());
    }
    let surroundings = trial::Surroundings::of(graph);
    let mut moves = vec![false; graph.len()];
    for node in graph.nodes().iter().filter(transposed) {
        if !moves[node.id.index()]
            && let Some(trial) = surroundings.trial(node)
            && trial.pays(context)?
        {
            trial.ops_on_rows().for_each(|id| moves[id.index()] = true);
        }
    }
    if !moves.contains(&true) {
        return Ok(graph.clone());
    }
    reordered(graph, context, &|id| moves[id.index()])
}

/// The graph in simplified form, transposes moved from in front of the nodes that `moves` names to behind them.
fn reordered(graph: &Graph, context: &PassContext<'_>, moves: &dyn Fn(NodeId) -> bool) -> Result<Graph> {
    let mut s = Simplifier::new(graph, context);
    for node in graph.nodes() {
        s.begin(node);
        let moved = if moves(node.id) { transposed_behind(node, &mut s)? } else { None };
        match moved.filter(|&id| *s.graph().shape(id) == node.shape) {
            Some(id) => s.rewriter().replace(node.id, id),
            None => s.node(node)?,
        }
    }
    Ok(s.finish(context.options.dce))
}

/// Whether `node` computes each row of its first input by itself, the others being the same for all of them.
fn is_of_rows(node: &Node, graph: &Graph) -> bool {
    let rank = |i: usize| graph.shape(node.inputs[i]).rank();
    let last = |axis: i32| node.shape.axis(axis.into()).is_ok_and(|axis| axis + 1 == node.shape.rank());
    match node.op {
        Op::MatMul => rank(1) == 2 && rank(0) >= 2,
        Op::LayerNorm { axis, .. } | Op::RmsNorm { axis, .. } => {
            last(axis) && (1..node.inputs.len()).all(|i| rank(i) == 1)
        }
        Op::Softmax { axis } | Op::LogSoftmax { axis } => last(axis),
        _ => false,
    }
}

/// Such an op for operands of this rank.
fn with_rank(op: &Op, rank: usize) -> Op {
    let mut op = op.clone();
    let last = i32::try_from(rank).map_or(-1, |rank| rank - 1);
    match &mut op {
        Op::LayerNorm { axis, .. } | Op::RmsNorm { axis, .. } => *axis = last,
        Op::Softmax { axis } | Op::LogSoftmax { axis } => *axis = last,
        _ => {}
    }
    op
}

/// Rows `[…, k]` that are a transpose of something, several dimensions of which may have become one.
struct TransposedRows {
    /// What is transposed.
    from: NodeId,
    /// How, with the dimensions of rows in the order that they have in `from`.
    in_order: Vec<usize>,
    /// From that order to the order that the rows are wanted in.
    order: Vec<usize>,
    /// The dimensions of rows in their order in `from`, and those of the elements as one.
    dims: Vec<Dim>,
    /// The dimensions of rows as they are wanted.
    wanted: Vec<Dim>,
}

impl TransposedRows {
    /// Those that `id` of `graph` is, if their order is another one than it was before.
    fn of(graph: &Graph, id: NodeId) -> Option<TransposedRows> {
        let (transpose, node) = match graph.node(id) {
            node @ Node { op: Op::Reshape { .. }, .. } => (graph.node(node.inputs[0]), node),
            node => (node, node),
        };
        let Op::Transpose { perm } = &transpose.op else { return None };
        let from = transpose.inputs[0];
        let (&width, wanted) = node.shape.dims().split_last()?;
        let last = groups(transpose.shape.dims(), node.shape.dims())?.pop()?;
        if last.to != (wanted.len()..wanted.len() + 1) || last.from.end != perm.len() {
            return None;
        }
        let (rows, elements) = perm.split_at(last.from.start);
        let mut in_order = rows.to_vec();
        rlx_ir::sort::sort(&mut in_order);
        let place = |p: &usize| in_order.iter().position(|q| q == p);
        let order: Vec<usize> = rows.iter().map(place).collect::<Option<_>>()?;
        let mut dims = permuted(graph.shape(from).dims(), &in_order);
        if keeps_order(&dims, &order) {
            return None;
        }
        dims.push(width);
        in_order.extend_from_slice(elements);
        Some(TransposedRows { from, in_order, order, dims, wanted: wanted.to_vec() })
    }
}

/// The op of `node` on rows in their order before the transpose in front of it, and that transpose behind it.
fn transposed_behind(node: &Node, s: &mut Simplifier<'_>) -> Result<Option<NodeId>> {
    let mut inputs: Vec<NodeId> = node.inputs.iter().map(|&id| s.rewriter().new_id(id)).collect();
    let Some(rows) = TransposedRows::of(s.graph(), inputs[0]) else { return Ok(None) };
    let rank = rows.dims.len();
    let from = s.transpose(rows.from, rows.in_order)?;
    inputs[0] = s.reshape(from, rows.dims)?;
    let result = s.build(with_rank(&node.op, rank), &inputs)?;
    let mut order = rows.order;
    order.push(rank - 1);
    let transposed = s.transpose(result, order)?;
    let mut to = rows.wanted;
    to.extend(node.shape.dims().last());
    s.reshape(transposed, to).map(Some)
}
