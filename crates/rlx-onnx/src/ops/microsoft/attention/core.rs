//! What all attentions of this domain come to: queries, keys and values, what may be seen, and what is added.

use super::{count, join, split};
use crate::import::NodeCx;
use crate::ops::index::at_least_zero;
use rlx_ir::op::{Activation as A, BinaryOp as B, CmpOp, MaskKind, PadMode, Unseen};
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;

/// One attention. Queries, keys and values are `[batch, length, heads·size]` or `[batch, heads, length, size]`, each on
/// its own.
pub(super) struct Core {
    pub q: NodeId,
    pub k: NodeId,
    pub v: NodeId,
    pub heads: usize,
    pub key_heads: usize,
    /// The size of a query's head.
    pub size: usize,
    /// The factor of the scores; `1 / √size` when none is given.
    pub scale: Option<f32>,
    /// Whether query i sees the keys up to its own place only, counted from the last query and key.
    pub causal: bool,
    /// How many keys a query sees at most, the last ones up to its own place; of `causal` attention.
    pub window: Option<usize>,
    /// What may be seen, a bool that broadcasts onto the scores `[batch, heads, queries, keys]`.
    pub seen: Option<NodeId>,
    /// Added to the scores; broadcasts onto them.
    pub bias: Option<NodeId>,
    /// The largest magnitude of a score, 0 for none.
    pub softcap: f32,
    /// A score for each head that takes part in the softmax and belongs to no key.
    pub sink: Option<NodeId>,
    /// Which scores are an output as well.
    pub shown: Shown,
}

/// Scores that are an output.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Shown {
    No,
    /// All that the softmax takes.
    Scores,
    /// The same, 0 where nothing is seen.
    SeenScores,
    /// What the softmax gives.
    Weights,
}

impl Core {
    /// An attention over all keys.
    pub fn plain(q: NodeId, k: NodeId, v: NodeId, heads: usize, size: usize) -> Core {
        Core {
            q,
            k,
            v,
            heads,
            key_heads: heads,
            size,
            scale: None,
            causal: false,
            window: None,
            seen: None,
            bias: None,
            softcap: 0.0,
            sink: None,
            shown: Shown::No,
        }
    }

    /// The result `[batch, length, heads·size]`, and the scores that are shown.
    pub fn apply(mut self, cx: Cx) -> Result<(NodeId, Option<NodeId>), Error> {
        let composite = self.softcap == 0.0 && self.sink.is_none() && self.shown == Shown::No;
        if !composite {
            return self.taken_apart(cx);
        }
        let (mut mask, mut window) = (MaskKind::None, None);
        let mut operands = vec![self.q, self.k, self.v];
        if self.seen.is_some() || self.bias.is_some() {
            mask = MaskKind::Custom;
            operands.push(self.joined_mask(cx)?);
        } else if self.causal {
            (mask, window) = (MaskKind::Causal, self.window);
        }
        let op = Op::Attention {
            num_heads: self.heads,
            head_dim: self.size,
            mask,
            window,
            scale: self.scale,
            unseen: Unseen::Zero,
        };
        let y = cx.add(op, &operands)?;
        Ok((join(cx, y)?, None))
    }

    fn queries(&self, cx: &NodeCx<'_, '_>) -> Dim {
        length(cx, self.q)
    }

    fn keys(&self, cx: &NodeCx<'_, '_>) -> Dim {
        length(cx, self.k)
    }

    /// All that is seen, the causal part included.
    fn all_seen(&mut self, cx: Cx) -> Result<Option<NodeId>, Error> {
        if !self.causal {
            return Ok(self.seen);
        }
        let (queries, keys) = (self.queries(cx), self.keys(cx));
        let causal = causal(cx, queries, keys, self.window)?;
        Ok(Some(match self.seen {
            Some(seen) => cx.binary(B::And, seen, causal)?,
            None => causal,
        }))
    }

    /// One mask for everything: what is seen, or what is added with what is not seen at minus infinity.
    fn joined_mask(&mut self, cx: Cx) -> Result<NodeId, Error> {
        let dtype = cx.shape_of(self.q).dtype();
        match (self.all_seen(cx)?, self.bias) {
            (Some(seen), None) => Ok(seen),
            (None, Some(bias)) => cx.cast(bias, dtype),
            (Some(seen), Some(bias)) => {
                let bias = cx.cast(bias, dtype)?;
                let low = cx.scalar(dtype, f64::NEG_INFINITY);
                cx.select(seen, bias, low)
            }
            (None, None) => Err(cx.malformed("a mask of nothing")),
        }
    }

