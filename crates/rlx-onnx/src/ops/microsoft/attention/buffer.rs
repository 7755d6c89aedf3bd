//! Caches that are one buffer for all steps, with rows for the longest text: of each, so many rows are used.
//!
//! A step replaces the rows behind those that are used (`UpdateSlice`), so the buffer stays where it is when it is donated. In a beam search, texts
//! share what they have in common: which row of the batch an earlier token's keys and values are in, `cache_indirection` says, and
//! nothing is copied when a text continues another one.

use super::count;
use crate::import::NodeCx;
use rlx_ir::op::{BinaryOp as B, CmpOp};
use rlx_ir::{DType, Dim, Error, NodeId, Op};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;

/// How many rows are used before this step: operand `i`, which has one element.
pub(super) fn used(cx: Cx, i: usize) -> Result<NodeId, Error> {
    let used = cx.x(i)?;
    let used = cx.reshape(used, vec![])?;
    cx.cast(used, DType::I64)
}

/// Of a buffer with `used` rows and the `new` ones behind them, which each query sees.
pub(super) fn seen(
    cx: Cx,
    used: NodeId,
    new: Dim,
    queries: Dim,
    keys: Dim,
    causal: bool,
) -> Result<NodeId, Error> {
    let column = count(cx, keys)?;
    if causal {
        let row = count(cx, queries)?;
        let row = cx.unsqueeze(row, &[1])?;
        let last = cx.binary(B::Add, row, used)?;
        return cx.compare(CmpOp::Le, column, last);
    }
    let new = cx.extent(new.extent())?;
    let end = cx.binary(B::Add, new, used)?;
    let seen = cx.compare(CmpOp::Lt, column, end)?;
    cx.unsqueeze(seen, &[0])
}

/// Keys or values `[batch·beams, heads, rows, size]` as each text has them: what was there before from the text of the same element that
/// operand `i`, `[batch, beams, rows]`, names for each token; the new ones are its own.
pub(super) fn of_beams(cx: Cx, cache: NodeId, i: usize, used: NodeId) -> Result<NodeId, Error> {
    let (named, shape) = (cx.shape(i)?, cx.shape_of(cache));
    let (&[_, beams, _], &[texts, _, rows, _]) = (named.dims(), shape.dims()) else {
        return Err(cx.malformed(format!("cache_indirection {named} for a cache {shape}")));
    };
    let Some(beams) = beams.as_static() else {
        return Err(cx.open_dimension(format!("{beams} beams")));
    };
    let other = cx.x(i)?;
    let other = cx.cast(other, DType::I64)?;
    let other = cx.reshape(other, vec![texts, rows])?;
    let own = count(cx, texts)?;
    let own = cx.unsqueeze(own, &[1])?;
    // The first text of the same element.
    let element = cx.with_scalar(B::Div, own, beams as f64)?;
    let first = cx.with_scalar(B::Mul, element, beams as f64)?;
    let other = cx.binary(B::Add, first, other)?;
    let row = count(cx, rows)?;
    let before = cx.compare(CmpOp::Lt, row, used)?;
    let text = cx.select(before, other, own)?;
    let row = cx.expand(row, vec![texts, rows])?;
    let places = [cx.unsqueeze(text, &[2])?, cx.unsqueeze(row, &[2])?];
    let places = cx.add(Op::Concat { axis: 2 }, &places)?;
    let by_row = cx.transpose(cache, &[0, 2, 1, 3])?;
    let found = cx.add(Op::GatherNd { batch_dims: 0 }, &[by_row, places])?;
    cx.transpose(found, &[0, 2, 1, 3])
}
