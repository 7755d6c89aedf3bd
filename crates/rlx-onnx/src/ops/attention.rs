//! Attention and rotary embeddings.

mod flex;

use super::{Entry, nodes};
use crate::import::NodeCx;
use crate::tensor;
use rlx_ir::op::{Activation as A, BinaryOp as B, CmpOp, MaskKind, PadMode, ReduceOp, Unseen};
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(super) const OPS: &[Entry] = &[
    nodes("Attention", attention),
    nodes("RotaryEmbedding", rotary_embedding),
    Entry { domain: "ai.onnx.preview", ..nodes("FlexAttention", flex::flex_attention) },
];

/// Operands brought to `[batch, heads, length, size]`, past keys and values put in front.
struct Heads {
    q: NodeId,
    k: NodeId,
    v: NodeId,
    /// How many keys come from before.
    past: Extent,
    /// Whether the operands were `[batch, length, heads·size]`, as then the result is.
    flat: bool,
    query_heads: usize,
    key_heads: usize,
    size: usize,
}

fn attention(cx: Cx) -> Nodes {
    let heads = Heads::read(cx)?;
    let softcap = cx.attrs.float("softcap", 0.0)?;
    let plain = softcap == 0.0 && !cx.wants(3) && same_type(cx)?;
    let y = match plain.then(|| mask_of(cx, &heads)).transpose()?.flatten() {
        Some(mask) => composite(cx, &heads, mask)?,
        None => return taken_apart(cx, &heads, softcap),
    };
    Ok(vec![y, heads.k, heads.v])
}

fn same_type(cx: &NodeCx<'_, '_>) -> Result<bool, Error> {
    let dtype = cx.dtype(0)?;
    Ok(cx.dtype(1)? == dtype && cx.dtype(2)? == dtype)
}

/// The number of heads: an attribute for flat operands, a dimension for others.
fn count(cx: &NodeCx<'_, '_>, attr: &str, i: usize) -> Result<usize, Error> {
    let shape = cx.shape(i)?;
    let heads = match shape.rank() {
        3 => {
            let heads = cx.attrs.int_opt(attr)?;
            usize::try_from(cx.attrs.required(attr, heads)?).ok()
        }
        4 => shape.dim(1).as_static(),
        _ => None,
    };
    heads.filter(|&h| h > 0).ok_or_else(|| cx.malformed(format!("the heads of operand {i}, {shape}")))
}

impl Heads {
    fn read(cx: Cx) -> Result<Heads, Error> {
        let (query_heads, key_heads) = (count(cx, "q_num_heads", 0)?, count(cx, "kv_num_heads", 1)?);
        if query_heads % key_heads != 0 {
            return Err(cx.malformed(format!("{query_heads} query heads for {key_heads} key heads")));
        }
        let flat = cx.rank(0)? == 3;
        let q = split_heads(cx, 0, query_heads)?;
        let (mut k, mut v) = (split_heads(cx, 1, key_heads)?, split_heads(cx, 2, key_heads)?);
        for i in [2, 4, 5] {
            let rank = if cx.has(i) { cx.rank(i)? } else { 4 };
            if rank != 4 && (rank != 3 || i > 2) {
                return Err(cx.malformed(format!("operand {i} of {rank} dimensions")));
            }
        }
        let mut past = Extent::Const(0);
        if let Some(before) = cx.x_opt(4)? {
            past = cx.shape_of(before).dim(2).extent();
            k = cx.add(Op::Concat { axis: 2 }, &[before, k])?;
        }
        if let Some(before) = cx.x_opt(5)? {
            v = cx.add(Op::Concat { axis: 2 }, &[before, v])?;
        }
        let size = cx.shape_of(q).dim(3).as_static();
        let size = size.ok_or_else(|| cx.open_dimension("a symbolic head size"))?;
        Ok(Heads { q, k, v, past, flat, query_heads, key_heads, size })
    }

    fn query_length(&self, cx: &NodeCx<'_, '_>) -> Dim {
        cx.shape_of(self.q).dim(2)
    }

    fn key_length(&self, cx: &NodeCx<'_, '_>) -> Dim {
        cx.shape_of(self.k).dim(2)
    }

