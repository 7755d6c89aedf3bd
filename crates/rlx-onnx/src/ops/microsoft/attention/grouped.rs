//! `GroupQueryAttention`: heads of keys and values shared by several of the queries, over caches.
//!
//! A cache has as many rows as there are keys in all, or more: then it is the same buffer at every step, and each row of
//! the batch has its own length. New keys and values are put in at the end of each row's own, which `seqlens_k` tells.

use super::core::{Core, Shown, longer_bias, up_to};
use super::{angles, count, fixed, heads, parts, rotate, scale, split};
use crate::import::NodeCx;
use crate::ops::index::at_least_zero;
use rlx_ir::op::{BinaryOp as B, CmpOp, PadMode};
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

const PAST_KEY: usize = 3;
const SEQLENS_K: usize = 5;
const TOTAL: usize = 6;
const COS: usize = 7;
const POSITIONS: usize = 9;
const BIAS: usize = 10;
const SINK: usize = 11;
const KEY_SCALE: usize = 12;
const QUERY_NORM: usize = 14;

/// Queries, keys and values `[batch, length, heads·size]`, and their sizes.
pub(super) struct Grouped {
    pub q: NodeId,
    pub k: NodeId,
    pub v: NodeId,
    pub heads: usize,
    pub key_heads: usize,
    pub size: usize,
    pub batch: Dim,
    pub length: Dim,
}

impl Grouped {
    /// Operands 0 to 2, or all three in operand 0.
    pub fn read(cx: Cx) -> Result<Grouped, Error> {
        let (heads, key_heads) = (heads(cx, "num_heads")?, heads(cx, "kv_num_heads")?);
        parts(cx, heads, key_heads)?;
        let shape = cx.shape(0)?;
        let &[batch, length, width] = shape.dims() else {
            return Err(cx.malformed(format!("queries {shape} are not [batch, length, heads·size]")));
        };
        let width = fixed(cx, width, "heads")?;
        let q = cx.x(0)?;
        let of = |q, k, v, size| Grouped { q, k, v, heads, key_heads, size, batch, length };
        if cx.has(1) {
            for i in [1, 2] {
                if cx.rank(i)? != 3 {
                    return Err(cx.malformed(format!(
                        "operand {i}, {}, is not [batch, length, heads·size]",
                        cx.shape(i)?
                    )));
                }
            }
            return Ok(of(q, cx.x(1)?, cx.x(2)?, parts(cx, width, heads)?));
        }
        let size = parts(cx, width, heads.saturating_add(key_heads.saturating_mul(2)))?;
        let part = |cx: &mut NodeCx<'_, '_>, from: usize, count: usize| {
            cx.slice_axis(q, 2, Dim::Static(from * size).extent(), Dim::Static(count * size).extent())
        };
        let all = [part(cx, 0, heads)?, part(cx, heads, key_heads)?, part(cx, heads + key_heads, key_heads)?];
        Ok(of(all[0], all[1], all[2], size))
    }

    /// Each row's number of keys from before: what there are in all, less the new ones. A first step whose rows are
    /// padded on the right has fewer than the new ones in all.
    pub fn starts(&self, cx: Cx, lengths: NodeId) -> Result<NodeId, Error> {
        let lengths = cx.cast(lengths, DType::I64)?;
        let lengths = cx.reshape(lengths, vec![self.batch])?;
        let new = cx.extent(self.length.extent())?;
        let before = cx.binary(B::Sub, lengths, new)?;
        cx.with_scalar(B::Max, before, 0.0)
    }

    /// The place of every new token: `[batch, length]`.
    pub fn places(&self, cx: Cx, starts: NodeId) -> Result<NodeId, Error> {
        let starts = cx.unsqueeze(starts, &[1])?;
        let steps = count(cx, self.length)?;
        cx.binary(B::Add, starts, steps)
    }

    /// Queries and keys turned.
    pub fn rotate(&mut self, cx: Cx, tables: [NodeId; 2]) -> Result<(), Error> {
        let interleaved = cx.attrs.flag("rotary_interleaved", false)?;
        self.q = rotate(cx, self.q, self.size, tables, interleaved)?;
        self.k = rotate(cx, self.k, self.size, tables, interleaved)?;
        Ok(())
    }

    /// Each head of `x` normalised by its root mean square.
    fn normalised(&self, cx: Cx, x: NodeId, heads: usize, weight: usize) -> Result<NodeId, Error> {
        let (shape, weight) = (cx.shape_of(x), cx.x(weight)?);
        let dims = vec![self.batch, self.length, Dim::Static(heads), Dim::Static(self.size)];
        let x = cx.reshape(x, dims)?;
        let eps = cx.attrs.float("qk_norm_epsilon", 1e-6)?;
        let x = cx.add(Op::RmsNorm { axis: -1, eps }, &[x, weight])?;
        cx.reshape(x, shape.dims().to_vec())
    }

