//! Random numbers: `RandomUniform`, `RandomNormal`, their `Like` forms, `Bernoulli`, `Multinomial`, and the mask of `Dropout`.
//!
//! A number is a function of a key and of its place in the tensor, nothing else: SplitMix64 (Steele, Lea and Flood 2014) as a
//! counter-based generator, in 64-bit integer ops of the graph. So it is the same on every device, number of threads and run, and
//! needs no state. The key is the node's `seed`, or a hash of the node's names where there is none, so that
//! two nodes draw different numbers.

use super::{Entry, nodes};
use crate::import::NodeCx;
use crate::tensor;
use rlx_ir::op::{Activation as A, BinaryOp as B, CmpOp, ReduceOp};
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op, Value};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(super) const OPS: &[Entry] = &[
    nodes("Bernoulli", bernoulli),
    nodes("Multinomial", multinomial),
    nodes("RandomNormal", random_normal),
    nodes("RandomNormalLike", random_normal_like),
    nodes("RandomUniform", random_uniform),
    nodes("RandomUniformLike", random_uniform_like),
];

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// The finaliser of SplitMix64.
fn mixed(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// The key of a node's stream number `stream`.
fn key(cx: &NodeCx<'_, '_>, stream: u64) -> Result<u64, Error> {
    // Dropout's is a whole number.
    let whole = cx.attrs.int_opt("seed").ok().flatten().map(|seed| seed as f32);
    let seed = if whole.is_some() { whole } else { cx.attrs.float_opt("seed")? };
    let own = seed.map_or_else(|| hash_of_names(cx), |seed| u64::from(seed.to_bits()));
    Ok(mixed(own.wrapping_add(STEP.wrapping_mul(stream + 1))))
}

/// The key of a node whose seed, if there is one, is not an attribute.
pub(super) fn key_of(cx: &NodeCx<'_, '_>, seed: Option<u64>) -> u64 {
    mixed(seed.unwrap_or_else(|| hash_of_names(cx)).wrapping_add(STEP))
}

/// FNV-1a of the node's names.
fn hash_of_names(cx: &NodeCx<'_, '_>) -> u64 {
    let names = std::iter::once(cx.proto.name()).chain(cx.proto.output.iter().map(String::as_str));
    let bytes = names.flat_map(|name| name.bytes().chain([0]));
    bytes.fold(0xCBF2_9CE4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01B3))
}

fn word(cx: Cx, value: u64) -> NodeId {
    cx.constant(Value::int(DType::U64, &[], vec![i128::from(value)]))
}

/// 64 random bits for each element.
fn bits(cx: Cx, key: u64, dims: &[Dim]) -> Result<NodeId, Error> {
    let count = dims.iter().fold(Extent::Const(1), |n, d| n * d.extent());
    let place = cx.add(Op::Iota { to: vec![Dim::from(count)], axis: 0, dtype: DType::U64 }, &[])?;
    let place = cx.reshape(place, dims.to_vec())?;
    let (step, key) = (word(cx, STEP), word(cx, key));
    let x = cx.binary(B::Mul, place, step)?;
    let mut x = cx.binary(B::Add, x, key)?;
    for (shift, factor) in [(30, 0xBF58_476D_1CE4_E5B9), (27, 0x94D0_49BB_1331_11EB)] {
        let shift = word(cx, shift);
        let high = cx.binary(B::Shr, x, shift)?;
        x = cx.binary(B::BitXor, x, high)?;
        let factor = word(cx, factor);
        x = cx.binary(B::Mul, x, factor)?;
    }
    let shift = word(cx, 31);
    let high = cx.binary(B::Shr, x, shift)?;
    cx.binary(B::BitXor, x, high)
}

/// Numbers from 0 up to but not 1, evenly distributed: as many bits as the type's significand holds.
pub(super) fn uniform(cx: Cx, dims: &[Dim], dtype: DType, stream: u64) -> Result<NodeId, Error> {
    let key = key(cx, stream)?;
    uniform_of_key(cx, key, dims, dtype)
}

