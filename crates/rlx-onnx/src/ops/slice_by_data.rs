//! `Slice` whose bounds are computed from data: a gather of positions, whose number the run finds out.
//!
//! The bounds are clamped as in Python, by ops of the graph; there are never more positions than the dimension has elements, so
//! memory is planned for that.

use super::movement::axes_of;
use crate::import::NodeCx;
use rlx_ir::op::{BinaryOp as B, CmpOp};
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;

pub(super) fn slice(cx: Cx) -> Result<Vec<NodeId>, Error> {
    let shape = cx.shape(0)?;
    let count = |cx: &NodeCx<'_, '_>, i: usize| cx.shape(i).ok().and_then(|s| s.num_elements());
    let (starts, ends) = (count(cx, 1), count(cx, 2));
    let Some(count) = starts.filter(|_| starts == ends) else {
        return Err(cx.malformed("starts and ends differ in length"));
    };
    let axes = if cx.has(3) { cx.numbers(3)? } else { (0..count as i64).collect() };
    let axes = axes_of(cx, &axes, shape.rank())?;
    let steps = if cx.has(4) { cx.numbers(4)? } else { vec![1; count] };
    if axes.len() != count || steps.len() != count || steps.contains(&0) {
        return Err(cx.malformed("starts, ends, axes and steps differ in length, or a step is 0"));
    }
    let mut y = cx.x(0)?;
    let (starts, ends) = (numbers(cx, 1, count)?, numbers(cx, 2, count)?);
    for (i, (&axis, &step)) in axes.iter().zip(&steps).enumerate() {
        let one = |cx: Cx, x: NodeId| cx.slice_axis(x, 0, Extent::Const(i as i64), Extent::Const(1));
        let (start, end) = (one(cx, starts)?, one(cx, ends)?);
        let places = positions(cx, start, end, step, shape.dim(axis).extent())?;
        y = cx.add(Op::Gather { axis }, &[y, places])?;
    }
    Ok(vec![y])
}

/// Operand `i` as a vector of i64.
fn numbers(cx: Cx, i: usize, count: usize) -> Result<NodeId, Error> {
    let x = cx.x(i)?;
    let x = cx.cast(x, DType::I64)?;
    cx.reshape(x, vec![Dim::Static(count)])
}

/// The positions from `start` to before `end` in a dimension of `size`.
fn positions(cx: Cx, start: NodeId, end: NodeId, step: i64, size: Extent) -> Result<NodeId, Error> {
    let size_node = cx.extent(size)?;
    // Backwards the first element's neighbour is −1.
    let low = if step > 0 { 0.0 } else { -1.0 };
    let high = cx.with_scalar(B::Add, size_node, low)?;
    let clamped = |cx: Cx, at: NodeId| {
        let (zero, from_end) = (cx.scalar(DType::I64, 0.0), cx.binary(B::Add, at, size_node)?);
        let negative = cx.compare(CmpOp::Lt, at, zero)?;
        let at = cx.select(negative, from_end, at)?;
        let at = cx.binary(B::Min, at, high)?;
        cx.with_scalar(B::Max, at, low)
    };
    let (start, end) = (clamped(cx, start)?, clamped(cx, end)?);
    let span = if step > 0 { cx.binary(B::Sub, end, start)? } else { cx.binary(B::Sub, start, end)? };
    let apart = step.unsigned_abs().min(1 << 62) as i64;
    let apart_node = cx.extent(Extent::Const(apart))?;
    let less_one = cx.extent(Extent::Const(apart - 1))?;
    // Rounded up; a negative span is none.
    let span = cx.with_scalar(B::Max, span, 0.0)?;
    let raised = cx.binary(B::Add, span, less_one)?;
    let count = cx.binary(B::Div, raised, apart_node)?;
    let (places, _) = cx.count_up(count, size.ceil_div(apart))?;
    let step = cx.extent(Extent::Const(step))?;
    let places = cx.binary(B::Mul, places, step)?;
    cx.binary(B::Add, places, start)
}
