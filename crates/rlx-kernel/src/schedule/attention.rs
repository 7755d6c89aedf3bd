//! Attention that keeps no scores in memory: a workgroup has some queries of a head, and goes through the keys in blocks.
//!
//! ```text
//! q = queries                                       in workgroup memory, as are k, v and the weights
//! for blocks of keys {
//!     k = keys;  scores = scale · q·kᵀ, masked      64 invocations: eight along the rows, eight along the keys
//!     m = greatest score of each row so far         of the eight of a row, through workgroup memory
//!     weights = exp(scores − m);  sums, totals ·= exp(m before − m)
//!     v = values;  sums += weights·v                eight along the rows, eight along the columns
//! }
//! result = sums / totals
//! ```
//!
//! The softmax is the online one of Milakov and Gimelshein (2018), as FlashAttention (Dao et al. 2022) has it. What a row sums, and in which order, follows from the
//! sizes of heads alone: blocks of keys begin at multiples of their size, of a block each of eight invocations has every eighth key, and their totals are added at
//! the end. So a row has the same bits whatever else is computed, and however many rows a workgroup has ([`Tile::rows`]), which a device's memory limits and measuring may choose.
//!
//! Blocks that no query of the workgroup may see (causal attention, windows) are left out. Scores are sums in order of the head's elements, and values are added in
//! order of the keys, each product by [`Inst::Fma`](crate::ir::Inst::Fma).
//!
//! Rows of tiles in workgroup memory are so far apart that no two lanes of a warp meet in a bank: an odd number of elements where lanes read a column of rows, and
//! eight more than a multiple of 16 where a row's eight neighbours read, or write, beside those of other rows.

mod rows;

use rlx_ir::op::{MaskKind, Unseen};
use rlx_ir::ops::nn::attention::AttentionDims;
use rlx_ir::{DType, Dim, Extent, Node, Op};

use self::rows::{Lane, Rows};
use super::cx::{Cx, Place};
use super::{Arg, Launch, Scheduled, StepDesc, Unscheduled, reject};
use crate::ir::{Inst, Ty};

/// Invocations along the rows, and along keys and columns.
const SIDE: i32 = 8;
/// Invocations of a workgroup.
const LANES: i32 = SIDE * SIDE;
/// The largest head. An invocation has an eighth of the columns of each of its rows in registers.
const MOST_OF_HEAD: usize = 256;
/// The largest head that has blocks of 32 keys, others have 16; and the largest of which a workgroup may have 32 rows.
const WIDE_BLOCKS: usize = 64;
const MANY_ROWS: usize = 128;
/// Fewer queries leave most of a workgroup without work. A matrix of so few rows is as fast as its operands are read.
const LEAST_QUERIES: i64 = 16;
/// Workgroups that are enough to fill a large GPU.
const MANY: i64 = 128;

/// What a workgroup has at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tile {
    /// Queries.
    pub rows: u8,
    /// Keys.
    keys: u8,
    /// Elements of a query, and of a key.
    head: u16,
    /// Elements of a value.
    value: u16,
}

impl Tile {
    /// Rows and columns of scores that an invocation has, and columns of the result.
    fn own(self) -> [i32; 3] {
        let columns = i32::from(self.value).unsigned_abs().div_ceil(SIDE.unsigned_abs());
        [i32::from(self.rows) / SIDE, i32::from(self.keys) / SIDE, columns as i32]
    }

    /// From row to row of queries and keys.
    fn pitch(self) -> i32 {
        i32::from(self.head) | 1
    }

    /// From row to row of weights.
    fn weights_pitch(self) -> i32 {
        i32::from(self.keys) + SIDE
    }

    /// Elements of workgroup memory: queries; keys, then values; weights; what each invocation has of a row.
    fn memory(self) -> [i32; 4] {
        let (rows, keys, [_, _, columns]) = (i32::from(self.rows), i32::from(self.keys), self.own());
        let block = keys * self.pitch().max(columns * SIDE);
        [rows * self.pitch(), block, rows * self.weights_pitch(), rows * SIDE]
    }

    /// Bytes of workgroup memory.
    pub(super) fn shared_bytes(self) -> usize {
        self.memory().iter().map(|&n| 4 * n.unsigned_abs() as usize).sum()
    }

    /// Invocations of a workgroup.
    pub(super) fn workgroup(self) -> u32 {
        LANES.unsigned_abs()
    }
}

/// An attention of a step.
struct Attention {
    dims: AttentionDims,
    mask: MaskKind,
    window: Option<usize>,
    scale: f64,
    unseen: Unseen,
}

impl Attention {
    fn of(step: &StepDesc, anchor: &Node) -> Scheduled<Attention> {
        let Op::Attention { num_heads, head_dim, mask, window, scale, unseen } = anchor.op else {
            return reject("no attention");
        };
        if step.graph.nodes().len() != anchor.inputs.len() + 1 {
            return reject("an attention with something around it");
        }
        let dtype = anchor.shape.dtype();
        if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
            return reject(format!("attention of {dtype}"));
        }
        let shape = |i: usize| step.graph.shape(anchor.inputs[i]);
        let dims = AttentionDims::of(num_heads, head_dim, shape(0), shape(1), shape(2));
        let dims = dims.map_err(|e| Unscheduled(e.to_string()))?;
        let scale = scale.map_or(1.0 / (head_dim as f64).sqrt(), f64::from);
        Ok(Attention { dims, mask, window, scale, unseen })
    }
}

