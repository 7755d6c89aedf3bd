//! The group level, for sm_90a and, with tensor memory ([`tensor`]), for sm_100a: what a *producer* warp and *consumer* warp groups of 128 lanes do at the same time.
//!
//! `wgmma` multiplies operands that are in workgroup memory, and tensor copies bring them there without a lane's registers. Both run on their own, beside
//! the lanes that began them; who may go on is said by *barriers* in memory (`mbarrier`), each of which counts arrivals and bytes. A program of
//! this level has one statement, [`crate::ir::Stmt::Roles`]: a list for the producer, whose lane 0 runs it alone, and a list that all consumers run.
//!
//! ```text
//! producer, for each step of the depth:            consumers:
//!   wait.empty   its stage is no longer read          wait.full    its bytes are there
//!   expect       so many bytes                        fence; mma; commit; wait.mma 1
//!   copy.tensor  counted by full as they arrive       arrive empty, of the step before
//! ```
//!
//! A workgroup may have several tiles one after the other ([`crate::ir::Stmt::Tiles`]). The steps of all of them are then one sequence for the producer, and what
//! consumers do is
//!
//! ```text
//! for each tile:   wait.turn             where teams take turns: the team before has begun its last multiplication
//!                  wait.full … as above  of this tile alone
//!                  arrive                the next team's turn
//!                  wait.mma 0            its last stage is no longer read
//!                  arrive.last empty
//!                  store                 while the producer copies, and the other team multiplies
//! ```
//!
//! A barrier says only whether the number of phases that ended is even, so who waits for one must know that the phase before has ended: a team waits for its turn for that
//! reason, too.
//!
//! A left operand may also be in the registers of the consumers ([`Group::MmaLeft`]), as the weights of an attention are.
//!
//! **Operands are as they are**: rows with strides, seen through maps ([`crate::tensor_map`]). A copy takes a box of a view, and leaves it as `wgmma` reads it:
//! rows of 64 elements, 128 bytes, whose chunks of 16 bytes are exchanged by the row's number (the *128-byte swizzle*), so that neither what
//! is copied nor what is multiplied meets in a bank. An operand that is stored along its depth is one block of as many such rows as the tile has. A right
//! operand stored as depth × columns is blocks of 64 rows of the depth, each with 64 columns, one copy each; `wgmma` is told that it is transposed.

pub mod tensor;

use serde::{Deserialize, Serialize};
use std::fmt::{self, Display};

use crate::forms;
use crate::ir::{Below, Counter, Fragment, Index, Program, Size, Stmt, View};
use crate::layout::{CHUNK, Swizzle};
use tensor::{AccumulatorDecl, Tensor};

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

/// Elements of a row of a tile: the 128 bytes that are swizzled.
pub const ROW: u32 = 64;
/// Bytes of a row.
pub const ROW_BYTES: u32 = 2 * ROW;
/// What each stage of a tile begins at a multiple of, in bytes: 8 rows, after which the swizzle repeats.
pub const STAGE_ALIGN: u32 = 8 * ROW_BYTES;

/// A [tensor map](crate::tensor_map), by its number in a program's maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Map(pub u32);

/// Boxes of a view, which a map is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapDecl {
    /// The view: of 16-bit elements, 8 of which are accessed at once.
    pub view: View,
    /// Rows of a box, at most 256.
    pub rows: u32,
    /// Columns of a box: 64, the 128 bytes that are swizzled.
    pub cols: u32,
}

/// A tile of the group level in workgroup memory, by its number in [`Decls::tiles`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GroupTile(pub u32);

/// Barriers, one for each stage, by their number in [`Decls::barriers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Barrier(pub u32);

/// Part of an operand in workgroup memory, in stages: blocks of rows of 64 elements, one block behind the other.
///
/// ```
/// // 128 rows of a left operand with a depth of 64, and a depth of 64 by 256 columns of a right one that is stored so.
/// use rlx_tile::group::GroupTileDecl;
/// let (left, right) = (GroupTileDecl { blocks: 1, rows: 128, stages: 4 }, GroupTileDecl { blocks: 4, rows: 64, stages: 4 });
/// assert_eq!((left.stage_bytes(), right.stage_bytes()), (128 * 128, 64 * 512));
/// // Elements 8 to 15 of row 3 are where chunk 1 ^ 3 would be.
/// assert_eq!(left.chunk_at(0, 0, 3, 1), 3 * 8 + 2);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupTileDecl {
    /// Blocks.
    pub blocks: u32,
    /// Rows of a block, a multiple of 8, at most 256.
    pub rows: u32,
    /// How many of it there are.
    pub stages: u32,
}

impl GroupTileDecl {
    /// Bytes of a block, each a multiple of [`STAGE_ALIGN`].
    pub fn block_bytes(&self) -> u32 {
        self.rows * ROW_BYTES
    }

