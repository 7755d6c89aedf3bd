//! Normalisations and softmax.

use super::{Entry, nodes};
use crate::import::NodeCx;
use rlx_ir::op::{Activation as A, ArgOp, BinaryOp as B, CmpOp, ReduceOp};
use rlx_ir::sort::sort;
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op, Shape, Value};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(super) const OPS: &[Entry] = &[
    nodes("BatchNormalization", batch_norm),
    nodes("GroupNormalization", group_norm),
    nodes("Hardmax", hardmax),
    nodes("InstanceNormalization", instance_norm),
    nodes("LRN", local_response_norm),
    nodes("LayerNormalization", layer_norm),
    nodes("LogSoftmax", log_softmax),
    nodes("LpNormalization", lp_norm),
    nodes("MeanVarianceNormalization", mean_variance_norm),
    nodes("RMSNormalization", rms_norm),
    nodes("SimplifiedLayerNormalization", rms_norm),
    nodes("Softmax", softmax),
];

/// Before opset 13 the dimensions from `axis` on are taken together; from then on `axis` is one dimension.
fn along_axis(cx: Cx, f: impl Fn(&mut NodeCx<'_, '_>, NodeId, usize) -> Result<NodeId, Error>) -> Nodes {
    let shape = cx.shape(0)?;
    let x = cx.x(0)?;
    if cx.opset >= 13 {
        let axis = cx.axis("axis", -1, 0)?;
        return Ok(vec![f(cx, x, axis)?]);
    }
    let axis = cx.attrs.int("axis", 1)?;
    let axis = if axis == shape.rank() as i64 { shape.rank() } else { shape.axis(axis)? };
    if axis + 1 == shape.rank() {
        return Ok(vec![f(cx, x, axis)?]);
    }
    let product = |dims: &[Dim]| Dim::from(dims.iter().fold(Extent::Const(1), |n, d| n * d.extent()));
    let flat = cx.reshape(x, vec![product(&shape.dims()[..axis]), product(&shape.dims()[axis..])])?;
    let y = f(cx, flat, 1)?;
    Ok(vec![cx.reshape(y, shape.dims().to_vec())?])
}

fn softmax(cx: Cx) -> Nodes {
    along_axis(cx, |cx, x, axis| cx.add(Op::Softmax { axis: axis as i32 }, &[x]))
}

fn log_softmax(cx: Cx) -> Nodes {
    along_axis(cx, |cx, x, axis| cx.add(Op::LogSoftmax { axis: axis as i32 }, &[x]))
}

/// 1 at the first largest element, else 0.
fn hardmax(cx: Cx) -> Nodes {
    along_axis(cx, |cx, x, axis| {
        let shape = cx.shape_of(x);
        let op = Op::ArgReduce { op: ArgOp::Max, axis, keep_dim: false, last: false };
        let place = cx.add(op, &[x])?;
        let off_on = cx.constant(Value::float(DType::F32, &[2], vec![0.0, 1.0]));
        let off_on = cx.cast(off_on, shape.dtype())?;
        cx.add(Op::OneHot { depth: shape.dim(axis), axis }, &[place, off_on])
    })
}

fn epsilon(cx: &NodeCx<'_, '_>) -> Result<f32, Error> {
    cx.attrs.float("epsilon", 1e-5)
}

/// The type that statistics are computed in.
fn stash_type(cx: &NodeCx<'_, '_>) -> Result<DType, Error> {
    crate::tensor::dtype(i32::try_from(cx.attrs.int("stash_type", 1)?).unwrap_or(0))
}

/// `x − mean(x)` over the axes, and the mean of its square.
fn centred(cx: Cx, x: NodeId, axes: &[usize]) -> Result<(NodeId, NodeId, NodeId), Error> {
    let mean = cx.reduce(x, ReduceOp::Mean, axes, true)?;
    let difference = cx.binary(B::Sub, x, mean)?;
    let square = cx.binary(B::Mul, difference, difference)?;
    Ok((mean, difference, cx.reduce(square, ReduceOp::Mean, axes, true)?))
}

/// `1 / √(variance + ε)`
fn inverse_deviation(cx: Cx, variance: NodeId, eps: f32) -> Result<NodeId, Error> {
    let raised = cx.with_scalar(B::Add, variance, f64::from(eps))?;
    cx.activation(A::Rsqrt, raised)
}