/// The tiles of an attention, the one for its sizes first; a tile with fewer rows needs less memory.
///
/// # Errors
/// Heads that are too large; few queries, or a number of them that is not known, unless it is that of the keys.
pub(super) fn tiles(step: &StepDesc, anchor: &Node) -> Scheduled<Vec<Tile>> {
    let Attention { dims, .. } = Attention::of(step, anchor)?;
    let (head, value) = (dims.head_dim, dims.value_dim);
    let most = head.max(value);
    if most > MOST_OF_HEAD || value == 0 {
        return reject(format!("attention of heads of {head} and {value} elements"));
    }
    // Sizes that are open are bound later: what is claimed of them has to be claimed of every number.
    let many = dims.queries.as_static().is_some_and(|queries| queries as i64 >= LEAST_QUERIES);
    if !many && dims.queries != dims.keys {
        return reject("attention of few queries, or of an open number of them beside keys of before");
    }
    let keys = if most <= WIDE_BLOCKS { 32 } else { 16 };
    let tile = |rows| Tile { rows, keys, head: head as u16, value: value as u16 };
    let mut all = vec![tile(32), tile(16)];
    if most > MANY_ROWS {
        all.remove(0);
    } else if workgroups(&dims, 32).as_const().is_some_and(|n| n < MANY) {
        all.reverse();
    }
    Ok(all)
}

fn workgroups(dims: &AttentionDims, rows: i64) -> Extent {
    dims.batch.extent() * dims.heads as i64 * dims.queries.extent().ceil_div(rows)
}

/// Makes the kernel of an attention.
///
/// # Errors
/// An element type other than floats of up to 32 bits, or something else in the step.
pub(super) fn schedule(step: &StepDesc, anchor: &Node, tile: Tile) -> Scheduled<Vec<Launch>> {
    let what = Attention::of(step, anchor)?;
    let dims = &what.dims;
    let Tile { rows, head, value, .. } = tile;
    let mut cx = Cx::new(&format!("attention.{rows}.{head}x{value}"), tile.workgroup(), step);
    let heads = cx.size("heads", Extent::Const(dims.heads as i64));
    let shared = cx.size("shared", Extent::Const((dims.heads / dims.kv_heads) as i64));
    let [items, queries, keys] = [("items", dims.batch), ("queries", dims.queries), ("keys", dims.keys)]
        .map(|(name, dim)| cx.size(name, dim.extent()));
    let operands = [
        operand(&mut cx, Arg::Input(0), i64::from(head))?,
        operand(&mut cx, Arg::Input(1), i64::from(head))?,
        operand(&mut cx, Arg::Input(2), i64::from(value))?,
        operand(&mut cx, Arg::Output(0), i64::from(value))?,
    ];
    let given = (what.mask == MaskKind::Custom).then(|| mask(&mut cx, dims));
    let memory = tile.memory().map(|len| cx.b.shared(Ty::F32, len.unsigned_abs()));
    let (group, lane) = (cx.b.inst(Inst::GroupId), cx.b.inst(Inst::LocalId));
    let (block, almost) = (cx.b.int(i32::from(rows)), cx.b.int(i32::from(rows) - 1));
    let blocks = cx.b.add(queries, almost);
    let blocks = cx.b.div(blocks, block);
    let space = [items, heads, blocks];
    let count = cx.product(&space);
    let inside = cx.b.lt(group, count);
    cx.if_then(inside, |cx| {
        let index = cx.unflatten(group, &space);
        let (item, head, first) = (index[0], index[1], cx.b.mul(index[2], block));
        let kv_head = cx.b.div(head, shared);
        let side = cx.b.int(SIDE);
        let (row, col) = (cx.b.div(lane, side), cx.b.rem(lane, side));
        let lane = Lane { lane, row, col };
        let at = [item, head, kv_head, first];
        Rows { what: &what, tile, memory, operands, given, at, queries, keys, lane }.write(cx)
    })?;
    Ok(vec![cx.finish(workgroups(dims, i64::from(rows)))])
}

/// Reaches an operand by item, head, row and column.
fn operand(cx: &mut Cx<'_>, arg: Arg, size: i64) -> Scheduled<Place> {
    let strides = match *cx.operand(arg).view.strides {
        [item, row, col] => [item, col * size, row, col],
        [item, head, row, col] => [item, head, row, col],
        _ => return reject("an operand that has not three or four dimensions"),
    };
    Ok(cx.place_by(arg, &strides))
}

/// Reaches the mask by item, head, query and key; it is repeated where it has one element for all.
fn mask(cx: &mut Cx<'_>, dims: &AttentionDims) -> Place {
    let (view, scores) = (&cx.operand(Arg::Input(3)).view, dims.scores());
    let skip = scores.len() - view.dims.len();
    let strides: Vec<Extent> = (0..scores.len())
        .map(|at| match at.checked_sub(skip) {
            Some(own) => {
                view.strides[own] * Dim::from(view.dims[own]).extent().broadcast_factor(scores[at].extent())
            }
            None => Extent::Const(0),
        })
        .collect();
    cx.place_by(Arg::Input(3), &strides)
}
