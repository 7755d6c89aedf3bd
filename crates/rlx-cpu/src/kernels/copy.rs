//! Copies between strided views: what movement ops leave behind when no view can express them.
//!
//! Where both sides have the same neighbours, rows are moved as bytes. Where the source's neighbours lie along another
//! dimension than the result's, the two are exchanged in squares that go through registers ([`transpose`]).

use std::ops::Range;

use rlx_ir::Result;

use super::elementwise::gather_any;
use super::elementwise::sized;
use super::moves::{RowCopy, Stepped};
use super::transpose::{Band, COLUMN, Cell, NonTemporal, ONE_GROUP, has_whole_lines};
use super::{BindCx, CloneKernel, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, unbound};
use crate::isa::{Isa, Kernel};
use crate::layout::{At, Layout, MAX_RANK, Walk, collapse};
use crate::simd::{LANES, Simd};
use crate::stores::{self, Stores};

/// Rows of the result in a task of a transposing copy: each column of the source is read in runs of as many elements, and as
/// many rows are written at once.
const BAND: usize = 64;

/// Bands are cut, where they are too few for all threads, into pieces of a multiple of so many columns: whole lines of memory.
const PIECE_OF_BAND: usize = 64;

/// Longer rows are split into pieces of as many elements.
const PIECE: usize = 1 << 14;

/// Rows of at least as many bytes are read in the order of the source …
const ROW_BYTES: usize = 64;

/// … where they are written to at most as many places in turn.
const STREAMS: usize = 32;

/// Rows of at least as many bytes are stored past the caches where the result is large: what is not a whole line at either end is not.
const NON_TEMPORAL_ROW: usize = 512;

/// The kernel of a copy step.
pub(crate) fn compile(_: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    Ok(Box::new(Unbound))
}

/// A copy before it is bound: there may be very many, and all are alike.
struct Unbound;

impl CloneKernel for Unbound {
    fn boxed(&self) -> Box<dyn StepKernel> {
        Box::new(Copy::default())
    }
}

impl StepKernel for Unbound {
    fn bind(&mut self, _: &BindCx<'_>) -> Result<Needs> {
        Err(unbound())
    }

    unsafe fn run(&self, _: &mut RunCx<'_, '_>) -> Result<()> {
        Err(unbound())
    }
}

/// A bound copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copy {
    from: At,
    to: At,
    source: Layout,
    target: Layout,
    size: usize,
    /// The dimension along which the source is contiguous, when that is not the innermost.
    across: Option<usize>,
    stores: Stores,
    worth: bool,
}

impl Default for Copy {
    fn default() -> Self {
        Copy {
            from: At::NOWHERE,
            to: At::NOWHERE,
            source: Layout::SCALAR,
            target: Layout::SCALAR,
            size: 1,
            across: None,
            stores: Stores::Cached,
            worth: false,
        }
    }
}

impl StepKernel for Copy {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (from, to) = (&cx.inputs[0], &cx.outputs[0]);
        if from.dims() != to.dims() {
            return Err(mismatch(format!("a copy of {:?} to {:?}", from.dims(), to.dims())));
        }
        let mut pair = [to.layout, from.layout];
        collapse(&mut pair);
        let mut elements = to.layout.elements();
        if to.dtype.is_packed() {
            // Dense: the bytes are copied, however many elements share one.
            elements = to.dtype.storage_bytes(elements).unwrap_or(usize::MAX);
            pair = [Layout::dense(&[elements]); 2];
        }
        (self.from, self.to, self.size) = (from.at, to.at, to.dtype.size_bytes());
        [self.target, self.source] = pair;
        if self.target.rank() == 0 {
            (self.target, self.source) = (Layout::dense(&[elements]), Layout::dense(&[elements]));
        }
        in_order_of_source(&mut self.target, &mut self.source, self.size);
        let rank = self.source.rank();
        let contiguous = |i: &usize| self.source.strides()[*i] == 1;
        self.across =
            (0..rank - 1).rev().find(contiguous).filter(|_| self.source.strides()[rank - 1].abs() > 1);
        let nanos = elements as f64 * self.size as f64 * 0.04;
        self.worth = nanos > WORTH_NANOS;
        let bytes = elements * self.size;
        self.stores =
            if self.across.is_some() { Stores::of_transposed(bytes) } else { Stores::of_rows(bytes) };
        Ok(Needs::time(nanos))
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        if self.target.elements() == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe {
            match self.across {
                Some(dim) => self.transpose(cx, dim),
                None => self.rows(cx),
            }
        }
        Ok(())
    }
}