/// Scale and bias may be of any shape that broadcasts; the composite takes those of the normalised dimensions. With
/// the outputs for mean or deviation the parts are needed, so it is taken apart.
fn layer_norm(cx: Cx) -> Nodes {
    let (shape, axis, eps) = (cx.shape(0)?, cx.axis("axis", -1, 0)?, epsilon(cx)?);
    let stash = stash_type(cx)?;
    let normalised = &shape.dims()[axis..];
    let fits = |s: &Shape| s.dims() == normalised && s.dtype() == shape.dtype();
    let plain = fits(&cx.shape(1)?) && (!cx.has(2) || fits(&cx.shape(2)?));
    let (x, gamma) = (cx.x(0)?, cx.x(1)?);
    let beta = cx.x_opt(2)?;
    if plain && !cx.wants(1) && !cx.wants(2) {
        let operands: Vec<NodeId> = [x, gamma].into_iter().chain(beta).collect();
        return Ok(vec![cx.add(Op::LayerNorm { axis: axis as i32, eps }, &operands)?]);
    }
    let axes: Vec<usize> = (axis..shape.rank()).collect();
    let wide = cx.cast(x, stash)?;
    let (mean, difference, variance) = centred(cx, wide, &axes)?;
    let inverse = inverse_deviation(cx, variance, eps)?;
    let y = cx.binary(B::Mul, difference, inverse)?;
    let y = cx.cast(y, shape.dtype())?;
    let mut y = cx.binary(B::Mul, y, gamma)?;
    if let Some(beta) = beta {
        y = cx.binary(B::Add, y, beta)?;
    }
    Ok(vec![y, mean, inverse])
}

/// `SimplifiedLayerNormalization` is ONNX Runtime's name for it, in the default domain, from before the format had it.
fn rms_norm(cx: Cx) -> Nodes {
    let (shape, axis, eps) = (cx.shape(0)?, cx.axis("axis", -1, 0)?, epsilon(cx)?);
    let (x, gamma) = (cx.x(0)?, cx.x(1)?);
    let scale = cx.shape(1)?;
    if scale.dims() == &shape.dims()[axis..] && scale.dtype() == shape.dtype() {
        return Ok(vec![cx.add(Op::RmsNorm { axis: axis as i32, eps }, &[x, gamma])?]);
    }
    let axes: Vec<usize> = (axis..shape.rank()).collect();
    let stash = stash_type(cx)?;
    let wide = cx.cast(x, stash)?;
    let square = cx.binary(B::Mul, wide, wide)?;
    let mean = cx.reduce(square, ReduceOp::Mean, &axes, true)?;
    let inverse = inverse_deviation(cx, mean, eps)?;
    let y = cx.binary(B::Mul, wide, inverse)?;
    let y = cx.cast(y, scale.dtype())?;
    Ok(vec![cx.binary(B::Mul, y, gamma)?])
}

/// A vector of one number per channel, shaped to broadcast against `[N, C, …]`.
fn per_channel(cx: Cx, v: NodeId, rank: usize) -> Result<NodeId, Error> {
    let channels = cx.shape_of(v).dims().first().copied().unwrap_or(Dim::Static(1));
    let mut to = vec![Dim::Static(1); rank];
    to[1] = channels;
    cx.reshape(v, to)
}

/// In training mode the batch's own statistics are used, and the running ones are updated.
fn batch_norm(cx: Cx) -> Nodes {
    let (shape, eps) = (cx.shape(0)?, epsilon(cx)?);
    if cx.opset < 9 && !cx.attrs.flag("spatial", true)? {
        return Err(cx.bad_attr("spatial", 0));
    }
    let mut operands = cx.all()?;
    if operands.len() != 5 || shape.rank() < 2 {
        return Err(cx.malformed(format!("{} operands for {shape}", operands.len())));
    }
    if cx.attrs.flag("training_mode", false)? || (cx.opset < 7 && !cx.attrs.flag("is_test", false)?) {
        return batch_norm_training(cx, &operands, eps);
    }
    for operand in &mut operands[1..] {
        *operand = cx.cast(*operand, shape.dtype())?;
    }
    Ok(vec![cx.add(Op::BatchNorm { eps }, &operands)?])
}

fn batch_norm_training(cx: Cx, operands: &[NodeId], eps: f32) -> Nodes {
    let rank = cx.rank(0)?;
    let axes: Vec<usize> = (0..rank).filter(|&a| a != 1).collect();
    let (mean, difference, variance) = centred(cx, operands[0], &axes)?;
    let inverse = inverse_deviation(cx, variance, eps)?;
    let y = cx.binary(B::Mul, difference, inverse)?;
    let (gamma, beta) = (per_channel(cx, operands[1], rank)?, per_channel(cx, operands[2], rank)?);
    let y = cx.binary(B::Mul, y, gamma)?;
    let mut outputs = vec![cx.binary(B::Add, y, beta)?];
    let momentum = f64::from(cx.attrs.float("momentum", 0.9)?);
    for (running, now) in [(operands[3], mean), (operands[4], variance)] {
        let dims = cx.shape_of(running).dims().to_vec();
        let now = cx.reshape(now, dims)?;
        let kept = cx.with_scalar(B::Mul, running, momentum)?;
        let new = cx.with_scalar(B::Mul, now, 1.0 - momentum)?;
        outputs.push(cx.binary(B::Add, kept, new)?);
    }
    Ok(outputs)
}

/// A group for each channel.
fn instance_norm(cx: Cx) -> Nodes {
    let (shape, eps) = (cx.shape(0)?, epsilon(cx)?);
    let operands = cx.all()?;
    let groups = shape.dims().get(1).and_then(|d| d.as_static());
    let groups = groups.ok_or_else(|| cx.open_dimension(format!("the channels of {shape}")))?;
    Ok(vec![cx.add(Op::GroupNorm { groups, eps }, &operands)?])
}

