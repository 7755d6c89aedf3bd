//! Ops that create tensors from shapes and counts.

use super::movement::to_dim;
use super::{Entry, nodes};
use crate::import::NodeCx;
use crate::tensor;
use rlx_ir::op::{BinaryOp, CmpOp};
use rlx_ir::shape::normalize_axis;
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op, Value};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

/// Windows for signals are made while importing up to this length.
const MOST_SAMPLES: i64 = 1 << 20;

pub(super) const OPS: &[Entry] = &[
    nodes("BlackmanWindow", blackman_window),
    nodes("ConstantOfShape", constant_of_shape),
    nodes("EyeLike", eye_like),
    nodes("HammingWindow", hamming_window),
    nodes("HannWindow", hann_window),
    nodes("OneHot", one_hot),
    nodes("Range", range),
    nodes("Trilu", trilu),
];

fn constant_of_shape(cx: Cx) -> Nodes {
    let to = cx.found_extents(0)?.into_iter().map(|e| to_dim(cx, e)).collect::<Result<Vec<_>, _>>()?;
    let value = match cx.attrs.tensor("value")? {
        Some(proto) => cx.importer.file.tensor(proto)?.to_const()?,
        None => Value::float(DType::F32, &[1], vec![0.0]).to_const(),
    };
    if value.num_elements() != 1 {
        return Err(cx.malformed(format!("value must have one element, not {}", value.shape())));
    }
    let value = cx.constant(value.value().with_dims(&[]));
    Ok(vec![cx.expand(value, to)?])
}

/// `start + i·delta` for as many steps as stay before `limit`.
pub(super) fn range(cx: Cx) -> Nodes {
    let dtype = cx.dtype(0)?;
    if dtype.is_float() {
        return float_range(cx, dtype);
    }
    let one = |cx: Cx, i: usize| match cx.found_extents(i)?[..] {
        [e] => Ok(e),
        _ => Err(cx.malformed("start, limit and delta must be scalars")),
    };
    let delta = match cx.extents(2)?[..] {
        [e] => e,
        _ => return Err(cx.malformed("start, limit and delta must be scalars")),
    };
    let (start, limit) = (one(cx, 0)?, one(cx, 1)?);
    let count = match delta.as_const() {
        Some(d) if d > 0 => (limit - start).ceil_div(d),
        Some(d) if d < 0 => (start - limit).ceil_div(d.saturating_neg()),
        _ => return Err(cx.malformed(format!("delta = {delta}"))),
    };
    let count = to_dim(cx, if count.as_const().is_some() { count.max(0) } else { count })?;
    let steps = cx.add(Op::Iota { to: vec![count], axis: 0, dtype }, &[])?;
    let scaled = match delta {
        Extent::Const(1) => steps,
        d => cx.with_scalar(BinaryOp::Mul, steps, d.as_const().unwrap_or(1) as f64)?,
    };
    if start == Extent::Const(0) {
        return Ok(vec![scaled]);
    }
    let start = cx.x(0)?;
    let start = cx.reshape(start, vec![])?;
    Ok(vec![cx.binary(BinaryOp::Add, scaled, start)?])
}

fn float_range(cx: Cx, dtype: DType) -> Nodes {
    // Small floats are too coarse to count in.
    let small = matches!(dtype, DType::F16 | DType::BF16);
    let wide = if small {
        tensor::dtype(i32::try_from(cx.attrs.int("stash_type", 1)?).unwrap_or(0))?
    } else {
        dtype
    };
    let (start, limit, delta) = (cx.floats(0)?, cx.floats(1)?, cx.floats(2)?);
    let ([start], [limit], [delta]) = (&start[..], &limit[..], &delta[..]) else {
        return Err(cx.malformed("start, limit and delta must be scalars"));
    };
    let count = ((limit - start) / delta).ceil().max(0.0);
    if !count.is_finite() || count > f64::from(u32::MAX) {
        return Err(cx.malformed(format!("a range from {start} to {limit} by {delta}")));
    }
    let to = vec![Dim::Static(count as usize)];
    let steps = cx.add(Op::Iota { to, axis: 0, dtype: wide }, &[])?;
    let scaled = cx.with_scalar(BinaryOp::Mul, steps, *delta)?;
    let moved = cx.with_scalar(BinaryOp::Add, scaled, *start)?;
    Ok(vec![cx.cast(moved, dtype)?])
}

