//! Rules about movement ops among themselves: what does nothing goes, neighbours become one.
//!
//! Of a reshape and a transpose in a row, splits of dimensions move before the transpose and merges behind it;
//! so `merge ∘ transpose ∘ split`, as exporters write it, finds its counterpart. A dimension of 1 that is made before a transpose and dropped
//! behind it would count as a merge, and is not made. Neighbouring dimensions that change places and are then one (a
//! *shuffle*, of channels for example) are shuffled where they are, in front of a transpose that moves the result.

use rlx_ir::op::{PadMode, ReduceOp};
use rlx_ir::sort::{sort, sort_by_key};
use rlx_ir::{Dim, Extent, NodeId, Op, Result};

use super::dims::{Group, extended, groups, inverse, keeps_order, permuted};
use super::{Rule, Simplifier};

pub(super) const RULES: &[Rule] = &[
    Rule { name: "move-nothing", fast: false, apply: move_nothing },
    Rule { name: "reshape-of-reshape", fast: false, apply: reshape_of_reshape },
    Rule { name: "reshape-is-kept-dims", fast: false, apply: reshape_is_kept_dims },
    Rule { name: "ones-in-front-of-transpose", fast: false, apply: ones_in_front_of_transpose },
    Rule { name: "split-before-transpose", fast: false, apply: split_before_transpose },
    Rule { name: "shuffle-before-transpose", fast: false, apply: shuffle_before_transpose },
    Rule { name: "transpose-of-transpose", fast: false, apply: transpose_of_transpose },
    Rule { name: "transpose-is-reshape", fast: false, apply: transpose_is_reshape },
    Rule { name: "merge-after-transpose", fast: false, apply: merge_after_transpose },
    Rule { name: "expand-of-expand", fast: false, apply: expand_of_expand },
    Rule { name: "transpose-of-expand", fast: false, apply: transpose_of_expand },
    Rule { name: "slice-of-slice", fast: false, apply: slice_of_slice },
    Rule { name: "slice-of-concat", fast: false, apply: slice_of_concat },
    Rule { name: "slice-of-transpose", fast: false, apply: slice_of_transpose },
    Rule { name: "pad-of-transpose", fast: false, apply: pad_of_transpose },
    Rule { name: "concat-of-transposes", fast: false, apply: concat_of_transposes },
    Rule { name: "reduce-of-transpose", fast: false, apply: reduce_of_transpose },
    Rule { name: "gather-of-transpose", fast: false, apply: gather_of_transpose },
];

type Found = Result<Option<NodeId>>;

const ONE: Dim = Dim::Static(1);

/// Movement to the dimensions and places that are there already; a concatenation of one; no reduction.
fn move_nothing(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let x = inputs[0];
    let nothing = match op {
        Op::Reshape { to } | Op::Expand { to } => s.dims(x) == to.as_slice(),
        Op::Transpose { perm } => perm.is_sorted(),
        Op::Slice { starts, steps, to } => {
            s.dims(x) == to.as_slice()
                && starts.iter().all(|&e| e == Extent::Const(0))
                && steps.iter().all(|&step| step == 1)
        }
        Op::Pad { before, after, .. } => before.iter().chain(after).all(|&e| e == Extent::Const(0)),
        Op::Concat { .. } => inputs.len() == 1,
        Op::Reduce { op, axes, .. } => axes.is_empty() && *op != ReduceOp::Mean,
        _ => false,
    };
    Ok(nothing.then_some(x))
}

fn reshape_of_reshape(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let (Op::Reshape { to }, Op::Reshape { .. }) = (op, s.op(inputs[0])) else { return Ok(None) };
    s.reshape(s.input(inputs[0], 0), to.clone()).map(Some)
}

/// A reduction whose dropped dimensions come back as 1 right away keeps them.
fn reshape_is_kept_dims(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let Op::Reshape { to } = op else { return Ok(None) };
    let Op::Reduce { op: f, axes, keep_dim: false } = s.op(inputs[0]).clone() else { return Ok(None) };
    let x = s.input(inputs[0], 0);
    let kept = Op::Reduce { op: f, axes, keep_dim: true };
    if s.infer(&kept, &[x])?.dims() != to.as_slice() {
        return Ok(None);
    }
    s.build(kept, &[x]).map(Some)
}

