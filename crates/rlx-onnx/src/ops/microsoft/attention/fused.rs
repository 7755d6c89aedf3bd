//! `Attention`, `DecoderMaskedSelfAttention` and `QAttention`: one product makes queries, keys and values, then the heads attend.

use super::core::{Core, PaddingMask, added, behind, length, longer_bias, sum};
use super::{buffer, fixed, heads, parts, scale, split};
use crate::import::NodeCx;
use crate::ops::quant::{Quantized, along, integer_matmul};
use rlx_ir::op::BinaryOp as B;
use rlx_ir::{Dim, Error, Extent, NodeId, Op};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

/// Where the ops have their operands, and what was made of the first ones.
struct Projected {
    /// `[batch, length, all heads of queries, keys and values]`
    all: NodeId,
    mask: usize,
    past: usize,
    added: Option<usize>,
    /// How many rows of the past are used, where past and present are one buffer.
    past_length: Option<usize>,
    /// Which text each row of that buffer belongs to, in a beam search.
    indirection: Option<usize>,
}

pub(super) fn attention(cx: Cx) -> Nodes {
    projected(cx, None)
}

/// One query for each row of the batch.
pub(super) fn decoder(cx: Cx) -> Nodes {
    projected(cx, Some(8))
}

/// `input, weights, bias, mask_index, past, attention_bias, past_sequence_length`
fn projected(cx: Cx, indirection: Option<usize>) -> Nodes {
    let (x, weights) = (cx.x(0)?, cx.x(1)?);
    let mut all = cx.add(Op::MatMul, &[x, weights])?;
    if let Some(bias) = cx.x_opt(2)? {
        all = cx.binary(B::Add, all, bias)?;
    }
    attend(cx, Projected { all, mask: 3, past: 4, added: Some(5), past_length: Some(6), indirection })
}

/// `input, weight, bias, input_scale, weight_scale, mask_index, input_zero_point, weight_zero_point, past`
pub(super) fn quantized(cx: Cx) -> Nodes {
    let (x, w) = (Quantized::operand(cx, 0, 6)?, Quantized::operand(cx, 1, 7)?);
    let product = integer_matmul(cx, x, w)?;
    let rank = cx.shape_of(product).rank();
    let (scale_x, scale_w) = (cx.x(3)?, cx.x(4)?);
    let scale_x = along(cx, scale_x, rank, rank.saturating_sub(1))?;
    let scale_w = along(cx, scale_w, rank, rank.saturating_sub(1))?;
    let factor = cx.binary(B::Mul, scale_x, scale_w)?;
    let product = cx.cast(product, cx.shape_of(factor).dtype())?;
    let all = cx.binary(B::Mul, product, factor)?;
    let bias = cx.x(2)?;
    let all = cx.binary(B::Add, all, bias)?;
    attend(cx, Projected { all, mask: 5, past: 8, added: None, past_length: None, indirection: None })
}

/// The widths of queries, keys and values together.
pub(super) fn widths(cx: &NodeCx<'_, '_>, all: usize, heads: usize) -> Result<[usize; 3], Error> {
    let widths = match cx.attrs.ints("qkv_hidden_sizes")? {
        None | Some([]) => [parts(cx, all, 3)?; 3],
        Some(&[q, k, v]) => {
            let sizes = [q, k, v].map(|n| usize::try_from(n).ok().filter(|&n| n <= all));
            let [Some(q), Some(k), Some(v)] = sizes else {
                return Err(cx.malformed(format!("qkv_hidden_sizes = [{q}, {k}, {v}]")));
            };
            [q, k, v]
        }
        Some(other) => return Err(cx.malformed(format!("qkv_hidden_sizes = {other:?}"))),
    };
    if widths.iter().sum::<usize>() != all || widths[0] != widths[1] {
        return Err(cx.malformed(format!("queries, keys and values of {widths:?} elements, {all} in all")));
    }
    for width in widths {
        parts(cx, width, heads)?;
    }
    Ok(widths)
}