    /// Bytes of one stage.
    pub fn stage_bytes(&self) -> u32 {
        self.blocks * self.block_bytes()
    }

    /// Bytes of all stages.
    pub fn bytes(&self) -> u64 {
        u64::from(self.blocks) * u64::from(self.rows) * u64::from(ROW_BYTES) * u64::from(self.stages)
    }

    /// The number of the chunk that has chunk `chunk` of a row of a block, among all of the tile's.
    pub fn chunk_at(&self, stage: u32, block: u32, row: u32, chunk: u32) -> u32 {
        let rows = (stage * self.blocks + block) * self.rows + row;
        rows * (ROW / CHUNK) + Swizzle::of(ROW).chunk(row, chunk)
    }
}

/// Barriers of a pipeline, one for each stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BarrierDecl {
    /// Stages.
    pub stages: u32,
    /// Arrivals that end a phase, beside the bytes that it expects.
    pub arrivals: u32,
}

/// Registers of a multiprocessor, of which a launch gives each lane of a workgroup as many.
const REGISTER_FILE: u32 = 1 << 16;

/// Registers of lanes, where the producer gives most of its own to the consumers (`setmaxnreg`): it is then a whole warp group, of which lane 0 does everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registers {
    /// Of the producer's.
    pub producer: u32,
    /// Of the consumers'.
    pub consumers: u32,
}

impl Registers {
    /// What two consumer warp groups may have.
    pub const OF_TWO: Registers = Registers { producer: 24, consumers: 240 };

    /// Whether so many warps of consumers find them among those of a launch, of which one workgroup runs on a multiprocessor.
    pub fn fit(&self, warps: u32) -> bool {
        let (lanes, producer) = (warps * (GROUP / GROUP_WARPS), GROUP);
        let launched = (REGISTER_FILE / (lanes + producer) / 8 * 8).min(248);
        let whole = |n: u32| n.is_multiple_of(8) && (24..=248).contains(&n);
        let all = self.producer * producer + self.consumers * lanes;
        whole(self.producer)
            && whole(self.consumers)
            && (self.producer..=self.consumers).contains(&launched)
            && all <= launched * (lanes + producer)
    }
}

/// What programs of the group level declare beside the others.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Decls {
    /// Views that tensor copies copy from.
    pub maps: Vec<MapDecl>,
    /// Workgroup memory.
    pub tiles: Vec<GroupTileDecl>,
    /// Barriers.
    pub barriers: Vec<BarrierDecl>,
    /// Sums in tensor memory.
    pub accumulators: Vec<AccumulatorDecl>,
    /// Registers, where roles do not have as many each.
    pub registers: Option<Registers>,
}

/// A statement of the group level. The stage of a tile or barrier is `counter mod stages`, the phase of a barrier `counter / stages`. Of a loop in a list for
/// tiles ([`Stmt::Tiles`]) the iterations of the turns before are counted, too, those of other teams as well: `turn · iterations + counter`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Group {
    /// Waits until the barrier's phase of this iteration has ended.
    WaitFull(Barrier, Counter),
    /// Waits until the phase before has ended; not in the first one.
    WaitEmpty(Barrier, Counter),
    /// Arrives, and expects so many bytes in this phase.
    Expect(Barrier, Counter, u32),
    /// Begins to copy a box of a view of the batch to a block of a tile's stage; its bytes are counted by the barrier as they arrive, all of the box, and
    /// what is beyond the view as 0.
    Copy {
        /// Where from.
        from: Map,
        /// The first row of the view.
        row: Index,
        /// The first column.
        col: Index,
        /// Where to.
        to: GroupTile,
        /// Which of its blocks.
        block: u32,
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
        left: GroupTile,
        /// The first of its rows.
        row: u32,
        /// The right operand, all of it.
        right: GroupTile,
        /// The right tile's rows run along the depth, and its blocks along the columns.
        depth_rows: bool,
        /// The iteration.
        counter: Counter,
    },
    /// Begins `sum += left · right` over the depth of a stage, with the left operand in registers, which stay as they are until it is done: each warp
    /// has that of its own sums. The right tile's rows run along the depth.
    MmaLeft {
        /// The sums of a warp: 16 rows.
        sum: Fragment,
        /// The left operand of a warp, as deep as the tile has rows.
        left: Fragment,
        /// The right operand, all of it.
        right: GroupTile,
        /// The iteration.
        counter: Counter,
    },
    /// The multiplications since the last of these are a group.
    Commit,
    /// Waits until all but the last so many groups are done: sums are there, tiles are no longer read.
    WaitMma(u32),
    /// Lane 0 of each warp arrives at the barrier of so many iterations before; not where there was none.
    Arrive(Barrier, Counter, u32),
    /// The same behind a loop of this tile, for its last iteration; not where it had none.
    ArriveLast(Barrier, Counter),
    /// Waits until the phase of the turn before has ended; not in the first turn.
    WaitTurn(Barrier, Counter),
    /// A statement about sums in tensor memory.
    Tensor(Tensor),
}

