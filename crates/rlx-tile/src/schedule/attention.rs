//! Attention in one pass over the keys ("FlashAttention-2", Dao 2023): `softmax(scale · q·kᵀ + mask) · v`, scores never in memory.
//!
//! A workgroup has a block of queries, each of its warps some whole rows of that. Rows are the queries of all heads that share keys, so that a few queries
//! fill a block. A workgroup goes through the keys in blocks, whose keys and values are
//! copied ahead of it. For each block it has the scores in registers, the greatest score of each row so far, `m`, the sum of the weights so far, `l`,
//! and the weighted sum of the values, `o`, both relative to `m`:
//!
//! ```text
//! s = scale · q·kᵀ + mask        m' = max(m, max s)      a = 2^(m - m')
//! p = 2^(s - m')                 l = a·l + Σ p           o = a·o + p·v
//! ```
//!
//! and in the end `o / l`. Scores are in powers of 2: `scale` and mask are times log₂e. Weights become the left operand of `p·v` in registers,
//! rounded to 16 bits, and never go through workgroup memory; everything else is f32. Where lanes have sums in another order of the depth than blocks are
//! loaded in ([`Atom::chained`]), values are loaded in that order: which of the keys an instruction multiplies does not matter, as long as both operands
//! agree. Where the result of long heads would not fit a lane's registers beside the rest, and for few rows, several warps have the same rows and each some
//! columns of their result: they share what is copied, and each makes the scores. `m` begins with the least number rather than −∞, so a row that sees nothing has weights of
//! 0 and `l = 0`. With a causal mask, blocks of keys behind all queries of the workgroup are not visited, nor with a window ("local attention") those in
//! front of what the first of them sees.
//!
//! With [`Attention::parts`] the keys are divided among workgroups ("flash decoding"), so that a decoder's one query fills a GPU: the first dimension of the
//! batch counts the parts. A workgroup stores its `o` in f32, and `m` and `l` of each row, and a kernel joins the parts ([`attention_join`](super::attention_join())).
//!
//! ```
//! use rlx_ir::DType;
//! use rlx_tile::{Arch, schedule::{Attention, attention, attention_tilings}};
//! let what = Attention::new(DType::BF16, 64);
//! let tiling = attention_tilings(Arch::Sm80, 64)[0];
//! let program = attention(Arch::Sm80, &what, &tiling)?;
//! assert!(rlx_tile::render::source(&program, "k")?.contains("ex2.approx.ftz.f32"));
//! # Ok::<(), rlx_ir::Error>(())
//! ```

use rlx_ir::ops::Unseen;
use rlx_ir::{DType, Error, ErrorKind, Result};
use rlx_kernel::build::Builder;
use rlx_kernel::ir::Value;

use super::attention_pages::{List, Pages};
use super::attention_softmax::Softmax;
use super::attention_tilings::AttentionTiling;
use super::matmul::Strides;
use crate::atom::{Arch, Atom, Loading};
use crate::ir::{
    Below, Coord, Copy, Counter, Fragment, FragmentDecl, Grid, Index, Program, Role, Size, Stage, Stmt, Tile,
    TileDecl, View,
};
use crate::layout::Swizzle;
use crate::scalar::{Place, Scalar};

/// Dimensions of the batch: items, heads of keys and values.
pub const BATCH: usize = 2;

/// What a query may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mask {
    /// Every key.
    None,
    /// Query `i` sees key `j` where `j ≤ i + keys - queries`.
    Causal,
    /// Of those, a query sees the last so many, at least one.
    Window(u32),
    /// What a buffer says: bools, or numbers that are added to the scores.
    Given(DType),
}

/// What an attention computes, apart from its sizes.
#[derive(Debug, Clone, PartialEq)]
pub struct Attention {
    /// The type of queries, keys, values and result: f16 or bf16.
    pub dtype: DType,
    /// The size of a query or key, at most 256.
    pub head_dim: u32,
    /// The size of a value, likewise.
    pub value_dim: u32,
    /// Heads of queries that share one of keys and values. Their queries are rows of one tile, those of a place beside each other: a few queries fill it.
    pub groups: u32,
    /// How many neighbouring elements of queries, keys, values and result are accessed at once: 1, 2, 4 or 8. With more than 1, base, strides and the
    /// sizes are multiples of it.
    pub vectors: [u32; 4],
    /// What scores are multiplied by.
    pub scale: f32,
    /// What a query may see.
    pub mask: Mask,
    /// What one gives that sees nothing.
    pub unseen: Unseen,
    /// Keys and values that are in pages of tables. Their views are those of the tables, and their lists are buffers behind all others.
    pub pages: [Option<Pages>; 2],
    /// A workgroup goes through its part of the keys. What stands for the result is then scratch memory of f32, of which the row of a query and a head is one row.
    pub parts: bool,
}

