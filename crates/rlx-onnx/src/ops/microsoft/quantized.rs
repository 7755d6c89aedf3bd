//! Ops on 8-bit integers with scales and zero points, as ONNX Runtime's quantiser writes them.
//!
//! An elementwise op is computed on the dequantised floats, and the result is quantised again with its scale
//! and zero point. Matmuls are exact in integers, and their scales are applied afterwards.

use crate::import::NodeCx;
use crate::ops::conv_pool::Window;
use crate::ops::microsoft::fused::{channels_first, channels_last};
use crate::ops::quant::{self, Quantized, along, integer_matmul, quantize_by_range, requantize};
use crate::ops::{Entry, microsoft};
use rlx_ir::op::{Activation as A, BinaryOp as B, CmpOp, DataFormat, PoolKind, ReduceOp};
use rlx_ir::sort::sort;
use rlx_ir::{DType, Error, NodeId, Op};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(in crate::ops) const OPS: &[Entry] = &[
    microsoft("DequantizeLinear", quant::dequantize),
    microsoft("DynamicQuantizeMatMul", dynamic_quantize_matmul),
    microsoft("MatMulIntegerToFloat", matmul_integer_to_float),
    microsoft("MulInteger", mul_integer),
    microsoft("QGemm", gemm),
    microsoft("QLinearAdd", add),
    microsoft("QLinearAveragePool", average_pool),
    microsoft("QLinearConcat", concat),
    microsoft("QLinearConv", conv),
    microsoft("QLinearGlobalAveragePool", global_average_pool),
    microsoft("QLinearLeakyRelu", leaky_relu),
    microsoft("QLinearMul", mul),
    microsoft("QLinearReduceMean", reduce_mean),
    microsoft("QLinearSigmoid", sigmoid),
    microsoft("QLinearSoftmax", softmax),
    microsoft("QLinearWhere", select),
    microsoft("QuantizeLinear", quant::quantize),
    microsoft("ReduceSumInteger", reduce_sum_integer),
];

/// The floats of operand `i`, whose scale and zero point are the next two operands.
fn floats(cx: Cx, i: usize) -> Result<NodeId, Error> {
    let q = Quantized::operand(cx, i, i + 2)?;
    let scale = cx.x(i + 1)?;
    q.dequantized(cx, scale)
}

fn binary(cx: Cx, f: B) -> Nodes {
    let (a, b) = (floats(cx, 0)?, floats(cx, 3)?);
    let y = cx.binary(f, a, b)?;
    Ok(vec![requantize(cx, y, 6, Some(7))?])
}

fn add(cx: Cx) -> Nodes {
    binary(cx, B::Add)
}

fn mul(cx: Cx) -> Nodes {
    binary(cx, B::Mul)
}

/// A function of one operand: `x, x_scale, x_zero_point, y_scale, y_zero_point`.
fn unary(cx: Cx, f: impl Fn(&mut NodeCx<'_, '_>, NodeId) -> Result<NodeId, Error>) -> Nodes {
    let x = floats(cx, 0)?;
    let y = f(cx, x)?;
    Ok(vec![requantize(cx, y, 3, Some(4))?])
}

fn sigmoid(cx: Cx) -> Nodes {
    unary(cx, |cx, x| cx.activation(A::Sigmoid, x))
}

fn leaky_relu(cx: Cx) -> Nodes {
    let alpha = f64::from(cx.attrs.float("alpha", 0.01)?);
    unary(cx, |cx, x| {
        let (negative, zero) = (cx.with_scalar(B::Mul, x, alpha)?, cx.scalar(DType::F32, 0.0));
        let below = cx.compare(CmpOp::Lt, x, zero)?;
        cx.select(below, negative, x)
    })
}

/// `opset` says which version's meaning `axis` has; before 13 everything from it on is one dimension.
fn softmax(cx: Cx) -> Nodes {
    let (shape, opset) = (cx.shape(0)?, cx.attrs.int("opset", 13)?);
    let axis = shape.axis(cx.attrs.int("axis", if opset < 13 { 1 } else { -1 })?)?;
    if opset < 13 && axis + 1 != shape.rank() {
        return Err(
            cx.unsupported(format!("a softmax over dimensions {axis} to {} at once", shape.rank() - 1))
        );
    }
    unary(cx, |cx, x| cx.add(Op::Softmax { axis: axis as i32 }, &[x]))
}

