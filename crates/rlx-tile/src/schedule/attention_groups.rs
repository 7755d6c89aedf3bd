//! Attention on sm_90a: a producer warp copies queries once and blocks of keys and values ahead, and warp groups have 64 rows of queries each
//! ("FlashAttention-3", Shah et al. 2024).
//!
//! ```text
//! producer:                          consumers, each group for itself:
//!   queries                            scores = q·kᵀ by wgmma, both operands in workgroup memory
//!   for each block of keys:            weights in registers, as on every level
//!     keys, when no longer read        result += weights·v by wgmma, the weights in registers
//!     values, likewise
//! ```
//!
//! Groups wait for nobody but the producer, so while one of them computes weights, the matrix units have the multiplications of another. They have some of
//! its own, too: the values of a block are multiplied while the weights of the next one are computed ([`Stmt::Staggered`]).
//!
//! Blocks of keys are those of sm_80, and `wgmma` sums in the same groups of a depth of 16: bits are the same, too. So which of the two programs does a
//! step is a matter of its rows and of tuning.
//!
//! Heads that share keys are a dimension of the queries' map, before that of the queries: a box has all heads of some queries.
//!
//! Queries, keys and values are tiles of 64 elements of their heads beside each other; values, whose rows run along the depth, are one tile of such blocks.

use rlx_ir::{Error, ErrorKind, Result};

use super::attention::{Attention, KEYS, Mask, ROWS, SHIFT, SIZES};
use super::attention_softmax::Softmax;
use super::attention_tilings::AttentionTiling;
use crate::atom::Arch;
use crate::group::{
    Barrier, BarrierDecl, DEPTH, Decls, GROUP_ROWS, GROUP_WARPS, Group, GroupTile, GroupTileDecl, ROW,
    Staggered, WARP_ROWS,
};
use crate::ir::{
    Below, Coord, Counter, Fragment, FragmentDecl, Grid, Index, Program, Role, Size, Stmt, View,
};
use crate::layout::CHUNK;
use crate::tensor_map::{Map, MapDecl};

/// Tilings of the group level for heads of so many elements (of keys or values, what is more), for many queries first; those behind the first are for tuning alone. None
/// was measured on hardware.
pub fn attention_group_tilings(head: u32) -> Vec<AttentionTiling> {
    let of = |groups: u32, stages| AttentionTiling {
        queries: groups * GROUP_ROWS,
        keys: if head > 128 { 32 } else { 64 },
        warps: (groups * GROUP_WARPS, 1),
        stages,
        groups: true,
    };
    match head {
        ..=64 => vec![of(2, 4), of(3, 3), of(1, 2)],
        65..=128 => vec![of(2, 4), of(1, 2)],
        _ => vec![of(1, 2)],
    }
}

/// Why an attention has no program of the group level, if it has none.
pub(super) fn refused(what: &Attention) -> Option<&'static str> {
    let whole = |size: u32| size.is_multiple_of(ROW);
    if what.parts {
        return Some("keys that are divided among workgroups");
    }
    if what.pages.iter().any(Option::is_some) {
        return Some("keys in pages");
    }
    if matches!(what.mask, Mask::Window(_)) {
        return Some("a window of keys");
    }
    if !(whole(what.head_dim) && whole(what.value_dim)) {
        return Some("heads that are no multiples of 64 elements");
    }
    if !GROUP_ROWS.is_multiple_of(what.groups) {
        return Some("heads that share keys, of whose queries 64 rows are no whole number");
    }
    let mapped = what.vectors[..3].iter().all(|&vector| vector == CHUNK);
    (!mapped).then_some("operands whose rows are no multiples of 16 bytes apart")
}

/// The program of an attention for sm_90a; [`attention`](super::attention()) is asked for it by the tiling.
///
/// # Errors
/// [`ErrorKind::Unsupported`] where tensor copies cannot take the operands as they are, or the tiling does not fit.
pub fn attention_groups(what: &Attention, tiling: &AttentionTiling) -> Result<Program> {
    let unsupported = |why: String| {
        Error::new(ErrorKind::Unsupported, format!("attention {} on sm_90a: {why}", tiling.name()))
    };
    if let Some(why) = refused(what) {
        return Err(unsupported(why.to_owned()).with_hint("programs of sm_80 take such operands"));
    }
    let AttentionTiling { queries, keys, warps: (rows, cols), stages, .. } = *tiling;
    let groups = rows.is_multiple_of(GROUP_WARPS) && (1..=28).contains(&rows) && cols == 1;
    let blocks = (DEPTH..=ROW).contains(&keys) && keys.is_multiple_of(DEPTH);
    if !(groups && queries == rows * WARP_ROWS && blocks && (2..=8).contains(&stages)) {
        return Err(unsupported(format!(
            "each warp group has {GROUP_ROWS} rows, and multiplies by {DEPTH} to {ROW} keys, of which 2 to 8 blocks are copied"
        )));
    }
    let program = Schedule { what, tiling }.program();
    crate::verify::verify(&program).map_err(|v| unsupported(v.to_string()))?;
    Ok(program)
}

