//! Reductions, argmin and argmax, cumulative sums, and top-k.

use super::movement::{axes_of, to_dim};
use super::{Entry, nodes};
use crate::import::NodeCx;
use rlx_ir::op::{Activation as A, ArgOp, BinaryOp as B, Predicate, ReduceOp};
use rlx_ir::sort::sort;
use rlx_ir::{DType, Error, NodeId, Op};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(super) const OPS: &[Entry] = &[
    nodes("ArgMax", arg_max),
    nodes("ArgMin", arg_min),
    nodes("CumProd", cum_prod),
    nodes("CumSum", cum_sum),
    nodes("ReduceL1", l1),
    nodes("ReduceL2", l2),
    nodes("ReduceLogSum", log_sum),
    nodes("ReduceLogSumExp", log_sum_exp),
    nodes("ReduceMax", max),
    nodes("ReduceMean", mean),
    nodes("ReduceMin", min),
    nodes("ReduceProd", prod),
    nodes("ReduceSum", sum),
    nodes("ReduceSumSquare", sum_square),
    nodes("TopK", top_k),
];

/// Which axes, and whether they stay as 1. Axes are attributes first and an operand later; none means all,
/// or with `noop_with_empty_axes` that nothing is reduced.
fn axes(cx: &NodeCx<'_, '_>) -> Result<(Vec<usize>, bool), Error> {
    let rank = cx.rank(0)?;
    let keep = cx.attrs.flag("keepdims", true)?;
    let given = cx.numbers_or_attr(1, "axes")?.unwrap_or_default();
    if given.is_empty() {
        let none = cx.attrs.flag("noop_with_empty_axes", false)?;
        return Ok((if none { vec![] } else { (0..rank).collect() }, keep));
    }
    let mut axes = axes_of(cx, &given, rank)?;
    sort(&mut axes);
    Ok((axes, keep))
}

impl NodeCx<'_, '_> {
    pub fn reduce(
        &mut self,
        x: NodeId,
        op: ReduceOp,
        axes: &[usize],
        keep_dim: bool,
    ) -> Result<NodeId, Error> {
        if axes.is_empty() { Ok(x) } else { self.add(Op::Reduce { op, axes: axes.to_vec(), keep_dim }, &[x]) }
    }
}

fn plain(cx: Cx, op: ReduceOp) -> Nodes {
    let (axes, keep) = axes(cx)?;
    let x = cx.x(0)?;
    // Truth values have an order too: false before true.
    if cx.dtype(0)? == DType::Bool {
        let number = cx.cast(x, DType::U8)?;
        let y = cx.reduce(number, op, &axes, keep)?;
        return Ok(vec![cx.cast(y, DType::Bool)?]);
    }
    Ok(vec![cx.reduce(x, op, &axes, keep)?])
}

fn max(cx: Cx) -> Nodes {
    plain(cx, ReduceOp::Max)
}

fn mean(cx: Cx) -> Nodes {
    plain(cx, ReduceOp::Mean)
}

fn min(cx: Cx) -> Nodes {
    plain(cx, ReduceOp::Min)
}

fn prod(cx: Cx) -> Nodes {
    plain(cx, ReduceOp::Prod)
}

fn sum(cx: Cx) -> Nodes {
    plain(cx, ReduceOp::Sum)
}

fn l1(cx: Cx) -> Nodes {
    let (axes, keep) = axes(cx)?;
    let x = cx.x(0)?;
    let x = cx.activation(A::Abs, x)?;
    Ok(vec![cx.reduce(x, ReduceOp::Sum, &axes, keep)?])
}

fn sum_of_squares(cx: Cx) -> Result<NodeId, Error> {
    let (axes, keep) = axes(cx)?;
    let x = cx.x(0)?;
    let x = cx.binary(B::Mul, x, x)?;
    cx.reduce(x, ReduceOp::Sum, &axes, keep)
}

fn sum_square(cx: Cx) -> Nodes {
    Ok(vec![sum_of_squares(cx)?])
}

fn l2(cx: Cx) -> Nodes {
    let squares = sum_of_squares(cx)?;
    Ok(vec![cx.activation(A::Sqrt, squares)?])
}

fn log_sum(cx: Cx) -> Nodes {
    let (axes, keep) = axes(cx)?;
    let x = cx.x(0)?;
    let x = cx.reduce(x, ReduceOp::Sum, &axes, keep)?;
    Ok(vec![cx.activation(A::Log, x)?])
}

/// `m + ln Σ e^(x − m)` with `m` the largest element, or 0 where that is infinite.
fn log_sum_exp(cx: Cx) -> Nodes {
    let (axes, keep) = axes(cx)?;
    let x = cx.x(0)?;
    let dtype = cx.dtype(0)?;
    let zero = cx.scalar(dtype, 0.0);
    let max = cx.reduce(x, ReduceOp::Max, &axes, true)?;
    let infinite = cx.add(Op::Predicate(Predicate::IsInf), &[max])?;
    let offset = cx.select(infinite, zero, max)?;
    let shifted = cx.binary(B::Sub, x, offset)?;
    let powers = cx.activation(A::Exp, shifted)?;
    let total = cx.reduce(powers, ReduceOp::Sum, &axes, keep)?;
    let log = cx.activation(A::Log, total)?;
    let dims = cx.shape_of(log).dims().to_vec();
    let offset = cx.reshape(offset, dims)?;
    Ok(vec![cx.binary(B::Add, log, offset)?])
}

fn arg(cx: Cx, op: ArgOp) -> Nodes {
    let axis = cx.axis("axis", 0, 0)?;
    let (keep_dim, last) = (cx.attrs.flag("keepdims", true)?, cx.attrs.flag("select_last_index", false)?);
    let x = cx.x(0)?;
    Ok(vec![cx.add(Op::ArgReduce { op, axis, keep_dim, last }, &[x])?])
}

fn arg_max(cx: Cx) -> Nodes {
    arg(cx, ArgOp::Max)
}

fn arg_min(cx: Cx) -> Nodes {
    arg(cx, ArgOp::Min)
}

fn cumulative(cx: Cx, op: ReduceOp) -> Nodes {
    let axis = cx.shape(0)?.axis(cx.number(1)?)?;
    let (exclusive, reverse) = (cx.attrs.flag("exclusive", false)?, cx.attrs.flag("reverse", false)?);
    let x = cx.x(0)?;
    Ok(vec![cx.add(Op::Cumulative { op, axis, exclusive, reverse }, &[x])?])
}

fn cum_sum(cx: Cx) -> Nodes {
    cumulative(cx, ReduceOp::Sum)
}

fn cum_prod(cx: Cx) -> Nodes {
    cumulative(cx, ReduceOp::Prod)
}

/// `k` is an attribute before opset 10, an operand from then on.
fn top_k(cx: Cx) -> Nodes {
    let axis = cx.axis("axis", -1, 0)?;
    let k = match (cx.has(1), cx.attrs.int_opt("k")?) {
        (true, _) => match cx.found_extents(1)?[..] {
            [k] => to_dim(cx, k)?,
            _ => return Err(cx.malformed("k must be one number")),
        },
        (false, Some(k)) => to_dim(cx, k.into())?,
        (false, None) => return Err(cx.malformed("k is missing")),
    };
    let (largest, sorted) = (cx.attrs.flag("largest", true)?, cx.attrs.flag("sorted", true)?);
    let x = cx.x(0)?;
    cx.add_many(Op::TopK { k, axis, largest, sorted }, &[x], 2)
}
