//! Attention: `softmax(scale·q·kᵀ + mask)·v`, with everything exporters put in between.
//!
//! The scale may be on the queries, the keys (as roots on both) or the scores. The mask may be added, or choose
//! between the scores and −∞. Keys and values may be repeated for groups of heads. The weights may be guarded
//! against NaN, which is what a query gets that may see nothing. What is in front of the heads, such as images and the
//! windows of each, is one batch.

use rlx_ir::op::{Activation as A, BinaryOp as B, MaskKind, Predicate, Unseen};
use rlx_ir::{DType, Dim, Extent, Node, NodeId, Op, Result};

use super::View;
use crate::facts;
use crate::passes::simplify::Simplifier;

/// What is added to forbidden scores is at most this; smaller numbers leave forbidden keys some weight.
const FORBIDDEN: f64 = -1e9;

/// The parts of an attention, as nodes of the old graph.
struct Parts {
    q: NodeId,
    /// `[…, D, Sk]`
    k_transposed: NodeId,
    v: NodeId,
    scale: f64,
    masks: Vec<Mask>,
    unseen: Unseen,
}

/// What is done to the scores.
#[derive(Clone, Copy)]
enum Mask {
    /// This is added.
    Added(NodeId),
    /// Where this is true they stay, elsewhere they become the number.
    Stay(NodeId, f64),
    /// Where this is true they become the number.
    Become(NodeId, f64),
    /// This is added to the scores seen as groups of items, as windows of an image are: the sum, and what it is
    /// reshaped to.
    Grouped { mask: NodeId, sum: NodeId, items: NodeId },
}

/// What stands for the last product of an attention written out.
pub(super) fn recognize(view: &View<'_>, node: &Node, s: &mut Simplifier<'_>) -> Result<Option<NodeId>> {
    if node.op != Op::MatMul || !node.shape.dtype().is_float() {
        return Ok(None);
    }
    let Some(parts) = parts(view, node) else { return Ok(None) };
    build(view, node, &parts, s)
}

/// Reads the parts, following single uses only.
fn parts(view: &View<'_>, node: &Node) -> Option<Parts> {
    let (weights, unseen) = softmax_below(view, node)?;
    let Op::Softmax { axis } = weights.op else { return None };
    let last = weights.shape.rank() as i32 - 1;
    if axis != -1 && axis != last {
        return None;
    }
    let (v, masks) = (node.inputs[1], Vec::new());
    let mut parts = Parts { q: node.id, k_transposed: node.id, v, scale: 1.0, masks, unseen };
    let mut scores = weights.inputs[0];
    loop {
        let step = view.node(scores);
        if view.users[scores.index()].len() != 1 || view.outputs[scores.index()] {
            return None;
        }
        scores = match step.op {
            Op::MatMul => break,
            Op::Binary(B::Mul) => {
                parts.scale *= facts::uniform(view.graph, step.inputs[1])?;
                step.inputs[0]
            }
            Op::Binary(B::Div) => {
                parts.scale /= facts::uniform(view.graph, step.inputs[1])?;
                step.inputs[0]
            }
            // A mask below the scale would be scaled too.
            Op::Binary(B::Add) if parts.scale == 1.0 => {
                let (x, mask) = scores_and_other(view, step.inputs[0], step.inputs[1])?;
                parts.masks.push(Mask::Added(mask));
                x
            }
            Op::Where if parts.scale == 1.0 => {
                let (x, mask) = chosen(view, step)?;
                parts.masks.push(mask);
                x
            }
            Op::Reshape { .. } if parts.scale == 1.0 => {
                let (x, mask) = grouped(view, step)?;
                parts.masks.push(mask);
                x
            }
            _ => return None,
        };
        // A mask of more items than there are scores would repeat them.
        if view.node(scores).shape.dims() != step.shape.dims() {
            return None;
        }
    }
    let product = view.node(scores);
    (parts.q, parts.k_transposed) = (product.inputs[0], product.inputs[1]);
    Some(parts)
}

