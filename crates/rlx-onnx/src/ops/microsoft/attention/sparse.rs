//! `SparseAttention`: grouped heads over caches, of which each head sees some blocks of keys only (Phi-3-small).

use super::core::Core;
use super::grouped::{Grouped, total};
use super::{angles, count, scale};
use crate::import::NodeCx;
use rlx_ir::op::{BinaryOp as B, CmpOp};
use rlx_ir::{DType, Dim, Error, ErrorKind, NodeId, Op, Shape, Value};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

/// Layouts of blocks are made while importing up to this many elements.
const MOST_BLOCKS: usize = 1 << 20;

/// `query, key, value, past_key, past_value, block_row_indices, block_col_indices, total_sequence_length,
/// key_total_sequence_lengths, cos_cache, sin_cache`
pub(super) fn sparse(cx: Cx) -> Nodes {
    let mut g = Grouped::read(cx)?;
    let lengths = cx.x(8)?;
    let starts = g.starts(cx, lengths)?;
    let places = g.places(cx, starts)?;
    if cx.attrs.flag("do_rotary", false)? {
        let tables = angles(cx, 9, places)?;
        g.rotate(cx, tables)?;
    }
    let rows = total(cx, 7)?;
    let (k, v) = (g.cached(cx, 3, g.k, starts, rows)?, g.cached(cx, 4, g.v, starts, rows)?);
    let mut core = Core { key_heads: g.key_heads, ..Core::plain(g.q, k, v, g.heads, g.size) };
    core.scale = scale(cx)?;
    let keys = cx.shape_of(k).dim(2);
    let column = count(cx, keys)?;
    let place = cx.unsqueeze(places, &[1, 3])?;
    let before = cx.compare(CmpOp::Le, column, place)?;
    let blocks = seen_blocks(cx, &g, places, keys)?;
    core.seen = Some(cx.binary(B::And, before, blocks)?);
    let (y, _) = core.apply(cx)?;
    Ok(vec![y, k, v])
}

/// `[layouts, blocks, blocks]`: whether a block of queries sees a block of keys, from the compressed rows.
fn layouts(cx: Cx) -> Result<(NodeId, usize), Error> {
    let (rows, columns) = (cx.shape(5)?, cx.shape(6)?);
    let malformed = || Error::new(ErrorKind::Malformed, format!("block indices {rows} and {columns}"));
    let matrix = |s: &Shape| match s.static_dims().unwrap_or_default()[..] {
        [a, b] => Ok((a, b)),
        _ => Err(malformed()),
    };
    let ((layouts, ends), (_, width)) = (matrix(&rows)?, matrix(&columns)?);
    let blocks = ends.saturating_sub(1);
    let all = layouts.saturating_mul(blocks).saturating_mul(blocks);
    if all > MOST_BLOCKS || columns.dim(0) != rows.dim(0) {
        return Err(malformed());
    }
    let mut seen = cx.importer.zeros(layouts, blocks.saturating_mul(blocks))?;
    let (row, column) = (cx.numbers(5)?, cx.numbers(6)?);
    for layout in 0..layouts {
        for r in 0..blocks {
            let bound = |i: usize| row.get(layout * ends + i).and_then(|&n| usize::try_from(n).ok());
            let (Some(from), Some(to)) = (bound(r), bound(r + 1)) else {
                return Err(cx.malformed("block_row_indices below 0"));
            };
            for at in from..to.min(width) {
                let c = column.get(layout * width + at).and_then(|&c| usize::try_from(c).ok());
                let Some(c) = c.filter(|&c| c < blocks) else {
                    return Err(cx.malformed("block_col_indices beyond the blocks"));
                };
                seen[(layout * blocks + r) * blocks + c] = 1.0;
            }
        }
    }
    let seen: Vec<i128> = seen.into_iter().map(|s| s as i128).collect();
    Ok((cx.constant(Value::int(DType::Bool, &[layouts, blocks, blocks], seen)), layouts))
}

/// Which keys a query's block sees: `[batch, heads, queries, keys]`. Heads take the layouts in turn.
fn seen_blocks(cx: Cx, g: &Grouped, places: NodeId, keys: Dim) -> Result<NodeId, Error> {
    let size = cx.attrs.int("sparse_block_size", 0)?;
    if size <= 0 || size > i64::from(i32::MAX) {
        return Err(cx.malformed(format!("sparse_block_size = {size}")));
    }
    let (seen, count_of_layouts) = layouts(cx)?;
    let times = super::parts(cx, g.heads, count_of_layouts)?;
    let of_query = cx.with_scalar(B::Div, places, size as f64)?;
    let column = count(cx, keys)?;
    let of_key = cx.with_scalar(B::Div, column, size as f64)?;
    let seen = cx.add(Op::Gather { axis: 1 }, &[seen, of_query])?;
    let seen = cx.add(Op::Gather { axis: 3 }, &[seen, of_key])?;
    let seen = cx.transpose(seen, &[1, 0, 2, 3])?;
    let seen = cx.unsqueeze(seen, &[1])?;
    let (layouts, times) = (Dim::Static(count_of_layouts), Dim::Static(times));
    let seen = cx.expand(seen, vec![g.batch, times, layouts, g.length, keys])?;
    cx.reshape(seen, vec![g.batch, Dim::Static(g.heads), g.length, keys])
}
