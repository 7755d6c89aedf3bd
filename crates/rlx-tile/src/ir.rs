//! The tile language: data that says what one workgroup does.
//!
//! A [`Program`] has *views* (matrices in buffers, with strides), *tiles* (workgroup memory) and *fragments* (registers of a warp), and
//! statements that all warps run together: there is no control flow that depends on data, so every barrier is reached by all.
//! Positions are sums of coordinates times constants ([`Index`]). Sizes are uniforms, as in the kernel language. The text form is a program's
//! [`std::fmt::Display`].

use rlx_ir::DType;
use rlx_kernel::ir::{Buffer, BufferDecl};
use serde::{Deserialize, Serialize};

use crate::atom::{Arch, Atom, Loading, QUAD};
use crate::beside::{Beside, Span};
use crate::forms;
use crate::group::{self, Group, Staggered};
use crate::layout::{CHUNK, CHUNK_BYTES, Swizzle};
use crate::lookup::Lookup;
pub use crate::names::{Counter, Fragment, Size, Tile, View};
use crate::scalar::Scalar;
use crate::window::Window;

/// What positions depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Coord {
    /// The row of the workgroup's tile in the grid.
    GroupRow,
    /// Its column.
    GroupCol,
    /// The row of the warp in the workgroup.
    WarpRow,
    /// Its column.
    WarpCol,
    /// The iteration of a loop around.
    Counter(Counter),
    /// The step that a loop with a window begins at ([`Below::window`]), which its iterations are counted from.
    First(Counter),
}

/// A row or column: a constant and coordinates times constants.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Index {
    /// What is added.
    pub constant: u32,
    /// Coordinates, each times its constant.
    pub terms: Vec<(Coord, u32)>,
}

impl Index {
    /// A constant position.
    pub fn new(constant: u32) -> Self {
        Index { constant, terms: Vec::new() }
    }

    /// Further by `coord` times `factor`.
    #[must_use]
    pub fn plus(mut self, coord: Coord, factor: u32) -> Self {
        self.terms.push((coord, factor));
        self
    }
}

/// Which stage of a tile: `(iteration + ahead) mod stages`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// The loop whose iteration counts; without one, 0.
    pub counter: Option<Counter>,
    /// How far ahead of it.
    pub ahead: u32,
}

impl Stage {
    /// The only stage of a tile that has one.
    pub const ONLY: Stage = Stage { counter: None, ahead: 0 };
}

/// A matrix in a buffer; element (row, col) of batch (i, j, …) is at `base + i·batch[0] + j·batch[1] + … + row·row_stride + col·col_stride`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewDecl {
    /// The buffer.
    pub buffer: Buffer,
    /// Where it begins, in elements.
    pub base: Size,
    /// Rows; what is beyond reads as 0 and is not written. Rows, columns and loops are what may be divided ([`Size::Part`]).
    pub rows: Size,
    /// Columns, likewise.
    pub cols: Size,
    /// Elements from row to row.
    pub row_stride: Size,
    /// Elements from column to column.
    pub col_stride: Size,
    /// Neighbouring rows are the same row of several matrices.
    pub heads: Option<Heads>,
    /// Rows are windows that slide over images, columns their elements.
    pub window: Option<Window>,
    /// Rows are in pages of a table.
    pub lookup: Option<Lookup>,
    /// Elements from batch to batch, for each dimension of the grid's batch.
    pub batch: Vec<Size>,
    /// 1, 2, 4 or 8 neighbouring columns are accessed at once: the column stride is then 1, and columns, base and the other strides are
    /// multiples of it, in every dispatch. Integers of 4 or 8 bits, which are only read, are accessed 8 at once.
    pub vector: u32,
}

/// Matrices beside each other as one view: its row `r` is row `r / count` of matrix `r mod count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heads {
    /// How many.
    pub count: u32,
    /// Elements from matrix to matrix.
    pub stride: Size,
}

/// A tile in workgroup memory. Its elements have 16 bits, or 32 where it is stored in matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TileDecl {
    /// The type of its elements: f16, bf16 or f32.
    #[serde(with = "forms::dtype")]
    pub dtype: DType,
    /// Rows.
    pub rows: u32,
    /// Columns, a power of two from 8 on.
    pub cols: u32,
    /// How many of it there are.
    pub stages: u32,
    /// The order of the chunks in a row.
    pub swizzle: Swizzle,
    /// Unused chunks behind each row, where matrices are loaded whole with one stride: rows then begin in different banks.
    pub pad: u32,
    /// It is stored in matrices of 8 × 8 elements, one after the other by rows, each whole and by rows: what `simdgroup_load` reads is then one
    /// piece. There is no swizzle.
    pub matrices: bool,
}

