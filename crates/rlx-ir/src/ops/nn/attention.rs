//! Attention (Vaswani et al. 2017; grouped heads: Ainslie et al. 2023; ONNX `Attention`, opset 23).
//!
//! For every head `h`, with the keys and values of head `h / (H / Hkv)`:
//!
//! `y = softmax(scale · q·kᵀ + mask) · v`, `scale = 1 / √D` unless given.
//!
//! Queries, keys and values come as `[B, S, H·D]` or `[B, H, S, D]`, each on its own; the result is laid out
//! as the queries are. [`MaskKind::Causal`] lets query `i` see key `j` when `j ≤ i + Sk − Sq`: the last query
//! sees everything, as with a key-value cache. With a `window` of `W` keys (local attention, sliding windows: Beltagy et al. 2020) it sees the last `W` of
//! these, `j > i + Sk − Sq − W`; devices without windows are given a mask that says so. [`Unseen`] says what a query gives that may see nothing: 0 as a rule; where
//! attention was written out without a guard against it, NaN, as the softmax there.
//!
//! A mask broadcasts onto `[B, H, Sq, Sk]` by NumPy's rule. (ONNX instead extends a mask whose last dimension
//! is short with −∞; its importer does that before it makes this op.)

use smallvec::smallvec;

use super::rows::{check_float, widened};
use crate::dim::{Dim, Extent};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, GraphExt, NodeId};
use crate::ops::def::{Arity, OpDef, Ranges};
use crate::ops::{MaskKind, Op, OpKind, Predicate, ReduceOp, Unseen, attrs};
use crate::oracle::broadcast_offsets;
use crate::shape::{Shape, Shapes, always_broadcasts, broadcast};
use crate::tensor::{Elements, Value};

#[cfg(feature = "testing")]
use crate::testing::{Case, Gen};

/// What an attention's inputs are, read off their shapes.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionDims {
    /// Independent items.
    pub batch: Dim,
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of keys and values; divides `heads`.
    pub kv_heads: usize,
    /// How many queries.
    pub queries: Dim,
    /// How many keys.
    pub keys: Dim,
    /// The size of a query or key.
    pub head_dim: usize,
    /// The size of a value.
    pub value_dim: usize,
}

impl AttentionDims {
    /// The dimensions of an attention with these inputs (`q, k, v`).
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] naming the shapes and the rule.
    pub fn of(num_heads: usize, head_dim: usize, q: &Shape, k: &Shape, v: &Shape) -> Result<Self> {
        let reject = |why: &str| {
            let message = format!("Attention of {num_heads} heads of {head_dim} over {q}, {k}, {v}: {why}");
            Err(Error::new(ErrorKind::Shape, message))
        };
        if [q, k, v].iter().any(|s| s.rank() != 3 && s.rank() != 4) {
            return reject("each is [batch, seq, heads·size] or [batch, heads, seq, size]");
        }
        if num_heads == 0 || head_dim == 0 {
            return reject("heads have a number and a size");
        }
        if heads_and_size(q, Some(num_heads), Some(head_dim)) != Some((num_heads, head_dim)) {
            return reject("the queries do not have these heads");
        }
        let Some((kv_heads, _)) = heads_and_size(k, None, Some(head_dim)) else {
            return reject("the keys do not have heads of this size");
        };
        let Some((_, value_dim)) = heads_and_size(v, Some(kv_heads), None) else {
            return reject("the values do not have the keys' heads");
        };
        if kv_heads == 0 || !num_heads.is_multiple_of(kv_heads) {
            return reject("the heads of the keys must divide those of the queries");
        }
        let seq = |s: &Shape| s.dim(s.rank() - 2);
        let differ = |a: Dim, b: Dim| a.is_static() && b.is_static() && a != b;
        if differ(seq(k), seq(v)) {
            return reject("there must be as many values as keys");
        }
        if differ(q.dim(0), k.dim(0)) || differ(q.dim(0), v.dim(0)) {
            return reject("the batches differ");
        }
        let (batch, queries, keys) = (q.dim(0), seq(q), seq(k));
        Ok(AttentionDims { batch, heads: num_heads, kv_heads, queries, keys, head_dim, value_dim })
    }

    /// The shape of the scores: `[batch, heads, queries, keys]`.
    pub fn scores(&self) -> [Dim; 4] {
        [self.batch, Dim::Static(self.heads), self.queries, self.keys]
    }
}