/// The softmax whose result `node` multiplies, through a guard `Where(IsNaN(p), 0, p)` if there is one, which decides what
/// a query gets that may see nothing.
fn softmax_below<'v>(view: &'v View<'_>, node: &Node) -> Option<(&'v Node, Unseen)> {
    let used_only_by = |id: NodeId, users: &[NodeId]| {
        !view.outputs[id.index()] && view.users[id.index()].iter().all(|u| users.contains(u))
    };
    let weights = view.node(node.inputs[0]);
    if matches!(weights.op, Op::Softmax { .. }) {
        return used_only_by(weights.id, &[node.id]).then_some((weights, Unseen::Nan));
    }
    let (Op::Where, [is_nan, zero, weights_again]) = (&weights.op, weights.inputs.as_slice()) else {
        return None;
    };
    let guard = view.node(*is_nan);
    let guards = guard.op == Op::Predicate(Predicate::IsNan)
        && guard.inputs[0] == *weights_again
        && facts::uniform(view.graph, *zero) == Some(0.0)
        && used_only_by(weights.id, &[node.id])
        && used_only_by(guard.id, &[weights.id])
        && used_only_by(*weights_again, &[weights.id, guard.id]);
    guards.then(|| (view.node(*weights_again), Unseen::Guard))
}

/// Which of the two leads to the product of queries and keys; the other one is the mask.
fn scores_and_other(view: &View<'_>, a: NodeId, b: NodeId) -> Option<(NodeId, NodeId)> {
    if leads_to_matmul(view, a) {
        Some((a, b))
    } else if leads_to_matmul(view, b) {
        Some((b, a))
    } else {
        None
    }
}

fn leads_to_matmul(view: &View<'_>, mut id: NodeId) -> bool {
    // Scale, masks: a few steps at most.
    for _ in 0..6 {
        let node = view.node(id);
        id = match node.op {
            Op::MatMul => return true,
            Op::Binary(B::Mul | B::Div | B::Add) => node.inputs[0],
            Op::Where if facts::uniform(view.graph, node.inputs[1]).is_none() => node.inputs[1],
            Op::Where => node.inputs[2],
            _ => return false,
        };
    }
    false
}

/// `Where(allowed, scores, −∞)` or `Where(forbidden, −∞, scores)`.
fn chosen(view: &View<'_>, node: &Node) -> Option<(NodeId, Mask)> {
    let (condition, a, b) = (node.inputs[0], node.inputs[1], node.inputs[2]);
    let forbids = |id: NodeId| facts::uniform(view.graph, id).filter(|&v| v <= FORBIDDEN);
    match (forbids(a), forbids(b)) {
        (None, Some(v)) => Some((a, Mask::Stay(condition, v))),
        (Some(v), None) => Some((b, Mask::Become(condition, v))),
        _ => None,
    }
}

/// `Reshape(Add(Reshape(scores), mask))` with scores `[G·W, H, Sq, Sk]` as `[G, W, H, Sq, Sk]` in between.
fn grouped(view: &View<'_>, items: &Node) -> Option<(NodeId, Mask)> {
    let single = |id: NodeId| view.users[id.index()].len() == 1 && !view.outputs[id.index()];
    let sum = view.node(items.inputs[0]);
    if sum.op != Op::Binary(B::Add) || !single(sum.id) {
        return None;
    }
    let splits = |id: NodeId| {
        let node = view.node(id);
        let whole =
            matches!(node.op, Op::Reshape { .. }) && single(id) && node.shape.dims() == sum.shape.dims();
        whole.then(|| node.inputs[0]).filter(|&x| view.node(x).shape == items.shape)
    };
    let (a, b) = (sum.inputs[0], sum.inputs[1]);
    let (x, mask) = match (splits(a), splits(b)) {
        (Some(x), _) => (x, b),
        (None, Some(x)) => (x, a),
        (None, None) => return None,
    };
    let (whole, parts) = (items.shape.dims(), sum.shape.dims());
    let fits = whole.len() == 4 && parts.len() == 5 && parts[2..] == whole[1..];
    fits.then_some((x, Mask::Grouped { mask, sum: sum.id, items: items.id }))
}

/// Heads, positions and sizes, all of which must fit.
struct Form {
    heads: usize,
    head_dim: usize,
    /// Whether the operands have no dimension of heads: each item is one head then.
    flat: bool,
    /// Whether there are several dimensions in front of the heads, which become one.
    joined: bool,
}

