//! Standard ops fused by ONNX Runtime's optimiser, decomposed again.

use crate::import::NodeCx;
use crate::ops::conv_pool::Window;
use crate::ops::{Entry, microsoft};
use rlx_ir::op::{Activation as A, BinaryOp as B, CmpOp, DataFormat, PoolKind};
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(in crate::ops) const OPS: &[Entry] = &[
    microsoft("BiasAdd", bias_add),
    microsoft("BiasDropout", bias_dropout),
    microsoft("BiasGelu", bias_gelu),
    microsoft("BiasSoftmax", bias_softmax),
    microsoft("BiasSplitGelu", bias_split_gelu),
    microsoft("FastGelu", fast_gelu),
    microsoft("FusedConv", fused_conv),
    microsoft("FusedGemm", fused_gemm),
    microsoft("FusedMatMul", fused_matmul),
    microsoft("FusedMatMulActivation", fused_matmul_activation),
    microsoft("Gelu", gelu),
    microsoft("GemmFastGelu", gemm_fast_gelu),
    microsoft("NhwcConv", nhwc_conv),
    microsoft("NhwcFusedConv", nhwc_conv),
    microsoft("NhwcMaxPool", nhwc_max_pool),
    microsoft("QuickGelu", quick_gelu),
    microsoft("TransposeMatMul", fused_matmul),
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

/// A product, a bias, then GELU by the hyperbolic tangent.
fn gemm_fast_gelu(cx: Cx) -> Nodes {
    let (x, w) = (cx.x(0)?, cx.x(1)?);
    let mut y = cx.add(Op::MatMul, &[x, w])?;
    if let Some(bias) = cx.x_opt(2)? {
        y = cx.binary(B::Add, y, bias)?;
    }
    Ok(vec![cx.activation(A::GeluApprox, y)?])
}

/// The left half of the sum times GELU of its right half.
fn bias_split_gelu(cx: Cx) -> Nodes {
    let x = with_bias(cx)?;
    let shape = cx.shape_of(x);
    let Some(&width) = shape.dims().last() else {
        return Err(cx.malformed(format!("{shape} has no halves")));
    };
    let (axis, half) = (shape.rank() - 1, width.extent().floor_div(2));
    let left = cx.slice_axis(x, axis, Extent::Const(0), half)?;
    let right = cx.slice_axis(x, axis, half, half)?;
    let gate = cx.activation(A::Gelu, right)?;
    Ok(vec![cx.binary(B::Mul, left, gate)?])
}

/// Operands 0, 1 and 2.
fn bias_add(cx: Cx) -> Nodes {
    let (sum, skip) = (with_bias(cx)?, cx.x(2)?);
    Ok(vec![cx.binary(B::Add, sum, skip)?])
}

/// Nothing is dropped outside of training; the mask says so.
fn bias_dropout(cx: Cx) -> Nodes {
    if cx.has(4) && cx.floats(4)?.iter().any(|&f| f != 0.0) {
        return Err(cx.unsupported("training mode"));
    }
    let mut y = with_bias(cx)?;
    if let Some(residual) = cx.x_opt(2)? {
        y = cx.binary(B::Add, y, residual)?;
    }
    if !cx.wants(1) {
        return Ok(vec![y]);
    }
    let kept = cx.scalar(DType::Bool, 1.0);
    let mask = cx.expand(kept, cx.shape(0)?.dims().to_vec())?;
    Ok(vec![y, mask])
}

/// Softmax of a sum over the dimensions from `axis` on. The bias lacks dimensions of the scores: those from its own
/// first one on up to `axis` if the broadcast is an inner one, else the first ones.
fn bias_softmax(cx: Cx) -> Nodes {
    let (shape, axis) = (cx.shape(0)?, cx.axis("axis", 1, 0)?);
    if axis + 1 != shape.rank() {
        return Err(cx.unsupported(format!("a softmax over dimensions {axis} to {} at once", shape.rank())));
    }
    let sum = with_bias(cx)?;
    if cx.shape_of(sum).dims() != shape.dims() {
        return Err(cx.malformed(format!("a bias {} for {shape}", cx.shape(1)?)));
    }
    Ok(vec![cx.add(Op::Softmax { axis: axis as i32 }, &[sum])?])
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

/// The first dimension moved behind all others but the last, where the attribute asks for it: `[i, …, k]` as `[…, i, k]`.
fn batch_moved(cx: Cx, x: NodeId, attribute: &str) -> Result<NodeId, Error> {
    let rank = cx.shape_of(x).rank();
    if !cx.attrs.flag(attribute, false)? || rank < 3 {
        return Ok(x);
    }
    let mut perm: Vec<usize> = (1..rank - 1).collect();
    perm.extend([0, rank - 1]);
    cx.transpose(x, &perm)
}

/// `α · A′ · B′`
fn fused_matmul(cx: Cx) -> Nodes {
    let (a, b) = (cx.x(0)?, cx.x(1)?);
    let (a, b) = (batch_moved(cx, a, "transBatchA")?, batch_moved(cx, b, "transBatchB")?);
    let (a, b) = (transposed(cx, a, "transA")?, transposed(cx, b, "transB")?);
    let y = cx.add(Op::MatMul, &[a, b])?;
    let alpha = cx.attrs.float("alpha", 1.0)?;
    Ok(vec![if alpha == 1.0 { y } else { cx.with_scalar(B::Mul, y, f64::from(alpha))? }])
}

fn fused_matmul_activation(cx: Cx) -> Nodes {
    let y = fused_matmul(cx)?[0];
    let (alpha, beta) = (cx.attrs.float_opt("activation_alpha")?, cx.attrs.float_opt("activation_beta")?);
    Ok(vec![activated(cx, y, alpha, beta)?])
}

/// The activation that an op's attributes name; none by default.
fn activated(cx: Cx, y: NodeId, alpha: Option<f32>, beta: Option<f32>) -> Result<NodeId, Error> {
    let first = |default: f32| f64::from(alpha.unwrap_or(default));
    let second = |default: f32| f64::from(beta.unwrap_or(default));
    match cx.attrs.text("activation", "")? {
        "" => Ok(y),
        "Relu" => cx.activation(A::Relu, y),
        "Tanh" => cx.activation(A::Tanh, y),
        "Sigmoid" => cx.activation(A::Sigmoid, y),
        "LeakyRelu" => {
            let negative = cx.with_scalar(B::Mul, y, first(0.01))?;
            let zero = cx.scalar(cx.shape_of(y).dtype(), 0.0);
            let below = cx.compare(CmpOp::Lt, y, zero)?;
            cx.select(below, negative, y)
        }
        "Clip" => {
            let y = cx.with_scalar(B::Max, y, first(f32::MIN))?;
            cx.with_scalar(B::Min, y, second(f32::MAX))
        }
        "HardSigmoid" => {
            let y = cx.with_scalar(B::Mul, y, first(0.2))?;
            let y = cx.with_scalar(B::Add, y, second(0.5))?;
            let y = cx.with_scalar(B::Max, y, 0.0)?;
            cx.with_scalar(B::Min, y, 1.0)
        }
        other => Err(cx.bad_attr("activation", other)),
    }
}

fn fused_gemm(cx: Cx) -> Nodes {
    let y = crate::ops::linear::gemm(cx)?[0];
    let (alpha, beta) = (cx.attrs.float_opt("activation_alpha")?, cx.attrs.float_opt("activation_beta")?);
    Ok(vec![activated(cx, y, alpha, beta)?])
}

/// A convolution of `x` with its channels first, a residual `z`, then the activation.
fn conv_with(cx: Cx, x: NodeId, z: Option<NodeId>, spatial: &[Dim]) -> Result<NodeId, Error> {
    let weights = cx.shape(1)?;
    let window = Window::over(cx, Some(weights.dims().get(2..).unwrap_or_default()), spatial)?;
    let groups = usize::try_from(cx.attrs.int("group", 1)?).map_err(|_| cx.malformed("group < 0"))?;
    let mut operands = vec![x, cx.x(1)?];
    operands.extend(cx.x_opt(2)?);
    let mut y = cx.conv(&window, groups, &operands)?;
    if let Some(z) = z {
        y = cx.binary(B::Add, y, z)?;
    }
    let given = cx.attrs.floats("activation_params")?.unwrap_or_default();
    activated(cx, y, given.first().copied(), given.get(1).copied())
}

fn fused_conv(cx: Cx) -> Nodes {
    let (x, z, shape) = (cx.x(0)?, cx.x_opt(3)?, cx.shape(0)?);
    Ok(vec![conv_with(cx, x, z, shape.dims().get(2..).unwrap_or_default())?])
}

/// Channels last as channels first.
pub(super) fn channels_first(cx: Cx, x: NodeId) -> Result<NodeId, Error> {
    let rank = cx.shape_of(x).rank();
    if rank < 3 {
        return Err(cx.malformed(format!("{} has no spatial dimensions", cx.shape_of(x))));
    }
    let perm: Vec<usize> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
    cx.transpose(x, &perm)
}

/// The inverse of [`channels_first`].
pub(super) fn channels_last(cx: Cx, x: NodeId) -> Result<NodeId, Error> {
    let rank = cx.shape_of(x).rank();
    let perm: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
    cx.transpose(x, &perm)
}

/// As a convolution, its input, residual and result with their channels last; the weights are as ever.
fn nhwc_conv(cx: Cx) -> Nodes {
    let x = cx.x(0)?;
    let x = channels_first(cx, x)?;
    let z = match cx.x_opt(3)? {
        Some(z) => Some(channels_first(cx, z)?),
        None => None,
    };
    let spatial = cx.shape_of(x).dims()[2..].to_vec();
    let y = conv_with(cx, x, z, &spatial)?;
    Ok(vec![channels_last(cx, y)?])
}

fn nhwc_max_pool(cx: Cx) -> Nodes {
    let x = cx.x(0)?;
    let x = channels_first(cx, x)?;
    let spatial = cx.shape_of(x).dims()[2..].to_vec();
    let w = Window::over(cx, None, &spatial)?;
    let op = Op::Pool {
        kind: PoolKind::Max,
        kernel: w.kernel,
        strides: w.strides,
        pads: w.pads,
        dilations: w.dilations,
        ceil_mode: cx.attrs.flag("ceil_mode", false)?,
        count_include_pad: false,
        format: DataFormat::ChannelsFirst,
    };
    let y = cx.add(op, &[x])?;
    Ok(vec![channels_last(cx, y)?])
}