/// A dimension of 1 that a reshape makes, a transpose moves and another reshape drops is not made, where what is left of the first
/// reshape splits dimensions, if it does anything.
fn ones_in_front_of_transpose(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let (Op::Reshape { to }, Op::Transpose { perm }) = (op, s.op(inputs[0])) else { return Ok(None) };
    let made = s.input(inputs[0], 0);
    if !matches!(s.op(made), Op::Reshape { .. }) || to.len() >= perm.len() {
        return Ok(None);
    }
    let Some(dropped) = groups(s.dims(inputs[0]), to) else { return Ok(None) };
    if dropped.iter().any(|g| g.from.len() != 1 || g.to.len() > 1) {
        return Ok(None);
    }
    let kept = dropped.iter().filter(|g| !g.to.is_empty()).map(|g| perm[g.from.start]);
    let perm: Vec<usize> = kept.collect();
    // The dimensions that are left, in the order that the first reshape makes them.
    let mut left = perm.clone();
    sort(&mut left);
    let (x, dims) = (s.input(made, 0), permuted(s.dims(made), &left));
    let only_splits = |groups: Vec<Group>| groups.iter().all(|g| g.from.len() <= 1 && !g.to.is_empty());
    if !groups(s.dims(x), &dims).is_some_and(only_splits) {
        return Ok(None);
    }
    let place = |p: &usize| left.iter().position(|q| q == p);
    let Some(perm) = perm.iter().map(place).collect::<Option<Vec<usize>>>() else { return Ok(None) };
    let split = s.reshape(x, dims)?;
    s.transpose(split, perm).map(Some)
}

/// `split(transpose(x)) → transpose'(split'(x))`.
fn split_before_transpose(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let (Op::Reshape { to }, Op::Transpose { perm }) = (op, s.op(inputs[0])) else { return Ok(None) };
    let (perm, x) = (perm.clone(), s.input(inputs[0], 0));
    let Some(groups) = groups(s.dims(inputs[0]), to) else { return Ok(None) };
    let splits = groups.iter().any(|g| g.to.len() > 1) && groups.iter().all(|g| g.from.len() <= 1);
    if !splits {
        return Ok(None);
    }
    // The dimensions of x in its own order, each as what it is split into; new ones last.
    let mut split = Vec::with_capacity(to.len());
    let mut place = vec![0; to.len()];
    let old_order = inverse(&perm);
    let of_dim = |d: usize| groups.iter().find(|g| g.from.contains(&old_order[d]));
    let inserted = groups.iter().filter(|g| g.from.is_empty());
    for group in (0..perm.len()).filter_map(of_dim).chain(inserted) {
        for t in group.to.clone() {
            place[t] = split.len();
            split.push(to[t]);
        }
    }
    let split = s.reshape(x, split)?;
    s.transpose(split, place).map(Some)
}

/// How a transpose and the merge behind it are a shuffle in place, and a move of what that merged.
struct Shuffle {
    /// The transpose within the dimensions that become one.
    within: Vec<usize>,
    /// The merged dimensions, where those that they are made of were.
    merged: Vec<Dim>,
    /// Where the merged dimensions then go.
    moves: Vec<usize>,
}

/// What `merge(transpose(x))` is, where every dimension of it is one of neighbours of `x`, of which some changed places.
///
/// Elsewhere the transpose brings together what was apart, as that of heads behind attention does.
fn shuffle(dims: &[Dim], perm: &[usize], to: &[Dim]) -> Option<Shuffle> {
    let groups = groups(&permuted(dims, perm), to)?;
    if groups.iter().any(|g| g.from.is_empty() || g.to.len() != 1) {
        return None;
    }
    let first = |g: &Group| perm[g.from.clone()].iter().copied().min().unwrap_or(0);
    let last = |g: &Group| perm[g.from.clone()].iter().copied().max().unwrap_or(0);
    let neighbours = groups.iter().all(|g| last(g) - first(g) + 1 == g.from.len());
    let in_order = groups.iter().all(|g| keeps_order(dims, &perm[g.from.clone()]));
    if !neighbours || in_order {
        return None;
    }
    let mut old_order: Vec<usize> = (0..groups.len()).collect();
    sort_by_key(&mut old_order, |&i| first(&groups[i]));
    Some(Shuffle {
        within: old_order.iter().flat_map(|&i| perm[groups[i].from.clone()].iter().copied()).collect(),
        merged: permuted(to, &old_order),
        moves: inverse(&old_order),
    })
}