/// As [`uniform`], in f32 and by a key.
pub(super) fn uniform_by(cx: Cx, key: u64, dims: &[Dim]) -> Result<NodeId, Error> {
    uniform_of_key(cx, key, dims, DType::F32)
}

fn uniform_of_key(cx: Cx, key: u64, dims: &[Dim], dtype: DType) -> Result<NodeId, Error> {
    let significant = if dtype == DType::F64 { 53 } else { 24 };
    let bits = bits(cx, key, dims)?;
    let shift = word(cx, 64 - significant);
    let bits = cx.binary(B::Shr, bits, shift)?;
    let whole = cx.cast(bits, dtype)?;
    cx.with_scalar(B::Mul, whole, 0.5f64.powi(significant as i32))
}

/// Numbers of the standard normal distribution, by Box and Muller's formula.
fn normal(cx: Cx, dims: &[Dim], dtype: DType) -> Result<NodeId, Error> {
    let (first, second) = (uniform(cx, dims, dtype, 0)?, uniform(cx, dims, dtype, 1)?);
    // From above 0 up to 1.
    let one = cx.scalar(dtype, 1.0);
    let first = cx.binary(B::Sub, one, first)?;
    let log = cx.activation(A::Log, first)?;
    let square = cx.with_scalar(B::Mul, log, -2.0)?;
    let radius = cx.activation(A::Sqrt, square)?;
    let angle = cx.with_scalar(B::Mul, second, std::f64::consts::TAU)?;
    let cos = cx.activation(A::Cos, angle)?;
    cx.binary(B::Mul, radius, cos)
}