fn form(view: &View<'_>, node: &Node, parts: &Parts) -> Option<Form> {
    let dims = |id: NodeId| view.graph.shape(id).dims().to_vec();
    let (q, k, v) = (dims(parts.q), dims(parts.k_transposed), dims(parts.v));
    let rank = node.shape.rank();
    if rank < 3 || [q.len(), k.len(), v.len()] != [rank; 3] {
        return None;
    }
    // Leading dimensions are equal, and so are the sizes that the products sum over.
    let lead = rank - 2;
    let fits = q[..lead] == k[..lead]
        && q[..lead] == v[..lead]
        && q[rank - 1] == k[rank - 2]
        && k[rank - 1] == v[rank - 2];
    let heads = if rank == 3 { Some(1) } else { q[lead - 1].as_static() };
    let (heads, head_dim) = heads.zip(q[rank - 1].as_static())?;
    v[rank - 1].as_static()?;
    (fits && heads > 0 && head_dim > 0).then_some(Form { heads, head_dim, flat: rank == 3, joined: rank > 4 })
}

fn build(view: &View<'_>, node: &Node, parts: &Parts, s: &mut Simplifier<'_>) -> Result<Option<NodeId>> {
    let Some(form) = form(view, node, parts) else { return Ok(None) };
    let (q_scale, mut q) = without_scale(view, parts.q, s)?;
    let (k_scale, k) = without_scale(view, parts.k_transposed, s)?;
    let mut v = s.rewriter().new_id(parts.v);
    let rank = node.shape.rank();
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.swap(rank - 1, rank - 2);
    let mut k = s.transpose(k, perm)?;
    if form.flat {
        for x in [&mut q, &mut k, &mut v] {
            let mut dims = s.dims(*x).to_vec();
            dims.insert(1, Dim::Static(1));
            *x = s.reshape(*x, dims)?;
        }
    }
    for x in [&mut q, &mut k, &mut v] {
        *x = one_batch(s, *x)?;
    }
    if !form.flat
        && let (Some(one_k), Some(one_v)) = (unrepeated(s, k)?, unrepeated(s, v)?)
        && s.dims(one_k)[1] == s.dims(one_v)[1]
    {
        (k, v) = (one_k, one_v);
    }
    let Some(mask) = masks(view, node, parts, &form, s)? else { return Ok(None) };
    let scale = parts.scale * q_scale * k_scale;
    let usual = 1.0 / (form.head_dim as f64).sqrt();
    let scale = if (scale - usual).abs() <= 1e-6 * usual { None } else { Some(scale as f32) };
    let kind = if mask.is_some() { MaskKind::Custom } else { MaskKind::None };
    let (num_heads, head_dim, unseen) = (form.heads, form.head_dim, parts.unseen);
    let op = Op::Attention { num_heads, head_dim, mask: kind, window: None, scale, unseen };
    let dims = s.dims(q).to_vec();
    let value_dim = s.dims(v)[3];
    let rows = heads_last(s, q)?;
    let (k, v) = (heads_last(s, k)?.unwrap_or(k), heads_last(s, v)?.unwrap_or(v));
    let mut inputs = vec![rows.unwrap_or(q), k, v];
    inputs.extend(mask);
    let y = s.build(op, &inputs)?;
    let y = match rows {
        Some(_) => {
            let y = s.reshape(y, vec![dims[0], dims[2], dims[1], value_dim])?;
            s.transpose(y, vec![0, 2, 1, 3])?
        }
        None => y,
    };
    s.reshape(y, node.shape.dims().to_vec()).map(Some)
}

/// `[B, H, S, D]` of `[…, H, S, D]`, below a transpose that leaves what is in front of the heads where it is.
fn one_batch(s: &mut Simplifier<'_>, id: NodeId) -> Result<NodeId> {
    let Some(outer) = s.dims(id).len().checked_sub(3).filter(|&outer| outer > 1) else { return Ok(id) };
    let joined = |dims: &[Dim]| {
        let batch = dims[..outer].iter().fold(Extent::from(1i64), |all, dim| all * dim.extent());
        [&[Dim::from(batch)], &dims[outer..]].concat()
    };
    if let Op::Transpose { perm } = s.op(id).clone()
        && perm[..outer].iter().copied().eq(0..outer)
    {
        let below = s.input(id, 0);
        let dims = joined(s.dims(below));
        let x = s.reshape(below, dims)?;
        let perm = std::iter::once(0).chain(perm[outer..].iter().map(|axis| axis - outer + 1));
        return s.transpose(x, perm.collect());
    }
    let dims = joined(s.dims(id));
    s.reshape(id, dims)
}

