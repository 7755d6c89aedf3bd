//! Matmuls, and everything that is one after an index map.
//!
//! A `Gemm` says how large the matrices are; `Operands` how to get an element of each, and where the
//! results go. It is computed in one of the variants of `form`, each with a module of its own:
//!
//! | variant | what an invocation does |
//! |---|---|
//! | `serial` | one result |
//! | `direct` | some rows and columns of a tile, loading what they need |
//! | `tiled` | the same, from strips that the workgroup loads together into its memory |
//! | `wide` | few rows, and columns, or steps of the sum, that are read by one access |
//!
//! Every result is one chain of sums in order of `k` that starts at 0, so all variants give the same bits. Another form, `gemv`, divides the sum,
//! and is taken only where other bits are allowed.

mod direct;
mod gemv;
mod serial;
mod tiled;
mod variant;
mod wide;

use rlx_ir::{DType, Extent};

pub(super) use gemv::MOST_ROWS;
pub use gemv::{Gemv, Room};
pub(super) use variant::variants;
pub use variant::{GemmVariant, Tile};
pub(super) use wide::Wide;

use super::cx::Cx;
use super::{Launch, Scheduled};
use crate::ir::{Const, Inst, Ty, Value, Var};

/// The sizes of a matmul: `Σ_k a[m, k]·b[k, n]` for every batch.
pub(super) struct Gemm {
    /// Dimensions along which matmuls repeat.
    pub batch: Vec<Extent>,
    /// Dimensions of a row index.
    pub m: Vec<Extent>,
    /// Dimensions that are summed over.
    pub k: Vec<Extent>,
    /// Dimensions of a column index.
    pub n: Vec<Extent>,
    /// The element type of operands and results.
    pub dtype: DType,
    /// Results of neighbouring rows, and batches, are neighbours in memory, and those of columns are not: channels are last.
    pub rows_are_inner: bool,
    /// Elements of the right matrix that may be read together.
    pub neighbours: Option<Neighbours>,
}

/// Elements of the right matrix that are neighbours in memory, so that some at a time are read by one access: how many at most. All of them divide into such.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Neighbours {
    /// Those of a row.
    Columns(usize),
    /// Those of a column, which has one dimension.
    Depth(usize),
}

/// Loads the element of an operand at `(batch, m, k)`, or `(batch, k, n)`.
type Load<'f> = &'f mut dyn FnMut(&mut Cx<'_>, &[Value], &[Value], &[Value]) -> Scheduled<Value>;
/// Loads so many neighbouring elements of an operand, from the one at `(batch, m, k)`, or `(batch, k, n)`.
type LoadWide<'f> =
    &'f mut dyn FnMut(&mut Cx<'_>, &[Value], &[Value], &[Value], usize) -> Scheduled<Vec<Value>>;
