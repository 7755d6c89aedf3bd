//! Rules about quantised tensors.

use rlx_ir::{DType, NodeId, Op, Result};

use super::{Rule, Simplifier};

pub(super) const RULES: &[Rule] =
    &[Rule { name: "quantize-undoes-dequantize", fast: false, apply: quantize_undoes_dequantize }];

/// Bytes that are dequantised and quantised again by the same numbers are what they were: the quotient is off by less than 2⁻¹⁴ of a step.
fn quantize_undoes_dequantize(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Result<Option<NodeId>> {
    let Op::Quantize { axis: None, to: to @ (DType::U8 | DType::I8) } = *op else { return Ok(None) };
    let &Op::Dequantize { axis: None, to: DType::F32 } = s.op(inputs[0]) else { return Ok(None) };
    let from = &s.graph().node(inputs[0]).inputs;
    // Products and quotients of other scales may leave the range of normal numbers.
    let scale = |id: NodeId| s.uniform(id).filter(|scale| (1e-30..1e30).contains(&scale.abs()));
    let zero = |ids: &[NodeId]| ids.get(2).map_or(Some(0.0), |&id| s.uniform(id));
    let same_scale = scale(inputs[1]).is_some_and(|given| scale(from[1]) == Some(given));
    let same_zero = zero(inputs).is_some_and(|given| zero(from) == Some(given));
    let same_type =
        s.dtype(from[0]) == to && s.dtype(inputs[1]) == DType::F32 && s.dtype(from[1]) == DType::F32;
    Ok((same_scale && same_zero && same_type).then_some(from[0]))
}
