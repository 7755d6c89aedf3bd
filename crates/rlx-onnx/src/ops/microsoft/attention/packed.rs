//! `PackedAttention` and `PackedMultiHeadAttention`: the tokens of all sequences behind each other, without padding.
//!
//! A token sees the tokens of its own sequence, and `cumulative_sequence_length` says where each sequence begins.

use super::core::Core;
use super::{count, fixed, fused, heads, parts, scale};
use crate::import::NodeCx;
use rlx_ir::op::{BinaryOp as B, CmpOp, ReduceOp};
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

/// `input, weights, bias, token_offset, cumulative_sequence_length, attention_bias`
pub(super) fn attention(cx: Cx) -> Nodes {
    let heads = heads(cx, "num_heads")?;
    let (x, weights, bias) = (cx.x(0)?, cx.x(1)?, cx.x(2)?);
    let all = cx.add(Op::MatMul, &[x, weights])?;
    let all = cx.binary(B::Add, all, bias)?;
    let shape = cx.shape_of(all);
    let &[_, width] = shape.dims() else { return Err(cx.malformed(format!("tokens {shape}"))) };
    let widths = fused::widths(cx, fixed(cx, width, "heads")?, heads)?;
    let mut start = Extent::Const(0);
    let mut apart = [all; 3];
    for (x, width) in apart.iter_mut().zip(widths) {
        let width = Dim::Static(width).extent();
        *x = cx.slice_axis(all, 1, start, width)?;
        start = start + width;
    }
    attend(cx, apart, heads, 4)
}

/// `query, key, value, bias, token_offset, cumulative_sequence_length, attention_bias`
pub(super) fn multi_head(cx: Cx) -> Nodes {
    let heads = heads(cx, "num_heads")?;
    let mut apart = if cx.has(1) { [cx.x(0)?, cx.x(1)?, cx.x(2)?] } else { all_in_one(cx)? };
    if let Some(bias) = cx.x_opt(3)? {
        if cx.rank(3)? != 1 {
            return Err(cx.malformed(format!("a bias {}", cx.shape(3)?)));
        }
        let mut start = Extent::Const(0);
        for x in &mut apart {
            let width = cx.shape_of(*x).dims().last().map_or(Extent::Const(0), |d| d.extent());
            let part = cx.slice_axis(bias, 0, start, width)?;
            *x = cx.binary(B::Add, *x, part)?;
            start = start + width;
        }
    }
    attend(cx, apart, heads, 5)
}

/// `[tokens, heads, 3, size]` as three of `[tokens, heads·size]`.
fn all_in_one(cx: Cx) -> Result<[NodeId; 3], Error> {
    let (x, shape) = (cx.x(0)?, cx.shape(0)?);
    let &[tokens, heads, Dim::Static(3), size] = shape.dims() else {
        return Err(cx.malformed(format!("queries, keys and values {shape}, not [tokens, heads, 3, size]")));
    };
    let width = Dim::from(heads.extent() * size.extent());
    let mut apart = [x; 3];
    for (i, part) in apart.iter_mut().enumerate() {
        let one = cx.slice_axis(x, 2, Extent::Const(i as i64), Extent::Const(1))?;
        *part = cx.reshape(one, vec![tokens, width])?;
    }
    Ok(apart)
}

fn attend(cx: Cx, all: [NodeId; 3], heads: usize, cumulative: usize) -> Nodes {
    let mut flat = all;
    for x in &mut flat {
        if cx.shape_of(*x).rank() != 2 {
            return Err(cx.malformed(format!("tokens {}", cx.shape_of(*x))));
        }
        *x = cx.unsqueeze(*x, &[0])?;
    }
    let tokens = cx.shape_of(all[0]).dim(0);
    let [q, k, v] = flat;
    let size = parts(cx, fixed(cx, cx.shape_of(q).dim(2), "heads")?, heads)?;
    let (sequence, place) = places(cx, cumulative, tokens)?;
    let mut core = Core::plain(q, k, v, heads, size);
    core.scale = scale(cx)?;
    let (row, column) = (cx.unsqueeze(sequence, &[1])?, cx.unsqueeze(sequence, &[0])?);
    core.seen = Some(cx.compare(CmpOp::Eq, row, column)?);
    if cx.has(cumulative + 1) {
        core.bias = Some(bias(cx, cumulative + 1, sequence, place, tokens)?);
    }
    let (y, _) = core.apply(cx)?;
    let dims = cx.shape_of(y).dims().to_vec();
    Ok(vec![cx.reshape(y, dims[1..].to_vec())?])
}

/// Which sequence each token is of, and its place there: as many sequences begin at or before a token as its own number.
fn places(cx: Cx, cumulative: usize, tokens: Dim) -> Result<(NodeId, NodeId), Error> {
    let (starts, shape) = (cx.x(cumulative)?, cx.shape(cumulative)?);
    let &[n] = shape.dims() else { return Err(cx.malformed(format!("cumulative lengths {shape}"))) };
    let starts = cx.cast(starts, DType::I64)?;
    let inner = cx.slice_axis(starts, 0, Extent::Const(1), n.extent() - 1)?;
    let inner = cx.unsqueeze(inner, &[1])?;
    let token = count(cx, tokens)?;
    let begun = cx.compare(CmpOp::Le, inner, token)?;
    let begun = cx.cast(begun, DType::I64)?;
    let sequence = cx.reduce(begun, ReduceOp::Sum, &[0], false)?;
    let start = cx.add(Op::Gather { axis: 0 }, &[starts, sequence])?;
    Ok((sequence, cx.binary(B::Sub, token, start)?))
}

/// What is added to the scores, given by sequence and places in it: `[batch, heads, length, length]`.
fn bias(cx: Cx, operand: usize, sequence: NodeId, place: NodeId, tokens: Dim) -> Result<NodeId, Error> {
    let (bias, shape) = (cx.x(operand)?, cx.shape(operand)?);
    let &[batch, heads, _, _] = shape.dims() else { return Err(cx.malformed(format!("a bias {shape}"))) };
    let bias = cx.transpose(bias, &[0, 2, 3, 1])?;
    let sequence = if batch == Dim::Static(1) { cx.with_scalar(B::Mul, sequence, 0.0)? } else { sequence };
    let pair = vec![tokens, tokens, Dim::Static(1)];
    let mut index = [sequence, place, place];
    for (x, axis) in index.iter_mut().zip([1, 1, 0]) {
        let wide = cx.unsqueeze(*x, &[axis, 2])?;
        *x = cx.expand(wide, pair.clone())?;
    }
    // A pair of tokens of two sequences is not seen; its bias is any that there is.
    let index = cx.add(Op::Concat { axis: 2 }, &index)?;
    let gathered = cx.add(Op::GatherNd { batch_dims: 0 }, &[bias, index])?;
    let gathered = cx.transpose(gathered, &[2, 0, 1])?;
    cx.reshape(gathered, vec![Dim::Static(1), heads, tokens, tokens])
}
