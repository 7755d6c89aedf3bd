//! The group level, for sm_90a: what a *producer* warp and *consumer* warp groups of 128 lanes do at the same time.
//!
//! `wgmma` multiplies operands that are in workgroup memory, and bulk copies bring them there without a lane's registers. Both run on their own, beside
//! the lanes that began them; who may go on is said by *barriers* in memory (`mbarrier`), each of which counts arrivals and bytes. A program of
//! this level has one statement, [`crate::ir::Stmt::Roles`]: a list for the producer, whose lane 0 runs it alone, and a list that all consumers run.
//!
//! ```text
//! producer, for each step of the depth:            consumers:
//!   wait empty   its stage is no longer read          wait full    its bytes are there
//!   expect full  so many bytes                        fence; mma; commit; wait.mma 0
//!   copy.bulk …  counted by full as they arrive       arrive empty
//! ```
//!
//! **Operands are packed.** A plain bulk copy moves neighbouring bytes, and `wgmma` without a swizzle reads *core matrices*: 8 rows × 16 bytes, one
//! behind the other. From a matrix in rows that would be a copy for each 16 bytes, so operands are packed before ([`Packing`]): in *panels* as high
//! as a tile, each of them chunks of 8 along the depth, each chunk all rows. The part of a panel that a step takes is then one run of bytes, and one copy.
//! What packs is free for weights, and for other operands one pass over them. Tensor copies (`cp.async.bulk.tensor`) would need no packing, but a map of
//! each matrix that only the driver can encode (its bits are not documented), and the parameters of kernels carry pointers and uniforms.

use std::fmt::{self, Display};

use rlx_kernel::ir::Buffer;

use crate::ir::{Counter, Fragment, Index, Program, Size, Stmt};
use crate::layout::{CHUNK, CHUNK_BYTES};
use crate::tensor_map::MapDecl;

/// Lanes of a warp group.
pub const GROUP: u32 = 128;
/// Warps of a warp group.
pub const GROUP_WARPS: u32 = 4;
/// Rows that one instruction of a warp group multiplies.
pub const GROUP_ROWS: u32 = 64;
/// Those of them that each of its warps has sums of.
pub const WARP_ROWS: u32 = GROUP_ROWS / GROUP_WARPS;
/// Depth of one instruction.
pub const DEPTH: u32 = 16;

/// A packed operand, by its number in [`Decls::panels`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Panels(pub u32);

/// A tile of panels in workgroup memory, by its number in [`Decls::tiles`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PanelTile(pub u32);

/// Barriers, one for each stage, by their number in [`Decls::barriers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Barrier(pub u32);

/// A packed operand in a buffer; see [`Packing`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PanelsDecl {
    /// The buffer, of the type that is multiplied.
    pub buffer: Buffer,
    /// Where it begins, in elements; a multiple of 8.
    pub base: Size,
    /// Rows of a panel: of a left operand rows of the result, of a right one columns.
    pub rows: u32,
    /// The depth, with what fills up the last step.
    pub depth: Size,
    /// Elements from batch to batch, for each dimension of the grid's batch; multiples of 8.
    pub batch: Vec<Size>,
}

/// Part of a panel in workgroup memory, in stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PanelTileDecl {
    /// Rows, a multiple of 8, at most 256.
    pub rows: u32,
    /// Depth, a multiple of 16.
    pub depth: u32,
    /// How many of it there are.
    pub stages: u32,
}

impl PanelTileDecl {
    /// Bytes of one stage.
    pub fn stage_bytes(&self) -> u32 {
        self.rows * self.depth * 2
    }

    /// Bytes of all stages.
    pub fn bytes(&self) -> u64 {
        u64::from(self.rows) * u64::from(self.depth) * 2 * u64::from(self.stages)
    }

    /// The number of the chunk that has `depth` of a row, among all of the tile's.
    pub fn chunk_at(&self, stage: u32, row: u32, depth: u32) -> u32 {
        (stage * (self.depth / CHUNK) + depth / CHUNK) * self.rows + row
    }

    /// Bytes between core matrices that are neighbours along the depth ("leading dimension byte offset").
    pub fn leading_bytes(&self) -> u32 {
        self.rows * CHUNK_BYTES
    }

    /// Bytes between core matrices that are neighbours along the rows ("stride dimension byte offset").
    pub fn stride_bytes(&self) -> u32 {
        8 * CHUNK_BYTES
    }
}

/// Barriers of a pipeline, one for each stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BarrierDecl {
    /// Stages.
    pub stages: u32,
    /// Arrivals that end a phase, beside the bytes that it expects.
    pub arrivals: u32,
}

/// What programs of the group level declare beside the others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decls {
    /// Views that tensor copies copy from.
    pub maps: Vec<MapDecl>,
    /// Packed operands.
    pub panels: Vec<PanelsDecl>,
    /// Workgroup memory.
    pub tiles: Vec<PanelTileDecl>,
    /// Barriers.
    pub barriers: Vec<BarrierDecl>,
}