/// The sizes of one dispatch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AttentionSizes {
    /// Queries of an item and head.
    pub queries: i32,
    /// Keys.
    pub keys: i32,
    /// See [`BATCH`].
    pub batch: [i32; BATCH],
    /// Where queries, keys, values and result are: a row is a query or a key. A third stride of the batch is that of heads which share keys.
    pub operands: [Strides; 4],
    /// Where the mask is, likewise: its rows are queries, its columns keys.
    pub mask: Strides,
    /// How many parts the keys have and how many keys are a part, where they are divided. Strides of the batch then begin with that of parts.
    pub parts: [i32; 2],
    /// The lists of those that are in pages, of which there are as many as [`Attention::pages`] has.
    pub lists: Vec<List>,
    /// Where the greatest score and the sum of weights of each row are, side by side, in the memory of the sums.
    pub state: Strides,
}

impl Attention {
    /// Attention of one size of queries, keys and values without a mask, 16 bytes accessed at once.
    pub fn new(dtype: DType, head: u32) -> Self {
        Attention {
            dtype,
            head_dim: head,
            value_dim: head,
            groups: 1,
            vectors: [8, 8, 8, 2],
            scale: 1.0 / (head as f32).sqrt(),
            mask: Mask::None,
            unseen: Unseen::Zero,
            pages: [None; 2],
            parts: false,
        }
    }

    /// A name that says everything but how operands are accessed, such as `attention.bf16.64x64.q64.k64.w4.s2.causal.zero.x3e38aa3b`, where four heads share
    /// keys `attention.bf16.64x64x4.…`; last are the bits of the scale, `parts` where keys are divided, and `keys16xi64` where they are in pages of 16 rows (0 for
    /// any number) by a list of i64.
    pub fn name(&self, tiling: &AttentionTiling) -> String {
        let mask = match self.mask {
            Mask::None => "all".to_owned(),
            Mask::Causal => "causal".to_owned(),
            Mask::Window(n) => format!("window{n}"),
            Mask::Given(dtype) => dtype.to_string(),
        };
        let (head, value, bits) = (self.head_dim, self.value_dim, self.scale.to_bits());
        let unseen = format!("{:?}", self.unseen).to_lowercase();
        let groups = if self.groups > 1 { format!("x{}", self.groups) } else { String::new() };
        let tiling = tiling.name();
        let parts = if self.parts { ".parts" } else { "" };
        let pages = self.pages_name();
        format!(
            "attention.{}.{head}x{value}{groups}.{tiling}.{mask}.{unseen}.x{bits:08x}{parts}{pages}",
            self.dtype
        )
    }

    pub(super) fn scalar(
        &self,
        name: &str,
        rows: usize,
        f: impl FnOnce(&mut Builder, Value, &[Value], Place) -> Value,
    ) -> Scalar {
        Scalar::with_rows(name, &self.all_buffers(), &self.all_uniforms(), rows, f)
    }

    /// The query that a row is, and of which of the heads that share keys, where there are several.
    pub(super) fn query_of(&self, b: &mut Builder, row: Value) -> (Value, Option<Value>) {
        if self.groups == 1 {
            return (row, None);
        }
        let groups = b.int(self.groups as i32);
        (b.div(row, groups), Some(b.rem(row, groups)))
    }
}

pub(super) const ROWS: u32 = 0;
pub(super) const KEYS: u32 = 1;
pub(super) const SHIFT: u32 = 2;
/// The first of the batch's sizes.
pub(super) const SIZES: u32 = 3;

/// An error that says what does not work.
fn refusal(arch: Arch, tiling: &AttentionTiling, why: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("attention {} on {}: {why}", tiling.name(), arch.name()))
}

