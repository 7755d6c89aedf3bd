//! Matrix multiplication with a packed right-hand side: `C = epilogue(A · B)`, of f32, or of 16-bit floats with sums in f32
//! ([`Packed`]).
//!
//! B is packed once into panels of [`PANEL`] = 48 columns ([`pack`]), zero-padded; A is read where it
//! lies, row by row, through a [`Rows`] source: [`Strided`] for a matrix, [`ConvRows`] for the windows of
//! an NHWC image (convolution without im2col), [`PackedColumns`] for the transpose of a packed matrix. A tile of a few rows × 48 columns (or 64, where a
//! last panel would have a vector alone) stays in registers over the whole depth, then the [`Epilogue`] is applied and the tile is written.
//!
//! 16-bit floats that are not multiplied as they are, and are not of a few rows alone, are widened a part at a time for many rows.
//!
//! Matmuls of 8-bit integers are [`ByteGemm`]s: the same rows and panels, other words.
//!
//! **Same bits always.** Each element of C is one chain of multiply-adds in ascending depth. Splitting
//! over threads, tiles of other heights and blocking of the depth do not change it.
//!
//! **Tasks.** The matmul is split into [`Gemm::tasks`] equal tasks, a function of the shape (and the
//! instruction set) only; any thread may run any range of them, best a contiguous one.
//!
//! ```
//! use rlx_cpu::{gemm::{self, Ahead, TileSizes, Epilogue, Gemm, Strided}, isa::Isa};
//! let (m, n, k) = (2, 2, 3);
//! let a = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
//! let b = [1.0f32, 0.0, 0.0, 1.0, 1.0, 1.0];
//! let mut packed = vec![0.0f32; gemm::packed_len(k, n).unwrap()];
//! let mut c = [0.0f32; 4];
//! let isa = Isa::detect();
//! // SAFETY: all pointers cover the extents given.
//! unsafe {
//!     gemm::pack(b.as_ptr(), 2, 1, k, n, packed.as_mut_ptr(), 0..gemm::panels(n));
//!     let rows = Strided { ptr: a.as_ptr(), row_stride: 3 };
//!     let g = Gemm { m, n, k, rows, b: packed.as_ptr(), c: c.as_mut_ptr(), c_stride: 2, epilogue: Epilogue::NONE, tile_sizes: TileSizes::DEFAULT, ahead: Ahead::Panels, wide: None };
//!     g.run(isa, 0..g.tasks(isa));
//! }
//! assert_eq!(c, [4.0, 5.0, 10.0, 11.0]);
//! ```

mod blocks;
mod byte_rows;
mod conv;
mod element;
mod epilogue;
mod fixed_rows;
mod fixed_tile;
mod generic;
mod integer;
mod kernel;
mod matrix_tiles;
mod packing;
mod panels;
mod prefetch;
mod requantise;
mod run;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_blocks;
#[cfg(test)]
mod tests_conv;
#[cfg(test)]
mod tests_matrix;
#[cfg(test)]
mod tests_short;
mod tiles;
mod tiling;
mod whole_numbers;
mod widened;
mod winograd;

pub use blocks::{BlockElement, BlockGemm, block_bytes, pack_blocks};
pub use conv::ConvRows;
pub use element::Packed;
pub(crate) use epilogue::each_row;
pub use epilogue::{Bias, BinaryOp, Combine, Epilogue};
pub use fixed_rows::{FixedRows, Width, fixes_blocks};
pub use generic::{Element, StridedMatrix, generic_gemm};
pub(crate) use integer::byte_rows;
pub use integer::{ByteGemm, ZeroPoints, byte_words, pack_bytes};
pub(crate) use integer::{Columns, pack_byte_panel};
pub use kernel::{AnyRows, Even, PackedColumns, Rows, Strided};
pub(crate) use packing::pack_panel;
pub use packing::{copy_strided, groups, pack, packed_len, packed_words};
pub(crate) use panels::IN_PLACE_DEPTH;
pub use panels::{PANEL, panels};
pub(crate) use requantise::Column;
pub use requantise::{ByteEpilogue, PerColumn, Residual};
pub use tiling::TileSizes;
pub(crate) use tiling::max_rows;
pub use whole_numbers::QuantizedRows;
pub use winograd::{Blocks, Filters, WinogradConv, WinogradTile, WinogradWork, pack_filters, packed_filters};

use std::ops::Range;

use crate::isa::Isa;
use panels::{BLOCK_DEPTH, WIDEST_ROWS, tiles_across};
use prefetch::Prefetch;
use tiling::Tiling;

