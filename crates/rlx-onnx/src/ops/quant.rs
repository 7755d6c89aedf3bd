//! Quantisation, and matmuls of quantised matrices.

use super::conv_pool::Window;
use super::{Entry, nodes};
use crate::import::NodeCx;
use crate::tensor;
use rlx_ir::op::{Activation as A, BinaryOp as B, DataFormat, ReduceOp};
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(super) const OPS: &[Entry] = &[
    nodes("ConvInteger", conv_integer),
    nodes("DequantizeLinear", dequantize),
    nodes("DynamicQuantizeLinear", dynamic_quantize),
    nodes("MatMulInteger", matmul_integer),
    nodes("QLinearConv", quantized_conv),
    nodes("QLinearMatMul", quantized_matmul),
    nodes("QuantizeLinear", quantize),
];

/// How scale and zero point relate to the operand's elements.
enum Granularity {
    /// One for the tensor, or one for each index along an axis.
    Axis(Option<usize>),
    /// One for each block of this many elements along an axis.
    Block { axis: usize, size: i64 },
}

fn granularity(cx: &NodeCx<'_, '_>) -> Result<Granularity, Error> {
    let (x, scale) = (cx.shape(0)?, cx.shape(1)?);
    if scale.num_elements() == Some(1) && scale.rank() <= 1 {
        return Ok(Granularity::Axis(None));
    }
    let axis = x.axis(cx.attrs.int("axis", 1)?)?;
    match cx.attrs.int("block_size", 0)? {
        0 if scale.rank() == 1 => Ok(Granularity::Axis(Some(axis))),
        size if size > 0 && scale.rank() == x.rank() => Ok(Granularity::Block { axis, size }),
        _ => Err(cx.malformed(format!("scale {scale} for {x}"))),
    }
}

/// A scale or zero point given for blocks, repeated to one for each element.
pub(super) fn widen(cx: Cx, v: NodeId, like: &[Dim], axis: usize, size: i64) -> Result<NodeId, Error> {
    let shape = cx.shape_of(v);
    if shape.rank() != like.len() {
        return Err(cx.malformed(format!("blocks of {shape} for {} dimensions", like.len())));
    }
    let dims = shape.dims().to_vec();
    let mut apart = dims.clone();
    apart.insert(axis + 1, Dim::Static(1));
    let mut wide = apart.clone();
    wide[axis + 1] = Dim::from(Extent::Const(size));
    let mut merged = dims.clone();
    merged[axis] = Dim::from(dims[axis].extent() * size);
    let v = cx.reshape(v, apart)?;
    let v = cx.expand(v, wide)?;
    let v = cx.reshape(v, merged)?;
    cx.slice_axis(v, axis, Extent::Const(0), like[axis].extent())
}

/// The result's type: the zero point's, else an attribute's, else u8.
fn quantized_type(cx: &NodeCx<'_, '_>) -> Result<DType, Error> {
    if cx.has(2) {
        return cx.dtype(2);
    }
    match cx.attrs.int("output_dtype", 0)? {
        0 => Ok(DType::U8),
        code => tensor::dtype(i32::try_from(code).unwrap_or(0)),
    }
}

pub(super) fn quantize(cx: Cx) -> Nodes {
    let to = quantized_type(cx)?;
    if to.is_float() && !cx.attrs.flag("saturate", true)? {
        return Err(cx.bad_attr("saturate", 0));
    }
    let shape = cx.shape(0)?;
    let (mut x, mut scale) = (cx.x(0)?, cx.x(1)?);
    // The division is done in the wider of the two types, in f32 for integers.
    let types = [shape.dtype(), cx.dtype(1)?];
    let work = if types.iter().all(|&t| t == DType::F16) { DType::F16 } else { DType::F32 };
    (x, scale) = (cx.cast(x, work)?, cx.cast(scale, work)?);
    let zero = cx.x_opt(2)?;
    let granularity = granularity(cx)?;
    if let (Granularity::Axis(axis), Some(_)) = (&granularity, to.int_range()) {
        let mut operands = vec![x, flat_scale(cx, scale, *axis)?];
        if let Some(zero) = zero {
            operands.push(flat_scale(cx, zero, *axis)?);
        }
        return Ok(vec![cx.add(Op::Quantize { axis: *axis, to }, &operands)?]);
    }
    let scale = fit(cx, scale, &granularity)?;
    let y = cx.binary(B::Div, x, scale)?;
    let mut y = if to.is_float() { y } else { cx.activation(A::Round, y)? };
    if let Some(zero) = zero {
        let zero = cx.cast(zero, work)?;
        let zero = fit(cx, zero, &granularity)?;
        y = cx.binary(B::Add, y, zero)?;
    }
    Ok(vec![saturate(cx, y, to)?])
}