/// The instruction for an attention that the architecture can do.
pub(super) fn atom_of(arch: Arch, what: &Attention, tiling: &AttentionTiling) -> Result<&'static Atom> {
    let unsupported = |why: String| refusal(arch, tiling, &why);
    let atom = Atom::of_rows(arch, what.dtype).filter(|atom| atom.left_of_sums().is_some());
    let Some(atom) = atom else {
        return Err(unsupported(format!(
            "no matrix instruction takes weights of {} as it makes them",
            what.dtype
        ))
        .with_hint("f16 needs sm_75, gfx90a or gfx11, bf16 sm_80, gfx90a or gfx11"));
    };
    let head = |size: u32| (1..=256).contains(&size);
    if !(head(what.head_dim) && head(what.value_dim)) {
        return Err(unsupported("heads have 1 to 256 elements".to_owned()));
    }
    if !(1..=1024).contains(&what.groups) {
        return Err(unsupported(format!("{} heads share keys", what.groups)));
    }
    if matches!(what.mask, Mask::Window(0)) {
        return Err(unsupported("a window of no keys".to_owned()));
    }
    if what.pages.iter().flatten().any(|pages| pages.rows == Some(0)) {
        return Err(unsupported("pages of no rows".to_owned()));
    }
    if !matches!(what.unseen, Unseen::Zero | Unseen::Guard | Unseen::Nan) {
        return Err(unsupported(format!("a query that sees nothing gives {:?}", what.unseen)));
    }
    Ok(atom)
}

/// The program of an attention by warps, each with rows of its own.
pub(super) fn attention_warps(
    arch: Arch,
    atom: &'static Atom,
    what: &Attention,
    tiling: &AttentionTiling,
) -> Result<Program> {
    let unsupported = |why: String| refusal(arch, tiling, &why);
    let whole = |size: u32, of: u32| (1..=256).contains(&size) && size.is_multiple_of(of);
    let warps = [tiling.warps.0, tiling.warps.1].iter().all(|n| (1..=16).contains(n));
    if !(warps && whole(tiling.queries, tiling.warps.0 * atom.block) && whole(tiling.keys, atom.depth)) {
        return Err(unsupported(format!("warps multiply blocks of {} by {}", atom.block, atom.depth)));
    }
    let program = Schedule { arch, atom, what, tiling }.program();
    // What is too large for the architecture is said by the verifier.
    crate::verify::verify(&program).map_err(|v| unsupported(v.to_string()))?;
    Ok(program)
}

struct Schedule<'a> {
    arch: Arch,
    atom: &'static Atom,
    what: &'a Attention,
    tiling: &'a AttentionTiling,
}

const Q: Tile = Tile(0);
const K: Tile = Tile(1);
const V: Tile = Tile(2);
/// The scores of a step, then their weights.
const S: Fragment = Fragment(0);
const LEFT: Fragment = Fragment(1);
const K_RIGHT: Fragment = Fragment(2);
const V_RIGHT: Fragment = Fragment(3);
/// The greatest score of each row.
const GREATEST: Fragment = Fragment(4);
/// The sum of the weights of each row, in the end what its values are multiplied by.
const TOTAL: Fragment = Fragment(5);
/// What so far was relative to the greatest score is multiplied by.
const AGAIN: Fragment = Fragment(6);
/// The first fragment of the result.
const RESULT: u32 = 7;
/// The loop over the keys.
const STEP: Counter = Counter(0);
/// Columns of the result that are multiplied at once are as many as so many registers of a right operand have.
const PART: u32 = 16;