    /// The definition, step by step.
    fn taken_apart(mut self, cx: Cx) -> Result<(NodeId, Option<NodeId>), Error> {
        let dtype = cx.shape_of(self.q).dtype();
        let q = split(cx, self.q, self.heads)?;
        let (k, v) = (split(cx, self.k, self.key_heads)?, split(cx, self.v, self.key_heads)?);
        let (k, v) = (self.repeated(cx, k)?, self.repeated(cx, v)?);
        let scale = self.scale.map_or(1.0 / (self.size as f64).sqrt(), f64::from);
        let k = cx.transpose(k, &[0, 1, 3, 2])?;
        let scores = cx.add(Op::MatMul, &[q, k])?;
        let mut scores = cx.with_scalar(B::Mul, scores, scale)?;
        if self.softcap != 0.0 {
            let cap = f64::from(self.softcap);
            scores = cx.with_scalar(B::Div, scores, cap)?;
            scores = cx.activation(A::Tanh, scores)?;
            scores = cx.with_scalar(B::Mul, scores, cap)?;
        }
        if let Some(bias) = self.bias {
            let bias = cx.cast(bias, dtype)?;
            scores = cx.binary(B::Add, scores, bias)?;
        }
        let mut shown = scores;
        if let Some(seen) = self.all_seen(cx)? {
            let (low, zero) = (cx.scalar(dtype, f64::NEG_INFINITY), cx.scalar(dtype, 0.0));
            if self.shown == Shown::SeenScores {
                shown = cx.select(seen, scores, zero)?;
            }
            scores = cx.select(seen, scores, low)?;
        }
        let weights = self.weights(cx, scores)?;
        let y = cx.add(Op::MatMul, &[weights, v])?;
        let shown = match self.shown {
            Shown::No => None,
            Shown::Scores => Some(scores),
            Shown::SeenScores => Some(shown),
            Shown::Weights => Some(weights),
        };
        Ok((join(cx, y)?, shown))
    }

    /// The softmax over the keys, and over the sink if there is one.
    fn weights(&self, cx: Cx, scores: NodeId) -> Result<NodeId, Error> {
        let Some(sink) = self.sink else { return cx.add(Op::Softmax { axis: 3 }, &[scores]) };
        let shape = cx.shape_of(scores);
        let sink = cx.cast(sink, shape.dtype())?;
        let one = Dim::Static(1);
        let sink = cx.reshape(sink, vec![one, Dim::Static(self.heads), one, one])?;
        let &[batch, heads, queries, keys] = shape.dims() else {
            return Err(cx.malformed("scores without four dimensions"));
        };
        let sink = cx.expand(sink, vec![batch, heads, queries, one])?;
        let all = cx.add(Op::Concat { axis: 3 }, &[scores, sink])?;
        let weights = cx.add(Op::Softmax { axis: 3 }, &[all])?;
        cx.slice_axis(weights, 3, Extent::Const(0), keys.extent())
    }

    /// Each head of the keys for all heads of the queries that share it.
    fn repeated(&self, cx: Cx, x: NodeId) -> Result<NodeId, Error> {
        if self.heads == self.key_heads {
            return Ok(x);
        }
        let times = super::parts(cx, self.heads, self.key_heads)?;
        let shape = cx.shape_of(x);
        let &[batch, kept, length, size] = shape.dims() else { return Ok(x) };
        let x = cx.unsqueeze(x, &[2])?;
        let x = cx.expand(x, vec![batch, kept, Dim::Static(times), length, size])?;
        cx.reshape(x, vec![batch, Dim::Static(self.heads), length, size])
    }
}

/// The number of rows of each head, in either layout.
pub(super) fn length(cx: &NodeCx<'_, '_>, x: NodeId) -> Dim {
    let shape = cx.shape_of(x);
    shape.dims().get(shape.rank().saturating_sub(2)).copied().unwrap_or(Dim::Static(1))
}

/// `[queries, keys]`: whether a key is not behind its query, both counted from the last, and one of the last `window` of these.
fn causal(cx: Cx, queries: Dim, keys: Dim, window: Option<usize>) -> Result<NodeId, Error> {
    let row = count(cx, queries)?;
    let row = cx.unsqueeze(row, &[1])?;
    let column = count(cx, keys)?;
    let before = cx.extent(keys.extent() - queries.extent())?;
    let row = cx.binary(B::Add, row, before)?;
    up_to(cx, column, row, window)
}

/// Whether a key is at a query's place or in front of it, and one of the last `window` of these.
pub(super) fn up_to(cx: Cx, key: NodeId, place: NodeId, window: Option<usize>) -> Result<NodeId, Error> {
    let seen = cx.compare(CmpOp::Le, key, place)?;
    let Some(window) = window else { return Ok(seen) };
    let first = cx.with_scalar(B::Sub, place, window as f64)?;
    let near = cx.compare(CmpOp::Gt, key, first)?;
    cx.binary(B::And, seen, near)
}

/// How a mask over the keys is given.
pub(super) struct PaddingMask {
    /// Which operand it is.
    pub operand: usize,
    /// Number of keys, and how many of them come from before.
    pub keys: Dim,
    pub past: Extent,
    /// Whether the keys are a buffer of which some rows are used.
    pub buffer: bool,
    pub batch: Dim,
}