/// A scale for a whole tensor as a scalar; one for an axis as it is.
fn flat_scale(cx: Cx, v: NodeId, axis: Option<usize>) -> Result<NodeId, Error> {
    if axis.is_some() { Ok(v) } else { cx.reshape(v, vec![]) }
}

/// Clamped into the range of a type and converted.
fn saturate(cx: Cx, x: NodeId, to: DType) -> Result<NodeId, Error> {
    let integers = to.int_range().map(|(min, max)| (min as f64, max as f64));
    let floats = super::logic::max_of_small_float(to).map(|max| (-max, max));
    let Some((min, max)) = integers.or(floats) else { return cx.cast(x, to) };
    let x = cx.with_scalar(B::Max, x, min)?;
    let x = cx.with_scalar(B::Min, x, max)?;
    cx.cast(x, to)
}

/// A scale or zero point shaped to broadcast against operand 0.
fn fit(cx: Cx, v: NodeId, granularity: &Granularity) -> Result<NodeId, Error> {
    let shape = cx.shape(0)?;
    match *granularity {
        Granularity::Axis(None) => flat_scale(cx, v, None),
        Granularity::Axis(Some(axis)) => along(cx, v, shape.rank(), axis),
        Granularity::Block { axis, size } => widen(cx, v, shape.dims(), axis, size),
    }
}

pub(super) fn dequantize(cx: Cx) -> Nodes {
    let to = match cx.attrs.int("output_dtype", 0)? {
        0 => cx.dtype(1)?,
        code => tensor::dtype(i32::try_from(code).unwrap_or(0))?,
    };
    let shape = cx.shape(0)?;
    let (x, scale, zero) = (cx.x(0)?, cx.x(1)?, cx.x_opt(2)?);
    let granularity = granularity(cx)?;
    if let (Granularity::Axis(axis), Some(_)) = (&granularity, shape.dtype().int_range()) {
        let mut operands = vec![x, flat_scale(cx, scale, *axis)?];
        if let Some(zero) = zero {
            operands.push(flat_scale(cx, zero, *axis)?);
        }
        return Ok(vec![cx.add(Op::Dequantize { axis: *axis, to }, &operands)?]);
    }
    let scale = fit(cx, scale, &granularity)?;
    let scale = cx.cast(scale, to)?;
    let mut y = cx.cast(x, to)?;
    if let Some(zero) = zero {
        let zero = fit(cx, zero, &granularity)?;
        let zero = cx.cast(zero, to)?;
        y = cx.binary(B::Sub, y, zero)?;
    }
    Ok(vec![cx.binary(B::Mul, y, scale)?])
}

/// Range of the data, 0 included, onto 0..=255.
fn dynamic_quantize(cx: Cx) -> Nodes {
    let x = cx.x(0)?;
    let (q, scale) = quantize_by_range(cx, x)?;
    let zero = q.zero.ok_or_else(|| cx.malformed("a range without a zero point"))?;
    Ok(vec![q.x, scale, zero])
}

/// A float tensor as u8 whose zero point and scale come from its own range, and that scale.
pub(super) fn quantize_by_range(cx: Cx, x: NodeId) -> Result<(Quantized, NodeId), Error> {
    let axes: Vec<usize> = (0..cx.shape_of(x).rank()).collect();
    let max = cx.reduce(x, ReduceOp::Max, &axes, false)?;
    let max = cx.with_scalar(B::Max, max, 0.0)?;
    let min = cx.reduce(x, ReduceOp::Min, &axes, false)?;
    let min = cx.with_scalar(B::Min, min, 0.0)?;
    let range = cx.binary(B::Sub, max, min)?;
    let scale = cx.with_scalar(B::Div, range, 255.0)?;
    let zero = cx.binary(B::Div, min, scale)?;
    let zero = cx.activation(A::Neg, zero)?;
    let zero = cx.activation(A::Round, zero)?;
    let zero = saturate(cx, zero, DType::U8)?;
    let x = cx.add(Op::Quantize { axis: None, to: DType::U8 }, &[x, scale, zero])?;
    Ok((Quantized { x, zero: Some(zero) }, scale))
}