    /// `[B, H, S, D]` as the operands were.
    fn merge(&self, cx: Cx, y: NodeId) -> Result<NodeId, Error> {
        if !self.flat {
            return Ok(y);
        }
        let &[batch, heads, length, size] = cx.shape_of(y).dims() else {
            return Err(cx.malformed("attention without four dimensions"));
        };
        let y = cx.transpose(y, &[0, 2, 1, 3])?;
        cx.reshape(y, vec![batch, length, Dim::from(heads.extent() * size.extent())])
    }
}

fn split_heads(cx: Cx, i: usize, heads: usize) -> Result<NodeId, Error> {
    let (x, shape) = (cx.x(i)?, cx.shape(i)?);
    let &[batch, length, width] = shape.dims() else { return Ok(x) };
    let size = Dim::from(width.extent().floor_div(heads as i64));
    let x = cx.reshape(x, vec![batch, length, Dim::Static(heads), size])?;
    cx.transpose(x, &[0, 2, 1, 3])
}

/// A mask of the composite: its kind, the window of a causal one, and the operand of a custom one.
type Masked = (MaskKind, Option<usize>, Option<NodeId>);

/// The composite's mask, when one of its kinds says what this node means: a mask as it is given, or everything that hides keys as one
/// tensor.
fn mask_of(cx: Cx, heads: &Heads) -> Result<Option<Masked>, Error> {
    let Sides { left, right } = Sides::read(cx)?;
    let aligned = heads.past + heads.query_length(cx).extent() == heads.key_length(cx).extent();
    let dtype = cx.dtype(0)?;
    if cx.has(3) && ![DType::Bool, dtype].contains(&cx.dtype(3)?) {
        return Ok(None);
    }
    match (cx.has(3), left, right) {
        _ if cx.has(6) => {}
        (false, None, None) => return Ok(Some((MaskKind::None, None, None))),
        // The composite's causal mask is aligned at the ends, ONNX's at the first key after the past.
        (false, left, Some(0)) if aligned => {
            let window = left.map(|left| left.min(i64::from(i32::MAX) - 1) as usize + 1);
            return Ok(Some((MaskKind::Causal, window, None)));
        }
        (true, None, None) => return Ok(Some((MaskKind::Custom, None, Some(whole_mask(cx, heads)?)))),
        _ => {}
    }
    Ok(bias(cx, heads, dtype)?.map(|bias| (MaskKind::Custom, None, Some(bias))))
}

fn composite(cx: Cx, heads: &Heads, (mask, window, operand): Masked) -> Result<NodeId, Error> {
    let op = Op::Attention {
        num_heads: heads.query_heads,
        head_dim: heads.size,
        mask,
        window,
        scale: cx.attrs.float_opt("scale")?,
        unseen: Unseen::Zero,
    };
    // Flat operands are what the composite takes as well, unless a past had to be put in front of them.
    let direct = heads.flat && !cx.has(4) && !cx.has(5);
    let mut operands =
        if direct { vec![cx.x(0)?, cx.x(1)?, cx.x(2)?] } else { vec![heads.q, heads.k, heads.v] };
    operands.extend(operand);
    let y = cx.add(op, &operands)?;
    if direct { Ok(y) } else { heads.merge(cx, y) }
}

/// The mask operand, its last dimension widened to the number of keys: what is missing is not allowed.
fn whole_mask(cx: Cx, heads: &Heads) -> Result<NodeId, Error> {
    let (mask, shape) = (cx.x(3)?, cx.shape(3)?);
    let Some(&last) = shape.dims().last() else { return Ok(mask) };
    let missing = heads.key_length(cx).extent() - last.extent();
    if missing.as_const().is_none_or(|m| m <= 0) || last == Dim::Static(1) {
        return Ok(mask);
    }
    let zero = || vec![Extent::Const(0); shape.rank()];
    let (before, mut after) = (zero(), zero());
    after[shape.rank() - 1] = missing;
    let fill = cx.scalar(shape.dtype(), if shape.dtype() == DType::Bool { 0.0 } else { f64::NEG_INFINITY });
    cx.pad(&[mask, fill], before, after, PadMode::Constant)
}

