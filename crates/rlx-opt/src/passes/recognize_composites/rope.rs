//! Rotary embedding: `x·cos + rotated(x)·sin`, the rotation being a concatenation of the halves, one negated.

use std::sync::LazyLock;

use rlx_ir::op::{Activation as A, BinaryOp as B};
use rlx_ir::{ConstData, Dim, Extent, Graph, Node, NodeId, Op, Result};

use super::View;
use crate::matcher::{Pattern, act, add, any, mul, named, op};
use crate::passes::simplify::Simplifier;
use crate::passes::simplify::dims::{Group, extended, groups};

static ROPE: LazyLock<Pattern> = LazyLock::new(|| {
    let half = |name| named(name, op(|op| matches!(op, Op::Slice { .. }), [any("x")]));
    let turned = op(|op| matches!(op, Op::Concat { .. }), [act(A::Neg, half("upper")), half("lower")]);
    add(mul(any("x"), any("cos")), mul(named("turned", turned), any("sin")))
});

/// What stands for a rotary embedding written out.
pub(super) fn recognize(view: &View<'_>, node: &Node, s: &mut Simplifier<'_>) -> Result<Option<NodeId>> {
    if node.op != Op::Binary(B::Add) || node.shape.rank() != 4 {
        return Ok(None);
    }
    let Some(found) = view.find(&ROPE, node) else { return Ok(None) };
    let x = found.node("x");
    let Some(head_dim) = view.graph.shape(x).dim(3).as_static().filter(|d| d % 2 == 0) else {
        return Ok(None);
    };
    let half = head_dim / 2;
    let (lower, upper) = (found.node("lower"), found.node("upper"));
    let turned = view.node(found.node("turned"));
    let halves = turned.op == Op::Concat { axis: 3 }
        && is_half(view.graph, lower, x, 0, half)
        && is_half(view.graph, upper, x, half, half);
    if !halves || view.graph.shape(x).dims() != node.shape.dims() {
        return Ok(None);
    }
    let dims = node.shape.dims().to_vec();
    let tables = [found.node("cos"), found.node("sin")].map(|id| s.rewriter().new_id(id));
    // Heads before positions, or positions before heads.
    for heads_first in [true, false] {
        let (Some(cos), Some(sin)) =
            (table(s, tables[0], &dims, half, heads_first)?, table(s, tables[1], &dims, half, heads_first)?)
        else {
            continue;
        };
        let x = s.rewriter().new_id(x);
        let rope = Op::Rope { head_dim, n_rot: head_dim, interleaved: false };
        if heads_first {
            return s.build(rope, &[x, cos, sin]).map(Some);
        }
        let Some(heads) = dims[2].as_static() else { return Ok(None) };
        let rows = s.reshape(x, vec![dims[0], dims[1], Dim::Static(heads * head_dim)])?;
        let turned = s.build(rope, &[rows, cos, sin])?;
        return s.reshape(turned, dims).map(Some);
    }
    Ok(None)
}

/// Whether `id` is `x[…, start..start + len]`.
fn is_half(graph: &Graph, id: NodeId, x: NodeId, start: usize, len: usize) -> bool {
    let Op::Slice { starts, steps, to } = &graph.node(id).op else { return false };
    let whole = |i: usize| starts[i] == Extent::Const(0) && to[i] == graph.shape(x).dim(i);
    steps.iter().all(|&s| s == 1)
        && (0..3).all(whole)
        && starts[3] == Extent::Const(start as i64)
        && to[3] == Dim::Static(len)
}

/// The table for one half of each head: `[S, half]` or `[B, S, half]`; none when it does not broadcast over
/// the heads, or when its halves may differ.
fn table(
    s: &mut Simplifier<'_>,
    id: NodeId,
    x: &[Dim],
    half: usize,
    heads_first: bool,
) -> Result<Option<NodeId>> {
    let dims = extended(s.dims(id), 4);
    let (heads, seq) = if heads_first { (1, 2) } else { (2, 1) };
    let batched = dims[0] != Dim::Static(1);
    if dims.len() != 4 || dims[heads] != Dim::Static(1) || dims[seq] != x[seq] || (batched && dims[0] != x[0])
    {
        return Ok(None);
    }
    let Some(one) = half_of(s, id, MAX_DEPTH)? else { return Ok(None) };
    let mut to = vec![dims[seq], Dim::Static(half)];
    if batched {
        to.insert(0, dims[0]);
    }
    s.reshape(one, to).map(Some)
}

/// Tables are made in a few steps; longer chains are not followed.
const MAX_DEPTH: usize = 16;

/// The first half of `id` along its last dimension, if the second half is the same.
fn half_of(s: &mut Simplifier<'_>, id: NodeId, depth: usize) -> Result<Option<NodeId>> {
    let node = s.graph().node(id).clone();
    let last = node.shape.rank().saturating_sub(1);
    let by_element = match &node.op {
        Op::Concat { axis }
            if *axis == last && node.inputs.len() == 2 && node.inputs[0] == node.inputs[1] =>
        {
            return Ok(Some(node.inputs[0]));
        }
        Op::Constant { data } => return half_of_constant(s, data),
        Op::Activation(_) | Op::Cast { .. } => true,
        Op::Binary(_) => s.uniform(node.inputs[1]).is_some(),
        Op::Transpose { perm } => perm[last] == last,
        // Rows of a table are halved with the table.
        Op::Gather { axis } => *axis + 1 < s.dims(node.inputs[0]).len(),
        Op::Reshape { to } | Op::Expand { to } => keeps_rows(&node.op, s.dims(node.inputs[0]), to),
        _ => false,
    };
    let Some(op) = halved(&node.op).filter(|_| by_element && depth > 0) else { return Ok(None) };
    let Some(x) = half_of(s, node.inputs[0], depth - 1)? else { return Ok(None) };
    let mut inputs = node.inputs.clone();
    inputs[0] = x;
    s.build(op, &inputs).map(Some)
}

/// The same op on rows of half the length.
fn halved(op: &Op) -> Option<Op> {
    let mut op = op.clone();
    if let Op::Reshape { to } | Op::Expand { to } = &mut op {
        let n = to.last()?.as_static()?;
        *to.last_mut()? = Dim::Static(n / 2);
    }
    Some(op)
}

/// Whether movement leaves the last dimension as it is.
fn keeps_rows(op: &Op, from: &[Dim], to: &[Dim]) -> bool {
    if matches!(op, Op::Expand { .. }) {
        return from.last() == to.last();
    }
    let last = |g: &Group| g.from.len() == 1 && g.to.len() == 1 && g.to.end == to.len();
    groups(from, to).is_some_and(|all| all.last().is_some_and(last))
}

fn half_of_constant(s: &mut Simplifier<'_>, data: &ConstData) -> Result<Option<NodeId>> {
    let (size, mut dims) = (data.dtype().size_bytes(), data.dims().to_vec());
    let Some(n) = dims.last_mut().filter(|n| **n > 0 && n.is_multiple_of(2)) else { return Ok(None) };
    let row = *n * size;
    *n /= 2;
    let rows = || data.bytes().chunks_exact(row);
    if data.dtype().bits() < 8 || !rows().all(|r| r[..row / 2] == r[row / 2..]) {
        return Ok(None);
    }
    let bytes: Vec<u8> = rows().flat_map(|r| r[..row / 2].to_vec()).collect();
    s.constant(ConstData::new(data.dtype(), &dims, bytes)?).map(Some)
}