/// Small integers with their zero point: none is 0.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quantized {
    pub x: NodeId,
    pub zero: Option<NodeId>,
}

impl Quantized {
    /// Operand `i` of the node, and the operand that is its zero point, if it is given.
    pub fn operand(cx: Cx, i: usize, zero: usize) -> Result<Quantized, Error> {
        Ok(Quantized { x: cx.x(i)?, zero: cx.x_opt(zero)? })
    }

    /// The elements minus the zero point as i32. A vector of zero points runs along `axis`.
    pub fn centred(&self, cx: Cx, axis: usize) -> Result<NodeId, Error> {
        let x = cx.cast(self.x, DType::I32)?;
        let Some(zero) = self.zero else { return Ok(x) };
        let zero = cx.cast(zero, DType::I32)?;
        let rank = cx.shape_of(x).rank();
        let zero = along(cx, zero, rank, axis)?;
        cx.binary(B::Sub, x, zero)
    }

    /// The dequantised floats.
    pub fn dequantized(&self, cx: Cx, scale: NodeId) -> Result<NodeId, Error> {
        let scale = cx.reshape(scale, vec![])?;
        let mut operands = vec![self.x, scale];
        if let Some(zero) = self.zero {
            operands.push(cx.reshape(zero, vec![])?);
        }
        let to = cx.shape_of(scale).dtype();
        cx.add(Op::Dequantize { axis: None, to }, &operands)
    }
}

/// A scalar, or a vector shaped to broadcast along `axis`; anything wider already broadcasts.
pub(super) fn along(cx: Cx, v: NodeId, rank: usize, axis: usize) -> Result<NodeId, Error> {
    let shape = cx.shape_of(v);
    match shape.dims() {
        [_] if shape.num_elements() == Some(1) => cx.reshape(v, vec![]),
        &[n] => {
            let mut to = vec![Dim::Static(1); rank];
            let along = to.get_mut(axis);
            *along
                .ok_or_else(|| cx.malformed(format!("{shape} along axis {axis} of {rank} dimensions")))? = n;
            cx.reshape(v, to)
        }
        _ => Ok(v),
    }
}

/// Two operands of bytes with their zero points as the ops of integers take them: one on the left, one or one for each of
/// the `columns` on the right. `None` where they are given otherwise.
fn byte_operands(
    cx: Cx,
    a: Quantized,
    b: Quantized,
    columns: Option<Dim>,
) -> Result<Option<[NodeId; 4]>, Error> {
    let mut zeros = Vec::with_capacity(2);
    for (q, columns) in [(a, None), (b, columns)] {
        let dtype = cx.shape_of(q.x).dtype();
        if !matches!(dtype, DType::I8 | DType::U8) {
            return Ok(None);
        }
        let Some(zero) = q.zero else {
            zeros.push(cx.scalar(dtype, 0.0));
            continue;
        };
        let shape = cx.shape_of(zero);
        zeros.push(match (shape.num_elements(), shape.dims()) {
            (Some(1), _) => cx.reshape(zero, vec![])?,
            (_, &[n]) if Some(n) == columns => zero,
            _ => return Ok(None),
        });
    }
    Ok(Some([a.x, b.x, zeros[0], zeros[1]]))
}

/// The exact matmul of two integer matrices.
pub(super) fn integer_matmul(cx: Cx, a: Quantized, b: Quantized) -> Result<NodeId, Error> {
    let columns = cx.shape_of(b.x).dims().get(1..).and_then(|rest| rest.last().copied());
    if let Some(operands) = byte_operands(cx, a, b, columns)? {
        return cx.add(Op::MatMulInteger, &operands);
    }
    let (rank_a, rank_b) = (cx.shape_of(a.x).rank(), cx.shape_of(b.x).rank());
    let a = a.centred(cx, rank_a.saturating_sub(2))?;
    let b = b.centred(cx, rank_b.saturating_sub(1))?;
    cx.add(Op::MatMul, &[a, b])
}

fn matmul_integer(cx: Cx) -> Nodes {
    let (a, b) = (Quantized::operand(cx, 0, 2)?, Quantized::operand(cx, 1, 3)?);
    Ok(vec![integer_matmul(cx, a, b)?])
}