/// `id` without the multiplication by a constant that is below its movement, and that constant.
fn without_scale(view: &View<'_>, id: NodeId, s: &mut Simplifier<'_>) -> Result<(f64, NodeId)> {
    let (mut at, mut movement) = (id, Vec::new());
    let scale = loop {
        let node = view.node(at);
        match &node.op {
            Op::Transpose { .. } | Op::Reshape { .. } | Op::Expand { .. } => movement.push(node.op.clone()),
            Op::Binary(B::Mul) => match facts::uniform(view.graph, node.inputs[1]) {
                Some(c) if view.graph.shape(node.inputs[0]) == &node.shape => {
                    at = node.inputs[0];
                    break c;
                }
                _ => return Ok((1.0, s.rewriter().new_id(id))),
            },
            _ => return Ok((1.0, s.rewriter().new_id(id))),
        }
        at = node.inputs[0];
    };
    let mut x = s.rewriter().new_id(at);
    for op in movement.into_iter().rev() {
        x = s.build(op, &[x])?;
    }
    Ok((scale, x))
}

/// The keys or values before each head was repeated for a group of queries' heads: `[B, Hkv, 1, S, D]` made
/// larger to `[B, Hkv, G, S, D]` and merged, dimensions of 1 standing anywhere.
fn unrepeated(s: &mut Simplifier<'_>, id: NodeId) -> Result<Option<NodeId>> {
    const ONE: Dim = Dim::Static(1);
    let dims = s.dims(id).to_vec();
    if !matches!(s.op(id), Op::Reshape { .. }) {
        return Ok(None);
    }
    let Op::Expand { to } = s.op(s.input(id, 0)).clone() else { return Ok(None) };
    let one = s.input(s.input(id, 0), 0);
    let from = s.dims(one).to_vec();
    let grown: Vec<usize> = (0..to.len()).filter(|&i| from.get(i) != Some(&to[i])).collect();
    let &[at] = grown.as_slice() else { return Ok(None) };
    let sizes = to[at].as_static().zip(dims[1].as_static()).filter(|(g, h)| *g > 0 && h % g == 0);
    let Some((group, heads)) = sizes.filter(|_| from.len() == to.len() && from[at] == ONE) else {
        return Ok(None);
    };
    let kept = Dim::Static(heads / group);
    let large = |dims: &[Dim]| dims.iter().copied().filter(|&d| d != ONE).collect::<Vec<Dim>>();
    let repeats = large(&to) == large(&[dims[0], kept, to[at], dims[2], dims[3]])
        && large(&to[..at]).len() == large(&[dims[0], kept]).len();
    if !repeats {
        return Ok(None);
    }
    s.reshape(one, vec![dims[0], kept, dims[2], dims[3]]).map(Some)
}

/// `[B, S, H·D]` in place of `[B, H, S, D]` that is a transpose of it anyway. Dimensions of 1 may stand elsewhere in front of the transpose,
/// or come behind it: what one image has between its sequence and its heads.
fn heads_last(s: &mut Simplifier<'_>, id: NodeId) -> Result<Option<NodeId>> {
    let is_transpose = |s: &Simplifier<'_>, id: NodeId| match s.op(id) {
        Op::Reshape { .. } => matches!(s.op(s.input(id, 0)), Op::Transpose { .. }),
        op => matches!(op, Op::Transpose { .. }),
    };
    if !is_transpose(s, id) {
        return Ok(None);
    }
    let x = s.transpose(id, vec![0, 2, 1, 3])?;
    if is_transpose(s, x) {
        return Ok(None);
    }
    let dims = s.dims(x).to_vec();
    let width = Dim::from(dims[2].extent() * dims[3].extent());
    s.reshape(x, vec![dims[0], dims[1], width]).map(Some)
}