impl TileDecl {
    /// Elements of a chunk.
    pub fn chunk(&self) -> u32 {
        if self.dtype == DType::F32 { CHUNK / 2 } else { CHUNK }
    }

    /// Chunks of a row.
    pub fn chunks(&self) -> u32 {
        self.cols / self.chunk()
    }

    /// Chunks of a matrix of 8 × 8.
    pub fn matrix_chunks(&self) -> u32 {
        CHUNK * CHUNK / self.chunk()
    }

    /// Chunks from row to row.
    pub fn stride(&self) -> u32 {
        self.chunks() + self.pad
    }

    /// Bytes of all stages.
    pub fn bytes(&self) -> u64 {
        let chunks = u64::from(self.rows) * u64::from(self.stride()) * u64::from(self.stages);
        chunks.saturating_mul(u64::from(CHUNK_BYTES))
    }

    /// The number of the chunk that has column `col` of a row, among all of the tile's.
    pub fn chunk_at(&self, stage: u32, row: u32, col: u32) -> u32 {
        if self.matrices {
            let matrix = row / CHUNK * (self.cols / CHUNK) + col / CHUNK;
            let within = row % CHUNK * (CHUNK / self.chunk()) + col % CHUNK / self.chunk();
            return stage * self.rows * self.chunks() + matrix * self.matrix_chunks() + within;
        }
        (stage * self.rows + row) * self.stride() + self.swizzle.chunk(row, col / CHUNK)
    }

    /// The row and the first column of the chunk number `n` of a copy: lanes copy chunks in the order of rows, or that in which they are stored.
    pub fn copied(&self, n: u32) -> (u32, u32) {
        match self.matrices {
            true => {
                let (matrix, within) = (n / self.matrix_chunks(), n % self.matrix_chunks());
                let (across, of_row) = (self.cols / CHUNK, CHUNK / self.chunk());
                let (row, col) = (within / of_row, within % of_row * self.chunk());
                (matrix / across * CHUNK + row, matrix % across * CHUNK + col)
            }
            false => {
                let (line, apart) = (n / self.chunks(), self.rows_apart());
                let within = line % CHUNK * apart;
                (line / CHUNK * CHUNK + within % CHUNK + within / CHUNK, n % self.chunks() * self.chunk())
            }
        }
    }

    /// How many rows are between two that a copy has one after the other, among each 8: 1 where rows are neighbours.
    ///
    /// Eight lanes that write together have several rows where these are shorter than 8 chunks. With a pad of one chunk, `n` chunks of one row and those of
    /// the row `n` further on are in different banks; those of the next row are not.
    pub fn rows_apart(&self) -> u32 {
        let short = self.pad > 0 && self.chunks() < CHUNK && self.rows.is_multiple_of(CHUNK);
        if short { self.chunks() } else { 1 }
    }
}

/// What a fragment is in a matrix instruction, or beside one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    /// The left operand: rows × depth.
    Left,
    /// The right operand: depth × columns.
    Right,
    /// The sums: rows × columns, f32.
    Sum,
    /// An f32 for each row of sums, of which every lane has those of the rows that it has sums of. It has one column.
    Rows,
}

/// Registers of a warp that hold a matrix or a number for each row, spread over the lanes as the program's matrix instruction has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FragmentDecl {
    /// Which operand.
    pub role: Role,
    /// Rows, a multiple of the instruction's blocks: of right operands, of their depth.
    pub rows: u32,
    /// Columns, likewise; of left operands, of their depth.
    pub cols: u32,
}

/// A copy of part of a view into a stage of a tile, by all lanes of the workgroup. Elements beyond the view become 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Copy {
    /// Where from.
    pub from: View,
    /// The first row of the view.
    pub row: Index,
    /// The first column.
    pub col: Index,
    /// Where to.
    pub to: Tile,
    /// Which of the tile's stages.
    pub stage: Stage,
    /// Numbers that the body is given beside each element.
    pub with: Vec<Beside>,
    /// What becomes of an element on the way (the prologue); not for elements beyond the view.
    pub map: Option<Scalar>,
}

