//! A transposed convolution as a convolution.
//!
//! With stride `s`, the elements of the result at `i`, `i + s`, `i + 2s`, … are a convolution of the input by every
//! `s`-th element of the kernel, backwards. So all `s` of these phases are one convolution with `s` times as many
//! filters, each of `⌈k/s⌉` elements (zeros fill up), and its results are dealt out: filter by filter to neighbouring
//! places. Pads cut off the ends. Each dimension alike; a kernel as large as its stride is a plain matmul.
//!
//! ```text
//! x [N, C, H, W], w [C, O, kh, kw]
//! w' = w as [C, O, mh, sh, mw, sw], mh and mw backwards, as [sh·sw·O, C, mh, mw]
//! y  = Conv(x, w') as [N, H', W', sh, sw, O] as [N, H'·sh, W'·sw, O], cut
//! ```

use rlx_ir::op::{DataFormat, PadMode};
use rlx_ir::{Dim, Extent, Node, NodeId, Op, Result};

use super::{to_first, to_last};
use crate::passes::legalize::runs_natively;
use crate::passes::simplify::Simplifier;
use crate::pipeline::PassContext;

/// Larger strides make more filters of nothing than of weights.
const MOST_PHASES: usize = 1 << 12;

const ZERO: Extent = Extent::Const(0);

/// What stands for a transposed convolution with fixed weights, if it has one group and no gaps in its kernel.
pub(super) fn as_convolution(
    node: &Node,
    s: &mut Simplifier<'_>,
    context: &PassContext<'_>,
) -> Result<Option<NodeId>> {
    let Op::ConvTranspose { strides, pads, dilations, output_padding, groups: 1 } = &node.op else {
        return Ok(None);
    };
    let rank = node.shape.rank();
    let inputs: Vec<NodeId> = node.inputs.iter().map(|&id| s.rewriter().new_id(id)).collect();
    let sizes: Option<Vec<usize>> = s.dims(inputs[1]).iter().map(|d| d.as_static()).collect();
    let Some(w) = sizes.filter(|_| (3..=5).contains(&rank)) else { return Ok(None) };
    if dilations.iter().any(|&d| d != 1) || !inputs[1..].iter().all(|&id| s.is_fixed(id)) {
        return Ok(None);
    }
    let phases_in_all = strides.iter().try_fold(1usize, |n, &s| n.checked_mul(s));
    let Some(count) = phases_in_all.filter(|&n| n <= MOST_PHASES) else { return Ok(None) };
    let kernel = &w[2..];
    // Kernel elements of each phase; enough to reach what output padding asks for.
    let taps: Vec<usize> = (0..kernel.len())
        .map(|i| {
            let end = (kernel[i] + output_padding[i]).saturating_sub(pads[kernel.len() + i]);
            end.max(kernel[i]).div_ceil(strides[i])
        })
        .collect();
    let weights = phases(s, inputs[1], &w, strides, &taps)?;
    let mut operands = vec![s.transpose(inputs[0], to_last(rank))?, weights];
    if let Some(&bias) = inputs.get(2) {
        let each = s.expand(bias, vec![Dim::Static(count), Dim::Static(w[1])])?;
        operands.push(s.reshape(each, vec![Dim::Static(count * w[1])])?);
    }
    let around = taps.iter().map(|t| t - 1);
    let conv = Op::Conv {
        strides: vec![1; kernel.len()],
        pads: around.clone().chain(around).collect(),
        dilations: vec![1; kernel.len()],
        groups: 1,
        format: DataFormat::ChannelsLast,
    };
    let dealt = s.build(conv, &operands)?;
    if !runs_natively(s.graph().node(dealt), s.graph(), context) {
        return Ok(None);
    }
    let whole = deal(s, dealt, strides, w[1])?;
    let mut starts = vec![ZERO; rank];
    starts[1..rank - 1].iter_mut().zip(pads).for_each(|(start, &pad)| *start = Extent::Const(pad as i64));
    let dims = node.shape.dims();
    let to = to_last(rank).into_iter().map(|d| dims[d]).collect();
    let cut = s.build(Op::Slice { starts, steps: vec![1; rank], to }, &[whole])?;
    s.transpose(cut, to_first(rank)).map(Some)
}

/// Weights `[C, O, k…]` as `[s…·O, C, taps…]`: the filters of all phases, backwards.
fn phases(
    s: &mut Simplifier<'_>,
    w: NodeId,
    sizes: &[usize],
    strides: &[usize],
    taps: &[usize],
) -> Result<NodeId> {
    let (n, rank) = (strides.len(), sizes.len());
    let mut after = vec![ZERO; rank];
    let mut split = vec![sizes[0], sizes[1]];
    for i in 0..n {
        after[2 + i] = Extent::Const((taps[i] * strides[i] - sizes[2 + i]) as i64);
        split.extend([taps[i], strides[i]]);
    }
    let padded = s.build(Op::Pad { before: vec![ZERO; rank], after, mode: PadMode::Constant }, &[w])?;
    let split: Vec<Dim> = split.into_iter().map(Dim::Static).collect();
    let parts = s.reshape(padded, split.clone())?;
    let (mut starts, mut steps) = (vec![ZERO; split.len()], vec![1; split.len()]);
    for i in 0..n {
        (starts[2 + 2 * i], steps[2 + 2 * i]) = (Extent::Const(taps[i] as i64 - 1), -1);
    }
    let backwards = s.build(Op::Slice { starts, steps, to: split }, &[parts])?;
    let order = (0..n).map(|i| 3 + 2 * i).chain([1, 0]).chain((0..n).map(|i| 2 + 2 * i));
    let ordered = s.transpose(backwards, order.collect())?;
    let filters = strides.iter().product::<usize>() * sizes[1];
    let dims = [filters, sizes[0]].into_iter().chain(taps.iter().copied()).map(Dim::Static);
    s.reshape(ordered, dims.collect())
}

/// `[N, spatial…, s…·O]` as `[N, spatial·s…, O]`.
fn deal(s: &mut Simplifier<'_>, x: NodeId, strides: &[usize], filters: usize) -> Result<NodeId> {
    let n = strides.len();
    let dims = s.dims(x).to_vec();
    let phases = strides.iter().copied().chain([filters]).map(Dim::Static);
    let apart = s.reshape(x, dims[..=n].iter().copied().chain(phases).collect())?;
    let order = [0].into_iter().chain((0..n).flat_map(|i| [1 + i, 1 + n + i])).chain([1 + 2 * n]);
    let beside = s.transpose(apart, order.collect())?;
    let spatial = (0..n).map(|i| Dim::from(dims[1 + i].extent() * strides[i] as i64));
    let to = [dims[0]].into_iter().chain(spatial).chain([Dim::Static(filters)]);
    s.reshape(beside, to.collect())
}