impl PaddingMask {
    /// Which keys it shows, as a bool that broadcasts onto the scores.
    pub fn seen(&self, cx: Cx) -> Result<NodeId, Error> {
        let (mask, shape) = (cx.x(self.operand)?, cx.shape(self.operand)?);
        match *shape.dims() {
            [n] => self.by_lengths(cx, mask, n),
            [batch, keys] => {
                let mut mask = self.positive(cx, mask)?;
                // A mask over the new keys only says nothing of those from before, and one over the used rows of a buffer
                // nothing of the others.
                let missing = self.keys.extent() - keys.extent();
                if missing != Extent::Const(0) && (missing == self.past || self.buffer) {
                    let yes = cx.scalar(DType::Bool, 1.0);
                    let pads = vec![Extent::Const(0), at_least_zero(missing)];
                    let none = vec![Extent::Const(0); 2];
                    let (before, after) = if self.buffer { (none, pads) } else { (pads, none) };
                    mask = cx.pad(&[mask, yes], before, after, PadMode::Constant)?;
                }
                let keys = cx.shape_of(mask).dim(1);
                cx.reshape(mask, vec![batch, Dim::Static(1), Dim::Static(1), keys])
            }
            [batch, queries, keys] => {
                let mask = self.positive(cx, mask)?;
                cx.reshape(mask, vec![batch, Dim::Static(1), queries, keys])
            }
            _ => Err(cx.unsupported(format!("a mask of {} dimensions", shape.rank()))),
        }
    }

    fn positive(&self, cx: Cx, mask: NodeId) -> Result<NodeId, Error> {
        let dtype = cx.shape_of(mask).dtype();
        if dtype == DType::Bool {
            return Ok(mask);
        }
        let zero = cx.scalar(dtype, 0.0);
        cx.compare(CmpOp::Gt, mask, zero)
    }

    /// `[batch]`: how many keys of each row there are. `[2·batch]`: where they end, then where they begin.
    fn by_lengths(&self, cx: Cx, mask: NodeId, n: Dim) -> Result<NodeId, Error> {
        let mask = cx.cast(mask, DType::I64)?;
        let column = count(cx, self.keys)?;
        let part = |cx: &mut NodeCx<'_, '_>, start: Extent| {
            let part = cx.slice_axis(mask, 0, start, self.batch.extent())?;
            cx.unsqueeze(part, &[1, 2, 3])
        };
        let batch = self.batch.extent();
        if n.extent() == batch {
            let end = part(cx, Extent::Const(0))?;
            return cx.compare(CmpOp::Lt, column, end);
        }
        if n.extent() == batch * 2 {
            let (end, start) = (part(cx, Extent::Const(0))?, part(cx, batch)?);
            let before_end = cx.compare(CmpOp::Lt, column, end)?;
            let from_start = cx.compare(CmpOp::Ge, column, start)?;
            return cx.binary(B::And, before_end, from_start);
        }
        Err(cx.unsupported(format!("a mask of {n} lengths for a batch of {}", self.batch)))
    }
}

/// A mask as it is added to scores: 0 where something is seen, `filter` elsewhere. Unlike what is left out, a row of which
/// nothing is seen then has the weights that it has without the mask.
pub(super) fn added(cx: Cx, seen: NodeId, dtype: DType, filter: f32) -> Result<NodeId, Error> {
    let (zero, low) = (cx.scalar(dtype, 0.0), cx.scalar(dtype, f64::from(filter)));
    cx.select(seen, zero, low)
}

/// The sum of what is added to scores.
pub(super) fn sum(cx: Cx, a: Option<NodeId>, b: Option<NodeId>) -> Result<Option<NodeId>, Error> {
    match (a, b) {
        (Some(a), Some(b)) => Ok(Some(cx.binary(B::Add, a, b)?)),
        (a, b) => Ok(a.or(b)),
    }
}

/// New rows put behind those from before, along the third dimension.
pub(super) fn behind(cx: Cx, before: NodeId, new: NodeId) -> Result<NodeId, Error> {
    cx.add(Op::Concat { axis: 2 }, &[before, new])
}

/// What is added to scores, operand `i`; it may be shorter than a cache, whose last rows are not seen then.
pub(super) fn longer_bias(cx: Cx, i: usize, keys: Dim) -> Result<Option<NodeId>, Error> {
    let Some(bias) = cx.x_opt(i)? else { return Ok(None) };
    let shape = cx.shape_of(bias);
    let Some(&last) = shape.dims().last() else { return Ok(Some(bias)) };
    let missing = keys.extent() - last.extent();
    if missing == Extent::Const(0) || last == Dim::Static(1) {
        return Ok(Some(bias));
    }
    let (before, mut after) = (vec![Extent::Const(0); shape.rank()], vec![Extent::Const(0); shape.rank()]);
    after[shape.rank() - 1] = at_least_zero(missing);
    cx.pad(&[bias], before, after, PadMode::Constant).map(Some)
}