/// A statement of the group level. The stage of a tile or barrier is `counter mod stages`, the phase of a barrier `counter / stages`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Group {
    /// Waits until the barrier's phase of this iteration has ended.
    WaitFull(Barrier, Counter),
    /// Waits until the phase before has ended; not in the first one.
    WaitEmpty(Barrier, Counter),
    /// Arrives, and expects so many bytes in this phase.
    Expect(Barrier, Counter, u32),
    /// Begins to copy the iteration's part of a panel into its stage; its bytes are counted by the barrier as they arrive.
    Copy {
        /// Where from.
        from: Panels,
        /// The number of the panel.
        panel: Index,
        /// Where to.
        to: PanelTile,
        /// What counts the bytes.
        barrier: Barrier,
        /// The iteration.
        counter: Counter,
    },
    /// Sums that were set by anything else are from here on those of matrix instructions.
    Fence,
    /// Begins `sum += left · right` over the depth of a stage. Warp group `g` takes 64 rows of the left tile from `row + 64·g` on, a warp 16 of them.
    Mma {
        /// The sums of a warp: 16 rows.
        sum: Fragment,
        /// The left operand.
        left: PanelTile,
        /// The first of its rows.
        row: u32,
        /// The right operand, all of its rows.
        right: PanelTile,
        /// The iteration.
        counter: Counter,
    },
    /// The multiplications since the last of these are a group.
    Commit,
    /// Waits until all but the last so many groups are done: sums are there, tiles are no longer read.
    WaitMma(u32),
    /// Lane 0 of each warp arrives.
    Arrive(Barrier, Counter),
}

impl Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Group::WaitFull(b, c) => write!(f, "wait.full m{}[c{}]", b.0, c.0),
            Group::WaitEmpty(b, c) => write!(f, "wait.empty m{}[c{}]", b.0, c.0),
            Group::Expect(b, c, bytes) => write!(f, "expect m{}[c{}] {bytes}", b.0, c.0),
            Group::Copy { from, panel, to, barrier, counter } => {
                let c = counter.0;
                write!(f, "copy.bulk s{}[c{c}] = p{}[{panel}, c{c}] m{}", to.0, from.0, barrier.0)
            }
            Group::Fence => f.write_str("fence"),
            Group::Mma { sum, left, row, right, counter } => {
                let c = counter.0;
                write!(f, "mma.group f{} += s{}[c{c}][{row}] s{}[c{c}]", sum.0, left.0, right.0)
            }
            Group::Commit => f.write_str("commit.mma"),
            Group::WaitMma(n) => write!(f, "wait.mma {n}"),
            Group::Arrive(b, c) => write!(f, "arrive m{}[c{}]", b.0, c.0),
        }
    }
}

impl Program {
    /// Warps of the producer.
    pub fn producers(&self) -> u32 {
        u32::from(self.body.iter().any(|s| matches!(s, Stmt::Roles { .. })))
    }

    /// Bytes that bulk copies may have under way at once in a workgroup: all stages of all tiles.
    pub fn bytes_in_flight(&self) -> u64 {
        self.group.tiles.iter().map(PanelTileDecl::bytes).sum()
    }
}

/// How an operand of the group level is stored: panels of `rows` rows (of a right operand: columns), their depth filled up with 0 to a multiple of `step`,
/// rows to whole panels. A panel is chunks of 8 elements along the depth, each chunk all rows.
///
/// ```
/// let p = rlx_tile::group::Packing { rows: 64, step: 32 };
/// assert_eq!((p.depth(40), p.elements(100, 40)), (64, 2 * 64 * 64));
/// // Row 66 is row 2 of the second panel; depth 9 is element 1 of the second chunk.
/// assert_eq!(p.element(66, 9, 40), 64 * 64 + (64 + 2) * 8 + 1);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packing {
    /// Rows of a panel.
    pub rows: u32,
    /// What the depth is a multiple of.
    pub step: u32,
}

impl Packing {
    /// The depth as it is stored.
    pub fn depth(&self, depth: usize) -> usize {
        depth.next_multiple_of(self.step.max(1) as usize)
    }

    /// Elements of a matrix as it is stored.
    pub fn elements(&self, rows: usize, depth: usize) -> usize {
        rows.next_multiple_of(self.rows.max(1) as usize) * self.depth(depth)
    }

    /// Where an element is, of a matrix of this depth.
    pub fn element(&self, row: usize, at: usize, depth: usize) -> usize {
        let (rows, chunk) = (self.rows.max(1) as usize, CHUNK as usize);
        row / rows * rows * self.depth(depth) + (at / chunk * rows + row % rows) * chunk + at % chunk
    }
}
