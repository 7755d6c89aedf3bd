//! Resizing with dynamic sizes.
//!
//! The position of output `i` among the inputs is a fraction of integers: of `i` and the two sizes, which are known at
//! run time. It is computed exactly, in 64-bit integers, so that a position exactly on an element or halfway between two
//! gives the same result as with fixed sizes.

use super::{Coordinates, Cx, Kind, Method, Nearest, Wanted, between};
use rlx_ir::op::{BinaryOp as B, CmpOp};
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
        Kind::Linear | Kind::Cubic if !shape.dtype().is_float() => {
            return Err(cx.unsupported(format!("interpolating {shape}")));
        }
        _ if !method.antialias => {}
        _ => return Err(not_built(cx, axis)),
    }
    let mut position = position(cx, method.coordinates, axis)?;
    if method.kind == Kind::Cubic {
        return cubic(cx, x, position, axis, method);
    }
    // A position before the first element is clamped to it.
    let zero = cx.scalar(DType::I64, 0.0);
    position.over = cx.binary(B::Max, position.over, zero)?;
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

/// The whole part of a position that is not negative, and the rest as a number of f32.
fn parts(cx: Cx, p: &Position) -> Result<(NodeId, NodeId), Error> {
    let first = cx.binary(B::Div, p.over, p.divisor)?;
    let whole = cx.binary(B::Mul, first, p.divisor)?;
    let rest = cx.binary(B::Sub, p.over, whole)?;
    // The fraction is less than 1 and small numbers are exact in f32.
    let (rest, divisor) = (cx.cast(rest, DType::F32)?, cx.cast(p.divisor, DType::F32)?);
    Ok((first, cx.binary(B::Div, rest, divisor)?))
}

/// Four neighbours by Keys' cubic convolution; those outside are the outermost elements, or do not count.
fn cubic(cx: Cx, x: NodeId, mut p: Position, axis: &Wanted, method: &Method) -> Result<NodeId, Error> {
    let shape = cx.shape_of(x);
    // A position is at most half an element before the first one: one element further none is negative.
    p.over = cx.binary(B::Add, p.over, p.divisor)?;
    let (next, t) = parts(cx, &p)?;
    let wide = if shape.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let t = cx.cast(t, wide)?;
    let one = cx.scalar(wide, 1.0);
    let u = cx.binary(B::Sub, one, t)?;
    let mut weights = [
        far(cx, t, method.cubic)?,
        near(cx, t, method.cubic)?,
        near(cx, u, method.cubic)?,
        far(cx, u, method.cubic)?,
    ];
    let mut places = Vec::with_capacity(4);
    let (zero, none) = (cx.scalar(DType::I64, 0.0), cx.scalar(wide, 0.0));
    for (offset, weight) in (-2..).zip(&mut weights) {
        let place = plus(cx, next, Extent::Const(offset))?;
        let inside = cx.binary(B::Max, place, zero)?;
        let inside = within(cx, inside, axis.from)?;
        if method.exclude_outside {
            let is_inside = cx.compare(CmpOp::Eq, inside, place)?;
            *weight = cx.select(is_inside, *weight, none)?;
        }
        places.push(inside);
    }
    if method.exclude_outside {
        let total = sum(cx, &weights)?;
        for weight in &mut weights {
            *weight = cx.binary(B::Div, *weight, total)?;
        }
    }
    let mut dims = vec![Dim::Static(1); shape.rank()];
    dims[axis.axis] = Dim::from(axis.to);
    let mut terms = Vec::with_capacity(4);
    for (&place, &weight) in places.iter().zip(&weights) {
        let weight = cx.cast(weight, shape.dtype())?;
        let weight = cx.reshape(weight, dims.clone())?;
        let value = cx.add(Op::Gather { axis: axis.axis }, &[x, place])?;
        terms.push(cx.binary(B::Mul, value, weight)?);
    }
    sum(cx, &terms)
}

fn sum(cx: Cx, terms: &[NodeId]) -> Result<NodeId, Error> {
    let (&first, rest) = terms.split_first().ok_or_else(|| cx.malformed("a sum of nothing"))?;
    rest.iter().try_fold(first, |total, &term| cx.binary(B::Add, total, term))
}

/// `Σ cᵢ·tⁱ`, the highest power first.
fn polynomial(cx: Cx, t: NodeId, coefficients: [f64; 4]) -> Result<NodeId, Error> {
    let mut y = cx.with_scalar(B::Mul, t, coefficients[0])?;
    for &c in &coefficients[1..3] {
        y = cx.with_scalar(B::Add, y, c)?;
        y = cx.binary(B::Mul, y, t)?;
    }
    cx.with_scalar(B::Add, y, coefficients[3])
}

/// The weight at a distance of `t` ≤ 1.
fn near(cx: Cx, t: NodeId, a: f64) -> Result<NodeId, Error> {
    polynomial(cx, t, [a + 2.0, -(a + 3.0), 0.0, 1.0])
}

/// The weight at a distance of `1 + t`.
fn far(cx: Cx, t: NodeId, a: f64) -> Result<NodeId, Error> {
    polynomial(cx, t, [a, -2.0 * a, a, 0.0])
}

fn linear(cx: Cx, x: NodeId, p: Position, axis: &Wanted, shape: &Shape) -> Result<NodeId, Error> {
    let (first, step) = parts(cx, &p)?;
    let step = cx.cast(step, shape.dtype())?;
    let second = plus(cx, first, Extent::Const(1))?;
    let places = [within(cx, first, axis.from)?, within(cx, second, axis.from)?];
    between(cx, x, axis.axis, places, step)
}