/// Scale and bias are per channel from opset 21 on, per group before.
fn group_norm(cx: Cx) -> Nodes {
    let (shape, eps) = (cx.shape(0)?, epsilon(cx)?);
    let groups = cx.attrs.int_opt("num_groups")?;
    let groups = cx.attrs.required("num_groups", groups)?;
    let channels = shape.dims().get(1).and_then(|d| d.as_static());
    let channels = channels.ok_or_else(|| cx.open_dimension(format!("the channels of {shape}")))?;
    let groups = usize::try_from(groups).ok().filter(|&g| g > 0 && channels % g == 0);
    let groups =
        groups.ok_or_else(|| cx.malformed(format!("groups that do not divide {channels} channels")))?;
    let mut operands = cx.all()?;
    if cx.opset < 21 {
        for v in operands.iter_mut().skip(1) {
            let apart = cx.reshape(*v, vec![Dim::Static(groups), Dim::Static(1)])?;
            let wide = cx.expand(apart, vec![Dim::Static(groups), Dim::Static(channels / groups)])?;
            *v = cx.reshape(wide, vec![Dim::Static(channels)])?;
        }
    }
    Ok(vec![cx.add(Op::GroupNorm { groups, eps }, &operands)?])
}

/// `x / ‖x‖ₚ` along an axis.
fn lp_norm(cx: Cx) -> Nodes {
    let (axis, p) = (cx.axis("axis", -1, 0)?, cx.attrs.int("p", 2)?);
    let x = cx.x(0)?;
    let norm = match p {
        1 => {
            let x = cx.activation(A::Abs, x)?;
            cx.reduce(x, ReduceOp::Sum, &[axis], true)?
        }
        2 => {
            let square = cx.binary(B::Mul, x, x)?;
            let total = cx.reduce(square, ReduceOp::Sum, &[axis], true)?;
            cx.activation(A::Sqrt, total)?
        }
        other => return Err(cx.malformed(format!("p = {other}"))),
    };
    // What has no length stays zero.
    let (zero, one) = (cx.scalar(cx.dtype(0)?, 0.0), cx.scalar(cx.dtype(0)?, 1.0));
    let empty = cx.compare(CmpOp::Eq, norm, zero)?;
    let norm = cx.select(empty, one, norm)?;
    Ok(vec![cx.binary(B::Div, x, norm)?])
}

/// `(x − E[x]) / (√(E[x²] − E[x]²) + 1e-9)`
fn mean_variance_norm(cx: Cx) -> Nodes {
    let rank = cx.rank(0)?;
    let axes = cx.attrs.ints("axes")?.unwrap_or(&[0, 2, 3]);
    let mut axes = super::movement::axes_of(cx, axes, rank)?;
    sort(&mut axes);
    let x = cx.x(0)?;
    let (_, difference, variance) = centred(cx, x, &axes)?;
    let deviation = cx.activation(A::Sqrt, variance)?;
    let deviation = cx.with_scalar(B::Add, deviation, 1e-9)?;
    Ok(vec![cx.binary(B::Div, difference, deviation)?])
}

/// `x / (bias + α/size · Σ x²)^β`, the sum over `size` neighbouring channels.
fn local_response_norm(cx: Cx) -> Nodes {
    let size = cx.attrs.int_opt("size")?;
    let size = cx.attrs.required("size", size)?;
    if !(1..=1024).contains(&size) {
        return Err(cx.unsupported(format!("size = {size}")));
    }
    let (alpha, beta) = (f64::from(cx.attrs.float("alpha", 1e-4)?), f64::from(cx.attrs.float("beta", 0.75)?));
    let bias = f64::from(cx.attrs.float("bias", 1.0)?);
    let (x, shape) = (cx.x(0)?, cx.shape(0)?);
    if shape.rank() < 2 {
        return Err(cx.malformed(format!("{shape} has no channels")));
    }
    let square = cx.binary(B::Mul, x, x)?;
    let zero = || vec![Extent::Const(0); shape.rank()];
    let (mut before, mut after) = (zero(), zero());
    (before[1], after[1]) = (Extent::Const((size - 1) / 2), Extent::Const(size / 2));
    let padded = cx.pad(&[square], before, after, rlx_ir::op::PadMode::Constant)?;
    let channels = shape.dim(1).extent();
    let mut total = cx.slice_axis(padded, 1, Extent::Const(0), channels)?;
    for start in 1..size {
        let part = cx.slice_axis(padded, 1, Extent::Const(start), channels)?;
        total = cx.binary(B::Add, total, part)?;
    }
    let scaled = cx.with_scalar(B::Mul, total, alpha / size as f64)?;
    let raised = cx.with_scalar(B::Add, scaled, bias)?;
    // The usual power is a product of roots, which cost less.
    let divisor = if beta == 0.75 {
        let root = cx.activation(A::Sqrt, raised)?;
        let fourth = cx.activation(A::Sqrt, root)?;
        cx.binary(B::Mul, root, fourth)?
    } else {
        cx.with_scalar(B::Pow, raised, beta)?
    };
    Ok(vec![cx.binary(B::Div, x, divisor)?])
}