/// `merge(transpose(x)) → transpose'(merge'(shuffle(x)))`: the elements have to be copied anyway, and the transpose meets others.
fn shuffle_before_transpose(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let (Op::Reshape { to }, Op::Transpose { perm }) = (op, s.op(inputs[0])) else { return Ok(None) };
    let x = s.input(inputs[0], 0);
    let Some(found) = shuffle(s.dims(x), perm, to).filter(|f| !keeps_order(&f.merged, &f.moves)) else {
        return Ok(None);
    };
    let shuffled = s.transpose(x, found.within)?;
    let merged = s.reshape(shuffled, found.merged)?;
    s.transpose(merged, found.moves).map(Some)
}

fn transpose_of_transpose(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let (Op::Transpose { perm }, Op::Transpose { perm: inner }) = (op, s.op(inputs[0])) else {
        return Ok(None);
    };
    let joined = permuted(inner, perm);
    s.transpose(s.input(inputs[0], 0), joined).map(Some)
}

/// A transpose that only moves dimensions of 1.
fn transpose_is_reshape(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let Op::Transpose { perm } = op else { return Ok(None) };
    if !keeps_order(s.dims(inputs[0]), perm) {
        return Ok(None);
    }
    let to = permuted(s.dims(inputs[0]), perm);
    s.reshape(inputs[0], to).map(Some)
}

/// `transpose(merge(x)) → merge'(transpose'(x))`, except behind a shuffle.
fn merge_after_transpose(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let (Op::Transpose { perm }, Op::Reshape { to }) = (op, s.op(inputs[0])) else { return Ok(None) };
    let (merged, x) = (permuted(to, perm), s.input(inputs[0], 0));
    if let Some((within, of)) = transposed(s, x)
        && shuffle(s.dims(of), &within, to).is_some()
    {
        return Ok(None);
    }
    let Some(groups) = groups(s.dims(x), to) else { return Ok(None) };
    if groups.iter().any(|g| g.to.len() > 1) {
        return Ok(None);
    }
    let of_dim = |p: &usize| groups.iter().find(|g| g.to.contains(p));
    let dropped = groups.iter().filter(|g| g.to.is_empty());
    let order = perm.iter().filter_map(of_dim).chain(dropped).flat_map(|g| g.from.clone()).collect();
    let moved = s.transpose(x, order)?;
    s.reshape(moved, merged).map(Some)
}

fn expand_of_expand(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let (Op::Expand { to }, Op::Expand { .. }) = (op, s.op(inputs[0])) else { return Ok(None) };
    s.expand(s.input(inputs[0], 0), to.clone()).map(Some)
}

fn transpose_of_expand(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let (Op::Transpose { perm }, Op::Expand { to }) = (op, s.op(inputs[0])) else { return Ok(None) };
    let (to, x) = (permuted(to, perm), s.input(inputs[0], 0));
    let full = s.reshape(x, extended(s.dims(x), perm.len()))?;
    let moved = s.transpose(full, perm.clone())?;
    s.expand(moved, to).map(Some)
}

fn slice_of_slice(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let (Op::Slice { starts, steps, to }, Op::Slice { starts: first, steps: stride, .. }) =
        (op, s.op(inputs[0]))
    else {
        return Ok(None);
    };
    let joined = (0..starts.len()).map(|i| first[i] + starts[i] * stride[i]).collect();
    let steps = (0..steps.len()).map(|i| steps[i].checked_mul(stride[i])).collect::<Option<Vec<i64>>>();
    let Some(steps) = steps else { return Ok(None) };
    let slice = Op::Slice { starts: joined, steps, to: to.clone() };
    s.build(slice, &[s.input(inputs[0], 0)]).map(Some)
}