/// Number and size of the heads of a query, key or value, given one of them where the shape does not say.
fn heads_and_size(s: &Shape, heads: Option<usize>, size: Option<usize>) -> Option<(usize, usize)> {
    if s.rank() == 4 {
        let found = (s.dim(1).as_static()?, s.dim(3).as_static()?);
        let fits = heads.is_none_or(|h| h == found.0) && size.is_none_or(|d| d == found.1);
        return fits.then_some(found);
    }
    let all = s.dim(2).as_static()?;
    let (count, size) = match (heads, size) {
        (Some(h), None) => (h, all.checked_div(h)?),
        (_, Some(d)) => (all.checked_div(d)?, d),
        (None, None) => return None,
    };
    (count.checked_mul(size) == Some(all)).then_some((count, size))
}

/// The mask: of the scores' element type or bool, and broadcasting onto the scores.
fn check_mask(mask: &Shape, q: &Shape, dims: &AttentionDims) -> Result<()> {
    let scores = Shape::from_dims(&dims.scores(), q.dtype());
    if mask.dtype() != DType::Bool && mask.dtype() != q.dtype() {
        let message = format!("Attention over {q}: the mask {mask} must be bool or of the same element type");
        return Err(Error::new(ErrorKind::DType, message).with_hint("insert a Cast"));
    }
    let onto = broadcast(&[mask, &scores]).map(|d| Shape::from_dims(&d, q.dtype()));
    let grows =
        |a: &Shape| a.dims().iter().zip(scores.dims()).any(|(a, b)| a.is_static() && b.is_static() && a != b);
    match onto {
        Ok(onto) if onto.rank() == 4 && !grows(&onto) => Ok(()),
        _ => Err(Error::new(
            ErrorKind::Shape,
            format!("Attention: the mask {mask} does not broadcast onto {scores}"),
        )),
    }
}

/// A window is one of causal attention, and has some keys.
fn check_window(mask: MaskKind, window: Option<usize>) -> Result<()> {
    let Some(window) = window else { return Ok(()) };
    if mask == MaskKind::Causal && (1..=i32::MAX as usize).contains(&window) {
        return Ok(());
    }
    let message = format!("Attention with a window of {window} keys and a mask of kind {mask:?}");
    Err(Error::new(ErrorKind::Value, message).with_hint("causal attention has windows, of 1 to 2³¹ − 1 keys"))
}

/// Where element `(b, h, s, d)` is in a tensor of either layout.
fn at(dims: &[usize], size: usize, b: usize, h: usize, s: usize, d: usize) -> usize {
    match dims {
        [_, heads, seq, size] => ((b * heads + h) * seq + s) * size + d,
        _ => (b * dims[1] + s) * dims[2] + h * size + d,
    }
}

/// [`Op::Attention`].
pub struct AttentionDef;