/// Floats from the beginning of a cache line on: vectors that are across two lines take twice as long.
#[repr(C, align(64))]
struct Lines<const N: usize>([f32; N]);

/// One matmul; see the [module](self).
///
/// The depth of B is `rows.taps() · k`; each tap begins a new row of words.
#[derive(Debug, Clone, Copy)]
pub struct Gemm<R: Rows> {
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Contiguous elements of a row of A (per tap).
    pub k: usize,
    /// Where the rows of A lie.
    pub rows: R,
    /// B in packed panels of the whole depth.
    pub b: *const f32,
    /// The result, row-major.
    pub c: *mut R::Element,
    /// Elements from one row of C to the next.
    pub c_stride: usize,
    /// What is done to each element before it is written.
    pub epilogue: Epilogue<R::Element>,
    /// Its tile sizes; any give the same bits.
    pub tile_sizes: TileSizes,
    /// What is moved towards the cache meanwhile.
    pub ahead: Ahead,
    /// Where the sums go instead of to C, as they are.
    pub wide: Option<Wide>,
}

/// Sums in f32, whatever the elements are that are multiplied.
#[derive(Debug, Clone, Copy)]
pub struct Wide {
    /// Row-major.
    pub sums: *mut f32,
    /// Elements from one row to the next.
    pub stride: usize,
    /// Whether sums start from what is there, rather than from zero.
    pub add: bool,
}

// SAFETY: plain addresses; `run`, which uses them, is unsafe and says what must hold across threads.
unsafe impl<R: Rows> Send for Gemm<R> {}
// SAFETY: as above.
unsafe impl<R: Rows> Sync for Gemm<R> {}

/// Matmuls that are no deeper have lower tiles: more of one's stores are done while the next is multiplied.
const LOW: usize = 32;

/// What a matmul prefetches.
#[derive(Debug, Clone, Copy)]
pub enum Ahead {
    /// Nothing: all that the program reads stays in the second-level cache from run to run, and to ask for it again takes a
    /// tenth of the time of a product of one row.
    Nothing,
    /// Its own panels: while one is computed, the next.
    Panels,
    /// Its own panels, and while the last is computed, the first one of the calling thread's share of these.
    Next(Next),
}

impl Ahead {
    /// The same with `next` behind its own panels.
    pub fn then(self, next: Next) -> Ahead {
        match self {
            Ahead::Nothing => Ahead::Nothing,
            Ahead::Panels | Ahead::Next(_) => Ahead::Next(next),
        }
    }

    /// What to prefetch while `panel` of a matmul is computed, when the stretch `next` of the tasks from `first_task` on follows: `n` columns, in
    /// panels of `depth` rows of words from `b` on.
    #[inline(always)]
    fn prefetch(
        self,
        tiling: &Tiling,
        (b, depth, n): (*const f32, usize, usize),
        panel: usize,
        next: Option<&(usize, Range<usize>)>,
        first_task: usize,
    ) -> Prefetch {
        match (self, next) {
            (Ahead::Nothing, _) | (Ahead::Panels, None) => Prefetch::NONE,
            (_, Some((next, _))) if *next == panel => Prefetch::NONE,
            (_, Some((next, _))) => {
                let columns = tiling.columns(*next, n);
                let whole = if depth <= BLOCK_DEPTH { panels(columns.len()) * depth } else { BLOCK_DEPTH };
                Prefetch::new(b.wrapping_add(columns.start * depth), whole * PANEL)
            }
            (Ahead::Next(next), None) => prefetch_next(next, tiling, first_task),
        }
    }
}

/// What to prefetch while the last panel of a range of tasks is computed: this thread's first panel of the next matmul.
#[inline(always)]
fn prefetch_next(next: Next, t: &Tiling, first_task: usize) -> Prefetch {
    // Threads take equal shares, so this thread's share starts at the same fraction.
    let first = if first_task == 0 { 0 } else { first_task * next.panels / t.tasks().max(1) };
    let len = next.depth.min(BLOCK_DEPTH) * PANEL;
    Prefetch::new(next.b.wrapping_add(first * next.depth * PANEL), len)
}

/// Packed weights of the matmul that runs next.
#[derive(Debug, Clone, Copy)]
pub struct Next {
    /// Its packed panels.
    pub b: *const f32,
    /// Rows of words in each of its panels: its depth, in groups of its type.
    pub depth: usize,
    /// Its number of panels.
    pub panels: usize,
}