/// How numbers become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reduction {
    /// The greatest; a NaN is left aside.
    Max,
    /// The sum: a lane adds up what it has of a row in order of the columns, then lanes are added in pairs.
    Sum,
}

impl Reduction {
    /// The reduction of two numbers.
    pub fn of(self, x: f32, y: f32) -> f32 {
        match self {
            Reduction::Max => x.max(y),
            Reduction::Sum => x + y,
        }
    }
}

/// A bound on a loop that depends on the row of the workgroup's tile: it goes no further than `⌈rows·(group.row + 1) / heads⌉ + offset`. What is beyond is
/// of no use to any of the workgroup's rows, as keys are that lie behind all queries of a block in causal attention. Of a loop over a part of something
/// ([`Size::Part`]) all of this is numbered among the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Below {
    /// Rows of a tile.
    pub rows: u32,
    /// How many of them are one step of the loop's.
    pub heads: u32,
    /// What is added; it may be negative.
    pub offset: Size,
    /// Of what is up to a row's own place, only the last so many are of use to it, as keys are in a window: the loop begins at the step that has the first of
    /// these for the tile's first row ([`Coord::First`]). Its iterations are counted from there, so stages are those of any loop.
    pub window: Option<u32>,
}

/// Where a loop with a window begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begin {
    /// Its window.
    pub window: u32,
    /// Its bound.
    pub below: Below,
    /// Its size.
    pub extent: Size,
    /// How much an iteration does.
    pub step: u32,
}