impl OpDef for AttentionDef {
    fn arity(&self, op: &Op) -> Arity {
        Arity::Exact(if matches!(op, Op::Attention { mask: MaskKind::Custom, .. }) { 4 } else { 3 })
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => Attention { num_heads, head_dim, mask, window });
        check_window(*mask, *window)?;
        let (q, k, v) = (inputs[0], inputs[1], inputs[2]);
        check_float(OpKind::Attention, q)?;
        if k.dtype() != q.dtype() || v.dtype() != q.dtype() {
            let message = format!("Attention over {q}, {k}, {v}: element types differ");
            return Err(Error::new(ErrorKind::DType, message).with_hint("insert a Cast"));
        }
        let dims = AttentionDims::of(*num_heads, *head_dim, q, k, v)?;
        if let Some(mask) = inputs.get(3) {
            check_mask(mask, q, &dims)?;
        }
        let result = match q.rank() {
            3 => vec![
                dims.batch,
                dims.queries,
                Dim::from((Extent::Const(dims.value_dim as i64)) * dims.heads as i64),
            ],
            _ => vec![dims.batch, Dim::Static(dims.heads), dims.queries, Dim::Static(dims.value_dim)],
        };
        Ok(smallvec![q.with_dims(result)])
    }

    fn holds_for_all(&self, op: &Op, inputs: &[&Shape], _: Ranges<'_>) -> bool {
        let Op::Attention { num_heads, head_dim, .. } = op else { return false };
        let (q, k, v) = (inputs[0], inputs[1], inputs[2]);
        let seq = |s: &Shape| s.dim(s.rank() - 2);
        let masks = |dims: AttentionDims| always_broadcasts(&inputs[3..], &dims.scores());
        seq(k) == seq(v)
            && q.dim(0) == k.dim(0)
            && q.dim(0) == v.dim(0)
            && AttentionDims::of(*num_heads, *head_dim, q, k, v).is_ok_and(masks)
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => Attention { num_heads, head_dim, mask, window, scale, unseen });
        let (q, k, v) = (inputs[0], inputs[1], inputs[2]);
        let d = AttentionDims::of(*num_heads, *head_dim, &q.shape(), &k.shape(), &v.shape())?;
        let fixed = |dim: Dim| dim.as_static().unwrap_or(0);
        let (batch, queries, keys) = (fixed(d.batch), fixed(d.queries), fixed(d.keys));
        let (qs, ks, vs) = (q.floats()?, k.floats()?, v.floats()?);
        let scale = scale.map_or(1.0 / (d.head_dim as f64).sqrt(), f64::from);
        let biases = mask_biases(inputs.get(3).copied(), &[batch, d.heads, queries, keys]);
        let out_dims = results[0].static_dims().unwrap_or_default();
        let mut out = vec![0.0; out_dims.iter().product()];
        for row in 0..batch * d.heads * queries {
            let (b, h, i) = (row / (d.heads * queries), row / queries % d.heads, row % queries);
            let shared = h / (d.heads / d.kv_heads);
            let score = |j: usize| {
                let product = |e| {
                    qs[at(&q.dims, d.head_dim, b, h, i, e)] * ks[at(&k.dims, d.head_dim, b, shared, j, e)]
                };
                // How many keys there are up to the query's own position, behind this one.
                let behind = (i + keys) as i64 - (j + queries) as i64;
                let near = window.is_none_or(|window| behind < window as i64);
                let seen = *mask != MaskKind::Causal || (behind >= 0 && near);
                let bias = if seen { biases[row * keys + j] } else { f64::NEG_INFINITY };
                (0..d.head_dim).map(product).sum::<f64>() * scale + bias
            };
            let weights = weights(&(0..keys).map(score).collect::<Vec<f64>>(), *unseen);
            for e in 0..d.value_dim {
                let value = |j: usize| weights[j] * vs[at(&v.dims, d.value_dim, b, shared, j, e)];
                out[at(&out_dims, d.value_dim, b, h, i, e)] = (0..keys).map(value).sum();
            }
        }
        Ok(vec![Value::float(q.dtype, &out_dims, out)])
    }

    fn decompose(&self, op: &Op, inputs: &[NodeId], g: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        Some(decompose(g, inputs, op).map(|id| vec![id]))
    }

    fn flops(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> f64 {
        let Op::Attention { num_heads, head_dim, window, .. } = op else { return 0.0 };
        let Ok(d) = AttentionDims::of(*num_heads, *head_dim, inputs[0], inputs[1], inputs[2]) else {
            return 0.0;
        };
        let [batch, heads, queries, keys] = d.scores().map(|n| n.as_static().unwrap_or(0) as f64);
        let scores = batch * heads * queries * window.map_or(keys, |window| keys.min(window as f64));
        // Two matmuls over the scores, and a softmax.
        scores * (2.0 * d.head_dim as f64 + 2.0 * d.value_dim as f64 + 5.0)
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let shape = AttentionShape {
            kv_heads: g.size(1..=2),
            groups: g.size(1..=3),
            head_dim: g.size(1..=6),
            value_dim: g.size(1..=6),
            batch: g.size(1..=2),
            queries: g.size(1..=5),
            keys: g.size(1..=7),
        };
        let dtype = g.dtype_where(|d| d.is_float());
        random_attention(g, dtype, &shape)
    }
}