/// The definition, step by step: for soft caps, intermediate outputs, and masks of several kinds at once. The soft cap comes before
/// the masks, so that what is masked stays so.
fn taken_apart(cx: Cx, heads: &Heads, softcap: f32) -> Nodes {
    let dtype = cx.dtype(0)?;
    let scale = cx.attrs.float_opt("scale")?.map_or(1.0 / (heads.size as f64).sqrt(), f64::from).sqrt();
    let times = heads.query_heads / heads.key_heads;
    let (k, v) = (repeat_heads(cx, times, heads.k)?, repeat_heads(cx, times, heads.v)?);
    let q = cx.with_scalar(B::Mul, heads.q, scale)?;
    let k = cx.transpose(k, &[0, 1, 3, 2])?;
    let k = cx.with_scalar(B::Mul, k, scale)?;
    let raw = cx.add(Op::MatMul, &[q, k])?;
    let mut capped = raw;
    if softcap != 0.0 {
        capped = cx.with_scalar(B::Div, capped, f64::from(softcap))?;
        capped = cx.activation(A::Tanh, capped)?;
        capped = cx.with_scalar(B::Mul, capped, f64::from(softcap))?;
    }
    let bias = bias(cx, heads, cx.shape_of(raw).dtype())?;
    let biased = match bias {
        Some(bias) => cx.binary(B::Add, capped, bias)?,
        None => capped,
    };
    let mut scores = biased;
    if let Some(code) = cx.attrs.int_opt("softmax_precision")? {
        let precision = tensor::dtype(i32::try_from(code).unwrap_or(0))?;
        scores = cx.cast(scores, precision)?;
    }
    let mut weights = cx.add(Op::Softmax { axis: 3 }, &[scores])?;
    if let Some(bias) = bias {
        weights = without_empty_rows(cx, weights, bias)?;
    }
    let shown = match cx.attrs.int("qk_matmul_output_mode", 0)? {
        0 => raw,
        1 => capped,
        2 => biased,
        3 => weights,
        other => return Err(cx.malformed(format!("qk_matmul_output_mode = {other}"))),
    };
    let shown = cx.cast(shown, dtype)?;
    let weights = cx.cast(weights, cx.shape_of(v).dtype())?;
    let y = cx.add(Op::MatMul, &[weights, v])?;
    let y = cx.cast(y, dtype)?;
    Ok(vec![heads.merge(cx, y)?, heads.k, heads.v, shown])
}

/// Weights of 0 for queries that may see no key.
fn without_empty_rows(cx: Cx, weights: NodeId, bias: NodeId) -> Result<NodeId, Error> {
    let last = cx.shape_of(bias).rank() - 1;
    let most = cx.reduce(bias, ReduceOp::Max, &[last], true)?;
    let low = cx.scalar(cx.shape_of(bias).dtype(), f64::NEG_INFINITY);
    let empty = cx.compare(CmpOp::Eq, most, low)?;
    let zero = cx.scalar(cx.shape_of(weights).dtype(), 0.0);
    cx.select(empty, zero, weights)
}

/// Each key head repeated for the query heads that share it.
fn repeat_heads(cx: Cx, times: usize, x: NodeId) -> Result<NodeId, Error> {
    if times == 1 {
        return Ok(x);
    }
    let &[batch, kept, length, size] = cx.shape_of(x).dims() else { return Ok(x) };
    let x = cx.unsqueeze(x, &[2])?;
    let x = cx.expand(x, vec![batch, kept, Dim::Static(times), length, size])?;
    cx.reshape(x, vec![batch, Dim::from(kept.extent() * times as i64), length, size])
}

/// Everything that masks the scores, to be added to them: 0 or the operand's number where a key may be seen, else −∞.
fn bias(cx: Cx, heads: &Heads, dtype: DType) -> Result<Option<NodeId>, Error> {
    let (low, zero) = (cx.scalar(dtype, f64::NEG_INFINITY), cx.scalar(dtype, 0.0));
    let mut y = None;
    if cx.has(3) {
        let mask = whole_mask(cx, heads)?;
        y = Some(if cx.shape_of(mask).dtype() == DType::Bool {
            cx.select(mask, zero, low)?
        } else {
            cx.cast(mask, dtype)?
        });
    }
    for allowed in allowed(cx, heads)? {
        y = Some(cx.select(allowed, y.unwrap_or(zero), low)?);
    }
    // As many dimensions as the scores have, so that the last is that of the keys.
    y.map(|y| {
        let missing = 4usize.saturating_sub(cx.shape_of(y).rank());
        cx.unsqueeze(y, &(0..missing).collect::<Vec<_>>())
    })
    .transpose()
}

/// How many keys in front of its own place and behind it a query may see, where that is limited.
struct Sides {
    left: Option<i64>,
    right: Option<i64>,
}