/// Orders the outer dimensions so that rows are read in the order of the source, if they are at least a cache line and few places
/// of the target are then written in turn: memory is fetched ahead of what reads it in order, and writes wait for nothing.
fn in_order_of_source(target: &mut Layout, source: &mut Layout, size: usize) {
    let Some(outer) = source.rank().checked_sub(1).filter(|&n| n >= 2) else { return };
    let row_bytes = source.dims()[outer].saturating_mul(size);
    let contiguous = source.strides()[outer] == 1 && target.strides()[outer] == 1;
    if !contiguous || row_bytes < ROW_BYTES || source.strides().iter().any(|&stride| stride <= 0) {
        return;
    }
    let mut order: [usize; MAX_RANK] = std::array::from_fn(|i| i);
    order[..outer].sort_unstable_by_key(|&i| std::cmp::Reverse(source.strides()[i]));
    if source.dims()[order[outer - 1]] <= STREAMS {
        for layout in [target, source] {
            let old = *layout;
            *layout = Layout::SCALAR;
            order[..=outer].iter().for_each(|&i| layout.push(old.dims()[i], old.strides()[i]));
        }
    }
}

/// Equal rows, each as far from the one before as the strides say; everything in elements.
#[derive(Debug, Clone, Copy)]
struct Rows {
    count: usize,
    from_row: isize,
    to_row: isize,
    /// Elements of a row.
    inner: usize,
    from_step: isize,
    to_step: isize,
    /// Bytes of an element.
    size: usize,
    stores: Stores,
}

impl Rows {
    /// Copies `count` rows.
    ///
    /// # Safety
    /// All elements must be readable and writable, and apart.
    unsafe fn copy(&self, isa: Isa, from: *const u8, to: *mut u8) {
        let bytes = self.inner * self.size;
        let size = self.size as isize;
        // SAFETY: the caller's promise.
        unsafe {
            if self.to_step == 1 && !matches!(self.from_step, 0 | 1) {
                let Rows { count: rows, from_row, to_row, inner, from_step: step, .. } = *self;
                return sized!(self.size, T => {
                    let (from, to) = (from.cast::<T>(), to.cast::<T>());
                    isa.run(Stepped { from, from_row, step, to, to_row, rows, inner });
                });
            }
            if self.from_step == 1 && self.to_step == 1 {
                let (from_row, to_row) = (self.from_row * size, self.to_row * size);
                match bytes {
                    1 => each::<u8>(self.count, from, from_row, to, to_row),
                    2 => each::<u16>(self.count, from, from_row, to, to_row),
                    4 => each::<u32>(self.count, from, from_row, to, to_row),
                    8 => each::<u64>(self.count, from, from_row, to, to_row),
                    12 => each::<[u32; 3]>(self.count, from, from_row, to, to_row),
                    16 => each::<[u64; 2]>(self.count, from, from_row, to, to_row),
                    32 => each::<[u64; 4]>(self.count, from, from_row, to, to_row),
                    64 => each::<[u64; 8]>(self.count, from, from_row, to, to_row),
                    _ if self.stores == Stores::NonTemporal && bytes >= NON_TEMPORAL_ROW => {
                        for i in 0..self.count as isize {
                            let (from, to) =
                                (from.wrapping_offset(i * from_row), to.wrapping_offset(i * to_row));
                            stores::copy(isa, from, to, bytes);
                        }
                    }
                    _ => {
                        let row = RowCopy::of(bytes);
                        isa.run(Contiguous { count: self.count, from, from_row, to, to_row, row });
                    }
                }
                return;
            }
            for i in 0..self.count as isize {
                let from = from.wrapping_offset(i * self.from_row * size);
                let to = to.wrapping_offset(i * self.to_row * size);
                gather_any(from, self.from_step, to, self.to_step, self.size, self.inner);
            }
        }
    }
}

/// Copies `count` values, which need not be aligned, at distances in bytes.
///
/// # Safety
/// All values must be readable at `from` and writable at `to`, and apart.
#[inline(always)]
unsafe fn each<T: std::marker::Copy>(
    count: usize,
    from: *const u8,
    from_row: isize,
    to: *mut u8,
    to_row: isize,
) {
    for i in 0..count as isize {
        let (from, to) = (from.wrapping_offset(i * from_row), to.wrapping_offset(i * to_row));
        // SAFETY: the caller's promise.
        unsafe { to.cast::<T>().write_unaligned(from.cast::<T>().read_unaligned()) };
    }
}

