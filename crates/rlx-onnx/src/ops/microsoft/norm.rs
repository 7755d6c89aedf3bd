//! Norms with what comes before or after them: embeddings, residuals, an activation, channels last.

use super::fused::{channels_first, channels_last};
use crate::import::NodeCx;
use crate::ops::quant::Quantized;
use crate::ops::{Entry, microsoft};
use rlx_ir::op::{Activation as A, BinaryOp as B, CmpOp, ReduceOp};
use rlx_ir::{DType, Dim, Error, NodeId, Op};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(in crate::ops) const OPS: &[Entry] = &[
    microsoft("EmbedLayerNormalization", embed_layer_norm),
    microsoft("GroupNorm", group_norm),
    microsoft("QEmbedLayerNormalization", quantized_embed_layer_norm),
    microsoft("SkipGroupNorm", skip_group_norm),
    microsoft("SkipLayerNormalization", skip_layer_norm),
    microsoft("SkipSimplifiedLayerNormalization", skip_rms_norm),
];

/// The sum that a norm with a residual is of: operands 0 and 1, and a bias.
fn skip_sum(cx: Cx, bias: usize) -> Result<NodeId, Error> {
    let (x, skip) = (cx.x(0)?, cx.x(1)?);
    let sum = cx.binary(B::Add, x, skip)?;
    match cx.x_opt(bias)? {
        Some(bias) => cx.binary(B::Add, sum, bias),
        None => Ok(sum),
    }
}

/// The mean over the last dimension of `x`, or of its square, and one over the deviation: for training, in f32.
fn statistics(cx: Cx, x: NodeId, eps: f32, centred: bool) -> Result<[NodeId; 2], Error> {
    let x = cx.cast(x, DType::F32)?;
    let axis = [cx.shape_of(x).rank().saturating_sub(1)];
    let mean = cx.reduce(x, ReduceOp::Mean, &axis, true)?;
    let difference = if centred { cx.binary(B::Sub, x, mean)? } else { x };
    let square = cx.binary(B::Mul, difference, difference)?;
    let variance = cx.reduce(square, ReduceOp::Mean, &axis, true)?;
    let raised = cx.with_scalar(B::Add, variance, f64::from(eps))?;
    Ok([mean, cx.activation(A::Rsqrt, raised)?])
}

/// The norm, mean and deviation of what it is of if they are wanted, and the sum.
fn skip_outputs(cx: Cx, y: NodeId, sum: NodeId, eps: f32, centred: bool) -> Nodes {
    let [mean, inverse] =
        if cx.wants(1) || cx.wants(2) { statistics(cx, sum, eps, centred)? } else { [sum; 2] };
    Ok(vec![y, mean, inverse, sum])
}

fn skip_layer_norm(cx: Cx) -> Nodes {
    let sum = skip_sum(cx, 4)?;
    let eps = cx.attrs.float("epsilon", 1e-12)?;
    let mut operands = vec![sum, cx.x(2)?];
    operands.extend(cx.x_opt(3)?);
    let y = cx.add(Op::LayerNorm { axis: -1, eps }, &operands)?;
    skip_outputs(cx, y, sum, eps, true)
}

fn skip_rms_norm(cx: Cx) -> Nodes {
    let sum = skip_sum(cx, 3)?;
    let eps = cx.attrs.float("epsilon", 1e-6)?;
    let gamma = cx.x(2)?;
    let y = cx.add(Op::RmsNorm { axis: -1, eps }, &[sum, gamma])?;
    skip_outputs(cx, y, sum, eps, false)
}

/// The tables of words, positions and segments, and the norm's two operands.
struct Embedding {
    tables: [Option<NodeId>; 3],
    gamma: NodeId,
    beta: NodeId,
    mask: usize,
    positions: usize,
}

/// `input_ids, segment_ids, word, position and segment embedding, gamma, beta, mask, position_ids`
fn embed_layer_norm(cx: Cx) -> Nodes {
    let tables = [Some(cx.x(2)?), Some(cx.x(3)?), cx.x_opt(4)?];
    let (gamma, beta) = (cx.x(5)?, cx.x(6)?);
    embedded(cx, &Embedding { tables, gamma, beta, mask: 7, positions: 8 })
}

/// The same of tables of bytes: after the mask a scale for each of the five, then a zero point for each.
fn quantized_embed_layer_norm(cx: Cx) -> Nodes {
    let mut floats = [None; 5];
    for (i, float) in floats.iter_mut().enumerate() {
        if !cx.has(2 + i) {
            continue;
        }
        let q = Quantized::operand(cx, 2 + i, 13 + i)?;
        let scale = cx.x(8 + i)?;
        *float = Some(q.dequantized(cx, scale)?);
    }
    let [words, places, segments, Some(gamma), Some(beta)] = floats else {
        return Err(cx.malformed("a norm without gamma and beta"));
    };
    let positions = usize::MAX;
    embedded(cx, &Embedding { tables: [words, places, segments], gamma, beta, mask: 7, positions })
}

