//! Ops over tensors in general: copies of the default domain's under older definitions, distances, inverses, transforms.

use crate::import::NodeCx;
use crate::ops::{Entry, conv_pool, index, microsoft, shape};
use rlx_ir::op::{ArgOp, BinaryOp as B, CmpOp, ReduceOp, ScatterOp};
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op, Value};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(in crate::ops) const OPS: &[Entry] = &[
    microsoft("CDist", distances),
    microsoft("ComplexMul", |cx| complex_product(cx, 1.0)),
    microsoft("ComplexMulConj", |cx| complex_product(cx, -1.0)),
    microsoft("ConvTransposeWithDynamicPads", conv_transpose),
    microsoft("ExpandDims", expand_dims),
    microsoft("GatherND", index::gather_nd),
    microsoft("Inverse", inverse),
    microsoft("Irfft", irfft),
    microsoft("MurmurHash3", murmur_hash),
    microsoft("NGramRepeatBlock", ngram_repeat_block),
    microsoft("Pad", pad),
    microsoft("Range", range),
    microsoft("Rfft", rfft),
    microsoft("TorchEmbedding", torch_embedding),
    microsoft("Trilu", shape::trilu),
    microsoft("UnfoldTensor", unfold),
];

/// The pads are operand 1's `[2·rank]` or `[1, 2·rank]` elements, as in the default domain from version 11 on.
fn pad(cx: Cx) -> Nodes {
    cx.opset = cx.opset.max(18);
    index::pad(cx)
}

/// As in the default domain; the step may be left out.
fn range(cx: Cx) -> Nodes {
    if !cx.has(2) {
        let dtype = cx.dtype(0)?;
        let one = match dtype.is_float() {
            true => Value::float(dtype, &[], vec![1.0]),
            false => Value::int(dtype, &[], vec![1]),
        };
        let one = cx.importer.constant_slot(one.to_const());
        cx.inputs.resize(3, None);
        cx.inputs[2] = Some(one);
    }
    shape::range(cx)
}

fn expand_dims(cx: Cx) -> Nodes {
    let rank = cx.rank(0)?;
    let axis = rlx_ir::shape::normalize_axis(cx.number(1)?, rank + 1)?;
    let x = cx.x(0)?;
    Ok(vec![cx.unsqueeze(x, &[axis])?])
}

fn torch_embedding(cx: Cx) -> Nodes {
    let (table, indices) = (cx.x(0)?, cx.x(1)?);
    Ok(vec![cx.add(Op::Gather { axis: 0 }, &[table, indices])?])
}

/// `X, W, Pads, B`: the pads are an operand, which has to be known.
fn conv_transpose(cx: Cx) -> Nodes {
    let pads = if cx.has(2) { Some(cx.numbers(2)?) } else { None };
    if cx.inputs.len() > 2 {
        cx.inputs.remove(2);
    }
    conv_pool::conv_transpose_padded(cx, pads.as_deref())
}

/// The distance of every row of A to every row of B.
fn distances(cx: Cx) -> Nodes {
    let root = match cx.attrs.text("metric", "sqeuclidean")? {
        "euclidean" => true,
        "sqeuclidean" => false,
        other => return Err(cx.bad_attr("metric", other)),
    };
    let (a, b) = (cx.x(0)?, cx.x(1)?);
    if cx.rank(0)? != 2 || cx.rank(1)? != 2 {
        return Err(cx.malformed(format!("distances of {} and {}", cx.shape(0)?, cx.shape(1)?)));
    }
    let columns = cx.add(Op::Transpose { perm: vec![1, 0] }, &[b])?;
    let sum = cx.add(Op::SquaredDistances, &[a, columns])?;
    Ok(vec![if root { cx.activation(rlx_ir::op::Activation::Sqrt, sum)? } else { sum }])
}

/// Matrices up to this size are inverted, a step for each column.
const MOST_COLUMNS: usize = 256;

