//! Lets convolutions and pooling run with the channels last where the device is faster so.
//!
//! Matches: a convolution or pooling over one to three dimensions with its channels first, when the device prefers them last
//! and claims that form. Makes: transpose, the op with its channels last, transpose back; the transposes sink
//! through what follows (elementwise ops, concatenation, padding, reduction) and cancel, so that a network has
//! one at each end. Legal because both forms compute the same elements at other places. A transposed convolution
//! becomes a convolution whose results are dealt out (`transposed`).
//!
//! ```text
//! %2 = Conv(%0, %1) {…, format=ChannelsFirst} : [1, 4, 5, 6] f32
//! →
//! %2 = Transpose(%0) {perm=[0, 2, 3, 1]} : [1, 5, 6, 3] f32
//! %3 = Conv(%2, %1) {…, format=ChannelsLast} : [1, 5, 6, 4] f32
//! %4 = Transpose(%3) {perm=[0, 3, 1, 2]} : [1, 4, 5, 6] f32
//! ```

mod transposed;

use rlx_ir::op::DataFormat;
use rlx_ir::{Dim, Graph, Node, NodeId, Op, Result, Shape};

use crate::passes::legalize::runs_natively;
use crate::passes::simplify::Simplifier;
use crate::pipeline::PassContext;

/// The permutation that moves dimension 1 to the end.
fn to_last(rank: usize) -> Vec<usize> {
    [0].into_iter().chain(2..rank).chain([1]).collect()
}

/// The permutation that moves the last dimension to place 1.
fn to_first(rank: usize) -> Vec<usize> {
    [0, rank - 1].into_iter().chain(1..rank - 1).collect()
}

/// Runs the pass.
///
/// # Errors
/// [`rlx_ir::ErrorKind::Internal`] when the rewritten op is rejected.
pub fn run(graph: &Graph, context: &PassContext<'_>) -> Result<Graph> {
    let prefers = |node: &Node| context.target.prefers_channels_last(node.shape.dtype());
    let window = |n: &Node| channels_last(n).is_some() || matches!(n.op, Op::ConvTranspose { .. });
    if !graph.nodes().iter().any(|node| window(node) && prefers(node)) {
        return Ok(graph.clone());
    }
    let mut s = Simplifier::new(graph, context);
    for node in graph.nodes() {
        s.begin(node);
        let moved = match channels_last(node) {
            _ if !prefers(node) => None,
            Some(op) => rewritten(node, op, &mut s, context)?,
            None => transposed::as_convolution(node, &mut s, context)?,
        };
        match moved.filter(|&id| *s.graph().shape(id) == node.shape) {
            Some(id) => s.rewriter().replace(node.id, id),
            None => s.node(node)?,
        }
    }
    Ok(s.finish(true))
}

/// The op of `node` with its channels last, if it has them first.
fn channels_last(node: &Node) -> Option<Op> {
    let (Op::Conv { format, .. } | Op::ConvInteger { format, .. } | Op::Pool { format, .. }) = &node.op
    else {
        return None;
    };
    if *format != DataFormat::ChannelsFirst || !(3..=5).contains(&node.shape.rank()) {
        return None;
    }
    let mut op = node.op.clone();
    if let Op::Conv { format, .. } | Op::ConvInteger { format, .. } | Op::Pool { format, .. } = &mut op {
        *format = DataFormat::ChannelsLast;
    }
    Some(op)
}

/// A graph of the node alone with its channels last, where the pass would try that.
pub(crate) fn moved(node: &Node, graph: &Graph, context: &PassContext<'_>) -> Option<(Graph, NodeId)> {
    let op = channels_last(node).filter(|_| context.target.prefers_channels_last(node.shape.dtype()))?;
    let permuted = |shape: &Shape| {
        let dims: Vec<Dim> = to_last(shape.rank()).into_iter().map(|i| shape.dim(i)).collect();
        shape.with_dims(dims)
    };
    let mut alone = Graph::new("moved");
    let shape = |(i, &id): (usize, &NodeId)| {
        let shape = graph.shape(id);
        if i == 0 { permuted(shape) } else { shape.clone() }
    };
    let shapes: Vec<Shape> = node.inputs.iter().enumerate().map(shape).collect();
    let inputs = shapes.into_iter().enumerate().map(|(i, s)| alone.input(format!("x{i}"), s)).collect();
    let id = alone.push_node(Node::new(op, inputs, vec![permuted(&node.shape)]));
    Some((alone, id))
}

fn rewritten(
    node: &Node,
    op: Op,
    s: &mut Simplifier<'_>,
    context: &PassContext<'_>,
) -> Result<Option<NodeId>> {
    let mut inputs: Vec<NodeId> = node.inputs.iter().map(|&id| s.rewriter().new_id(id)).collect();
    inputs[0] = s.transpose(inputs[0], to_last(node.shape.rank()))?;
    let last = s.build(op, &inputs)?;
    if !runs_natively(s.graph().node(last), s.graph(), context) {
        return Ok(None);
    }
    s.transpose(last, to_first(node.shape.rank())).map(Some)
}