/// The norm of the sum of all embeddings, how many words each row has, and the sum.
fn embedded(cx: Cx, e: &Embedding) -> Nodes {
    let (ids, shape) = (cx.x(0)?, cx.shape(0)?);
    let &[_, length] = shape.dims() else { return Err(cx.malformed(format!("ids {shape}"))) };
    let [Some(words), Some(places), segments] = e.tables else {
        return Err(cx.malformed("embeddings of words and positions are missing"));
    };
    let words = cx.add(Op::Gather { axis: 0 }, &[words, ids])?;
    let positions = match cx.x_opt(e.positions)? {
        Some(positions) => positions,
        None => {
            let op = Op::Iota { to: vec![Dim::Static(1), length], axis: 1, dtype: DType::I64 };
            cx.add(op, &[])?
        }
    };
    let places = cx.add(Op::Gather { axis: 0 }, &[places, positions])?;
    let mut sum = cx.binary(B::Add, words, places)?;
    if let (Some(table), Some(segments)) = (segments, cx.x_opt(1)?) {
        let segments = cx.add(Op::Gather { axis: 0 }, &[table, segments])?;
        sum = cx.binary(B::Add, sum, segments)?;
    }
    let eps = cx.attrs.float("epsilon", 1e-12)?;
    let y = cx.add(Op::LayerNorm { axis: -1, eps }, &[sum, e.gamma, e.beta])?;
    let count = if cx.wants(1) { mask_index(cx, e.mask, shape.dim(0))? } else { y };
    Ok(vec![y, count, sum])
}

/// How many words of each row there are: where the mask has its first 0; none without a mask.
fn mask_index(cx: Cx, mask: usize, batch: Dim) -> Result<NodeId, Error> {
    let Some(mask) = cx.x_opt(mask)? else {
        let zero = cx.scalar(DType::I32, 0.0);
        return cx.expand(zero, vec![batch]);
    };
    let zero = cx.scalar(cx.shape_of(mask).dtype(), 0.0);
    let word = cx.compare(CmpOp::Ne, mask, zero)?;
    let word = cx.cast(word, DType::I32)?;
    cx.reduce(word, ReduceOp::Sum, &[1], false)
}

fn group_norm(cx: Cx) -> Nodes {
    let x = cx.x(0)?;
    Ok(vec![normalised_groups(cx, x)?])
}

/// `X, gamma, beta, skip, bias`: the norm of the sum, and the sum.
fn skip_group_norm(cx: Cx) -> Nodes {
    let (shape, mut skip) = (cx.shape(0)?, cx.x(3)?);
    let last = cx.attrs.flag("channels_last", true)?;
    // One row of channels for each image.
    if let (&[batch, channels], true) = (cx.shape_of(skip).dims(), shape.rank() > 2) {
        let mut dims = vec![Dim::Static(1); shape.rank()];
        dims[0] = batch;
        dims[if last { shape.rank() - 1 } else { 1 }] = channels;
        skip = cx.reshape(skip, dims)?;
    }
    let x = cx.x(0)?;
    let mut sum = cx.binary(B::Add, x, skip)?;
    if let Some(mut bias) = cx.x_opt(4)? {
        if let (&[channels], false) = (cx.shape_of(bias).dims(), last) {
            let mut dims = vec![Dim::Static(1); shape.rank().saturating_sub(1)];
            if let Some(own) = dims.first_mut() {
                *own = channels;
            }
            bias = cx.reshape(bias, dims)?;
        }
        sum = cx.binary(B::Add, sum, bias)?;
    }
    Ok(vec![normalised_groups(cx, sum)?, sum])
}

/// Gamma and beta are operands 1 and 2; channels come last unless an attribute says otherwise.
fn normalised_groups(cx: Cx, x: NodeId) -> Result<NodeId, Error> {
    let groups = cx.attrs.required("groups", cx.attrs.int_opt("groups")?)?;
    let groups = usize::try_from(groups).ok().filter(|&g| g > 0);
    let groups = groups.ok_or_else(|| cx.malformed("groups < 1"))?;
    let eps = cx.attrs.float("epsilon", 1e-5)?;
    let last = cx.attrs.flag("channels_last", true)?;
    let dtype = cx.shape_of(x).dtype();
    let (gamma, beta) = (cx.x(1)?, cx.x(2)?);
    let (gamma, beta) = (cx.cast(gamma, dtype)?, cx.cast(beta, dtype)?);
    let x = if last { channels_first(cx, x)? } else { x };
    let mut y = cx.add(Op::GroupNorm { groups, eps }, &[x, gamma, beta])?;
    y = match cx.attrs.int("activation", 0)? {
        0 => y,
        1 => cx.activation(A::Silu, y)?,
        other => return Err(cx.bad_attr("activation", other)),
    };
    if last { channels_last(cx, y) } else { Ok(y) }
}
