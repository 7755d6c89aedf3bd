//! Resizing by nearest and linear interpolation with dynamic sizes.
//!
//! The position of output `i` among the inputs is a fraction of integers: of `i` and the two sizes, which are known at
//! run time. It is computed exactly, in 64-bit integers, so that a position exactly on an element or halfway between two
//! gives the same result as with fixed sizes.

use super::{Coordinates, Cx, Kind, Method, Nearest, Wanted, between};
use rlx_ir::op::BinaryOp as B;
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op, Shape};

/// A position, over a divisor that is at least 1.
struct Position {
    over: NodeId,
    divisor: NodeId,
}

/// Resizes one axis of `x`.
pub(super) fn resize(cx: Cx, x: NodeId, method: &Method, axis: &Wanted) -> Result<NodeId, Error> {
    let shape = cx.shape_of(x);
    if axis.from == Extent::Const(1) && method.coordinates != Coordinates::CropAndResize {
        // The only element, however far away.
        let mut dims = shape.dims().to_vec();
        dims[axis.axis] = Dim::from(axis.to);
        return cx.expand(x, dims);
    }
    match method.kind {
        Kind::Linear if !shape.dtype().is_float() => {
            return Err(cx.unsupported(format!("interpolating {shape}")));
        }
        Kind::Nearest | Kind::Linear if !method.antialias => {}
        _ => return Err(not_built(cx, axis)),
    }
    let position = position(cx, method.coordinates, axis)?;
    match method.kind {
        Kind::Nearest => {
            let place = nearest(cx, method.nearest, position, axis.from)?;
            cx.add(Op::Gather { axis: axis.axis }, &[x, place])
        }
        _ => linear(cx, x, position, axis, &shape),
    }
}

fn not_built(cx: Cx, axis: &Wanted) -> Error {
    cx.open_dimension(format!("resizing a dimension of {} to {} in this mode", axis.from, axis.to))
}

fn position(cx: Cx, coordinates: Coordinates, axis: &Wanted) -> Result<Position, Error> {
    let Some((from, to)) = axis.ratio else { return Err(not_built(cx, axis)) };
    let count = Op::Iota { to: vec![Dim::from(axis.to)], axis: 0, dtype: DType::I64 };
    let i = cx.add(count, &[])?;
    let over = match coordinates {
        Coordinates::Asymmetric => times(cx, i, from)?,
        Coordinates::AlignCorners => times(cx, i, axis.from - 1)?,
        // (i + ½)·from/to − ½
        Coordinates::HalfPixel | Coordinates::PytorchHalfPixel => {
            let double = times(cx, i, Extent::Const(2))?;
            let odd = plus(cx, double, Extent::Const(1))?;
            let scaled = times(cx, odd, from)?;
            let whole = cx.extent(to)?;
            let shifted = cx.binary(B::Sub, scaled, whole)?;
            let alone = coordinates == Coordinates::PytorchHalfPixel;
            // A single output takes the first input.
            if alone { times(cx, shifted, (axis.to - 1).min(1))? } else { shifted }
        }
        _ => return Err(not_built(cx, axis)),
    };
    // A position before the first element is clamped to it.
    let zero = cx.scalar(DType::I64, 0.0);
    let over = cx.binary(B::Max, over, zero)?;
    let divisor = match coordinates {
        Coordinates::Asymmetric => to,
        Coordinates::AlignCorners => (axis.to - 1).max(1),
        _ => to * 2,
    };
    Ok(Position { over, divisor: cx.extent(divisor)? })
}

fn times(cx: Cx, x: NodeId, factor: Extent) -> Result<NodeId, Error> {
    if factor == Extent::Const(1) {
        return Ok(x);
    }
    let factor = cx.extent(factor)?;
    cx.binary(B::Mul, x, factor)
}

fn plus(cx: Cx, x: NodeId, summand: Extent) -> Result<NodeId, Error> {
    let summand = cx.extent(summand)?;
    cx.binary(B::Add, x, summand)
}

/// At most the last position.
fn within(cx: Cx, place: NodeId, from: Extent) -> Result<NodeId, Error> {
    let last = cx.extent(from - 1)?;
    cx.binary(B::Min, place, last)
}

fn nearest(cx: Cx, nearest: Nearest, p: Position, from: Extent) -> Result<NodeId, Error> {
    let (mut over, mut divisor) = (p.over, p.divisor);
    if matches!(nearest, Nearest::PreferFloor | Nearest::PreferCeil) {
        // Half an element further, in halves.
        over = times(cx, over, Extent::Const(2))?;
        over = cx.binary(B::Add, over, divisor)?;
        divisor = times(cx, divisor, Extent::Const(2))?;
    }
    let less_one = Extent::Const(-1);
    match nearest {
        Nearest::PreferFloor => over = plus(cx, over, less_one)?,
        Nearest::Ceil => {
            over = cx.binary(B::Add, over, divisor)?;
            over = plus(cx, over, less_one)?;
        }
        Nearest::Floor | Nearest::PreferCeil => {}
    }
    let place = cx.binary(B::Div, over, divisor)?;
    within(cx, place, from)
}

fn linear(cx: Cx, x: NodeId, p: Position, axis: &Wanted, shape: &Shape) -> Result<NodeId, Error> {
    let first = cx.binary(B::Div, p.over, p.divisor)?;
    let whole = cx.binary(B::Mul, first, p.divisor)?;
    let rest = cx.binary(B::Sub, p.over, whole)?;
    // The fraction is less than 1 and small numbers are exact in f32.
    let (rest, divisor) = (cx.cast(rest, DType::F32)?, cx.cast(p.divisor, DType::F32)?);
    let step = cx.binary(B::Div, rest, divisor)?;
    let step = cx.cast(step, shape.dtype())?;
    let second = plus(cx, first, Extent::Const(1))?;
    let places = [within(cx, first, axis.from)?, within(cx, second, axis.from)?];
    between(cx, x, axis.axis, places, step)
}
