//! Standard ops fused by ONNX Runtime's optimiser, decomposed again.

use crate::import::NodeCx;
use crate::ops::conv_pool::Window;
use crate::ops::{Entry, microsoft};
use rlx_ir::op::{Activation as A, BinaryOp as B, CmpOp};
use rlx_ir::{Error, NodeId, Op};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(in crate::ops) const OPS: &[Entry] = &[
    microsoft("BiasGelu", bias_gelu),
    microsoft("FastGelu", fast_gelu),
    microsoft("FusedConv", fused_conv),
    microsoft("FusedGemm", fused_gemm),
    microsoft("FusedMatMul", fused_matmul),
    microsoft("Gelu", gelu),
    microsoft("QuickGelu", quick_gelu),
    microsoft("SkipLayerNormalization", skip_layer_norm),
    microsoft("SkipSimplifiedLayerNormalization", skip_rms_norm),
];

/// Operand 0 plus operand 1, where that is given.
fn with_bias(cx: Cx) -> Result<NodeId, Error> {
    let x = cx.x(0)?;
    match cx.x_opt(1)? {
        Some(bias) => cx.binary(B::Add, x, bias),
        None => Ok(x),
    }
}

fn gelu(cx: Cx) -> Nodes {
    let x = cx.x(0)?;
    Ok(vec![cx.activation(A::Gelu, x)?])
}

fn bias_gelu(cx: Cx) -> Nodes {
    let x = with_bias(cx)?;
    Ok(vec![cx.activation(A::Gelu, x)?])
}

/// GELU by the hyperbolic tangent.
fn fast_gelu(cx: Cx) -> Nodes {
    let x = with_bias(cx)?;
    Ok(vec![cx.activation(A::GeluApprox, x)?])
}

/// `x · sigmoid(α·x)`
fn quick_gelu(cx: Cx) -> Nodes {
    let (x, alpha) = (cx.x(0)?, f64::from(cx.attrs.float("alpha", 1.702)?));
    let gate = cx.with_scalar(B::Mul, x, alpha)?;
    let gate = cx.activation(A::Sigmoid, gate)?;
    Ok(vec![cx.binary(B::Mul, x, gate)?])
}

/// The last two dimensions of a matrix or batch of matrices exchanged where the attribute asks for it.
fn transposed(cx: Cx, x: NodeId, attribute: &str) -> Result<NodeId, Error> {
    let rank = cx.shape_of(x).rank();
    if !cx.attrs.flag(attribute, false)? || rank < 2 {
        return Ok(x);
    }
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.swap(rank - 2, rank - 1);
    cx.transpose(x, &perm)
}

/// `α · A′ · B′`
fn fused_matmul(cx: Cx) -> Nodes {
    for name in ["transBatchA", "transBatchB"] {
        if cx.attrs.flag(name, false)? {
            return Err(cx.bad_attr(name, 1));
        }
    }
    let (a, b) = (cx.x(0)?, cx.x(1)?);
    let (a, b) = (transposed(cx, a, "transA")?, transposed(cx, b, "transB")?);
    let y = cx.add(Op::MatMul, &[a, b])?;
    let alpha = cx.attrs.float("alpha", 1.0)?;
    Ok(vec![if alpha == 1.0 { y } else { cx.with_scalar(B::Mul, y, f64::from(alpha))? }])
}

/// The activation that an op's attributes name; none by default.
fn activated(cx: Cx, y: NodeId, alpha: f32) -> Result<NodeId, Error> {
    match cx.attrs.text("activation", "")? {
        "" => Ok(y),
        "Relu" => cx.activation(A::Relu, y),
        "Tanh" => cx.activation(A::Tanh, y),
        "Sigmoid" => cx.activation(A::Sigmoid, y),
        "LeakyRelu" => {
            let negative = cx.with_scalar(B::Mul, y, f64::from(alpha))?;
            let zero = cx.scalar(cx.shape_of(y).dtype(), 0.0);
            let below = cx.compare(CmpOp::Lt, y, zero)?;
            cx.select(below, negative, y)
        }
        other => Err(cx.bad_attr("activation", other)),
    }
}

fn fused_gemm(cx: Cx) -> Nodes {
    let y = crate::ops::linear::gemm(cx)?[0];
    let alpha = cx.attrs.float("activation_alpha", 0.01)?;
    Ok(vec![activated(cx, y, alpha)?])
}

/// A convolution, a residual `Z`, then the activation.
fn fused_conv(cx: Cx) -> Nodes {
    let weights = cx.shape(1)?;
    let window = Window::read(cx, Some(weights.dims().get(2..).unwrap_or_default()))?;
    let groups = usize::try_from(cx.attrs.int("group", 1)?).map_err(|_| cx.malformed("group < 0"))?;
    let mut operands = vec![cx.x(0)?, cx.x(1)?];
    operands.extend(cx.x_opt(2)?);
    let mut y = cx.conv(&window, groups, &operands)?;
    if let Some(residual) = cx.x_opt(3)? {
        y = cx.binary(B::Add, y, residual)?;
    }
    let alpha = cx.attrs.floats("activation_params")?.and_then(|p| p.first().copied()).unwrap_or(0.01);
    Ok(vec![activated(cx, y, alpha)?])
}

/// The sum that a norm with a residual is of: operands 0 and 1, and a bias.
fn skip_sum(cx: Cx, bias: usize) -> Result<NodeId, Error> {
    let (x, skip) = (cx.x(0)?, cx.x(1)?);
    let sum = cx.binary(B::Add, x, skip)?;
    match cx.x_opt(bias)? {
        Some(bias) => cx.binary(B::Add, sum, bias),
        None => Ok(sum),
    }
}

/// Mean and deviation, outputs 1 and 2, are for training and not supported; output 3 is the sum.
fn skip_outputs(cx: Cx, y: NodeId, sum: NodeId) -> Nodes {
    if cx.wants(1) || cx.wants(2) {
        return Err(cx.unsupported("the outputs mean and inv_std_var, which are for training"));
    }
    Ok(vec![y, sum, sum, sum])
}

fn skip_layer_norm(cx: Cx) -> Nodes {
    let sum = skip_sum(cx, 4)?;
    let eps = cx.attrs.float("epsilon", 1e-12)?;
    let mut operands = vec![sum, cx.x(2)?];
    operands.extend(cx.x_opt(3)?);
    let y = cx.add(Op::LayerNorm { axis: -1, eps }, &operands)?;
    skip_outputs(cx, y, sum)
}

fn skip_rms_norm(cx: Cx) -> Nodes {
    let sum = skip_sum(cx, 3)?;
    let eps = cx.attrs.float("epsilon", 1e-6)?;
    let gamma = cx.x(2)?;
    let y = cx.add(Op::RmsNorm { axis: -1, eps }, &[sum, gamma])?;
    skip_outputs(cx, y, sum)
}