impl Schedule<'_> {
    fn program(&self) -> Program {
        let (what, t) = (self.what, self.tiling);
        let (rows, block) = (t.queries / t.warps.0, self.atom.depth);
        let (depth, (parts, part)) = (self.head(), self.divided());
        let values = t.warps.1 * parts * part;
        let tile = |rows, cols: u32, stages, depth_rows| {
            let elements = depth_rows && matches!(self.atom.loading, Loading::Own(_));
            // As in a matmul: lanes that load single elements need at least two rows of 16.
            let cols = cols.next_power_of_two().max(if elements { 32 } else { 16 });
            let swizzle = if elements { Swizzle::of_elements(cols, self.apart()) } else { Swizzle::of(cols) };
            TileDecl { dtype: what.dtype, rows, cols, stages, swizzle, pad: 0, matrices: false }
        };
        let fragment = |role, rows, cols| FragmentDecl { role, rows, cols };
        let mut fragments = vec![
            fragment(Role::Sum, rows, t.keys),
            fragment(Role::Left, rows, block),
            fragment(Role::Right, block, t.keys),
            fragment(Role::Right, block, part),
        ];
        fragments.extend([fragment(Role::Rows, rows, 1); 3]);
        fragments.extend((0..parts).map(|_| fragment(Role::Sum, rows, part)));
        let mut views = vec![
            what.view(0, ROWS, what.head_dim),
            what.view(1, KEYS, what.head_dim),
            what.view(2, KEYS, what.value_dim),
            what.view(3, ROWS, what.value_dim),
        ];
        views.extend(what.parts.then(|| what.state()));
        Program {
            name: what.name(t),
            arch: self.arch,
            dtype: what.dtype,
            warps: t.warps,
            buffers: what.all_buffers(),
            uniforms: what.all_uniforms(),
            grid: Grid {
                rows: Size::Uniform(ROWS),
                cols: Size::Const(what.value_dim),
                tile: (t.queries, values),
                batch: (SIZES..).take(what.dims() as usize).map(Size::Uniform).collect(),
                table: None,
                bands: 1,
            },
            views,
            tiles: vec![
                tile(t.queries, depth, 1, false),
                tile(t.keys, depth, t.stages, false),
                tile(t.keys, values, t.stages, true),
            ],
            fragments,
            group: Default::default(),
            body: self.body(),
        }
    }

    /// How many parts a warp's columns of the result are divided into, and columns of each.
    fn divided(&self) -> (u32, u32) {
        let most = PART / self.atom.block_registers() * self.atom.block;
        let own = self.what.value_dim.div_ceil(self.tiling.warps.1);
        let n = own.div_ceil(most);
        (n, own.div_ceil(n).next_multiple_of(self.atom.block))
    }

    /// The size of a query in whole blocks.
    fn head(&self) -> u32 {
        self.what.head_dim.next_multiple_of(self.atom.depth)
    }

    /// How far the two rows of values are apart that 32 lanes read single elements of; where they read one row, that does not matter.
    fn apart(&self) -> u32 {
        let order = match (&self.atom.chained, &self.atom.loading) {
            (Some(order), _) | (None, Loading::Own(order)) => order,
            _ => return 8,
        };
        if order.at(16, 0).1 == 4 { 4 } else { 8 }
    }

    /// The fragments of the result, and the first column of each.
    fn parts(&self) -> impl Iterator<Item = (Fragment, Index)> {
        let ((n, cols), beside) = (self.divided(), self.tiling.warps.1 > 1);
        (0..n).map(move |i| {
            let col = Index::new(i * cols);
            (Fragment(RESULT + i), if beside { col.plus(Coord::WarpCol, n * cols) } else { col })
        })
    }

    /// The first row of a warp's queries.
    fn warp_row(&self) -> Index {
        Index::default().plus(Coord::WarpRow, self.tiling.queries / self.tiling.warps.0)
    }

    fn first_query(&self) -> Index {
        self.warp_row().plus(Coord::GroupRow, self.tiling.queries)
    }

    /// The first key of a step.
    fn first_key(&self) -> Index {
        let (key, keys) = (Index::default(), self.tiling.keys);
        let key = match self.what.mask {
            Mask::Window(_) => key.plus(Coord::First(STEP), keys),
            _ => key,
        };
        key.plus(Coord::Counter(STEP), keys)
    }

    /// What any of the workgroup's queries may see.
    fn seen(&self) -> Option<Below> {
        let (rows, heads, offset) = (self.tiling.queries, self.what.groups, Size::Uniform(SHIFT));
        let of = |window| Some(Below { rows, heads, offset, window });
        match self.what.mask {
            Mask::Causal => of(None),
            Mask::Window(n) => of(Some(n)),
            Mask::None | Mask::Given(_) => None,
        }
    }

    fn softmax(&self) -> Softmax<'_> {
        let (row, key) = (self.first_query(), self.first_key());
        Softmax { what: self.what, scores: S, greatest: GREATEST, total: TOTAL, again: AGAIN, row, key }
    }

    fn body(&self) -> Vec<Stmt> {
        let (what, t) = (self.what, self.tiling);
        let copy = |from: u32, row: Index, to: Tile, stage: Stage| Copy {
            from: View(from),
            row,
            col: Index::default(),
            to,
            stage,
            with: Vec::new(),
            map: None,
        };
        let ahead = Stage { counter: Some(STEP), ahead: 0 };
        let key = || self.first_key();
        let queries = Index::default().plus(Coord::GroupRow, t.queries);
        let mut body = vec![Stmt::Copy(copy(0, queries, Q, Stage::ONLY))];
        body.extend(self.softmax().begin());
        body.extend(self.parts().map(|(part, _)| Stmt::Zero(part)));
        body.push(Stmt::Pipelined {
            counter: STEP,
            extent: what.keys(),
            below: self.seen(),
            step: t.keys,
            stages: t.stages,
            copies: vec![copy(1, key(), K, ahead), copy(2, key(), V, ahead)],
            body: self.step(),
        });
        body.extend(if what.parts { self.store_part() } else { self.softmax().store_result(self.parts()) });
        body
    }

    /// What is stored where the workgroup has gone through some of the keys: the sums as they are, and what they are relative to. The scores' registers are free by now: their
    /// first two columns have the latter.
    fn store_part(&self) -> Vec<Stmt> {
        let what = self.what;
        let row = || self.first_query();
        let store =
            |(from, col)| Stmt::Store { to: View(3), from, row: row(), col, with: Vec::new(), map: None };
        let mut body: Vec<Stmt> = self.parts().map(store).collect();
        // Of warps beside each other, which have the same rows, the first has these columns.
        let col = || Index::default().plus(Coord::WarpCol, self.tiling.keys);
        let map = what.scalar("state", 2, |b, _, rows, at| {
            let zero = b.int(0);
            let first = b.eq(at.col, zero);
            b.select(first, rows[0], rows[1])
        });
        body.extend([
            Stmt::Zero(S),
            Stmt::Each { of: S, with: vec![GREATEST, TOTAL], row: row(), col: col(), map },
            Stmt::Store { to: View(4), from: S, row: row(), col: col(), with: Vec::new(), map: None },
        ]);
        body
    }

    /// What is done with a block of keys.
    fn step(&self) -> Vec<Stmt> {
        let softmax = self.softmax();
        let mut body = vec![Stmt::Zero(S), self.scores()];
        body.extend(softmax.weights());
        body.extend(self.parts().map(|(part, _)| softmax.again(part)));
        body.push(self.values());
        body
    }

    /// `q·kᵀ` of a block of keys.
    fn scores(&self) -> Stmt {
        let (d, stage) = (Counter(1), Stage { counter: Some(STEP), ahead: 0 });
        let along = || Index::default().plus(Coord::Counter(d), self.atom.depth);
        let load = |to, from, stage, row| {
            let col = along();
            Stmt::Load { to, from, stage, row, col, depth_rows: false, of_sums: false }
        };
        Stmt::For {
            counter: d,
            extent: Size::Const(self.head()),
            below: None,
            step: self.atom.depth,
            body: vec![
                load(LEFT, Q, Stage::ONLY, self.warp_row()),
                load(K_RIGHT, K, stage, Index::default()),
                Stmt::Mma { sum: S, left: LEFT, right: K_RIGHT },
            ],
        }
    }

    /// The weights times the values of a block of keys.
    fn values(&self) -> Stmt {
        let (d, stage) = (Counter(2), Stage { counter: Some(STEP), ahead: 0 });
        let along = || Index::default().plus(Coord::Counter(d), self.atom.depth);
        let mut body = vec![Stmt::Convert { to: LEFT, from: S, col: along() }];
        for (part, col) in self.parts() {
            let (row, of_sums) = (along(), self.atom.chained.is_some());
            body.extend([
                Stmt::Load { to: V_RIGHT, from: V, stage, row, col, depth_rows: true, of_sums },
                Stmt::Mma { sum: part, left: LEFT, right: V_RIGHT },
            ]);
        }
        let (extent, step) = (Size::Const(self.tiling.keys), self.atom.depth);
        Stmt::For { counter: d, extent, below: None, step, body }
    }
}