fn attend(cx: Cx, p: Projected) -> Nodes {
    if cx.attrs.flag("do_rotary", false)? {
        return Err(cx.bad_attr("do_rotary", 1));
    }
    let heads = heads(cx, "num_heads")?;
    let shape = cx.shape_of(p.all);
    let &[batch, _, width] = shape.dims() else {
        return Err(cx.malformed(format!("queries, keys and values {shape}")));
    };
    let widths = widths(cx, fixed(cx, width, "heads")?, heads)?;
    let mut start = Extent::Const(0);
    let mut apart = [p.all; 3];
    for (x, width) in apart.iter_mut().zip(widths) {
        let width = Dim::Static(width).extent();
        *x = cx.slice_axis(p.all, 2, start, width)?;
        start = start + width;
    }
    let [q, k, v] = apart;
    let cached = match cx.attrs.flag("past_present_share_buffer", false)? {
        true => one_buffer(cx, &p, [k, v], heads)?,
        false => longer(cx, &p, [k, v], heads)?,
    };
    let mut core = Core::plain(q, cached.k, cached.v, heads, widths[0] / heads);
    core.scale = scale(cx)?;
    core.causal = cx.attrs.flag("unidirectional", false)?;
    let keys = length(cx, cached.k);
    if let Some(used) = cached.used {
        let new = length(cx, q);
        core.seen = Some(buffer::seen(cx, used, new, new, keys, core.causal)?);
        core.causal = false;
    }
    if cx.has(p.mask) {
        let buffer = cached.used.is_some();
        let seen = PaddingMask { operand: p.mask, keys, past: cached.before, buffer, batch }.seen(cx)?;
        let filter = cx.attrs.float("mask_filter_value", -10000.0)?;
        core.bias = Some(added(cx, seen, shape.dtype(), filter)?);
    }
    if let Some(at) = p.added {
        let given = if cached.used.is_some() { longer_bias(cx, at, keys)? } else { cx.x_opt(at)? };
        core.bias = sum(cx, core.bias, given)?;
    }
    let (y, _) = core.apply(cx)?;
    Ok(vec![y, cached.present.unwrap_or(y)])
}

/// Keys and values with those from before.
struct Cached {
    k: NodeId,
    v: NodeId,
    /// How many there are from before, in front of the new ones.
    before: Extent,
    /// How many rows of a buffer are used.
    used: Option<NodeId>,
    present: Option<NodeId>,
}

/// The new keys and values behind those from before, if there are any.
fn longer(cx: Cx, p: &Projected, [mut k, mut v]: [NodeId; 2], heads: usize) -> Result<Cached, Error> {
    let mut before = Extent::Const(0);
    let mut present = None;
    if cx.has(p.past) || cx.wants(1) {
        (k, v) = (split(cx, k, heads)?, split(cx, v, heads)?);
        if let Some(past) = cx.x_opt(p.past)? {
            let (past_k, past_v) = (half_of(cx, past, 0)?, half_of(cx, past, 1)?);
            before = cx.shape_of(past_k).dim(2).extent();
            (k, v) = (behind(cx, past_k, k)?, behind(cx, past_v, v)?);
        }
        if cx.wants(1) {
            present = Some(stacked(cx, k, v)?);
        }
    }
    Ok(Cached { k, v, before, used: None, present })
}

/// The new keys and values in the buffer that past and present are.
fn one_buffer(cx: Cx, p: &Projected, [k, v]: [NodeId; 2], heads: usize) -> Result<Cached, Error> {
    if p.past_length.is_none() {
        // ONNX Runtime's op has the attribute, but nothing says how much of the buffer is used.
        return Err(cx.bad_attr("past_present_share_buffer", 1));
    }
    let Some(at) = p.past_length.filter(|&at| cx.has(at) && cx.has(p.past)) else {
        let message = "past_present_share_buffer = 1 without a past and past_sequence_length";
        return Err(cx.malformed(message));
    };
    let used = buffer::used(cx, at)?;
    let (k, v) = (split(cx, k, heads)?, split(cx, v, heads)?);
    let new = stacked(cx, k, v)?;
    let past = cx.x(p.past)?;
    let present = cx.add(Op::UpdateSlice { axis: 3 }, &[past, new, used])?;
    let (mut k, mut v) = (half_of(cx, present, 0)?, half_of(cx, present, 1)?);
    if let Some(at) = p.indirection.filter(|&at| cx.has(at)) {
        (k, v) = (buffer::of_beams(cx, k, at, used)?, buffer::of_beams(cx, v, at, used)?);
    }
    Ok(Cached { k, v, before: Extent::Const(0), used: Some(used), present: Some(present) })
}

/// Keys and values as one tensor `[2, batch, heads, length, size]`.
fn stacked(cx: Cx, k: NodeId, v: NodeId) -> Result<NodeId, Error> {
    let both = [cx.unsqueeze(k, &[0])?, cx.unsqueeze(v, &[0])?];
    cx.add(Op::Concat { axis: 0 }, &both)
}

/// Keys or values of a past `[2, batch, heads, length, size]`.
fn half_of(cx: Cx, past: NodeId, i: i64) -> Result<NodeId, Error> {
    let shape = cx.shape_of(past);
    if shape.rank() != 5 || shape.dim(0) != Dim::Static(2) {
        return Err(cx.malformed(format!("a past of {shape}, not [2, batch, heads, length, size]")));
    }
    let half = cx.slice_axis(past, 0, Extent::Const(i), Extent::Const(1))?;
    cx.reshape(half, shape.dims()[1..].to_vec())
}
