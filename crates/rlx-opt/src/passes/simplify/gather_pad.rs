//! Rules about reading parts of tensors: gathers that are slices, padding that convolutions do themselves.

use rlx_ir::op::{DataFormat, PadMode};
use rlx_ir::{Dim, Extent, NodeId, Op, Result};

use super::{Rule, Simplifier};
use crate::facts;

pub(super) const RULES: &[Rule] = &[
    Rule { name: "gather-is-slice", fast: false, apply: gather_is_slice },
    Rule { name: "pad-into-convolution", fast: false, apply: pad_into_convolution },
];

type Found = Result<Option<NodeId>>;

/// A gather by constant indices that are evenly spaced, and in range for certain.
fn gather_is_slice(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let &Op::Gather { axis } = op else { return Ok(None) };
    let Some(data) = facts::constant(s.graph(), inputs[1]).cloned() else { return Ok(None) };
    if data.dims().len() > 1 || data.num_elements() == 0 || data.num_elements() > 1 << 16 {
        return Ok(None);
    }
    let size = s.dims(inputs[0])[axis].extent();
    let least = size.range(&|symbol| s.graph().symbol_range(symbol)).min;
    let Ok(given) = data.value().ints().map(<[i128]>::to_vec) else { return Ok(None) };
    let mut places = Vec::with_capacity(given.len());
    for i in given {
        let from_end = i < 0;
        let within = if from_end { -i <= i128::from(least) } else { i < i128::from(least) };
        // The end of a dimension that is a symbol is a place too, but not beside places counted from the start.
        if !within || (from_end && size.as_const().is_none()) {
            return Ok(None);
        }
        places.push(if from_end { i as i64 + size.as_const().unwrap_or(0) } else { i as i64 });
    }
    let step = places.get(1).map_or(1, |second| second - places[0]);
    if step == 0 || places.windows(2).any(|w| w[1] - w[0] != step) {
        return Ok(None);
    }
    let dims = s.dims(inputs[0]).to_vec();
    let (mut starts, mut steps) = (vec![Extent::Const(0); dims.len()], vec![1; dims.len()]);
    let mut to = dims;
    (starts[axis], steps[axis], to[axis]) = (Extent::Const(places[0]), step, Dim::Static(places.len()));
    let slice = s.build(Op::Slice { starts, steps, to: to.clone() }, &[inputs[0]])?;
    if data.dims().is_empty() {
        to.remove(axis);
    }
    s.reshape(slice, to).map(Some)
}

/// Zeros around the image are the convolution's own padding.
fn pad_into_convolution(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Found {
    let Op::Conv { strides, pads, dilations, groups, format } = op else { return Ok(None) };
    let Op::Pad { before, after, mode: PadMode::Constant } = s.op(inputs[0]).clone() else { return Ok(None) };
    let padded = s.graph().node(inputs[0]).inputs.clone();
    if padded.get(1).is_some_and(|&value| s.uniform(value) != Some(0.0)) {
        return Ok(None);
    }
    let spatial = strides.len();
    let first = if *format == DataFormat::ChannelsFirst { 2 } else { 1 };
    let is_spatial = |axis: usize| (first..first + spatial).contains(&axis);
    let mut pads = pads.clone();
    for axis in 0..before.len() {
        let Some((b, a)) = before[axis].as_const().zip(after[axis].as_const()) else { return Ok(None) };
        if !is_spatial(axis) {
            if (b, a) != (0, 0) {
                return Ok(None);
            }
            continue;
        }
        let (Ok(b), Ok(a)) = (usize::try_from(b), usize::try_from(a)) else { return Ok(None) };
        for (pad, more) in [(axis - first, b), (spatial + axis - first, a)] {
            let Some(sum) = pads[pad].checked_add(more) else { return Ok(None) };
            pads[pad] = sum;
        }
    }
    let conv = Op::Conv {
        strides: strides.clone(),
        pads,
        dilations: dilations.clone(),
        groups: *groups,
        format: *format,
    };
    let mut from = inputs.to_vec();
    from[0] = padded[0];
    s.build(conv, &from).map(Some)
}