/// A function of floats with their channels first, whatever the node's own have.
fn with_channels_first(cx: Cx, f: impl Fn(&mut NodeCx<'_, '_>, NodeId) -> Result<NodeId, Error>) -> Nodes {
    let last = cx.attrs.flag("channels_last", false)?;
    unary(cx, |cx, x| {
        let x = if last { channels_first(cx, x)? } else { x };
        let y = f(cx, x)?;
        if last { channels_last(cx, y) } else { Ok(y) }
    })
}

fn global_average_pool(cx: Cx) -> Nodes {
    let axes: Vec<usize> = (2..cx.rank(0)?).collect();
    with_channels_first(cx, |cx, x| cx.reduce(x, ReduceOp::Mean, &axes, true))
}

fn average_pool(cx: Cx) -> Nodes {
    let shape = cx.shape(0)?;
    let last = cx.attrs.flag("channels_last", false)?;
    let end = shape.rank().saturating_sub(usize::from(last));
    let spatial = shape.dims().get(2 - usize::from(last)..end).unwrap_or_default();
    let w = Window::over(cx, None, spatial)?;
    let op = Op::Pool {
        kind: PoolKind::Average,
        kernel: w.kernel,
        strides: w.strides,
        pads: w.pads,
        dilations: w.dilations,
        ceil_mode: cx.attrs.flag("ceil_mode", false)?,
        count_include_pad: cx.attrs.flag("count_include_pad", false)?,
        format: DataFormat::ChannelsFirst,
    };
    with_channels_first(cx, |cx, x| cx.add(op.clone(), &[x]))
}

/// As in the default domain, also with the channels of input and result last.
fn conv(cx: Cx) -> Nodes {
    let x = Quantized::operand(cx, 0, 2)?;
    if !cx.attrs.flag("channels_last", false)? {
        return quant::quantized_conv_of(cx, x, None);
    }
    let first = channels_first(cx, x.x)?;
    let spatial = cx.shape_of(first).dims()[2..].to_vec();
    let y = quant::quantized_conv_of(cx, Quantized { x: first, ..x }, Some(&spatial))?[0];
    Ok(vec![channels_last(cx, y)?])
}

/// `data, data_scale, data_zero_point, reduced_scale, reduced_zero_point`
fn reduce_mean(cx: Cx) -> Nodes {
    let (axes, keep) = reduced(cx)?;
    unary(cx, |cx, x| cx.reduce(x, ReduceOp::Mean, &axes, keep))
}

/// The axes that an attribute names, all of them by default, and whether they stay as dimensions of 1.
fn reduced(cx: &NodeCx<'_, '_>) -> Result<(Vec<usize>, bool), Error> {
    let rank = cx.rank(0)?;
    let mut axes = match cx.attrs.ints("axes")? {
        None | Some([]) => (0..rank).collect(),
        Some(axes) => crate::ops::movement::axes_of(cx, axes, rank)?,
    };
    sort(&mut axes);
    Ok((axes, cx.attrs.flag("keepdims", true)?))
}

fn reduce_sum_integer(cx: Cx) -> Nodes {
    let (axes, keep) = reduced(cx)?;
    let to = if cx.dtype(0)? == DType::U8 { DType::U32 } else { DType::I32 };
    let x = cx.x(0)?;
    let x = cx.cast(x, to)?;
    Ok(vec![cx.reduce(x, ReduceOp::Sum, &axes, keep)?])
}

/// `A, A_zero_point, B, B_zero_point`
fn mul_integer(cx: Cx) -> Nodes {
    let (a, b) = (Quantized::operand(cx, 0, 1)?, Quantized::operand(cx, 2, 3)?);
    let (a, b) = (a.centred(cx, 0)?, b.centred(cx, 0)?);
    Ok(vec![cx.binary(B::Mul, a, b)?])
}

/// `condition`, then tensor, scale and zero point of both choices, then those of the result.
fn select(cx: Cx) -> Nodes {
    let condition = cx.x(0)?;
    let (a, b) = (floats(cx, 1)?, floats(cx, 4)?);
    let y = cx.select(condition, a, b)?;
    Ok(vec![requantize(cx, y, 7, Some(8))?])
}