impl Sides {
    fn read(cx: Cx) -> Result<Sides, Error> {
        let side = |name: &str| match cx.attrs.int(name, -1)? {
            -1 => Ok(None),
            size @ 0.. => Ok(Some(size)),
            other => Err(cx.malformed(format!("{name} = {other}"))),
        };
        let (left, right) = (side("left_window_size")?, side("right_window_size")?);
        // A causal query sees nothing behind its place.
        let causal = cx.attrs.flag("is_causal", false)?;
        Ok(Sides { left, right: if causal { Some(0) } else { right } })
    }
}

/// Which keys each query may see, by causality, by the window, and by how many keys there are.
fn allowed(cx: Cx, heads: &Heads) -> Result<Vec<NodeId>, Error> {
    let Sides { left, right } = Sides::read(cx)?;
    let mut all = Vec::new();
    if left.is_some() || right.is_some() {
        let keys = heads.key_length(cx);
        let column = cx.add(Op::Iota { to: vec![keys], axis: 0, dtype: DType::I64 }, &[])?;
        let row = positions(cx, heads)?;
        // How far the key is behind the query's own.
        let ahead = cx.binary(B::Sub, column, row)?;
        for (limit, f, sign) in [(right, CmpOp::Le, 1), (left, CmpOp::Ge, -1)] {
            let Some(limit) = limit else { continue };
            let limit = cx.extent(Extent::Const(limit * sign))?;
            all.push(cx.compare(f, ahead, limit)?);
        }
    }
    if let Some(lengths) = cx.x_opt(6)? {
        let lengths = cx.cast(lengths, DType::I64)?;
        let lengths = cx.unsqueeze(lengths, &[1, 2, 3])?;
        let keys = heads.key_length(cx);
        let column = cx.add(Op::Iota { to: vec![keys], axis: 0, dtype: DType::I64 }, &[])?;
        all.push(cx.compare(CmpOp::Lt, column, lengths)?);
    }
    Ok(all)
}

/// The positions of the queries among the keys, `[…, queries, 1]`: behind those from before; if the keys are a cache of which the
/// first ones count, the last of these.
fn positions(cx: Cx, heads: &Heads) -> Result<NodeId, Error> {
    let queries = heads.query_length(cx);
    let count =
        |cx: Cx, end: Extent| cx.add(Op::Iota { to: vec![Dim::from(end)], axis: 0, dtype: DType::I64 }, &[]);
    if cx.has(6) && !cx.has(4) {
        let row = count(cx, queries.extent())?;
        let row = cx.reshape(row, vec![queries, Dim::Static(1)])?;
        let lengths = cx.x(6)?;
        let lengths = cx.cast(lengths, DType::I64)?;
        let lengths = cx.unsqueeze(lengths, &[1, 2, 3])?;
        let all = cx.extent(queries.extent())?;
        let before = cx.binary(B::Sub, lengths, all)?;
        return cx.binary(B::Add, row, before);
    }
    // A part of one count over everything.
    let all = count(cx, heads.past + queries.extent())?;
    let row = cx.slice_axis(all, 0, heads.past, queries.extent())?;
    cx.reshape(row, vec![queries, Dim::Static(1)])
}

/// Positions pick rows of the cosine and sine tables, where they are given.
fn rotary_embedding(cx: Cx) -> Nodes {
    let shape = cx.shape(0)?;
    let heads = usize::try_from(cx.attrs.int("num_heads", 0)?).ok().filter(|&h| h > 0);
    let head_dim = match *shape.dims() {
        [_, _, width] => heads.and_then(|h| width.as_static().map(|w| w / h)),
        [_, _, _, size] => size.as_static(),
        _ => None,
    };
    let head_dim = head_dim.ok_or_else(|| cx.malformed(format!("the heads of {shape}")))?;
    let given = cx.attrs.int("rotary_embedding_dim", 0)?;
    let n_rot = usize::try_from(given).ok().filter(|&n| n > 0).unwrap_or(head_dim);
    let (x, mut cos, mut sin) = (cx.x(0)?, cx.x(1)?, cx.x(2)?);
    if let Some(positions) = cx.x_opt(3)? {
        cos = cx.add(Op::Gather { axis: 0 }, &[cos, positions])?;
        sin = cx.add(Op::Gather { axis: 0 }, &[sin, positions])?;
    }
    let op = Op::Rope { head_dim, n_rot, interleaved: cx.attrs.flag("interleaved", false)? };
    Ok(vec![cx.add(op, &[x, cos, sin])?])
}