/// Gauss–Jordan elimination with the largest element of each column as pivot.
fn inverse(cx: Cx) -> Nodes {
    let (x, shape) = (cx.x(0)?, cx.shape(0)?);
    let rank = shape.rank();
    let size = match shape.dims() {
        [.., rows, columns] if rows == columns => rows.as_static(),
        _ => return Err(cx.malformed(format!("the inverse of {shape}"))),
    };
    let size = size.ok_or_else(|| cx.open_dimension("the inverse of a matrix of symbolic size"))?;
    if size > MOST_COLUMNS || rank > 8 {
        return Err(cx.unsupported(format!("the inverse of {shape}")));
    }
    let work = if shape.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let x = cx.cast(x, work)?;
    let mut eye = vec![0.0; size * size];
    (0..size).for_each(|i| eye[i * (size + 1)] = 1.0);
    cx.importer.spend(size * size)?;
    let eye = cx.constant(Value::float(work, &[size, size], eye));
    let eye = cx.expand(eye, shape.dims().to_vec())?;
    let mut m = cx.add(Op::Concat { axis: rank - 1 }, &[x, eye])?;
    let n = Dim::Static(size);
    let mut dims = vec![Dim::Static(1); rank];
    dims[rank - 2] = n;
    let rows = cx.add(Op::Iota { to: dims, axis: rank - 2, dtype: DType::I64 }, &[])?;
    for column in 0..size {
        cx.importer.visit_many(16)?;
        m = eliminated(cx, m, rows, column, rank)?;
    }
    let y = cx.slice_axis(m, rank - 1, n.extent(), n.extent())?;
    Ok(vec![cx.cast(y, shape.dtype())?])
}

/// One step of the elimination: rows below `column` change places with the one of the largest element, which is scaled
/// to 1 and taken from all others.
fn eliminated(cx: Cx, m: NodeId, rows: NodeId, column: usize, rank: usize) -> Result<NodeId, Error> {
    let dtype = cx.shape_of(m).dtype();
    let at = Dim::Static(column).extent();
    let one = Extent::Const(1);
    let own = cx.scalar(DType::I64, column as f64);
    let magnitude = cx.slice_axis(m, rank - 1, at, one)?;
    let magnitude = cx.activation(rlx_ir::op::Activation::Abs, magnitude)?;
    let done = cx.compare(CmpOp::Lt, rows, own)?;
    let low = cx.scalar(dtype, -1.0);
    let magnitude = cx.select(done, low, magnitude)?;
    let largest = Op::ArgReduce { op: ArgOp::Max, axis: rank - 2, keep_dim: true, last: false };
    let pivot = cx.add(largest, &[magnitude])?;
    let is_pivot = cx.compare(CmpOp::Eq, rows, pivot)?;
    let is_own = cx.compare(CmpOp::Eq, rows, own)?;
    let zero = cx.scalar(dtype, 0.0);
    let picked = cx.select(is_pivot, m, zero)?;
    let pivot_row = cx.reduce(picked, ReduceOp::Sum, &[rank - 2], true)?;
    let own_row = cx.slice_axis(m, rank - 2, at, one)?;
    let swapped = cx.select(is_pivot, own_row, m)?;
    let head = cx.slice_axis(pivot_row, rank - 1, at, one)?;
    let unit = cx.binary(B::Div, pivot_row, head)?;
    let factor = cx.slice_axis(swapped, rank - 1, at, one)?;
    let taken = cx.binary(B::Mul, factor, unit)?;
    let others = cx.binary(B::Sub, swapped, taken)?;
    cx.select(is_own, unit, others)
}

/// Pairs `[…, 2]` of real and imaginary parts multiplied; the second's imaginary part times `sign`.
fn complex_product(cx: Cx, sign: f64) -> Nodes {
    let mut parts = Vec::with_capacity(4);
    for i in 0..2 {
        let (x, shape) = (cx.x(i)?, cx.shape(i)?);
        if shape.dims().last() != Some(&Dim::Static(2)) {
            return Err(cx.malformed(format!("{shape} does not end with real and imaginary parts")));
        }
        let axis = shape.rank() - 1;
        parts.push(cx.slice_axis(x, axis, Extent::Const(0), Extent::Const(1))?);
        parts.push(cx.slice_axis(x, axis, Extent::Const(1), Extent::Const(1))?);
    }
    let (a, b, c) = (parts[0], parts[1], parts[2]);
    let d = if sign < 0.0 { cx.activation(rlx_ir::op::Activation::Neg, parts[3])? } else { parts[3] };
    let (ac, bd) = (cx.binary(B::Mul, a, c)?, cx.binary(B::Mul, b, d)?);
    let (ad, bc) = (cx.binary(B::Mul, a, d)?, cx.binary(B::Mul, b, c)?);
    let (real, imaginary) = (cx.binary(B::Sub, ac, bd)?, cx.binary(B::Add, ad, bc)?);
    let axis = cx.shape_of(real).rank() - 1;
    Ok(vec![cx.add(Op::Concat { axis }, &[real, imaginary])?])
}

/// What both transforms reject.
fn check_transform(cx: &NodeCx<'_, '_>) -> Result<(), Error> {
    for (name, wanted, default) in [("onesided", 1, 1), ("normalized", 0, 0), ("signal_ndim", 1, 1)] {
        let value = cx.attrs.int(name, default)?;
        if value != wanted {
            return Err(cx.bad_attr(name, value));
        }
    }
    Ok(())
}

