//! Ops that combine rows: the rows that do not count must have no part in it.

use rlx_ir::op::{BinaryOp, CmpOp, MaskKind, ReduceOp};
use rlx_ir::{DType, Dim, Extent, Node, NodeId, Op, Result};

use super::rows::{Rows, Tail, Walk};

/// A matmul over rows that grew takes zeros on the left for those that do not count; one that has them in its result has them
/// where its operand has.
pub(super) fn matmul(walk: &mut Walk<'_>, node: &Node) -> Result<()> {
    let graph = walk.r.old();
    let (a, b) = (node.inputs[0], node.inputs[1]);
    let (a_rank, b_rank) = (graph.shape(a).rank(), graph.shape(b).rank());
    let (mut x, mut y) = (walk.r.new_id(a), walk.r.new_id(b));
    let summed = |walk: &Walk<'_>, id: NodeId, axis: usize| walk.rows(id).filter(|rows| rows.axis == axis);
    let left = summed(walk, a, a_rank - 1);
    let right = summed(walk, b, b_rank.saturating_sub(2));
    match (left, right) {
        (Some(left), Some(right)) if left.count == right.count => {
            if left.tail != Tail::Zero {
                x = walk.filled(x, left, 0.0)?;
            }
            if right.tail == Tail::Any {
                y = walk.filled(y, right, 0.0)?;
            }
        }
        (None, None) if a_rank > 1 && b_rank > 1 => {}
        _ => {
            let message = format!("a matmul of {} by {}", graph.shape(a), graph.shape(b));
            return Err(walk.reject(&message));
        }
    }
    let rows = walk.growth(&node.shape)?;
    let new = walk.r.emit(Op::MatMul, &[x, y])?;
    walk.place(node, new, rows);
    Ok(())
}

/// Scores of rows that do not count are −∞.
pub(super) fn softmax(walk: &mut Walk<'_>, node: &Node, axis: i32) -> Result<()> {
    let Some(rows) = walk.growth(&node.shape)? else {
        return Err(walk.reject("a dimension that grew is lost"));
    };
    let mut x = walk.r.new_id(node.inputs[0]);
    let along = node.shape.axis(i64::from(axis))? == rows.axis;
    if along {
        x = walk.filled(x, rows, f64::NEG_INFINITY)?;
    }
    let new = walk.r.emit(node.op.clone(), &[x])?;
    let tail = if along && matches!(node.op, Op::Softmax { .. }) { Tail::Zero } else { Tail::Any };
    walk.place(node, new, Some(Rows { tail, ..rows }));
    Ok(())
}

/// An attention over keys that grew sees those that count.
pub(super) fn attention(walk: &mut Walk<'_>, node: &Node) -> Result<()> {
    let Op::Attention { num_heads, head_dim, mask, window, scale, unseen } = node.op else { return Ok(()) };
    let graph = walk.r.old();
    let at = |walk: &Walk<'_>, i: usize, axis: usize| {
        walk.rows(node.inputs[i]).filter(|rows| rows.axis == axis).map(|rows| rows.count)
    };
    let seq = |i: usize| graph.shape(node.inputs[i]).rank() - 2;
    let (keys, values) = (at(walk, 1, seq(1)), at(walk, 2, seq(2)));
    let own_queries = walk.rows(node.inputs[0]).is_none();
    let Some(count) = keys.filter(|_| own_queries && keys == values) else {
        return Err(walk.reject("an attention whose keys and values are not what grew, or whose queries are"));
    };
    let rows = Rows { axis: 3, count, tail: Tail::Any };
    let seen = match mask {
        MaskKind::Causal => {
            // The last query sees the last row that counts.
            let queries = graph.shape(node.inputs[0]).dim(seq(0));
            let (row, column) = (walk.count(queries)?, walk.count(walk.capacity())?);
            let first = walk.number(count - queries.extent())?;
            let last = walk.binary(BinaryOp::Add, row, first)?;
            let (last, column) = (walk.along(last, 2, 4)?, walk.along(column, 3, 4)?);
            let seen = walk.compare(CmpOp::Le, column, last)?;
            match window {
                Some(window) => {
                    // Less than a window behind the last one.
                    let window = walk.number(Extent::Const(window as i64))?;
                    let first = walk.binary(BinaryOp::Sub, last, window)?;
                    let near = walk.compare(CmpOp::Gt, column, first)?;
                    walk.binary(BinaryOp::And, seen, near)?
                }
                None => seen,
            }
        }
        _ => walk.counts(rows, 4)?,
    };
    let seen = match (mask, node.inputs.get(3)) {
        (MaskKind::Custom, Some(&given)) => {
            let shape = graph.shape(given);
            let fits = walk.rows(given).map_or(shape.dims().last() == Some(&Dim::Static(1)), |own| {
                own.axis + 1 == shape.rank() && own.count == count
            });
            if !fits {
                return Err(walk.reject(&format!("a mask {shape} over keys that grow")));
            }
            let new = walk.r.new_id(given);
            if shape.dtype() == DType::Bool {
                walk.binary(BinaryOp::And, seen, new)?
            } else {
                let low = walk.scalar(shape.dtype(), f64::NEG_INFINITY)?;
                walk.r.emit(Op::Where, &[seen, new, low])?
            }
        }
        _ => seen,
    };
    let mut inputs: Vec<NodeId> = node.inputs[..3].iter().map(|&id| walk.r.new_id(id)).collect();
    inputs.push(seen);
    let op = Op::Attention { num_heads, head_dim, mask: MaskKind::Custom, window: None, scale, unseen };
    let new = walk.r.emit(op, &inputs)?;
    walk.place(node, new, None);
    Ok(())
}

/// Rows that do not count are what changes no result.
pub(super) fn reduce(walk: &mut Walk<'_>, node: &Node, op: ReduceOp, axes: &[usize]) -> Result<()> {
    let Some(own) = walk.rows(node.inputs[0]) else {
        return Err(walk.reject("a dimension that grew is lost"));
    };
    let mut x = walk.r.new_id(node.inputs[0]);
    if axes.contains(&own.axis) {
        let dtype = node.shape.dtype();
        let fill = match op {
            ReduceOp::Sum => 0.0,
            ReduceOp::Prod => 1.0,
            ReduceOp::Max if dtype.is_float() => f64::NEG_INFINITY,
            ReduceOp::Min if dtype.is_float() => f64::INFINITY,
            _ => {
                return Err(
                    walk.reject(&format!("{op:?} of {} over rows that grow", graph_shape(walk, node)))
                );
            }
        };
        x = walk.filled(x, own, fill)?;
    }
    let rows = walk.growth(&node.shape)?;
    let new = walk.r.emit(node.op.clone(), &[x])?;
    walk.place(node, new, rows);
    Ok(())
}

fn graph_shape(walk: &Walk<'_>, node: &Node) -> String {
    walk.r.old().shape(node.inputs[0]).to_string()
}