/// The sizes of a random attention: a few elements for the op itself, as many as a device's programs have for those.
#[cfg(feature = "testing")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionShape {
    /// Items.
    pub batch: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Heads of queries for each of those.
    pub groups: usize,
    /// Queries of a head.
    pub queries: usize,
    /// Keys of a head.
    pub keys: usize,
    /// Elements of a query and of a key.
    pub head_dim: usize,
    /// Elements of a value.
    pub value_dim: usize,
}

/// A random attention of these sizes: heads beside or above each other, any mask, repeated or not, which forbids some keys and now and then all of a query's,
/// any scale, anything for queries that see nothing.
#[cfg(feature = "testing")]
pub fn random_attention(g: &mut Gen, dtype: DType, s: &AttentionShape) -> Case {
    let num_heads = s.kv_heads * s.groups;
    let operand = |g: &mut Gen, heads: usize, seq: usize, size: usize| {
        let beside = g.chance(0.5);
        let dims = if beside { vec![s.batch, seq, heads * size] } else { vec![s.batch, heads, seq, size] };
        g.value(dtype, &dims, -1.0..1.0)
    };
    let mut inputs = vec![
        operand(g, num_heads, s.queries, s.head_dim),
        operand(g, s.kv_heads, s.keys, s.head_dim),
        operand(g, s.kv_heads, s.keys, s.value_dim),
    ];
    let mask: MaskKind = g.variant();
    if mask == MaskKind::Custom {
        let full = [s.batch, num_heads, s.queries, s.keys];
        let mut dims: Vec<usize> = full.iter().map(|&d| if g.chance(0.3) { 1 } else { d }).collect();
        let drop = g.size(0..=2);
        dims.drain(..drop);
        let of = if g.chance(0.5) { DType::Bool } else { dtype };
        let mut values = g.value(of, &dims, -2.0..2.0);
        if let Elements::Float(v) = &mut values.elements {
            let forbidden = g.pick(&[0.0, 0.3, 0.8]);
            v.iter_mut().filter(|_| g.chance(forbidden)).for_each(|x| *x = f64::NEG_INFINITY);
        }
        inputs.push(values);
    }
    let windowed = mask == MaskKind::Causal && g.chance(0.5);
    let window = windowed.then(|| g.size(1..=s.keys + 2));
    let scale = g.chance(0.3).then_some(0.25);
    let unseen = g.variant();
    Case::new(Op::Attention { num_heads, head_dim: s.head_dim, mask, window, scale, unseen }, inputs)
}

/// What the mask adds to each score.
fn mask_biases(mask: Option<&Value>, scores: &[usize; 4]) -> Vec<f64> {
    let Some(mask) = mask else { return vec![0.0; scores.iter().product()] };
    let bias = |at: usize| match &mask.elements {
        Elements::Float(v) => v[at],
        Elements::Int(v) if v[at] != 0 => 0.0,
        Elements::Int(_) => f64::NEG_INFINITY,
    };
    broadcast_offsets(&mask.dims, scores).into_iter().map(bias).collect()
}