/// Rows that are contiguous, distances in bytes.
struct Contiguous {
    count: usize,
    from: *const u8,
    from_row: isize,
    to: *mut u8,
    to_row: isize,
    row: RowCopy,
}

impl Kernel for Contiguous {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for i in 0..self.count as isize {
            let from = self.from.wrapping_offset(i * self.from_row);
            let to = self.to.wrapping_offset(i * self.to_row);
            // SAFETY: who runs the kernel was promised the rows.
            unsafe { self.row.copy(s, from, to) };
        }
    }
}

impl Copy {
    /// Row by row.
    unsafe fn rows(&self, cx: &mut RunCx<'_, '_>) {
        let rank = self.target.rank();
        let (source, target, size, stores) = (self.source, self.target, self.size, self.stores);
        let (inner, step) = (target.dims()[rank - 1], |l: &Layout| l.strides()[rank - 1]);
        let (from_step, to_step) = (step(&source), step(&target));
        let (from, to) = (cx.shared::<u8>(self.from), cx.shared::<u8>(self.to));
        let place = |p: *mut u8, elements: isize| p.wrapping_offset(elements * size as isize);
        let (isa, pieces) = (cx.isa, inner.div_ceil(PIECE));
        if pieces > 1 {
            let rows = target.range(0, rank - 1).elements();
            return cx.parallel_stores(self.worth, stores, rows * pieces, &|range, _| {
                for unit in range {
                    let (row, start) = (unit / pieces, unit % pieces * PIECE);
                    let source = source.outer_at(row) + start as isize * from_step;
                    let target = target.outer_at(row) + start as isize * to_step;
                    let n = PIECE.min(inner - start);
                    let (from, to) = (place(from.get(), source), place(to.get(), target));
                    let rows =
                        Rows { count: 1, from_row: 0, to_row: 0, inner: n, from_step, to_step, size, stores };
                    // SAFETY: both views are within their buffers (checked when bound); pieces are disjoint.
                    unsafe { rows.copy(isa, from, to) };
                }
            });
        }
        // The dimension before the innermost one is walked without looking at the others.
        let split = rank.saturating_sub(2);
        let (lines, from_row, to_row) = match rank {
            1 => (1, 0, 0),
            _ => (target.dims()[split], source.strides()[split], target.strides()[split]),
        };
        let outer = [target.range(0, split), source.range(0, split)];
        cx.parallel_stores(self.worth, stores, target.elements() / inner, &|range, _| {
            let mut walk = Walk::new(outer, range.start / lines);
            let (mut row, mut line) = (range.start, range.start % lines);
            while row < range.end {
                let count = (lines - line).min(range.end - row);
                let rows = Rows { count, from_row, to_row, inner, from_step, to_step, size, stores };
                let [target, source] = walk.at();
                let from = place(from.get(), source + line as isize * from_row);
                let to = place(to.get(), target + line as isize * to_row);
                // SAFETY: both views are within their buffers (checked when bound); rows are disjoint.
                unsafe { rows.copy(isa, from, to) };
                (row, line) = (row + count, 0);
                walk.step();
            }
        });
    }

    /// In bands: the source is contiguous along `dim`, the target along the innermost dimension.
    unsafe fn transpose(&self, cx: &mut RunCx<'_, '_>, dim: usize) {
        let rank = self.target.rank();
        let (height, inner) = (self.target.dims()[dim], self.target.dims()[rank - 1]);
        let strides = |l: &Layout| (l.strides()[dim], l.strides()[rank - 1]);
        let ((_, from_column), (to_row, to_column)) = (strides(&self.source), strides(&self.target));
        // Few columns (of a phase, as transposed convolutions deal them out) and those of the dimension before are one row.
        let before = rank - 2;
        let joins = before != dim
            && inner < LANES
            && to_column == 1
            && self.target.strides()[before] == inner as isize;
        let (width, group, rest) = match joins {
            true => (inner * self.target.dims()[before], (inner, self.source.strides()[before]), before),
            false => (inner, ONE_GROUP, rank - 1),
        };
        let mut outer = [Layout::SCALAR; 2];
        for i in (0..rest).filter(|&i| i != dim) {
            outer[0].push(self.target.dims()[i], self.target.strides()[i]);
            outer[1].push(self.source.dims()[i], self.source.strides()[i]);
        }
        let (stores, band) = match self.stores {
            Stores::NonTemporal if has_whole_lines(self.size, to_row, group) => {
                (self.stores, COLUMN / self.size)
            }
            _ => (Stores::Cached, BAND),
        };
        let bands = height.div_ceil(band);
        // Pieces of rows begin where a group does.
        let grain = PIECE_OF_BAND * if group == ONE_GROUP { 1 } else { group.0 };
        let most =
            cx.share(self.worth, outer[0].elements() * bands, width, width.next_multiple_of(grain), grain);
        let pieces = width.div_ceil(most);
        let units = bands * pieces;
        let (from, to, size, isa) = (cx.shared::<u8>(self.from), cx.shared::<u8>(self.to), self.size, cx.isa);
        cx.parallel_stores(self.worth, stores, outer[0].elements() * units, &|range, _| {
            // Both views are within their buffers (checked when bound); bands are disjoint.
            sized!(size, T => {
                let (from, to) = (from.get().cast::<T>().cast_const(), to.get().cast::<T>());
                let all = Band { from, from_column, group, to, to_row, height, width };
                let bands = Bands { all, to_column, outer, range, band, stores, pieces, most };
                // SAFETY: as above.
                unsafe { if to_column == 1 { isa.run(bands) } else { bands.one_by_one() } };
            })
        });
    }
}

