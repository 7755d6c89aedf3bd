//! `MultiHeadAttention` and `DecoderMaskedMultiHeadAttention`: queries, keys and values from elsewhere.

use super::core::{Core, PaddingMask, Shown, added, behind, length, longer_bias, sum};
use super::{buffer, fixed, heads, parts, scale, split};
use crate::import::NodeCx;
use rlx_ir::op::BinaryOp as B;
use rlx_ir::{Dim, Error, Extent, NodeId, Op};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

/// Where the two ops have their operands.
struct Operands {
    bias: usize,
    mask: usize,
    added: usize,
    past: usize,
    past_length: usize,
    indirection: usize,
}

pub(super) fn multi_head(cx: Cx) -> Nodes {
    let places = Operands { bias: 3, mask: 4, added: 5, past: 6, past_length: 8, indirection: 9 };
    build(cx, &places, cx.wants(3))
}

/// One query for each row of the batch.
pub(super) fn decoder(cx: Cx) -> Nodes {
    let places = Operands { bias: 10, mask: 3, added: 4, past: 5, past_length: 7, indirection: 9 };
    let shown = cx.wants(3) && cx.attrs.flag("output_qk", false)?;
    build(cx, &places, shown)
}

fn build(cx: Cx, at: &Operands, shown: bool) -> Nodes {
    if cx.has(at.indirection) && !(cx.has(at.past) && cx.has(at.past_length)) {
        return Err(cx.malformed("cache_indirection without a past and past_sequence_length"));
    }
    let heads = heads(cx, "num_heads")?;
    let (mut q, mut k, mut v) = operands(cx, heads)?;
    let size = parts(cx, fixed(cx, width(cx, q), "heads")?, if rank(cx, q) == 4 { 1 } else { heads })?;
    if cx.has(at.bias) {
        (q, k, v) = with_bias(cx, at.bias, [q, k, v])?;
    }
    let batch = cx.shape_of(q).dim(0);
    let new = length(cx, k);
    let mut past = Extent::Const(0);
    let mut limit = None;
    if cx.has(at.past) {
        (k, v) = (split(cx, k, heads)?, split(cx, v, heads)?);
        let (before_k, before_v) = (cx.x(at.past)?, cx.x(at.past + 1)?);
        if rank(cx, before_k) != 4 || rank(cx, before_v) != 4 {
            return Err(cx.malformed("a past without four dimensions"));
        }
        if cx.has(at.past_length) {
            // One buffer for all steps, of which so many rows are used.
            let used = buffer::used(cx, at.past_length)?;
            k = cx.add(Op::UpdateSlice { axis: 2 }, &[before_k, k, used])?;
            v = cx.add(Op::UpdateSlice { axis: 2 }, &[before_v, v, used])?;
            limit = Some(used);
        } else {
            past = cx.shape_of(before_k).dim(2).extent();
            (k, v) = (behind(cx, before_k, k)?, behind(cx, before_v, v)?);
        }
    } else if cx.wants(1) || cx.wants(2) {
        (k, v) = (split(cx, k, heads)?, split(cx, v, heads)?);
    }
    let (present_k, present_v) = (k, v);
    if let Some(used) = limit.filter(|_| cx.has(at.indirection)) {
        k = buffer::of_beams(cx, k, at.indirection, used)?;
        v = buffer::of_beams(cx, v, at.indirection, used)?;
    }
    let mut core = Core::plain(q, k, v, heads, size);
    core.scale = scale(cx)?;
    core.causal = cx.attrs.flag("unidirectional", false)?;
    core.shown = if shown { Shown::Scores } else { Shown::No };
    if shown && limit.is_some() {
        return Err(cx.unsupported("the scores of a buffer of which some rows are used"));
    }
    if let Some(used) = limit {
        core.seen = Some(buffer::seen(cx, used, new, length(cx, q), length(cx, k), core.causal)?);
        core.causal = false;
    }
    if cx.has(at.mask) {
        let mask =
            PaddingMask { operand: at.mask, keys: length(cx, k), past, buffer: limit.is_some(), batch };
        let seen = mask.seen(cx)?;
        let filter = cx.attrs.float("mask_filter_value", -10000.0)?;
        core.bias = Some(added(cx, seen, cx.dtype(0)?, filter)?);
    }
    let given = longer_bias(cx, at.added, length(cx, k))?;
    core.bias = sum(cx, core.bias, given)?;
    let (y, scores) = core.apply(cx)?;
    Ok(vec![y, present_k, present_v, scores.unwrap_or(y)])
}