/// A statement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Stmt {
    /// Sets a fragment of sums to 0.
    Zero(Fragment),
    /// Sets every number of [`Role::Rows`].
    Fill(Fragment, f32),
    /// Maps each element of sums or rows.
    Each {
        /// What is mapped.
        of: Fragment,
        /// Numbers of the element's row, which the body is given beside the element.
        with: Vec<Fragment>,
        /// The row that the body is told of the first element.
        row: Index,
        /// The column, likewise.
        col: Index,
        /// What becomes of an element.
        map: Scalar,
    },
    /// 2 to the power of each element of sums or rows; what is below the normal numbers is 0.
    Exp2(Fragment),
    /// Reduces the columns of sums, and what rows have, to what they then have.
    Reduce {
        /// The rows.
        to: Fragment,
        /// The sums.
        from: Fragment,
        /// How.
        op: Reduction,
    },
    /// Makes a left operand of columns of sums, rounded to its type: every lane has its elements already, or half of them and the lane half a warp on
    /// has the others.
    Convert {
        /// The operand.
        to: Fragment,
        /// The sums.
        from: Fragment,
        /// The first of their columns.
        col: Index,
    },
    /// Copies, done when the next statement begins. Other lanes see it behind a barrier.
    Copy(Copy),
    /// Begins to copy (`cp.async`); done when a [`Stmt::Wait`] says so.
    CopyAsync(Copy),
    /// Reads what a copy reads into registers, for the [`Stmt::Put`] with the same number.
    Fetch(u32, Copy),
    /// Writes what the [`Stmt::Fetch`] with the same number and the same copy has read.
    Put(u32, Copy),
    /// The asynchronous copies since the last of these are a group.
    Commit,
    /// Waits until all but the last so many groups are done.
    Wait(u32),
    /// Waits for all lanes of the workgroup; they see what each wrote into workgroup memory.
    Barrier,
    /// Loads a fragment of an operand from a tile.
    Load {
        /// The fragment.
        to: Fragment,
        /// The tile.
        from: Tile,
        /// Which of its stages.
        stage: Stage,
        /// The first row of the tile.
        row: Index,
        /// The first column.
        col: Index,
        /// The tile's rows run along the depth: a left tile is stored as depth × rows, a right one as depth × columns.
        depth_rows: bool,
        /// The depth's elements are in the order of sums ([`Atom::chained`]): a right operand, of such a tile, that is multiplied with what
        /// [`Stmt::Convert`] made.
        of_sums: bool,
    },
    /// `sum += left · right`.
    Mma {
        /// The sums.
        sum: Fragment,
        /// The left operand.
        left: Fragment,
        /// The right operand.
        right: Fragment,
    },
    /// Stores the sums that are within the view, rounded to its type.
    Store {
        /// Where to.
        to: View,
        /// The sums.
        from: Fragment,
        /// The first row of the view.
        row: Index,
        /// The first column.
        col: Index,
        /// Numbers that the body is given beside an element. They may be those that the element is stored over.
        with: Vec<Beside>,
        /// What becomes of an element before (the epilogue).
        map: Option<Scalar>,
    },
    /// Says that the warp will read so many rows and columns of a view: their memory is on its way to the caches meanwhile. It changes nothing else.
    Prefetch {
        /// Which view.
        from: View,
        /// The first row.
        row: Index,
        /// The first column.
        col: Index,
        /// How many rows.
        rows: u32,
        /// How many columns.
        cols: u32,
    },
    /// Repeats a list `⌈extent / step⌉` times, or until what it is bounded by.
    For {
        /// The number of the iteration.
        counter: Counter,
        /// The size.
        extent: Size,
        /// How far of it at most.
        below: Option<Below>,
        /// How much of it an iteration does.
        step: u32,
        /// What is repeated.
        #[serde(with = "forms::block")]
        body: Vec<Stmt>,
    },
    /// A producer warp, one that multiplies where the consumers do not ([`crate::group::tensor`]), and all other warps run lists of their own at the same time; see
    /// [`crate::group`].
    Roles {
        /// What lane 0 of the producer does.
        #[serde(with = "forms::block")]
        producer: Vec<Stmt>,
        /// What lane 0 of the warp behind the producer does; nothing where consumers multiply.
        #[serde(with = "forms::block")]
        multiplier: Vec<Stmt>,
        /// What all warps of [`Program::warps`] do.
        #[serde(with = "forms::block")]
        consumers: Vec<Stmt>,
    },
    /// Repeats as [`Stmt::For`] does, of [`Stmt::Roles`]' lists, with what belongs to an iteration in two halves: the second is done with the first of the next iteration.
    /// So `first` has a first half, `body` the first of its iteration and the second of the one before, and `last` a second half. Without an iteration
    /// nothing is done.
    Staggered(Box<Staggered>),
    /// All that one of the [`Stmt::Roles`] does: a list for each tile of the grid that the workgroup has, so that the producer copies ahead for the next tile while
    /// the last one is stored. Of `n` workgroups, number `w` has the tiles `w`, `w + n`, `w + 2·n` and so on: those are its turns 0, 1, 2. Stages and
    /// phases are counted through all turns ([`Group`]).
    Tiles {
        /// The number of the turn.
        turn: Counter,
        /// Teams of as many warp groups each, which take turns: team `t` of `n` has the turns `t`, `t + n` and so on. The producer is one.
        teams: u32,
        /// What is done for a tile.
        #[serde(with = "forms::block")]
        body: Vec<Stmt>,
    },
    /// A statement of one of the [`Stmt::Roles`].
    Group(Group),
    /// Repeats a list as [`Stmt::For`] does, with the tiles that it reads copied ahead of it. See [`mod@crate::expand`].
    Pipelined {
        /// The number of the iteration.
        counter: Counter,
        /// The size.
        extent: Size,
        /// How far of it at most.
        below: Option<Below>,
        /// How much of it an iteration does.
        step: u32,
        /// Stages of every tile that is copied.
        stages: u32,
        /// The tiles of an iteration.
        copies: Vec<Copy>,
        /// What is done with them.
        #[serde(with = "forms::block")]
        body: Vec<Stmt>,
    },
}

/// How workgroups divide the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grid {
    /// Rows of the result.
    pub rows: Size,
    /// Columns.
    pub cols: Size,
    /// Rows and columns of a workgroup's tile.
    pub tile: (u32, u32),
    /// Dimensions of the batch, outermost first.
    pub batch: Vec<Size>,
    /// A view whose rows are in one page, without which a workgroup has nothing to do: where the table has no such page, it ends at once.
    pub table: Option<View>,
    /// Workgroups go through so many rows of tiles, column by column, before the next rows: those that run at the same time then read
    /// fewer different operands.
    pub bands: u32,
}