/// Ones where `column = row + k`.
fn eye_like(cx: Cx) -> Nodes {
    let shape = cx.shape(0)?;
    let dtype = match cx.attrs.int_opt("dtype")? {
        Some(code) => tensor::dtype(i32::try_from(code).unwrap_or(0))?,
        None => shape.dtype(),
    };
    let &[rows, columns] = shape.dims() else { return Err(cx.malformed(format!("{shape} is not a matrix"))) };
    let row = cx.add(Op::Iota { to: vec![rows, Dim::Static(1)], axis: 0, dtype: DType::I64 }, &[])?;
    let column = cx.add(Op::Iota { to: vec![Dim::Static(1), columns], axis: 1, dtype: DType::I64 }, &[])?;
    let k = cx.attrs.int("k", 0)?.clamp(-(1 << 40), 1 << 40);
    let diagonal = cx.with_scalar(BinaryOp::Add, row, k as f64)?;
    let eye = cx.compare(CmpOp::Eq, diagonal, column)?;
    Ok(vec![cx.cast(eye, dtype)?])
}

pub(super) fn trilu(cx: Cx) -> Nodes {
    let upper = cx.attrs.flag("upper", true)?;
    let k = match cx.has(1) {
        false => Extent::Const(0),
        true => match cx.extents(1)?[..] {
            [k] => k,
            _ => return Err(cx.malformed("k must be one number")),
        },
    };
    let x = cx.x(0)?;
    Ok(vec![cx.add(Op::Trilu { upper, k }, &[x])?])
}

/// Indices and depth may be of any number type.
fn one_hot(cx: Cx) -> Nodes {
    let depth = match cx.dtype(1)?.is_float() {
        true => Extent::Const(cx.floats(1)?.first().map_or(-1, |&d| d as i64)),
        false => cx.extents(1)?.first().copied().unwrap_or(Extent::Const(-1)),
    };
    let depth = to_dim(cx, depth)?;
    let axis = normalize_axis(cx.attrs.int("axis", -1)?, cx.rank(0)? + 1)?;
    let (index, values) = (cx.x(0)?, cx.x(2)?);
    let index = cx.cast(index, DType::I64)?;
    Ok(vec![cx.add(Op::OneHot { depth, axis }, &[index, values])?])
}

fn hann_window(cx: Cx) -> Nodes {
    cosine_window(cx, &[0.5, -0.5])
}

fn hamming_window(cx: Cx) -> Nodes {
    cosine_window(cx, &[25.0 / 46.0, -21.0 / 46.0])
}

fn blackman_window(cx: Cx) -> Nodes {
    cosine_window(cx, &[0.42, -0.5, 0.08])
}

/// `Σ cₖ·cos(2πk·n/N)` for each sample n; N is the size of a periodic window, one less of a symmetric one.
fn cosine_window(cx: Cx, coefficients: &[f64]) -> Nodes {
    let dtype = tensor::dtype(i32::try_from(cx.attrs.int("output_datatype", 1)?).unwrap_or(0))?;
    let size = cx.number(0)?;
    if !(0..=MOST_SAMPLES).contains(&size) || !dtype.is_float() {
        return Err(cx.unsupported(format!("a window of {size} samples of {dtype}")));
    }
    cx.importer.spend(usize::try_from(size).unwrap_or(0))?;
    let period = if cx.attrs.flag("periodic", true)? { size } else { size - 1 };
    let step = std::f64::consts::TAU / (period.max(1)) as f64;
    let sample = |n: i64| {
        let terms = coefficients.iter().enumerate().map(|(k, c)| c * (step * (k as f64) * n as f64).cos());
        terms.sum()
    };
    let samples = Value::float(dtype, &[size as usize], (0..size).map(sample).collect());
    Ok(vec![cx.constant(samples)])
}