/// Loads what all elements of the right matrix share whose `k` begins with the same number, at `(that number, n)`.
type Share<'f> = &'f mut dyn FnMut(&mut Cx<'_>, Value, &[Value]) -> Scheduled<()>;
/// Stores a finished sum at `(batch, m, n)`.
type Finish<'f> = &'f mut dyn FnMut(&mut Cx<'_>, &[Value], &[Value], &[Value], Value) -> Scheduled<()>;

/// Where a matmul's elements come from and go.
pub(super) struct Operands<'f> {
    /// An element of the left matrix.
    pub a: Load<'f>,
    /// An element of the right matrix.
    pub b: Load<'f>,
    /// What to load before a loop over the inner dimensions of `k`: the scale of a block of weights. Variants that fill workgroup memory
    /// have no such loop.
    pub share: Option<Share<'f>>,
    /// Loads of neighbours, where the matmul has [`Gemm::neighbours`].
    pub wide: Option<Wide<'f>>,
    /// What is done with each result; written once, however many results an invocation has.
    pub finish: Finish<'f>,
}

fn elements(dims: &[Extent]) -> Extent {
    dims.iter().fold(Extent::Const(1), |n, &d| n * d)
}

impl Gemm {
    /// The kernel of this matmul in `variant`, for whose workgroups `cx` was made.
    ///
    /// # Errors
    /// What loading and storing report.
    pub fn launch(&self, cx: Cx<'_>, variant: GemmVariant, operands: Operands<'_>) -> Scheduled<Launch> {
        match variant {
            GemmVariant::Serial => serial::launch(cx, self, operands),
            GemmVariant::Direct(tile) => direct::launch(cx, self, tile, operands),
            GemmVariant::Tiled(tile, depth) => tiled::launch(cx, self, (tile, depth), operands),
            GemmVariant::Wide(tile) => wide::columns(cx, self, tile, operands),
            GemmVariant::Deep(tile) => wide::depth(cx, self, tile, operands),
            GemmVariant::Gemv(gemv) => gemv::launch(cx, self, gemv, operands),
        }
    }

    fn zero(&self, cx: &mut Cx<'_>) -> Value {
        cx.b.constant(Const { ty: Ty::of(self.dtype), bits: 0 })
    }
}

/// A matmul's dimensions as values.
struct Sizes {
    batch: Vec<Value>,
    m: Vec<Value>,
    k: Vec<Value>,
    n: Vec<Value>,
}

impl Sizes {
    fn new(cx: &mut Cx<'_>, p: &Gemm) -> Self {
        Sizes {
            batch: cx.sizes("batch", &p.batch),
            m: cx.sizes("m", &p.m),
            // What is behind the first dimension is a convolution's window, a block of weights, or a page.
            k: (p.k.iter().enumerate())
                .map(|(i, &e)| if i == 0 { cx.size("k0", e) } else { cx.window_size(&format!("k{i}"), e) })
                .collect(),
            n: cx.sizes("n", &p.n),
        }
    }
}

/// Runs `body` for every `k` in order, and `outer` before all that begin with the same number.
fn for_k(
    cx: &mut Cx<'_>,
    k: &[Value],
    outer: &mut dyn FnMut(&mut Cx<'_>, Value) -> Scheduled<()>,
    body: &mut dyn FnMut(&mut Cx<'_>, &[Value]) -> Scheduled<()>,
) -> Scheduled<()> {
    let Some((&first, inner)) = k.split_first() else { return body(cx, &[]) };
    cx.for_each(first, |cx, begin| {
        outer(cx, begin)?;
        cx.for_space(inner, &mut |cx, rest| body(cx, &[&[begin], rest].concat()))
    })
}

/// A matmul split into tiles, one for each workgroup.
struct Tiling {
    tile: Tile,
    sizes: Sizes,
    /// How many rows, steps of the sum, and columns.
    m_count: Value,
    k_count: Value,
    n_count: Value,
    /// The invocation's number within its workgroup.
    lane: Value,
}

/// Where a workgroup's tile lies.
struct Place {
    batch: Vec<Value>,
    /// Its first row and column.
    m0: Value,
    n0: Value,
}

impl Tiling {
    /// Runs `f` in every workgroup that has a tile; gives the launch.
    fn launch(
        mut cx: Cx<'_>,
        p: &Gemm,
        tile: Tile,
        f: impl FnOnce(&mut Cx<'_>, &Tiling, &Place) -> Scheduled<()>,
    ) -> Scheduled<Launch> {
        let sizes = Sizes::new(&mut cx, p);
        let [rows, columns] = p.tiles(tile);
        let (m_tiles, n_tiles) = (cx.size("m_tiles", rows), cx.size("n_tiles", columns));
        let [m_count, k_count, n_count] = [&sizes.m, &sizes.k, &sizes.n].map(|d| cx.product(d));
        let batches = cx.product(&sizes.batch);
        let tiles = cx.b.mul(m_tiles, n_tiles);
        let groups = cx.b.mul(batches, tiles);
        let (group, lane) = (cx.b.inst(Inst::GroupId), cx.b.inst(Inst::LocalId));
        let tiling = Tiling { tile, sizes, m_count, k_count, n_count, lane };
        let inside = cx.b.lt(group, groups);
        cx.if_then(inside, |cx| {
            let zero = cx.b.int(0);
            // A workgroup has nothing to divide where there is one row of tiles.
            let is_one = |cx: &Cx<'_>, v| cx.b.as_const(v).and_then(|c| c.as_i32()) == Some(1);
            let at = match is_one(cx, batches) && is_one(cx, m_tiles) {
                true => vec![zero, zero, group],
                false => cx.unflatten(group, &[batches, m_tiles, n_tiles]),
            };
            let batch = cx.unflatten(at[0], &tiling.sizes.batch);
            let (m, n) = (cx.b.int(tile.m), cx.b.int(tile.n));
            let place = Place { batch, m0: cx.b.mul(at[1], m), n0: cx.b.mul(at[2], n) };
            f(cx, &tiling, &place)
        })?;
        Ok(cx.finish(elements(&p.batch) * rows * columns))
    }

    /// The invocation's row and column among those of its workgroup.
    fn lanes(&self, cx: &mut Cx<'_>) -> (Value, Value) {
        let per_row = cx.b.int(self.tile.lanes_n());
        (cx.b.div(self.lane, per_row), cx.b.rem(self.lane, per_row))
    }

    /// Stores the result at a row and column, if the matmul has them.
    fn finish(
        &self,
        cx: &mut Cx<'_>,
        batch: &[Value],
        [m, n]: [Value; 2],
        finish: Finish<'_>,
        value: impl FnOnce(&mut Cx<'_>) -> Value,
    ) -> Scheduled<()> {
        let (row, column) = (cx.b.lt(m, self.m_count), cx.b.lt(n, self.n_count));
        let inside = cx.b.and(row, column);
        cx.if_then(inside, |cx| {
            let v = value(cx);
            let (m, n) = (cx.unflatten(m, &self.sizes.m), cx.unflatten(n, &self.sizes.n));
            finish(cx, batch, &m, &n, v)
        })
    }
}

/// The sums of an invocation, row by row.
struct Sums {
    vars: Vec<Var>,
    columns: usize,
}

impl Sums {
    fn new(cx: &mut Cx<'_>, p: &Gemm, tile: Tile) -> Self {
        let zero = p.zero(cx);
        let vars = (0..tile.own_m * tile.own_n).map(|_| cx.b.var(zero)).collect();
        Sums { vars, columns: tile.own_n as usize }
    }

    /// Adds the products of some elements of a column of the left matrix with those of a row of the right one.
    fn add(&self, cx: &mut Cx<'_>, x: &[Value], y: &[Value]) {
        for (i, &sum) in self.vars.iter().enumerate() {
            let now = cx.b.get(sum);
            let next = cx.b.multiply_add(x[i / self.columns], y[i % self.columns], now);
            cx.b.set(sum, next);
        }
    }
}