/// `y_scale, y_zero_point`, then tensor, scale and zero point of each part.
fn concat(cx: Cx) -> Nodes {
    let count = cx.operands().saturating_sub(2).div_ceil(3);
    if count == 0 {
        return Err(cx.malformed("no operands"));
    }
    let axis = cx.attrs.required("axis", cx.attrs.int_opt("axis")?)?;
    let axis = cx.shape(2)?.axis(axis)?;
    let parts = (0..count).map(|i| floats(cx, 2 + 3 * i)).collect::<Result<Vec<_>, _>>()?;
    let y = if count == 1 { parts[0] } else { cx.add(Op::Concat { axis }, &parts)? };
    Ok(vec![requantize(cx, y, 0, Some(1))?])
}

/// An exact matmul times the scales of both operands; B may have one scale per column.
fn scaled_matmul(cx: Cx, a: Quantized, b: Quantized, scales: [NodeId; 2]) -> Result<NodeId, Error> {
    let matmul = integer_matmul(cx, a, b)?;
    let rank = cx.shape_of(matmul).rank();
    let scale_a = along(cx, scales[0], rank, rank.saturating_sub(2))?;
    let scale_b = along(cx, scales[1], rank, rank.saturating_sub(1))?;
    let y = cx.cast(matmul, DType::F32)?;
    let scale = cx.binary(B::Mul, scale_a, scale_b)?;
    cx.binary(B::Mul, y, scale)
}

fn with_bias(cx: Cx, y: NodeId, at: usize) -> Nodes {
    Ok(vec![match cx.x_opt(at)? {
        Some(bias) => cx.binary(B::Add, y, bias)?,
        None => y,
    }])
}

/// `A, B, a_scale, b_scale, a_zero_point, b_zero_point, bias`
fn matmul_integer_to_float(cx: Cx) -> Nodes {
    let (a, b) = (Quantized::operand(cx, 0, 4)?, Quantized::operand(cx, 1, 5)?);
    let scales = [cx.x(2)?, cx.x(3)?];
    let y = scaled_matmul(cx, a, b, scales)?;
    with_bias(cx, y, 6)
}

/// `A, B, b_scale, b_zero_point, bias`; A are floats, quantised by their range.
fn dynamic_quantize_matmul(cx: Cx) -> Nodes {
    let x = cx.x(0)?;
    let (a, scale_a) = quantize_by_range(cx, x)?;
    let b = Quantized::operand(cx, 1, 3)?;
    let scale_b = cx.x(2)?;
    let y = scaled_matmul(cx, a, b, [scale_a, scale_b])?;
    with_bias(cx, y, 4)
}

/// `α·(A′·B′ + C)` in integers, C in units of `a_scale · b_scale`; to floats where no result's scale is given.
fn gemm(cx: Cx) -> Nodes {
    let (mut a, mut b) = (Quantized::operand(cx, 0, 2)?, Quantized::operand(cx, 3, 5)?);
    if cx.attrs.flag("transA", false)? {
        a.x = cx.transpose(a.x, &[1, 0])?;
    }
    if cx.attrs.flag("transB", false)? {
        b.x = cx.transpose(b.x, &[1, 0])?;
    }
    let mut y = integer_matmul(cx, a, b)?;
    if let Some(c) = cx.x_opt(6)? {
        y = cx.binary(B::Add, y, c)?;
    }
    let rank = cx.shape_of(y).rank();
    let scales = (quant::scale(cx, 1, rank, 0)?, quant::scale(cx, 4, rank, 1)?);
    let scale = cx.binary(B::Mul, scales.0, scales.1)?;
    let alpha = cx.attrs.float("alpha", 1.0)?;
    let scale = if alpha == 1.0 { scale } else { cx.with_scalar(B::Mul, scale, f64::from(alpha))? };
    let y = cx.cast(y, DType::F32)?;
    let y = cx.binary(B::Mul, y, scale)?;
    Ok(vec![if cx.has(7) { requantize(cx, y, 7, Some(8))? } else { y }])
}