/// The softmax of a row of scores.
fn weights(scores: &[f64], unseen: Unseen) -> Vec<f64> {
    let nan = scores.iter().any(|x| x.is_nan());
    let largest = if nan { f64::NAN } else { scores.iter().copied().fold(f64::NEG_INFINITY, f64::max) };
    let exp: Vec<f64> = scores.iter().map(|x| (x - largest).exp()).collect();
    let sum: f64 = exp.iter().sum();
    let zero = match unseen {
        Unseen::Zero => largest == f64::NEG_INFINITY,
        Unseen::Nan => false,
        Unseen::Guard => sum.is_nan(),
    };
    exp.iter().map(|e| if zero { 0.0 } else { e / sum }).collect()
}

fn decompose(g: &mut Graph, inputs: &[NodeId], op: &Op) -> Result<NodeId> {
    attrs!(op => Attention { num_heads, head_dim, mask, window, scale, unseen });
    let (num_heads, head_dim, mask) = (*num_heads, *head_dim, *mask);
    let shapes: Vec<Shape> = inputs.iter().map(|&id| g.try_shape(id).cloned()).collect::<Result<_>>()?;
    let d = AttentionDims::of(num_heads, head_dim, &shapes[0], &shapes[1], &shapes[2])?;
    if window.is_some() {
        // With a mask, devices may have it whole.
        let seen = causal(g, &d, *window)?;
        let (mask, window) = (MaskKind::Custom, None);
        let op = Op::Attention { num_heads, head_dim, mask, window, scale: *scale, unseen: *unseen };
        return g.try_emit(op, &[inputs[0], inputs[1], inputs[2], seen]);
    }
    let wide = widened(g, &inputs[..3])?;
    let dtype = g.try_shape(wide[0])?.dtype();
    let groups = d.heads / d.kv_heads;
    // Heads that share keys become rows of one matrix: [B, Hkv, groups·Sq, D].
    let q = heads_first(g, wide[0], d.heads, d.head_dim)?;
    let shared = Dim::from(d.queries.extent() * groups as i64);
    let kv = Dim::Static(d.kv_heads);
    let q = g.try_reshape_to(q, &[d.batch, kv, shared, Dim::Static(d.head_dim)])?;
    let k = heads_first(g, wide[1], d.kv_heads, d.head_dim)?;
    let v = heads_first(g, wide[2], d.kv_heads, d.value_dim)?;
    let k = g.try_transpose(k, &[0, 1, 3, 2])?;
    let scores = g.try_mm(q, k)?;
    let scores = g.try_reshape_to(scores, &d.scores())?;
    let scale = scale.map_or(1.0 / (d.head_dim as f64).sqrt(), f64::from);
    let scale = g.try_scalar(scale, dtype)?;
    let scores = g.try_mul(scores, scale)?;
    let scores = masked(g, scores, mask, inputs.get(3).copied(), &d)?;
    let weights = weigh(g, scores, *unseen)?;
    let weights = g.try_reshape_to(weights, &[d.batch, kv, shared, d.keys])?;
    let y = g.try_mm(weights, v)?;
    let y = g.try_reshape_to(y, &[d.batch, Dim::Static(d.heads), d.queries, Dim::Static(d.value_dim)])?;
    let y = if shapes[0].rank() == 3 {
        let y = g.try_transpose(y, &[0, 2, 1, 3])?;
        g.try_reshape_to(y, &[d.batch, d.queries, Dim::Static(d.heads * d.value_dim)])?
    } else {
        y
    };
    g.try_cast(y, shapes[0].dtype())
}

/// `[B, S, H·D]` as `[B, H, S, D]`; the other layout is that already.
fn heads_first(g: &mut Graph, x: NodeId, heads: usize, size: usize) -> Result<NodeId> {
    let shape = g.try_shape(x)?.clone();
    if shape.rank() == 4 {
        return Ok(x);
    }
    let x = g.try_reshape_to(x, &[shape.dim(0), shape.dim(1), Dim::Static(heads), Dim::Static(size)])?;
    g.try_transpose(x, &[0, 2, 1, 3])
}