/// What one workgroup does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// A name for people; no part of the hash.
    #[serde(with = "forms::name")]
    pub name: String,
    /// The least architecture.
    pub arch: Arch,
    /// The type of the operands of matrix instructions.
    #[serde(with = "forms::dtype")]
    pub dtype: DType,
    /// Rows and columns of warps.
    pub warps: (u32, u32),
    /// The buffers it is bound to.
    #[serde(with = "forms::buffers")]
    pub buffers: Vec<BufferDecl>,
    /// Names of the uniforms, each an `i32`.
    #[serde(with = "forms::uniforms")]
    pub uniforms: Vec<String>,
    /// How workgroups divide the result.
    pub grid: Grid,
    /// Matrices in buffers.
    pub views: Vec<ViewDecl>,
    /// Workgroup memory.
    pub tiles: Vec<TileDecl>,
    /// Registers of a warp.
    pub fragments: Vec<FragmentDecl>,
    /// What the group level has.
    pub group: group::Decls,
    /// What each workgroup runs.
    #[serde(with = "forms::block")]
    pub body: Vec<Stmt>,
}

impl Program {
    /// The windows of its views.
    pub(crate) fn windows(&self) -> impl Iterator<Item = &Window> {
        self.views.iter().filter_map(|view| view.window.as_ref())
    }

    /// Invocations of a workgroup.
    pub fn workgroup(&self) -> u32 {
        (self.warps.0 * self.warps.1 + self.producers()) * self.arch.lanes()
    }

    /// Bytes of workgroup memory.
    pub fn shared_bytes(&self) -> u64 {
        let barriers = self.group.barriers.iter().map(|b| 8 * u64::from(b.stages)).sum::<u64>();
        let rest = [self.exchange_bytes(), self.bytes_in_flight(), barriers, self.address_bytes()];
        self.tiles.iter().map(TileDecl::bytes).chain(rest).fold(0, u64::saturating_add)
    }

    /// Bytes of workgroup memory that a launch gives, all of [`Program::shared_bytes`]: where these are more than a kernel may declare, and on the group
    /// level. 0 where the kernel declares them.
    pub fn dynamic_bytes(&self) -> u64 {
        let bytes = self.shared_bytes();
        let dynamic = self.producers() > 0 || bytes > u64::from(self.arch.declared_bytes());
        if dynamic { bytes } else { 0 }
    }

    /// Bytes of workgroup memory through which sums are stored: where matrices are loaded whole a matrix of each warp, because its
    /// lanes cannot know which of its elements they have.
    pub fn exchange_bytes(&self) -> u64 {
        match self.atom() {
            Some(atom) if atom.loading == Loading::Matrix => (u64::from(self.warps.0)
                * u64::from(self.warps.1))
            .saturating_mul(u64::from(4 * atom.m * atom.n)),
            _ => 0,
        }
    }

    /// Whether lanes exchange sums before they are stored, so that each has [`CHUNK`] neighbours of a row: where an instruction deals two of them to each of four lanes,
    /// and elements of 16 bits are written at least four at once.
    pub fn stores_chunks(&self, to: View, from: Fragment) -> bool {
        let view = self.view(to);
        let dealt = self.atom().is_some_and(|atom| atom.loading == Loading::Dealt);
        let whole = self.fragment(from).cols.is_multiple_of(CHUNK * QUAD);
        dealt && whole && self.view_dtype(to).bits() == 16 && view.vector >= CHUNK / 2
    }

    /// Its matrix instruction.
    pub fn atom(&self) -> Option<&'static Atom> {
        match self.fragments.iter().any(|f| f.role == Role::Rows) {
            true => Atom::of_rows(self.arch, self.dtype),
            false => Atom::of(self.arch, self.dtype),
        }
    }

    /// The view of a verified program.
    pub fn view(&self, v: View) -> &ViewDecl {
        &self.views[v.0 as usize]
    }

    /// The element type of a verified program's view.
    pub fn view_dtype(&self, v: View) -> DType {
        self.buffers[self.view(v).buffer.index()].dtype
    }

    /// The tile of a verified program.
    pub fn tile(&self, t: Tile) -> &TileDecl {
        &self.tiles[t.0 as usize]
    }

    /// The fragment of a verified program.
    pub fn fragment(&self, f: Fragment) -> &FragmentDecl {
        &self.fragments[f.0 as usize]
    }
}

impl Copy {
    /// The views that it reads: that of the elements, and those beside it.
    pub(crate) fn reads(&self) -> impl Iterator<Item = (View, Span)> + '_ {
        std::iter::once((self.from, Span::One)).chain(self.with.iter().map(|b| (b.view, b.span)))
    }
}