impl<R: Rows<Element: Packed>> Gemm<R> {
    /// The tiling of an instruction set with tiles of so many rows, which multiplies elements as they are or not.
    fn tiling(&self, max_rows: usize, multiplies: bool) -> Tiling {
        let registers = max_rows > WIDEST_ROWS && multiplies;
        let panels = tiles_across(self.n, registers);
        let is_low = registers && const { R::Element::GROUP == 1 } && self.depth() <= LOW;
        let rows = if is_low || panels == 1 && self.n > PANEL { WIDEST_ROWS } else { max_rows };
        let (m, n, depth, sizes) = (self.m, self.n, self.depth(), self.tile_sizes);
        let line = self.rows.line();
        let within_lines = line.and_then(|line| Tiling::within_lines(line, [m, n, depth], rows, sizes));
        Tiling { panels, ..within_lines.unwrap_or_else(|| Tiling::new(m, n, depth, rows, sizes)) }
    }

    /// Rows of words in a panel.
    fn depth(&self) -> usize {
        groups::<R::Element>(self.k) * self.rows.taps()
    }

    /// Into how many tasks the matmul is split: a function of shape and instruction set.
    pub fn tasks(&self, isa: Isa) -> usize {
        self.tiling(max_rows(isa), R::Element::multiplies(isa)).tasks()
    }

    /// The same matmul of other rows.
    fn with_rows<S: Rows<Element = R::Element>>(&self, rows: S) -> Gemm<S> {
        let Gemm { m, n, k, b, c, c_stride, epilogue, tile_sizes, ahead, wide, .. } = *self;
        Gemm { m, n, k, rows, b, c, c_stride, epilogue, tile_sizes, ahead, wide }
    }

    /// The matmul of some of the rows, which are those of `from`.
    pub fn block<S: Rows<Element = R::Element>>(&self, rows: Range<usize>, from: S) -> Gemm<S> {
        let mut part = self.with_rows(from);
        part.m = rows.len();
        part.c = self.c.wrapping_add(rows.start * self.c_stride);
        if let Some(combine) = &mut part.epilogue.combine {
            combine.ptr = combine.ptr.wrapping_add(rows.start * combine.row_stride);
        }
        if let Bias::PerRow(bias) = &mut part.epilogue.bias {
            *bias = bias.wrapping_add(rows.start);
        }
        part
    }
}

impl<T: Packed> Gemm<Strided<T>> {
    /// The matmul of some of the rows, which are read at `from`, one behind the other.
    pub fn of_rows(&self, rows: Range<usize>, from: *const T) -> Self {
        self.block(rows, Strided { ptr: from, row_stride: self.k as isize })
    }

    /// The tasks of one panel after the other, each with those of its panel in the matmul `then` of the same extents.
    ///
    /// # Safety
    /// As [`Gemm::run`] for both; `then` may read the results of this matmul, element by element.
    pub unsafe fn run_with(&self, then: &Self, isa: Isa, tasks: Range<usize>) {
        let tiling = self.tiling(max_rows(isa), T::multiplies(isa));
        let mut task = tasks.start;
        for (_, tiles) in tiling.stretches(tasks.clone()) {
            let end = task + tiles.len();
            // While one panel is computed, the other matmul's is fetched.
            let ahead = |of: &Self, panels: usize| {
                let b = of.b.wrapping_add(panels * self.depth() * PANEL);
                then.ahead.then(Next { b, depth: self.depth(), panels: tiling.panels })
            };
            let first = Gemm { ahead: ahead(then, 0), ..*self };
            let second = Gemm { ahead: if end < tasks.end { ahead(self, 1) } else { then.ahead }, ..*then };
            // SAFETY: the caller's promise.
            unsafe {
                first.run(isa, task..end);
                second.run(isa, task..end);
            }
            task = end;
        }
    }

    /// [`run`](Gemm::run) from the last panel to the first. Of a matmul that runs again at once, by the same weights, this finds in the cache what was
    /// read last; in the same order each time, panels that the cache has no room for would push out those that it has.
    ///
    /// # Safety
    /// As [`Gemm::run`].
    pub unsafe fn run_backward(&self, isa: Isa, tasks: Range<usize>) {
        let tiling = self.tiling(max_rows(isa), T::multiplies(isa));
        let mut end = tasks.end;
        while end > tasks.start {
            let (panel, tile) = tiling.place(end - 1);
            let start = (end - 1).saturating_sub(tile % tiling.tiles_per_block).max(tasks.start);
            let before = panel.saturating_sub(1);
            let b = self.b.wrapping_add(before * self.depth() * PANEL);
            let ahead = self.ahead.then(Next { b, depth: self.depth(), panels: 1 });
            // SAFETY: the caller's promise.
            unsafe { Gemm { ahead, ..*self }.run(isa, start..end) };
            end = start;
        }
    }
}