/// `[queries, keys]`: whether causal attention lets a query see a key, one of the last `window` up to its own position.
fn causal(g: &mut Graph, d: &AttentionDims, window: Option<usize>) -> Result<NodeId> {
    let all = g.try_constant(Value::bools(&[], [true]).to_const())?;
    let all = g.try_expand(all, &[d.queries, d.keys])?;
    let shift = d.keys.extent() - d.queries.extent();
    let seen = g.try_emit(Op::Trilu { upper: false, k: shift }, &[all])?;
    let Some(window) = window else { return Ok(seen) };
    g.try_emit(Op::Trilu { upper: true, k: shift + (1 - window as i64) }, &[seen])
}

/// The scores where they may be seen, −∞ elsewhere, or the scores plus an additive mask.
fn masked(
    g: &mut Graph,
    scores: NodeId,
    kind: MaskKind,
    mask: Option<NodeId>,
    d: &AttentionDims,
) -> Result<NodeId> {
    let dtype = g.try_shape(scores)?.dtype();
    let allowed = match (kind, mask) {
        (MaskKind::Causal, _) => causal(g, d, None)?,
        (MaskKind::Custom, Some(mask)) if g.try_shape(mask)?.dtype() != DType::Bool => {
            let mask = g.try_cast(mask, dtype)?;
            return g.try_add_(scores, mask);
        }
        (MaskKind::Custom, Some(mask)) => mask,
        _ => return Ok(scores),
    };
    let never = g.try_scalar(f64::NEG_INFINITY, dtype)?;
    g.try_where(allowed, scores, never)
}