struct Schedule<'a> {
    what: &'a Attention,
    tiling: &'a AttentionTiling,
}

/// The scores of a step, then their weights.
const S: Fragment = Fragment(0);
/// The weights as an operand.
const LEFT: Fragment = Fragment(1);
const GREATEST: Fragment = Fragment(2);
const TOTAL: Fragment = Fragment(3);
const AGAIN: Fragment = Fragment(4);
const RESULT: Fragment = Fragment(5);

const FULL_Q: Barrier = Barrier(0);
const FULL_K: Barrier = Barrier(1);
const EMPTY_K: Barrier = Barrier(2);
const FULL_V: Barrier = Barrier(3);
const EMPTY_V: Barrier = Barrier(4);

/// Queries are copied once, and waited for once: loops of one iteration.
const ONCE: Counter = Counter(0);
const ONCE_TAKEN: Counter = Counter(1);
/// The producer's loop over the keys.
const STEP: Counter = Counter(2);
/// That of the consumers over scores, and over results, which are a step behind.
const TAKEN: Counter = Counter(3);
const WEIGHTED: Counter = Counter(4);

fn stmts(all: impl IntoIterator<Item = Group>) -> impl Iterator<Item = Stmt> {
    all.into_iter().map(Stmt::Group)
}

impl Schedule<'_> {
    fn program(&self) -> Program {
        let (what, t) = (self.what, self.tiling);
        let fragment = |role, cols| FragmentDecl { role, rows: WARP_ROWS, cols };
        let map = |view: u32, rows: u32| MapDecl { view: View(view), rows, cols: ROW };
        let barrier = |stages, arrivals| BarrierDecl { stages, arrivals };
        let tiles = |tile: GroupTileDecl| std::iter::repeat_n(tile, self.parts() as usize);
        let mut all: Vec<GroupTileDecl> = tiles(self.queries()).chain(tiles(self.keys())).collect();
        all.push(self.values());
        Program {
            name: what.name(t),
            arch: Arch::Sm90a,
            dtype: what.dtype,
            warps: t.warps,
            buffers: what.all_buffers(),
            uniforms: what.all_uniforms(),
            grid: Grid {
                rows: Size::Uniform(ROWS),
                cols: Size::Const(what.value_dim),
                tile: (t.queries, what.value_dim),
                batch: (SIZES..).take(what.dims() as usize).map(Size::Uniform).collect(),
                table: None,
                bands: 1,
            },
            views: vec![
                what.view(0, ROWS, what.head_dim),
                what.view(1, KEYS, what.head_dim),
                what.view(2, KEYS, what.value_dim),
                what.view(3, ROWS, what.value_dim),
            ],
            tiles: Vec::new(),
            fragments: vec![
                fragment(Role::Sum, t.keys),
                fragment(Role::Left, t.keys),
                fragment(Role::Rows, 1),
                fragment(Role::Rows, 1),
                fragment(Role::Rows, 1),
                fragment(Role::Sum, what.value_dim),
            ],
            group: Decls {
                maps: vec![map(0, t.queries), map(1, t.keys), map(2, t.keys)],
                tiles: all,
                barriers: vec![
                    barrier(1, 1),
                    barrier(t.stages, 1),
                    barrier(t.stages, t.warps.0),
                    barrier(t.stages, 1),
                    barrier(t.stages, t.warps.0),
                ],
                ..Decls::default()
            },
            body: vec![Stmt::Roles {
                producer: self.producer(),
                multiplier: Vec::new(),
                consumers: self.consumers(),
            }],
        }
    }

    /// How many parts of 64 elements queries and keys have.
    fn parts(&self) -> u32 {
        self.what.head_dim / ROW
    }

    /// A part of the queries.
    fn queries(&self) -> GroupTileDecl {
        GroupTileDecl { blocks: 1, rows: self.tiling.queries, stages: 1 }
    }

    /// A part of a block of keys.
    fn keys(&self) -> GroupTileDecl {
        GroupTileDecl { blocks: 1, rows: self.tiling.keys, stages: self.tiling.stages }
    }

    /// A block of values.
    fn values(&self) -> GroupTileDecl {
        GroupTileDecl { blocks: self.what.value_dim / ROW, ..self.keys() }
    }

    fn query_tile(&self, part: u32) -> GroupTile {
        GroupTile(part)
    }

    fn key_tile(&self, part: u32) -> GroupTile {
        GroupTile(self.parts() + part)
    }

    fn value_tile(&self) -> GroupTile {
        GroupTile(2 * self.parts())
    }

    /// What any of the workgroup's queries may see.
    fn seen(&self) -> Option<Below> {
        let (rows, heads, offset) = (self.tiling.queries, self.what.groups, Size::Uniform(SHIFT));
        (self.what.mask == Mask::Causal).then_some(Below { rows, heads, offset, window: None })
    }

    /// A loop over the keys.
    fn repeated(&self, counter: Counter, body: Vec<Stmt>) -> Stmt {
        let (extent, below, step) = (self.what.keys(), self.seen(), self.tiling.keys);
        Stmt::For { counter, extent, below, step, body }
    }

    fn producer(&self) -> Vec<Stmt> {
        let t = self.tiling;
        let copy = |from: u32, row: Index, part: u32, (to, block), barrier, counter| {
            let col = Index::new(part * ROW);
            Group::Copy { from: Map(from), row, col, to, block, barrier, counter }
        };
        let (first, key) = (
            || Index::default().plus(Coord::GroupRow, t.queries),
            || Index::default().plus(Coord::Counter(STEP), t.keys),
        );
        let of_queries = self.parts() * self.queries().stage_bytes();
        let mut queries = vec![Group::Expect(FULL_Q, ONCE, of_queries)];
        queries.extend((0..self.parts()).map(|i| copy(0, first(), i, (self.query_tile(i), 0), FULL_Q, ONCE)));
        let of_keys = self.parts() * self.keys().stage_bytes();
        let mut step = vec![Group::WaitEmpty(EMPTY_K, STEP), Group::Expect(FULL_K, STEP, of_keys)];
        step.extend((0..self.parts()).map(|i| copy(1, key(), i, (self.key_tile(i), 0), FULL_K, STEP)));
        let values = self.values();
        step.extend([Group::WaitEmpty(EMPTY_V, STEP), Group::Expect(FULL_V, STEP, values.stage_bytes())]);
        step.extend((0..values.blocks).map(|i| copy(2, key(), i, (self.value_tile(), i), FULL_V, STEP)));
        vec![once(ONCE, queries), self.repeated(STEP, stmts(step).collect())]
    }

    fn consumers(&self) -> Vec<Stmt> {
        let softmax = self.softmax();
        let mut body = vec![Stmt::Zero(RESULT)];
        body.extend(softmax.begin());
        body.push(once(ONCE_TAKEN, vec![Group::WaitFull(FULL_Q, ONCE_TAKEN)]));
        let convert = || Stmt::Convert { to: LEFT, from: S, col: Index::default() };
        let given_back = |barrier, counter| Stmt::Group(Group::Arrive(barrier, counter, 0));
        let wait = |but: u32| Stmt::Group(Group::WaitMma(but));
        // The result so far is 0.
        let mut first = self.scores();
        first.extend([wait(0), given_back(EMPTY_K, TAKEN)]);
        first.extend(softmax.weights());
        first.push(convert());
        let mut step = self.scores();
        step.extend(stmts(self.weighted()));
        step.extend([wait(1), given_back(EMPTY_K, TAKEN)]);
        step.extend(softmax.weights());
        // These values have been there since before they were multiplied. But the assembler moves nothing past a wait for memory, where it would have the weights
        // computed behind the multiplications.
        step.push(Stmt::Group(Group::WaitFull(FULL_V, WEIGHTED)));
        step.extend([wait(0), given_back(EMPTY_V, WEIGHTED), softmax.again(RESULT), convert()]);
        let mut last: Vec<Stmt> = stmts([Group::WaitFull(FULL_V, WEIGHTED), Group::Fence]).collect();
        last.extend(stmts(self.weighted().into_iter().skip(1)));
        last.extend([wait(0), given_back(EMPTY_V, WEIGHTED)]);
        body.push(Stmt::Staggered(Box::new(Staggered {
            counter: TAKEN,
            behind: WEIGHTED,
            extent: self.what.keys(),
            below: self.seen(),
            step: self.tiling.keys,
            first,
            body: step,
            last,
        })));
        body.extend(softmax.store_result([(RESULT, Index::default())].into_iter()));
        body
    }

    /// Begins the products of queries and a block of keys. What was set before is fenced, too.
    fn scores(&self) -> Vec<Stmt> {
        let mut all = vec![Stmt::Zero(S)];
        all.extend(stmts([Group::WaitFull(FULL_K, TAKEN), Group::Fence]));
        all.extend(stmts((0..self.parts()).map(|part| Group::Mma {
            sum: S,
            left: self.query_tile(part),
            row: 0,
            right: self.key_tile(part),
            depth_rows: false,
            counter: TAKEN,
        })));
        all.push(Stmt::Group(Group::Commit));
        all
    }

    /// Begins the products of weights and the block of values before, once that is there.
    fn weighted(&self) -> [Group; 3] {
        let right = self.value_tile();
        [
            Group::WaitFull(FULL_V, WEIGHTED),
            Group::MmaLeft { sum: RESULT, left: LEFT, right, counter: WEIGHTED },
            Group::Commit,
        ]
    }

    fn softmax(&self) -> Softmax<'_> {
        let row = Index::default().plus(Coord::WarpRow, WARP_ROWS);
        let row = row.plus(Coord::GroupRow, self.tiling.queries);
        let key = Index::default().plus(Coord::Counter(TAKEN), self.tiling.keys);
        Softmax { what: self.what, scores: S, greatest: GREATEST, total: TOTAL, again: AGAIN, row, key }
    }
}

/// A loop of one iteration.
fn once(counter: Counter, body: Vec<Group>) -> Stmt {
    let body = stmts(body).collect();
    Stmt::For { counter, extent: Size::Const(1), below: None, step: 1, body }
}