/// A slice that is within one input of a concatenation.
fn slice_of_concat(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let (Op::Slice { starts, steps, to }, &Op::Concat { axis }) = (op, s.op(inputs[0])) else {
        return Ok(None);
    };
    if steps[axis] != 1 {
        return Ok(None);
    }
    let parts = s.graph().node(inputs[0]).inputs.clone();
    let mut at = Extent::Const(0);
    for part in parts {
        let size = s.dims(part)[axis].extent();
        let inner = starts[axis] - at;
        let whole = inner == Extent::Const(0) && to[axis].extent() == size;
        let within = match (inner, to[axis].extent(), size) {
            (Extent::Const(start), Extent::Const(n), Extent::Const(size)) => start >= 0 && start + n <= size,
            _ => whole,
        };
        if within {
            let mut starts = starts.clone();
            starts[axis] = inner;
            return s.build(Op::Slice { starts, steps: steps.clone(), to: to.clone() }, &[part]).map(Some);
        }
        at = at + size;
    }
    Ok(None)
}

/// The transposed operand's permutation and what it is a transpose of.
fn transposed(s: &Simplifier<'_>, id: NodeId) -> Option<(Vec<usize>, NodeId)> {
    match s.op(id) {
        Op::Transpose { perm } => Some((perm.clone(), s.input(id, 0))),
        _ => None,
    }
}

fn slice_of_transpose(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let Op::Slice { starts, steps, to } = op else { return Ok(None) };
    let Some((perm, x)) = transposed(s, inputs[0]) else { return Ok(None) };
    let back = inverse(&perm);
    let slice =
        Op::Slice { starts: permuted(starts, &back), steps: permuted(steps, &back), to: permuted(to, &back) };
    let slice = s.build(slice, &[x])?;
    s.transpose(slice, perm).map(Some)
}

fn pad_of_transpose(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let Op::Pad { before, after, mode } = op else { return Ok(None) };
    let Some((perm, x)) = transposed(s, inputs[0]) else { return Ok(None) };
    let back = inverse(&perm);
    let mode: PadMode = *mode;
    let pad = Op::Pad { before: permuted(before, &back), after: permuted(after, &back), mode };
    let mut from = vec![x];
    from.extend_from_slice(&inputs[1..]);
    let pad = s.build(pad, &from)?;
    s.transpose(pad, perm).map(Some)
}

fn concat_of_transposes(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let &Op::Concat { axis } = op else { return Ok(None) };
    let Some((perm, _)) = transposed(s, inputs[0]) else { return Ok(None) };
    let mut from = Vec::with_capacity(inputs.len());
    for &id in inputs {
        match transposed(s, id) {
            Some((p, x)) if p == perm => from.push(x),
            _ => return Ok(None),
        }
    }
    let joined = s.build(Op::Concat { axis: perm[axis] }, &from)?;
    s.transpose(joined, perm).map(Some)
}

fn reduce_of_transpose(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let &Op::Reduce { op: f, ref axes, keep_dim } = op else { return Ok(None) };
    let Some((perm, x)) = transposed(s, inputs[0]) else { return Ok(None) };
    let mut own: Vec<usize> = axes.iter().map(|&a| perm[a]).collect();
    sort(&mut own);
    let kept: Vec<usize> = match keep_dim {
        true => perm,
        // The dimensions that stay, numbered as they are in the reduced tensor.
        false => {
            let stay = perm.iter().filter(|p| !own.contains(p));
            stay.map(|p| p - own.iter().filter(|a| *a < p).count()).collect()
        }
    };
    let reduced = s.build(Op::Reduce { op: f, axes: own, keep_dim }, &[x])?;
    s.transpose(reduced, kept).map(Some)
}

/// A gather along one dimension by a list of places finds them wherever that dimension stands.
fn gather_of_transpose(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let &Op::Gather { axis } = op else { return Ok(None) };
    let Some((perm, x)) = transposed(s, inputs[0]).filter(|_| s.dims(inputs[1]).len() == 1) else {
        return Ok(None);
    };
    let gathered = s.build(Op::Gather { axis: perm[axis] }, &[x, inputs[1]])?;
    s.transpose(gathered, perm).map(Some)
}

/// Whether all dimensions are 1.
pub(super) fn is_single(dims: &[Dim]) -> bool {
    dims.iter().all(|&d| d == ONE)
}