/// The pieces of bands `range` of matrices to transpose.
struct Bands<T> {
    /// A whole matrix, at the beginning of the views.
    all: Band<T>,
    /// From one column of the result to the next.
    to_column: isize,
    /// Where the matrices are, in the result and in the source.
    outer: [Layout; 2],
    range: Range<usize>,
    /// Rows of a band.
    band: usize,
    stores: Stores,
    /// Pieces of a band, and columns of a piece.
    pieces: usize,
    most: usize,
}

impl<T: Cell> Bands<T> {
    /// The piece `piece` of the band from row `start` on, of the matrix that the walk is at.
    #[inline(always)]
    fn at(&self, walk: &Walk<2>, start: usize, piece: usize) -> Band<T> {
        let ([target, source], all) = (walk.at(), self.all);
        let from = all.from.wrapping_offset(source).wrapping_add(start);
        let to = all.to.wrapping_offset(target + start as isize * all.to_row);
        let (height, first) = (self.band.min(all.height - start), piece * self.most);
        Band { from, to, height, ..all }.columns_from(first, self.most.min(all.width - first))
    }

    /// Where the first piece is: the walk, the row and the piece of its band.
    #[inline(always)]
    fn start(&self) -> (Walk<2>, usize, usize) {
        let units = self.all.height.div_ceil(self.band) * self.pieces;
        let unit = self.range.start % units;
        let walk = Walk::new(self.outer, self.range.start / units);
        (walk, unit / self.pieces * self.band, unit % self.pieces)
    }

    /// Goes on to the next piece.
    #[inline(always)]
    fn step(&self, (walk, start, piece): &mut (Walk<2>, usize, usize)) {
        *piece += 1;
        if *piece == self.pieces {
            (*start, *piece) = (*start + self.band, 0);
            if *start >= self.all.height {
                *start = 0;
                walk.step();
            }
        }
    }

    /// Where the columns of the result are apart.
    ///
    /// # Safety
    /// All elements must be readable and writable, and apart.
    unsafe fn one_by_one(self) {
        let mut place = self.start();
        for _ in self.range.clone() {
            let (walk, start, piece) = &place;
            let band = self.at(walk, *start, *piece);
            let first = (piece * self.most) as isize;
            // The band begins as if columns were neighbours.
            let to = band.to.wrapping_offset(first * (self.to_column - 1));
            for x in 0..band.width as isize {
                for y in 0..band.height as isize {
                    // SAFETY: the caller's promise.
                    unsafe {
                        *to.wrapping_offset(x * self.to_column + y * band.to_row) =
                            *band.from.wrapping_offset(x * band.from_column + y);
                    }
                }
            }
            self.step(&mut place);
        }
    }
}

impl<T: Cell> Kernel for Bands<T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut place = self.start();
        for _ in self.range.clone() {
            let band = self.at(&place.0, place.1, place.2);
            // SAFETY: who runs the kernel was promised all elements. Other bands than those of pairs take long enough for a call.
            unsafe {
                if !band.pairs(s) {
                    match self.stores {
                        Stores::Cached => s.enter_plain(band),
                        Stores::NonTemporal => s.enter_plain(NonTemporal(band)),
                    }
                }
            }
            self.step(&mut place);
        }
    }
}