/// The type that random numbers of a type are computed in.
fn wide(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// The `dtype` attribute.
fn dtype(cx: &NodeCx<'_, '_>, default: DType) -> Result<DType, Error> {
    match cx.attrs.int_opt("dtype")? {
        Some(code) => tensor::dtype(i32::try_from(code).unwrap_or(0)),
        None => Ok(default),
    }
}

/// The `shape` attribute.
fn shape(cx: &NodeCx<'_, '_>) -> Result<Vec<Dim>, Error> {
    let shape = cx.attrs.ints("shape")?;
    let shape = cx.attrs.required("shape", shape)?;
    let dim = |&n: &i64| {
        usize::try_from(n).map(Dim::Static).map_err(|_| cx.malformed(format!("a dimension of {n}")))
    };
    shape.iter().map(dim).collect()
}

fn normal_of(cx: Cx, dims: &[Dim], to: DType) -> Nodes {
    let (mean, scale) = (cx.attrs.float("mean", 0.0)?, cx.attrs.float("scale", 1.0)?);
    let x = normal(cx, dims, wide(to))?;
    let x = cx.with_scalar(B::Mul, x, f64::from(scale))?;
    let x = cx.with_scalar(B::Add, x, f64::from(mean))?;
    Ok(vec![cx.cast(x, to)?])
}

fn uniform_of(cx: Cx, dims: &[Dim], to: DType) -> Nodes {
    let (low, high) = (f64::from(cx.attrs.float("low", 0.0)?), f64::from(cx.attrs.float("high", 1.0)?));
    let x = uniform(cx, dims, wide(to), 0)?;
    let x = cx.with_scalar(B::Mul, x, high - low)?;
    let x = cx.with_scalar(B::Add, x, low)?;
    Ok(vec![cx.cast(x, to)?])
}

fn random_normal(cx: Cx) -> Nodes {
    let (dims, to) = (shape(cx)?, dtype(cx, DType::F32)?);
    normal_of(cx, &dims, to)
}

fn random_normal_like(cx: Cx) -> Nodes {
    let like = cx.shape(0)?;
    let to = dtype(cx, like.dtype())?;
    normal_of(cx, like.dims(), to)
}

fn random_uniform(cx: Cx) -> Nodes {
    let (dims, to) = (shape(cx)?, dtype(cx, DType::F32)?);
    uniform_of(cx, &dims, to)
}

fn random_uniform_like(cx: Cx) -> Nodes {
    let like = cx.shape(0)?;
    let to = dtype(cx, like.dtype())?;
    uniform_of(cx, like.dims(), to)
}

/// 1 with the probability that the operand gives, else 0.
fn bernoulli(cx: Cx) -> Nodes {
    let shape = cx.shape(0)?;
    let to = dtype(cx, shape.dtype())?;
    let p = cx.x(0)?;
    let p = cx.cast(p, wide(shape.dtype()))?;
    let drawn = uniform(cx, shape.dims(), wide(shape.dtype()), 0)?;
    let hit = cx.compare(CmpOp::Lt, drawn, p)?;
    Ok(vec![cx.cast(hit, to)?])
}

/// Classes drawn by their unnormalised log-probabilities `[batch, classes]`: the place of a random number in the running sum.
fn multinomial(cx: Cx) -> Nodes {
    let shape = cx.shape(0)?;
    let to = dtype(cx, DType::I32)?;
    let count = cx.attrs.int("sample_size", 1)?;
    let (&[batch, _], Ok(count)) = (shape.dims(), usize::try_from(count)) else {
        return Err(cx.malformed(format!("{count} samples of {shape}")));
    };
    let x = cx.x(0)?;
    let x = cx.cast(x, wide(shape.dtype()))?;
    let drawn = uniform(cx, &[batch, Dim::Static(count)], wide(shape.dtype()), 0)?;
    let place = by_scores(cx, x, drawn)?;
    Ok(vec![cx.cast(place, to)?])
}

/// For numbers `[batch, samples]` from 0 to 1 the classes whose part of the probabilities they are in, as i64; scores are
/// logarithms `[batch, classes]`.
pub(super) fn by_scores(cx: Cx, scores: NodeId, drawn: NodeId) -> Result<NodeId, Error> {
    let classes = cx.shape_of(scores).dim(1);
    let p = cx.add(Op::Softmax { axis: 1 }, &[scores])?;
    let sums = Op::Cumulative { op: ReduceOp::Sum, axis: 1, exclusive: false, reverse: false };
    let sums = cx.add(sums, &[p])?;
    let sums = cx.unsqueeze(sums, &[1])?;
    let drawn = cx.unsqueeze(drawn, &[2])?;
    let passed = cx.compare(CmpOp::Le, sums, drawn)?;
    let passed = cx.cast(passed, DType::I64)?;
    let place = cx.reduce(passed, ReduceOp::Sum, &[2], false)?;
    // Rounding may leave the whole sum below 1.
    let last = cx.extent(classes.extent() - 1)?;
    cx.binary(B::Min, place, last)
}

/// Dropout as in training: what is kept is divided by the probability to be kept. Also gives which elements are.
pub(super) fn dropout(cx: Cx, ratio: NodeId) -> Nodes {
    let shape = cx.shape(0)?;
    let dtype = wide(shape.dtype());
    let ratio = cx.cast(ratio, dtype)?;
    let ratio = cx.reshape(ratio, vec![])?;
    let drawn = uniform(cx, shape.dims(), dtype, 0)?;
    let kept = cx.compare(CmpOp::Ge, drawn, ratio)?;
    let one = cx.scalar(dtype, 1.0);
    let rest = cx.binary(B::Sub, one, ratio)?;
    let x = cx.x(0)?;
    let x = cx.cast(x, dtype)?;
    let scaled = cx.binary(B::Div, x, rest)?;
    let zero = cx.scalar(dtype, 0.0);
    let y = cx.select(kept, scaled, zero)?;
    Ok(vec![cx.cast(y, shape.dtype())?, kept])
}
