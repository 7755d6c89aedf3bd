//! Reductions, running results, places of extremes, the largest elements, and softmax.

use rlx_ir::op::{ArgOp, ReduceOp};
use rlx_ir::{DType, Node, Op, Result};

use super::dtypes::{computes, no, unsigned};
use super::elementwise::called;
use super::writer::{Type, Val, Writer};

/// Why there is no text for an op of this family, if there is none.
pub(super) fn rejects(op: &Op, of: DType) -> Option<String> {
    match op {
        Op::Reduce { op, .. } | Op::Cumulative { op, .. }
            if !matches!(
                op,
                ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Prod | ReduceOp::Max | ReduceOp::Min
            ) =>
        {
            no("it is not known")
        }
        Op::Cumulative { op: ReduceOp::Mean, .. } => no("there are no running means"),
        Op::Softmax { .. } | Op::LogSoftmax { .. } if !of.is_float() => no("it is not computed in"),
        _ if computes(of) && of != DType::Bool => None,
        _ => no("it is not computed in"),
    }
}

/// Writes a node of this family.
pub(super) fn write(w: &mut Writer, node: &Node, x: Val) -> Result<Option<Vec<Val>>> {
    let ty = Type::of(&node.shape)?;
    Ok(Some(match &node.op {
        Op::Reduce { op, axes, .. } => {
            let y = all(w, x, *op, axes)?;
            vec![w.reshape(y, &ty.dims)]
        }
        Op::Cumulative { op, axis, exclusive, reverse } => {
            vec![running(w, x, *op, *axis, *exclusive, *reverse)]
        }
        Op::ArgReduce { op, axis, last, .. } => {
            let y = place(w, x, *op, *axis, *last)?;
            vec![w.reshape(y, &ty.dims)]
        }
        Op::TopK { axis, largest, .. } => top(w, x, *axis, *largest, &node.results()[0])?,
        Op::Softmax { axis } => vec![softmax(w, x, node.shape.axis(i64::from(*axis))?, false)?],
        Op::LogSoftmax { axis } => vec![softmax(w, x, node.shape.axis(i64::from(*axis))?, true)?],
        _ => return Ok(None),
    }))
}

/// What StableHLO calls the op, and what it starts from.
fn combines(op: ReduceOp, dtype: DType) -> (&'static str, f64) {
    let (least, most) =
        dtype.int_range().map_or((f64::NEG_INFINITY, f64::INFINITY), |(a, b)| (a as f64, b as f64));
    match op {
        ReduceOp::Sum | ReduceOp::Mean => ("add", 0.0),
        ReduceOp::Prod => ("multiply", 1.0),
        ReduceOp::Max => ("maximum", least),
        _ => ("minimum", most),
    }
}

fn start(w: &mut Writer, ty: &Type, op: ReduceOp) -> Val {
    let value = match (op, ty.dtype.int_range()) {
        (ReduceOp::Max, Some((least, _))) => Some(least),
        (ReduceOp::Min, Some((_, most))) => Some(most),
        _ => None,
    };
    match value {
        // Not every i64 is an f64.
        Some(value) => w.splat(ty, &rlx_ir::Value::int(ty.dtype, &[1], vec![value]).encode()),
        None => w.number(ty, combines(op, ty.dtype).1),
    }
}

/// The type that sums are computed in.
fn wide(dtype: DType, op: ReduceOp) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        dtype if dtype.is_int() && op == ReduceOp::Mean => {
            if unsigned(dtype) {
                DType::U64
            } else {
                DType::I64
            }
        }
        dtype => dtype,
    }
}

fn all(w: &mut Writer, x: Val, op: ReduceOp, axes: &[usize]) -> Result<Val> {
    let dtype = w.dtype(x);
    let count: usize = axes.iter().map(|&axis| w.ty(x).dims[axis]).product();
    let of = w.convert(x, wide(dtype, op));
    let scalar = Type::scalar(w.dtype(of));
    let from = start(w, &scalar, op);
    let mut y = w.reduce(combines(op, dtype).0, of, from, axes)?;
    if op == ReduceOp::Mean {
        let ty = w.ty(y).clone();
        y = if count == 0 && dtype.is_int() {
            w.number(&ty, 0.0)
        } else {
            let count = w.number(&ty, count as f64);
            w.map("divide", &[y, count])
        };
    }
    Ok(w.convert(y, dtype))
}