/// The mask operand: `Some(None)` when there is none, `None` when it cannot be expressed.
fn masks(
    view: &View<'_>,
    node: &Node,
    parts: &Parts,
    form: &Form,
    s: &mut Simplifier<'_>,
) -> Result<Option<Option<NodeId>>> {
    if let [one] = parts.masks[..]
        && let Some(allowed) = allowed(view, one, s)?
    {
        return with_heads(s, allowed, form).map(|mask| mask.map(Some));
    }
    let mut sum: Option<NodeId> = None;
    for &mask in &parts.masks {
        let added = added(view, mask, node.shape.dtype(), s)?;
        sum = Some(match sum {
            Some(sum) => s.build(Op::Binary(B::Add), &[sum, added])?,
            None => added,
        });
    }
    match sum {
        Some(sum) if s.dtype(sum) == node.shape.dtype() && s.dims(sum).len() <= node.shape.rank() => {
            with_heads(s, sum, form).map(|mask| mask.map(Some))
        }
        Some(_) => Ok(None),
        None => Ok(Some(None)),
    }
}

/// The mask of one batch: that of items without heads gets a dimension for them. `None` where parts of the batch have masks of their own.
fn with_heads(s: &mut Simplifier<'_>, mask: NodeId, form: &Form) -> Result<Option<NodeId>> {
    let mut dims = s.dims(mask).to_vec();
    if form.flat && dims.len() == 3 {
        dims.insert(1, Dim::Static(1));
    }
    if form.joined {
        let outer = dims.len().saturating_sub(3);
        if dims.drain(..outer).any(|dim| dim != Dim::Static(1)) {
            return Ok(None);
        }
    }
    s.reshape(mask, dims).map(Some)
}

/// The bools that say what may be seen, when all else is −∞.
fn allowed(view: &View<'_>, mask: Mask, s: &mut Simplifier<'_>) -> Result<Option<NodeId>> {
    let never = f64::NEG_INFINITY;
    let (condition, allows) = match mask {
        Mask::Stay(condition, value) if value == never => (condition, true),
        Mask::Become(condition, value) if value == never => (condition, false),
        Mask::Added(id) => {
            let node = view.node(id);
            if node.op != Op::Where {
                return Ok(None);
            }
            let value = |i: usize| facts::uniform(view.graph, node.inputs[i]);
            match (value(1), value(2)) {
                (Some(0.0), Some(v)) if v == never => (node.inputs[0], true),
                (Some(v), Some(0.0)) if v == never => (node.inputs[0], false),
                _ => return Ok(None),
            }
        }
        _ => return Ok(None),
    };
    let condition = s.rewriter().new_id(condition);
    let condition = if allows { condition } else { s.build(Op::Activation(A::Not), &[condition])? };
    Ok(Some(condition))
}

/// What is added to the scores.
fn added(view: &View<'_>, mask: Mask, dtype: DType, s: &mut Simplifier<'_>) -> Result<NodeId> {
    let (condition, forbidden, allows) = match mask {
        Mask::Added(id) => return Ok(s.rewriter().new_id(id)),
        Mask::Stay(condition, value) => (condition, value, true),
        Mask::Become(condition, value) => (condition, value, false),
        Mask::Grouped { mask, sum, items } => return of_items(view, mask, sum, items, s),
    };
    let condition = s.rewriter().new_id(condition);
    let (zero, forbidden) = (s.scalar(dtype, 0.0)?, s.scalar(dtype, forbidden)?);
    let branches = if allows { [condition, zero, forbidden] } else { [condition, forbidden, zero] };
    s.build(Op::Where, &branches)
}

/// A mask of groups as one of their items, still one for all heads where it was that.
fn of_items(
    view: &View<'_>,
    mask: NodeId,
    sum: NodeId,
    items: NodeId,
    s: &mut Simplifier<'_>,
) -> Result<NodeId> {
    let mut groups = view.node(sum).shape.dims().to_vec();
    let mut whole = view.node(items).shape.dims().to_vec();
    let mask = s.rewriter().new_id(mask);
    let own = s.dims(mask);
    if own.len() < 3 || own[own.len() - 3] == Dim::Static(1) {
        (groups[2], whole[1]) = (Dim::Static(1), Dim::Static(1));
    }
    let each = s.expand(mask, groups)?;
    s.reshape(each, whole)
}
