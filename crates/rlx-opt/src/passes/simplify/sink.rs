//! Rules that move transposes and reshapes from the inputs of computing ops to their results.
//!
//! Legal because these ops compute each element by itself (or, for the matmul, each row): moving the
//! operands first or the result afterwards is the same. It is done when the other operands can be moved back
//! for nothing: scalars, the same movement, dimensions of 1, and what is known before a run.

use rlx_ir::{Dim, Extent, NodeId, Op, Result};

use super::dims::{extended, inverse, keeps_order};
use super::movement::is_single;
use super::{Rule, Simplifier};

pub(super) const RULES: &[Rule] = &[
    Rule { name: "sink-transpose", fast: false, apply: sink_transpose },
    Rule { name: "sink-reshape", fast: false, apply: sink_reshape },
    Rule { name: "rows-of-matmul", fast: false, apply: rows_of_matmul },
];

type Found = Result<Option<NodeId>>;

/// `f(transpose(x), y) → transpose(f(x, transpose⁻¹(y)))`.
fn sink_transpose(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    if !op.is_pointwise() {
        return Ok(None);
    }
    let Some(perm) = inputs.iter().find_map(|&id| match s.op(id) {
        Op::Transpose { perm } => Some(perm.clone()),
        _ => None,
    }) else {
        return Ok(None);
    };
    let result = s.infer(op, inputs)?;
    // Packed elements are moved in whole bytes, before the cast that packs them.
    if result.rank() != perm.len() || result.dtype().is_packed() {
        return Ok(None);
    }
    let mut from = Vec::with_capacity(inputs.len());
    for &id in inputs {
        match moved_back(s, id, &perm)? {
            Some(id) => from.push(id),
            None => return Ok(None),
        }
    }
    let computed = s.build(op.clone(), &from)?;
    s.transpose(computed, perm).map(Some)
}

/// `transpose⁻¹(y)`, if that costs nothing at run time.
fn moved_back(s: &mut Simplifier<'_>, y: NodeId, perm: &[usize]) -> Found {
    if is_single(s.dims(y)) && s.dims(y).len() <= 1 {
        return Ok(Some(y));
    }
    if let Op::Transpose { perm: own } = s.op(y)
        && own == perm
    {
        return Ok(Some(s.input(y, 0)));
    }
    // An operand of the last dimensions only, which stay where they are.
    let first = perm.len().saturating_sub(s.dims(y).len());
    if (first..perm.len()).all(|i| perm[i] == i) {
        return Ok(Some(y));
    }
    let full = extended(s.dims(y), perm.len());
    let back = inverse(perm);
    if !keeps_order(&full, &back) && !s.is_fixed(y) {
        return Ok(None);
    }
    let y = s.reshape(y, full)?;
    s.transpose(y, back).map(Some)
}

/// `f(reshape(x), y) → reshape(f(x, y'))`.
fn sink_reshape(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let is_reshape = |s: &Simplifier<'_>, id: NodeId| matches!(s.op(id), Op::Reshape { .. });
    if !op.is_pointwise() || !inputs.iter().any(|&id| is_reshape(s, id)) {
        return Ok(None);
    }
    let result = s.infer(op, inputs)?;
    let whole = |s: &Simplifier<'_>, id: NodeId| is_reshape(s, id) && s.dims(id) == result.dims();
    // In the shape in which an operand is computed, so that this can be fused to it, rather than in that in which one is moved.
    let moved = |s: &Simplifier<'_>, id: NodeId| matches!(s.op(s.input(id, 0)), Op::Transpose { .. });
    let reshaped = inputs.iter().copied().filter(|&id| whole(s, id)).min_by_key(|&id| moved(s, id));
    let Some(reshaped) = reshaped else { return Ok(None) };
    let from = s.dims(s.input(reshaped, 0)).to_vec();
    let mut operands = Vec::with_capacity(inputs.len());
    for &id in inputs {
        match reshaped_back(s, id, &from, result.dims())? {
            Some(id) => operands.push(id),
            None => return Ok(None),
        }
    }
    if s.infer(op, &operands)?.dims() != from.as_slice() {
        return Ok(None);
    }
    let computed = s.build(op.clone(), &operands)?;
    s.reshape(computed, result.dims().to_vec()).map(Some)
}

/// What broadcasts to `from` as `y` does to `to`.
fn reshaped_back(s: &mut Simplifier<'_>, y: NodeId, from: &[Dim], to: &[Dim]) -> Found {
    let dims = s.dims(y).to_vec();
    if is_single(&dims) {
        return if dims.len() <= from.len() { Ok(Some(y)) } else { s.reshape(y, vec![]).map(Some) };
    }
    if dims == to {
        // Another reshape is as good from there as from here.
        let free = s.is_fixed(y) || matches!(s.op(y), Op::Reshape { .. });
        return if free { s.reshape(y, from.to_vec()).map(Some) } else { Ok(None) };
    }
    // An operand of the last dimensions only, which stay as they are.
    let own = dims.iter().skip_while(|&&d| d == Dim::Static(1)).count();
    let same = from.iter().rev().zip(to.iter().rev()).take_while(|(a, b)| a == b).count();
    if own > same || own == 0 {
        return Ok(None);
    }
    s.reshape(y, dims[dims.len() - own..].to_vec()).map(Some)
}

/// A matmul whose left rows were merged into one dimension: merged afterwards instead. Rows of no elements need not be as many
/// before as after.
fn rows_of_matmul(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let (Op::MatMul, Op::Reshape { to }) = (op, s.op(inputs[0])) else { return Ok(None) };
    let (x, w) = (s.input(inputs[0], 0), inputs[1]);
    let (before, after) = (s.dims(x), to);
    let (Some((last, before)), Some((same, rows))) = (before.split_last(), after.split_last()) else {
        return Ok(None);
    };
    if s.dims(w).len() != 2 || before.is_empty() || rows.is_empty() || last != same {
        return Ok(None);
    }
    let count = |dims: &[Dim]| dims.iter().fold(Extent::Const(1), |n, d| n * d.extent());
    if last.as_static().is_none_or(|n| n == 0) && count(before) != count(rows) {
        return Ok(None);
    }
    let mut dims = after.clone();
    let product = s.build(Op::MatMul, &[x, w])?;
    let columns = s.dims(product).last().copied();
    if let (Some(last), Some(columns)) = (dims.last_mut(), columns) {
        *last = columns;
    }
    s.reshape(product, dims).map(Some)
}