/// The matmul, rescaled: `round(y·sₐ·s_b / s_y) + z_y`, saturated.
fn quantized_matmul(cx: Cx) -> Nodes {
    let (a, b) = (Quantized::operand(cx, 0, 2)?, Quantized::operand(cx, 3, 5)?);
    let matmul = integer_matmul(cx, a, b)?;
    let rank = cx.shape_of(matmul).rank();
    let scales = (scale(cx, 1, rank, rank.saturating_sub(2))?, scale(cx, 4, rank, rank.saturating_sub(1))?);
    let y = cx.cast(matmul, DType::F32)?;
    let y = cx.binary(B::Mul, y, scales.0)?;
    let y = cx.binary(B::Mul, y, scales.1)?;
    Ok(vec![requantize(cx, y, 6, Some(7))?])
}

pub(super) fn scale(cx: Cx, i: usize, rank: usize, axis: usize) -> Result<NodeId, Error> {
    let v = cx.x(i)?;
    let v = cx.cast(v, DType::F32)?;
    along(cx, v, rank, axis)
}

/// `y` by the scale and zero point that these operands are; without a zero point to u8 around 0.
pub(super) fn requantize(
    cx: Cx,
    y: NodeId,
    scale_at: usize,
    zero_at: Option<usize>,
) -> Result<NodeId, Error> {
    let scale = cx.x(scale_at)?;
    let scale = cx.cast(scale, DType::F32)?;
    let mut operands = vec![y, cx.reshape(scale, vec![])?];
    let mut to = DType::U8;
    if let Some(at) = zero_at.filter(|&at| cx.has(at)) {
        to = cx.dtype(at)?;
        let zero = cx.x(at)?;
        operands.push(cx.reshape(zero, vec![])?);
    }
    cx.add(Op::Quantize { axis: None, to }, &operands)
}

/// A convolution of small integers, exact in i32.
/// The spatial dimensions are operand 0's from the third on, unless they are given.
fn integer_conv(cx: Cx, x: Quantized, w: Quantized, spatial: Option<&[Dim]>) -> Result<NodeId, Error> {
    let weights = cx.shape_of(w.x);
    let kernel = Some(weights.dims().get(2..).unwrap_or_default());
    let Window { strides, pads, dilations, .. } = match spatial {
        Some(spatial) => Window::over(cx, kernel, spatial)?,
        None => Window::read(cx, kernel)?,
    };
    let groups = usize::try_from(cx.attrs.int("group", 1)?).map_err(|_| cx.malformed("group < 0"))?;
    let format = DataFormat::ChannelsFirst;
    if let Some(operands) = byte_operands(cx, x, w, weights.dims().first().copied())? {
        return cx.add(Op::ConvInteger { strides, pads, dilations, groups, format }, &operands);
    }
    let (x, w) = (x.centred(cx, 1)?, w.centred(cx, 0)?);
    cx.add(Op::Conv { strides, pads, dilations, groups, format }, &[x, w])
}

fn conv_integer(cx: Cx) -> Nodes {
    let (x, w) = (Quantized::operand(cx, 0, 2)?, Quantized::operand(cx, 1, 3)?);
    Ok(vec![integer_conv(cx, x, w, None)?])
}

fn quantized_conv(cx: Cx) -> Nodes {
    let x = Quantized::operand(cx, 0, 2)?;
    quantized_conv_of(cx, x, None)
}

/// The convolution of `x`, whose channels come first, with the other operands of a `QLinearConv`.
pub(super) fn quantized_conv_of(cx: Cx, x: Quantized, spatial: Option<&[Dim]>) -> Nodes {
    let w = Quantized::operand(cx, 3, 5)?;
    let mut y = integer_conv(cx, x, w, spatial)?;
    let rank = cx.shape_of(y).rank();
    if let Some(bias) = cx.x_opt(8)? {
        let bias = along(cx, bias, rank, 1)?;
        y = cx.binary(B::Add, y, bias)?;
    }
    let scales = (scale(cx, 1, rank, 1)?, scale(cx, 4, rank, 1)?);
    let y = cx.cast(y, DType::F32)?;
    let y = cx.binary(B::Mul, y, scales.0)?;
    let y = cx.binary(B::Mul, y, scales.1)?;
    Ok(vec![requantize(cx, y, 6, Some(7))?])
}
