//! Rules about broadcasting: operands become as small as they can be.

use rlx_ir::{NodeId, Op, Result};

use super::{Rule, Simplifier};
use crate::facts;

pub(super) const RULES: &[Rule] = &[
    Rule { name: "uniform-to-scalar", fast: false, apply: uniform_to_scalar },
    Rule { name: "drop-expand", fast: false, apply: drop_expand },
    Rule { name: "expand-after", fast: false, apply: expand_after },
];

type Found = Result<Option<NodeId>>;

/// `op` with input `i` replaced, if that leaves the result's dimensions as they are.
fn with_input(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId], i: usize, by: NodeId) -> Found {
    let mut smaller = inputs.to_vec();
    smaller[i] = by;
    if s.infer(op, &smaller)? != s.infer(op, inputs)? {
        return Ok(None);
    }
    s.build(op.clone(), &smaller).map(Some)
}

/// A constant operand whose elements are all equal becomes a scalar.
fn uniform_to_scalar(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    if !op.is_elementwise() || inputs.len() < 2 {
        return Ok(None);
    }
    for (i, &id) in inputs.iter().enumerate() {
        let rank = s.dims(id).len();
        let Some(data) = facts::constant(s.graph(), id).filter(|_| rank > 0) else { continue };
        let data = data.clone();
        if s.uniform(id).is_none() {
            continue;
        }
        let one = data.bytes()[..data.dtype().size_bytes()].to_vec();
        let scalar = s.constant(rlx_ir::ConstData::new(data.dtype(), &[], one)?)?;
        if let Some(found) = with_input(s, op, inputs, i, scalar)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// An operand that was broadcast beforehand is broadcast by the op itself.
fn drop_expand(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    if !op.is_elementwise() || inputs.len() < 2 {
        return Ok(None);
    }
    for (i, &id) in inputs.iter().enumerate() {
        if matches!(s.op(id), Op::Expand { .. })
            && let Some(found) = with_input(s, op, inputs, i, s.input(id, 0))?
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// A function of one operand is computed before it is broadcast.
fn expand_after(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let (true, [x]) = (op.is_elementwise(), inputs) else { return Ok(None) };
    let Op::Expand { to } = s.op(*x).clone() else { return Ok(None) };
    // Packed elements are broadcast in whole bytes, before the cast that packs them.
    if s.infer(op, inputs)?.dtype().is_packed() {
        return Ok(None);
    }
    let before = s.build(op.clone(), &[s.input(*x, 0)])?;
    s.expand(before, to).map(Some)
}