/// A matrix `[rows, columns]` of what `f` gives, made while importing.
fn table(
    cx: Cx,
    dtype: DType,
    rows: usize,
    columns: usize,
    f: impl Fn(usize, usize) -> f64,
) -> Result<NodeId, Error> {
    let mut elements = cx.importer.zeros(rows, columns)?;
    elements.iter_mut().enumerate().for_each(|(i, e)| *e = f(i / columns, i % columns));
    cx.float_constant(dtype, &[rows, columns], elements)
}

/// The Fourier transform of real signals `[…, n]`: `[…, n/2 + 1, 2]`, a product with cosines and sines.
fn rfft(cx: Cx) -> Nodes {
    check_transform(cx)?;
    let (x, shape) = (cx.x(0)?, cx.shape(0)?);
    let Some((&last, lead)) = shape.dims().split_last() else { return Err(cx.malformed("no signal")) };
    let n = last.as_static().ok_or_else(|| cx.open_dimension("a transform of symbolic length"))?;
    let kept = n / 2 + 1;
    let step = std::f64::consts::TAU / n.max(1) as f64;
    let matrix = table(cx, shape.dtype(), n, kept.saturating_mul(2), |i, j| {
        let angle = step * (i * (j / 2) % n.max(1)) as f64;
        if j % 2 == 0 { angle.cos() } else { -angle.sin() }
    })?;
    let y = cx.add(Op::MatMul, &[x, matrix])?;
    let mut to = lead.to_vec();
    to.extend([kept, 2].map(Dim::Static));
    Ok(vec![cx.reshape(y, to)?])
}

/// The inverse of [`rfft`] for an even length.
fn irfft(cx: Cx) -> Nodes {
    check_transform(cx)?;
    let (x, shape) = (cx.x(0)?, cx.shape(0)?);
    let [lead @ .., kept, Dim::Static(2)] = shape.dims() else {
        return Err(cx.malformed(format!("{shape} does not end with real and imaginary parts")));
    };
    let kept = kept.as_static().ok_or_else(|| cx.open_dimension("a transform of symbolic length"))?;
    let n = kept.saturating_sub(1).saturating_mul(2);
    let width = kept.checked_mul(2).ok_or_else(|| cx.malformed(format!("{shape}")))?;
    let step = std::f64::consts::TAU / n.max(1) as f64;
    let matrix = table(cx, shape.dtype(), width, n, |i, j| {
        let (k, angle) = (i / 2, step * ((i / 2) * j % n.max(1)) as f64);
        // All but the first and the middle frequency stand for two.
        let share = if k == 0 || 2 * k == n { 1.0 } else { 2.0 } / n as f64;
        if i % 2 == 0 { share * angle.cos() } else { -share * angle.sin() }
    })?;
    let mut flat = lead.to_vec();
    flat.push(Dim::Static(width));
    let x = cx.reshape(x, flat)?;
    Ok(vec![cx.add(Op::MatMul, &[x, matrix])?])
}

/// MurmurHash3_x86_32 (Appleby 2011) of each integer's bytes.
fn murmur_hash(cx: Cx) -> Nodes {
    let dtype = cx.dtype(0)?;
    let mut words = Vec::new();
    let x = cx.x(0)?;
    match dtype {
        DType::I32 | DType::U32 => words.push(cx.cast(x, DType::U32)?),
        DType::I64 | DType::U64 => {
            let wide = cx.cast(x, DType::U64)?;
            let low = cx.with_scalar(B::BitAnd, wide, f64::from(u32::MAX))?;
            let high = cx.with_scalar(B::Shr, wide, 32.0)?;
            words.extend([cx.cast(low, DType::U32)?, cx.cast(high, DType::U32)?]);
        }
        other => return Err(cx.unsupported(format!("the hash of {other}"))),
    }
    let seed = u32::try_from(cx.attrs.int("seed", 0)?).map_err(|_| cx.malformed("seed beyond 32 bits"))?;
    let seed = cx.scalar(DType::U32, f64::from(seed));
    let mut hash = cx.expand(seed, cx.shape(0)?.dims().to_vec())?;
    for &word in &words {
        let mixed = cx.with_scalar(B::Mul, word, f64::from(0xcc9e_2d51u32))?;
        let mixed = rotated(cx, mixed, 15)?;
        let mixed = cx.with_scalar(B::Mul, mixed, f64::from(0x1b87_3593u32))?;
        hash = cx.binary(B::BitXor, hash, mixed)?;
        hash = rotated(cx, hash, 13)?;
        hash = cx.with_scalar(B::Mul, hash, 5.0)?;
        hash = cx.with_scalar(B::Add, hash, f64::from(0xe654_6b64u32))?;
    }
    hash = cx.with_scalar(B::BitXor, hash, 4.0 * words.len() as f64)?;
    for (shift, factor) in [(16.0, 0x85eb_ca6bu32), (13.0, 0xc2b2_ae35)] {
        hash = folded(cx, hash, shift)?;
        hash = cx.with_scalar(B::Mul, hash, f64::from(factor))?;
    }
    hash = folded(cx, hash, 16.0)?;
    Ok(vec![if cx.attrs.flag("positive", true)? { hash } else { cx.cast(hash, DType::I32)? }])
}