/// A loop whose iterations overlap; see [`Stmt::Staggered`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Staggered {
    /// The number of the iteration, for first halves.
    pub counter: Counter,
    /// The number of the iteration before, for second halves.
    pub behind: Counter,
    /// The size.
    pub extent: Size,
    /// How far of it at most.
    pub below: Option<Below>,
    /// How much of it an iteration does.
    pub step: u32,
    /// The first half of the first iteration.
    #[serde(with = "forms::block")]
    pub first: Vec<Stmt>,
    /// The first half of every other one, and the second of the one before.
    #[serde(with = "forms::block")]
    pub body: Vec<Stmt>,
    /// The second half of the last one.
    #[serde(with = "forms::block")]
    pub last: Vec<Stmt>,
}

impl Staggered {
    /// Its lists.
    pub fn lists(&self) -> [&[Stmt]; 3] {
        [&self.first, &self.body, &self.last]
    }
}

impl Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Group::WaitFull(b, c) => write!(f, "wait.full m{}[c{}]", b.0, c.0),
            Group::WaitEmpty(b, c) => write!(f, "wait.empty m{}[c{}]", b.0, c.0),
            Group::Expect(b, c, bytes) => write!(f, "expect m{}[c{}] {bytes}", b.0, c.0),
            Group::Copy { from, row, col, to, block, barrier, counter } => {
                let (s, c, a) = (to.0, counter.0, from.0);
                write!(f, "copy.tensor s{s}[c{c}].{block} = a{a}[{row}, {col}] m{}[c{c}]", barrier.0)
            }
            Group::Fence => f.write_str("fence"),
            Group::Mma { sum, left, row, right, depth_rows, counter } => {
                let (c, order) = (counter.0, if *depth_rows { " depth.rows" } else { "" });
                write!(f, "mma.group f{} += s{}[c{c}][{row}] s{}[c{c}]{order}", sum.0, left.0, right.0)
            }
            Group::MmaLeft { sum, left, right, counter } => {
                write!(f, "mma.group f{} += f{} s{}[c{}] depth.rows", sum.0, left.0, right.0, counter.0)
            }
            Group::Commit => f.write_str("commit.mma"),
            Group::WaitMma(n) => write!(f, "wait.mma {n}"),
            Group::Arrive(b, c, 0) => write!(f, "arrive m{}[c{}]", b.0, c.0),
            Group::Arrive(b, c, behind) => write!(f, "arrive m{}[c{} - {behind}]", b.0, c.0),
            Group::ArriveLast(b, c) => write!(f, "arrive.last m{}[c{}]", b.0, c.0),
            Group::WaitTurn(b, c) => write!(f, "wait.turn m{}[c{} - 1]", b.0, c.0),
            Group::Tensor(tensor) => tensor.fmt(f),
        }
    }
}

impl Program {
    /// Warps beside the consumers: that of the producer, and the one behind it that multiplies where a lane does that alone.
    pub fn producers(&self) -> u32 {
        let multiplier = self.body.iter().find_map(|s| match s {
            Stmt::Roles { multiplier, .. } => Some(!multiplier.is_empty()),
            _ => None,
        });
        // Registers are those of a warp group.
        match (multiplier, self.group.registers) {
            (None, _) => 0,
            (Some(_), Some(_)) => GROUP_WARPS,
            (Some(multiplier), None) => 1 + u32::from(multiplier),
        }
    }

    /// Whether a workgroup goes through several tiles ([`Stmt::Tiles`]), so that any number of workgroups does all of them.
    pub fn has_several_tiles(&self) -> bool {
        self.tiles_of_consumers().is_some()
    }

    /// Teams of consumers.
    pub fn teams(&self) -> u32 {
        self.tiles_of_consumers().unwrap_or(1).max(1)
    }

    /// Warps of a team of consumers.
    pub fn team_warps(&self) -> u32 {
        self.warps.0 * self.warps.1 / self.teams()
    }

    fn tiles_of_consumers(&self) -> Option<u32> {
        self.body.iter().find_map(|s| match s {
            Stmt::Roles { consumers, .. } => match consumers[..] {
                [Stmt::Tiles { teams, .. }] => Some(teams),
                _ => None,
            },
            _ => None,
        })
    }

    /// Bytes that tensor copies may have under way at once in a workgroup: all stages of all tiles.
    pub fn bytes_in_flight(&self) -> u64 {
        self.group.tiles.iter().map(GroupTileDecl::bytes).sum()
    }
}