/// The softmax over the last dimension. Where every score is −∞ it is 0 if need be: the maximum is held above −∞, and the
/// sum of exponentials (at least 1 where anything may be seen) above 0.
fn weigh(g: &mut Graph, scores: NodeId, unseen: Unseen) -> Result<NodeId> {
    let dtype = g.try_shape(scores)?.dtype();
    if unseen != Unseen::Zero {
        let p = g.try_sm(scores, -1)?;
        if unseen == Unseen::Nan {
            return Ok(p);
        }
        let (none, zero) = (g.try_emit(Op::Predicate(Predicate::IsNan), &[p])?, g.try_scalar(0.0, dtype)?);
        return g.try_where(none, zero, p);
    }
    let largest = g.try_reduce(scores, ReduceOp::Max, &[-1], true)?;
    let floor = g.try_scalar(f64::from(f32::MIN), dtype)?;
    let largest = g.try_maximum(largest, floor)?;
    let shifted = g.try_sub(scores, largest)?;
    let exp = g.try_exp(shifted)?;
    let sum = g.try_sum(exp, &[-1], true)?;
    let half = g.try_scalar(0.5, dtype)?;
    let sum = g.try_maximum(sum, half)?;
    g.try_div(exp, sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::evaluate_op;

    fn floats(dims: &[usize], v: &[f64]) -> Value {
        Value::float(DType::F64, dims, v.to_vec())
    }

    #[test]
    fn causal_is_aligned_at_the_ends() {
        let (q, k) = (floats(&[1, 2, 1], &[0.0, 0.0]), floats(&[1, 3, 1], &[0.0; 3]));
        let v = floats(&[1, 3, 1], &[1.0, 3.0, 8.0]);
        let op = Op::Attention {
            num_heads: 1,
            head_dim: 1,
            mask: MaskKind::Causal,
            window: None,
            scale: None,
            unseen: Unseen::Zero,
        };
        assert_eq!(evaluate_op(&op, &[&q, &k, &v], &[]).unwrap()[0].to_f64(), [2.0, 4.0]);
        // More queries than keys: the first ones see nothing.
        assert_eq!(evaluate_op(&op, &[&k, &q, &q], &[]).unwrap()[0].to_f64(), [0.0; 3]);
    }

    #[test]
    fn windows_are_the_last_keys_up_to_a_query() {
        let (q, k) = (floats(&[1, 2, 1], &[0.0, 0.0]), floats(&[1, 4, 1], &[0.0; 4]));
        let v = floats(&[1, 4, 1], &[1.0, 3.0, 8.0, 20.0]);
        let of = |mask, window| {
            let (scale, unseen) = (None, Unseen::Zero);
            Op::Attention { num_heads: 1, head_dim: 1, mask, window: Some(window), scale, unseen }
        };
        let attend = |window, q: &Value, k: &Value, v: &Value| {
            evaluate_op(&of(MaskKind::Causal, window), &[q, k, v], &[]).map(|y| y[0].to_f64())
        };
        assert_eq!(attend(1, &q, &k, &v).unwrap(), [8.0, 20.0]);
        assert_eq!(attend(2, &q, &k, &v).unwrap(), [5.5, 14.0]);
        assert_eq!(attend(9, &q, &k, &v).unwrap(), [4.0, 8.0]);
        // More queries than keys: the first ones see nothing.
        assert_eq!(attend(1, &k, &q, &floats(&[1, 2, 1], &[5.0, 7.0])).unwrap(), [0.0, 0.0, 5.0, 7.0]);
        // A window has some keys, and is one of causal attention.
        let f = Shape::new(&[1, 2, 1], DType::F32);
        for op in [of(MaskKind::Causal, 0), of(MaskKind::Causal, 1 << 31), of(MaskKind::None, 1)] {
            let error = op.def().infer(&op, &[&f, &f, &f], &[]).unwrap_err();
            assert!(error.to_string().contains("with a window of"), "{error}");
        }
    }

    #[test]
    fn heads_share_keys_and_masks_choose() {
        let q = floats(&[1, 2, 1, 1], &[0.0, 0.0]);
        let k = floats(&[1, 1, 2, 1], &[1.0, 5.0]);
        let mask = Value::bools(&[2, 1, 2], [true, false, false, false]);
        let attend = |unseen, k: &Value| {
            let (mask_kind, scale) = (MaskKind::Custom, Some(1.0));
            let op =
                Op::Attention { num_heads: 2, head_dim: 1, mask: mask_kind, window: None, scale, unseen };
            evaluate_op(&op, &[&q, k, k, &mask], &[]).unwrap()[0].to_f64()
        };
        assert_eq!(attend(Unseen::Zero, &k), [1.0, 0.0]);
        assert_eq!(attend(Unseen::Guard, &k), [1.0, 0.0]);
        let [seen, unseen] = attend(Unseen::Nan, &k)[..] else { panic!("two queries") };
        assert!(seen == 1.0 && unseen.is_nan());
        // A score that is no number is nothing unseen; a guard hides it all the same.
        let k = floats(&[1, 1, 2, 1], &[f64::NAN, 5.0]);
        assert!(attend(Unseen::Zero, &k)[0].is_nan() && attend(Unseen::Nan, &k)[0].is_nan());
    }

    #[test]
    fn mismatches_are_named() {
        let f = |d: &[usize]| Shape::new(d, DType::F32);
        let fails = |heads, q: &[usize], k: &[usize], v: &[usize]| {
            AttentionDims::of(heads, 4, &f(q), &f(k), &f(v)).unwrap_err().to_string()
        };
        assert!(fails(2, &[1, 3, 12], &[1, 3, 8], &[1, 3, 8]).contains("do not have these heads"));
        assert!(fails(3, &[1, 3, 12], &[1, 3, 8], &[1, 3, 8]).contains("must divide"));
        assert!(fails(2, &[1, 3, 8], &[1, 3, 8], &[1, 4, 8]).contains("as many values"));
        assert!(fails(2, &[1, 3, 8], &[2, 3, 8], &[2, 3, 8]).contains("batches"));
    }
}