/// Bits of a word turned to the left.
fn rotated(cx: Cx, x: NodeId, by: u32) -> Result<NodeId, Error> {
    let left = cx.with_scalar(B::Shl, x, f64::from(by))?;
    let right = cx.with_scalar(B::Shr, x, f64::from(32 - by))?;
    cx.binary(B::BitOr, left, right)
}

/// `x ^ (x >> by)`
fn folded(cx: Cx, x: NodeId, by: f64) -> Result<NodeId, Error> {
    let high = cx.with_scalar(B::Shr, x, by)?;
    cx.binary(B::BitXor, x, high)
}

/// N-grams up to this length are looked for.
const MOST_TOKENS: i64 = 256;

/// The scores of tokens that would repeat an n-gram of their row become minus infinity.
fn ngram_repeat_block(cx: Cx) -> Nodes {
    let n = cx.attrs.required("ngram_size", cx.attrs.int_opt("ngram_size")?)?;
    if !(1..=MOST_TOKENS).contains(&n) {
        return Err(cx.bad_attr("ngram_size", n));
    }
    let (ids, scores, shape) = (cx.x(0)?, cx.x(1)?, cx.shape(0)?);
    let &[batch, length] = shape.dims() else { return Err(cx.malformed(format!("ids {shape}"))) };
    // Where an n-gram may begin.
    let starts = length.extent() - (n - 1);
    let starts = match starts.as_const() {
        Some(s) if s <= 0 => return Ok(vec![scores]),
        Some(_) => starts,
        None => return Err(cx.open_dimension("n-grams of a row of symbolic length")),
    };
    let places = vec![batch, Dim::from(starts)];
    let yes = cx.scalar(DType::Bool, 1.0);
    let mut equal = cx.expand(yes, places)?;
    for i in 0..n - 1 {
        let window = cx.slice_axis(ids, 1, Extent::Const(i), starts)?;
        let last = cx.slice_axis(ids, 1, starts + i, Extent::Const(1))?;
        let same = cx.compare(CmpOp::Eq, window, last)?;
        equal = cx.binary(B::And, equal, same)?;
    }
    let dtype = cx.shape_of(scores).dtype();
    let (low, high) = (cx.scalar(dtype, f64::NEG_INFINITY), cx.scalar(dtype, f64::INFINITY));
    let update = cx.select(equal, low, high)?;
    let token = cx.slice_axis(ids, 1, Extent::Const(n - 1), starts)?;
    let op = Op::ScatterElements { axis: 1, reduction: ScatterOp::Min };
    Ok(vec![cx.add(op, &[scores, token, update])?])
}

/// All slices of `size` elements along a dimension, `step` apart, as one more dimension at the end.
fn unfold(cx: Cx) -> Nodes {
    let (shape, axis) = (cx.shape(0)?, cx.axis("dim", -1, 0)?);
    let size = cx.attrs.required("size", cx.attrs.int_opt("size")?)?;
    let step = cx.attrs.int("step", 1)?;
    let length = shape.dim(axis).as_static().and_then(|n| i64::try_from(n).ok());
    let length = length.ok_or_else(|| cx.open_dimension("slices of a symbolic dimension"))?;
    if size < 1 || step < 1 || size > length {
        return Err(cx.malformed(format!("slices of {size}, {step} apart, of {length} elements")));
    }
    let (count, size) = (((length - size) / step + 1) as usize, size as usize);
    let places = cx.importer.zeros(count, size)?;
    let place = |i: usize| (i / size) as i128 * i128::from(step) + (i % size) as i128;
    let places = (0..places.len()).map(place).collect();
    let places = cx.constant(Value::int(DType::I64, &[count, size], places));
    let x = cx.x(0)?;
    let y = cx.add(Op::Gather { axis }, &[x, places])?;
    let rank = shape.rank() + 1;
    let perm: Vec<usize> = (0..rank).filter(|&i| i != axis + 1).chain([axis + 1]).collect();
    Ok(vec![cx.transpose(y, &perm)?])
}