    /// What a cache (operand `past`) becomes with the new rows, `[batch, heads, rows, size]`: at least `rows` of them.
    pub fn cached(
        &self,
        cx: Cx,
        past: usize,
        new: NodeId,
        starts: NodeId,
        rows: Extent,
    ) -> Result<NodeId, Error> {
        let new = split(cx, new, self.key_heads)?;
        let held = if cx.has(past) { cx.shape(past)?.dims().get(2).copied() } else { None };
        let before = held.unwrap_or(Dim::Static(0)).extent();
        if before == Extent::Const(0) {
            return longer(cx, new, rows - self.length.extent());
        }
        let cache = cx.x(past)?;
        if cx.shape_of(cache).rank() != 4 {
            return Err(cx.malformed(format!("a cache of {} without four dimensions", cx.shape_of(cache))));
        }
        let cache = longer(cx, cache, rows - before)?;
        cx.add(Op::UpdateSlice { axis: 2 }, &[cache, new, starts])
    }
}

/// A cache with rows of zeros behind it, if it is short of any.
fn longer(cx: Cx, cache: NodeId, missing: Extent) -> Result<NodeId, Error> {
    let after = vec![Extent::Const(0), Extent::Const(0), at_least_zero(missing), Extent::Const(0)];
    cx.pad(&[cache], vec![Extent::Const(0); 4], after, PadMode::Constant)
}

/// The one element of operand `i`, which decides how many rows the caches have.
pub(super) fn total(cx: Cx, i: usize) -> Result<Extent, Error> {
    match cx.extents(i)?[..] {
        [e] => Ok(e),
        _ => Err(cx.malformed(format!("operand {i} must have one element"))),
    }
}

/// What is not built: caches of small integers, and caches that hold the last rows only.
fn check(cx: Cx) -> Result<(), Error> {
    if cx.has(KEY_SCALE) || cx.has(KEY_SCALE + 1) {
        return Err(cx.unsupported("quantised caches (k_scale, v_scale)"));
    }
    if cx.attrs.flag("sliding_window_cache", false)? {
        return Err(cx.bad_attr("sliding_window_cache", 1));
    }
    Ok(())
}

pub(super) fn group_query(cx: Cx) -> Nodes {
    check(cx)?;
    let mut g = Grouped::read(cx)?;
    if cx.has(QUERY_NORM) {
        g.q = g.normalised(cx, g.q, g.heads, QUERY_NORM)?;
        g.k = g.normalised(cx, g.k, g.key_heads, QUERY_NORM + 1)?;
    }
    let lengths = cx.x(SEQLENS_K)?;
    let lengths = cx.cast(lengths, DType::I64)?;
    let lengths = cx.with_scalar(B::Add, lengths, 1.0)?;
    let starts = g.starts(cx, lengths)?;
    let places = g.places(cx, starts)?;
    if cx.attrs.flag("do_rotary", false)? {
        let positions = cx.x_opt(POSITIONS)?.unwrap_or(places);
        let tables = angles(cx, COS, positions)?;
        g.rotate(cx, tables)?;
    }
    let rows = total(cx, TOTAL)?;
    let (k, v) = (g.cached(cx, PAST_KEY, g.k, starts, rows)?, g.cached(cx, PAST_KEY + 1, g.v, starts, rows)?);
    let mut core = Core { k, v, key_heads: g.key_heads, ..Core::plain(g.q, k, v, g.heads, g.size) };
    core.scale = scale(cx)?;
    core.softcap = cx.attrs.float("softcap", 0.0)?;
    core.sink = sink(cx, g.heads)?;
    core.shown = match cx.attrs.int("qk_output", 0)? {
        _ if !cx.wants(3) => Shown::No,
        1 => Shown::SeenScores,
        2 => Shown::Weights,
        other => return Err(cx.bad_attr("qk_output", other)),
    };
    let keys = cx.shape_of(k).dim(2);
    core.bias = longer_bias(cx, BIAS, keys)?;
    see(cx, &mut core, &g, lengths, places)?;
    let (y, shown) = core.apply(cx)?;
    Ok(vec![y, k, v, shown.unwrap_or(y)])
}

/// Which keys each query sees: those up to its own place, at most so many back.
fn see(cx: Cx, core: &mut Core, g: &Grouped, lengths: NodeId, places: NodeId) -> Result<(), Error> {
    let keys = cx.shape_of(core.k).dim(2);
    let column = count(cx, keys)?;
    if !cx.attrs.flag("causal", true)? {
        let lengths = cx.reshape(lengths, vec![g.batch, Dim::Static(1), Dim::Static(1), Dim::Static(1)])?;
        core.seen = Some(cx.compare(CmpOp::Lt, column, lengths)?);
        return Ok(());
    }
    let window = cx.attrs.int("local_window_size", -1)?;
    let window = (window > 0).then(|| window.min(i64::from(i32::MAX)) as usize);
    // Without a past, places count from 0 in every row.
    if keys == g.length {
        (core.causal, core.window) = (true, window);
        return Ok(());
    }
    let place = cx.unsqueeze(places, &[1, 3])?;
    core.seen = Some(up_to(cx, column, place, window)?);
    Ok(())
}

/// A score of 0, or one for each head, that belongs to no key.
fn sink(cx: Cx, heads: usize) -> Result<Option<NodeId>, Error> {
    if cx.has(SINK) {
        return cx.x(SINK).map(Some);
    }
    if !cx.attrs.flag("smooth_softmax", false)? {
        return Ok(None);
    }
    let zero = cx.scalar(cx.dtype(0)?, 0.0);
    cx.expand(zero, vec![Dim::Static(heads)]).map(Some)
}