fn rank(cx: &NodeCx<'_, '_>, x: NodeId) -> usize {
    cx.shape_of(x).rank()
}

fn width(cx: &NodeCx<'_, '_>, x: NodeId) -> Dim {
    cx.shape_of(x).dims().last().copied().unwrap_or(Dim::Static(1))
}

/// Queries, keys and values, `[batch, length, heads·size]` or `[batch, heads, length, size]`.
fn operands(cx: Cx, heads: usize) -> Result<(NodeId, NodeId, NodeId), Error> {
    let q = cx.x(0)?;
    if cx.rank(0)? == 5 {
        return Ok((apart(cx, q, 0)?, apart(cx, q, 1)?, apart(cx, q, 2)?));
    }
    if cx.rank(0)? != 3 {
        return Err(cx.malformed(format!("queries {}", cx.shape(0)?)));
    }
    if !cx.has(1) {
        // Queries, keys and values behind each other; all heads have one size.
        let size = parts(cx, fixed(cx, width(cx, q), "heads")?, heads.saturating_mul(3))?;
        let part = |cx: &mut NodeCx<'_, '_>, i: usize| {
            let part = Dim::Static(heads * size).extent();
            cx.slice_axis(q, 2, part * i as i64, part)
        };
        return Ok((part(cx, 0)?, part(cx, 1)?, part(cx, 2)?));
    }
    let k = cx.x(1)?;
    if cx.rank(1)? == 5 {
        return Ok((q, apart(cx, k, 0)?, apart(cx, k, 1)?));
    }
    let v = cx.x(2)?;
    for x in [k, v] {
        if !matches!(rank(cx, x), 3 | 4) {
            return Err(cx.malformed(format!("keys or values {}", cx.shape_of(x))));
        }
    }
    Ok((q, k, v))
}

/// Part `i` of `[batch, length, heads, parts, size]`, as `[batch, length, heads·size]`.
fn apart(cx: Cx, x: NodeId, i: usize) -> Result<NodeId, Error> {
    let shape = cx.shape_of(x);
    let &[batch, length, heads, parts, size] = shape.dims() else { return Ok(x) };
    if parts.as_static().is_none_or(|n| n <= i) {
        return Err(cx.malformed(format!("{shape} has no part {i}")));
    }
    let x = cx.slice_axis(x, 3, Dim::Static(i).extent(), Extent::Const(1))?;
    cx.reshape(x, vec![batch, length, Dim::from(heads.extent() * size.extent())])
}

/// The bias of queries, keys and values behind each other. Keys and values that come with heads apart have had theirs.
fn with_bias(cx: Cx, operand: usize, all: [NodeId; 3]) -> Result<(NodeId, NodeId, NodeId), Error> {
    let bias = cx.x(operand)?;
    if rank(cx, bias) != 1 {
        return Err(cx.malformed(format!("a bias {}", cx.shape_of(bias))));
    }
    let mut sums = all;
    let mut start = Extent::Const(0);
    for x in &mut sums {
        if rank(cx, *x) != 3 {
            continue;
        }
        let width = width(cx, *x).extent();
        let part = cx.slice_axis(bias, 0, start, width)?;
        *x = cx.binary(B::Add, *x, part)?;
        start = start + width;
    }
    Ok((sums[0], sums[1], sums[2]))
}