/// Softmax along an axis, or its logarithm, computed in f32 at least. The largest element of each row is subtracted first,
/// so that nothing overflows.
fn softmax(w: &mut Writer, x: Val, axis: usize, log: bool) -> Result<Val> {
    let dtype = w.dtype(x);
    let x = w.convert(x, wide(dtype, ReduceOp::Sum));
    let dims = w.dims(x);
    let others: Vec<usize> = (0..dims.len()).filter(|&d| d != axis).collect();
    let most = all(w, x, ReduceOp::Max, &[axis])?;
    let most = w.broadcast_along(most, &others, &dims);
    let below = w.map("subtract", &[x, most]);
    let exponential = called(w, "exponential", below);
    let sum = all(w, exponential, ReduceOp::Sum, &[axis])?;
    let y = if log {
        let sum = w.map("log", &[sum]);
        let sum = w.broadcast_along(sum, &others, &dims);
        w.map("subtract", &[below, sum])
    } else {
        let sum = w.broadcast_along(sum, &others, &dims);
        w.map("divide", &[exponential, sum])
    };
    Ok(w.convert(y, dtype))
}

/// Running results in as many passes as the axis's length has bits: each joins what is twice as far away.
fn running(w: &mut Writer, x: Val, op: ReduceOp, axis: usize, exclusive: bool, reverse: bool) -> Val {
    let dtype = w.dtype(x);
    let mut y = w.convert(x, wide(dtype, op));
    let (ty, name) = (w.ty(y).clone(), combines(op, dtype).0);
    let size = ty.dims[axis];
    let from = start(w, &Type::scalar(ty.dtype), op);
    let shift = |w: &mut Writer, y: Val, by: usize| {
        let (mut before, mut after) = (vec![0i64; ty.dims.len()], vec![0i64; ty.dims.len()]);
        let by = if reverse { -(by as i64) } else { by as i64 };
        (before[axis], after[axis]) = (by, -by);
        super::movement::pad(w, y, from, &before, &after, &ty.dims)
    };
    if exclusive && size > 0 {
        y = shift(w, y, 1);
    }
    let mut step = 1;
    while step < size {
        let moved = shift(w, y, step);
        y = w.map(name, &[moved, y]);
        step *= 2;
    }
    w.convert(y, dtype)
}

/// Where the extreme along an axis is, as i64: the first such place, or the last.
fn place(w: &mut Writer, x: Val, op: ArgOp, axis: usize, last: bool) -> Result<Val> {
    let ty = w.ty(x).clone();
    let of = if op == ArgOp::Max { ReduceOp::Max } else { ReduceOp::Min };
    let extreme = all(w, x, of, &[axis])?;
    let others: Vec<usize> = (0..ty.dims.len()).filter(|&d| d != axis).collect();
    let extreme = w.broadcast_along(extreme, &others, &ty.dims);
    let mut found = w.compare("EQ", x, extreme);
    if ty.dtype.is_float() {
        let nan = w.compare("NE", x, x);
        found = w.map("or", &[found, nan]);
        // Where any is NaN, the extreme is, and numbers do not equal it.
    }
    let places = ty.with(DType::I32);
    let at = w.iota(&places, axis);
    let (join, none) = if last { ("maximum", -1.0) } else { ("minimum", f64::from(i32::MAX)) };
    let (rest, from) = (w.number(&places, none), w.number(&Type::scalar(DType::I32), none));
    let at = w.select(found, at, rest);
    let at = w.reduce(join, at, from, &[axis])?;
    Ok(w.convert(at, DType::I64))
}

/// The largest or smallest elements along an axis in order, and where they are.
fn top(w: &mut Writer, x: Val, axis: usize, largest: bool, shape: &rlx_ir::Shape) -> Result<Vec<Val>> {
    let (ty, places) = (w.ty(x).clone(), w.ty(x).with(DType::I32));
    let at = w.iota(&places, axis);
    let scalars = [ty.dtype, ty.dtype, DType::I32, DType::I32].map(Type::scalar);
    let before = |w: &mut Writer, v: &[Val]| {
        let (a, b) = if largest { (v[1], v[0]) } else { (v[0], v[1]) };
        let mut less = w.compare("LT", a, b);
        if ty.dtype.is_float() {
            // NaN is greater than any number.
            let (number, nan) = (w.compare("EQ", a, a), w.compare("NE", b, b));
            let below = w.map("and", &[number, nan]);
            less = w.map("or", &[less, below]);
        }
        Ok(vec![less])
    };
    let body = w.region(&scalars, before)?;
    let attributes = format!("dimension = {axis} : i64, is_stable = true");
    let sorted = w.ops("sort", &[x, at], &attributes, &[body], &[ty.clone(), places]);
    let to = Type::of(shape)?.dims;
    let (low, steps) = (vec![0; to.len()], vec![1; to.len()]);
    let (values, at) = (w.slice(sorted[0], &low, &to, &steps), w.slice(sorted[1], &low, &to, &steps));
    Ok(vec![values, w.convert(at, DType::I64)])
}
