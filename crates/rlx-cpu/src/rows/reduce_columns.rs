//! Reductions of columns side by side: of f32, and of 16-bit floats, which are widened as they are read and rounded once at the end.

use std::mem::MaybeUninit;

use super::reduce::{Reduction, finished};
use crate::gemm::Packed;
use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd};

/// Vectors of columns that are reduced side by side by [`reduce_columns`].
const WIDE: usize = 8;

/// Lines after which the partial results are put aside: sums of many lines stay as exact as a tree's.
pub(super) const STRETCH: usize = 128;

/// Stretches that the lines of a small image are divided into, so that threads have some each, and lines from which on they are.
const STRETCHES: usize = 4;
const DIVIDED: usize = 32;

/// Lines that are read beside each other where they are far apart ([`Columns::are_far`]).
const BESIDE: usize = 4;

/// Columns whose partial results are in the first-level cache meanwhile.
const CHUNK: usize = 1024;

/// Neighbouring columns of lines that are `step` elements apart.
#[derive(Debug, Clone, Copy)]
pub struct Columns<T = f32> {
    /// The first element.
    pub x: *const T,
    /// Elements from one line to the next.
    pub step: isize,
    /// Lines.
    pub lines: usize,
    /// Columns.
    pub columns: usize,
}

impl<T> Columns<T> {
    /// Whether lines are wide and so far apart that a few vectors of each are no stream of memory: what the processor fetches by itself ends with
    /// a page. These columns are best reduced [`CHUNK`] at a time.
    fn are_far(&self) -> bool {
        const PAGE: usize = 4096;
        self.columns > WIDE * LANES && self.step.unsigned_abs() * size_of::<T>() >= PAGE
    }

    /// How many of them are best reduced together.
    pub(crate) fn together(&self) -> usize {
        if self.are_far() { CHUNK } else { WIDE * LANES }
    }

    /// Lines of a stretch, which depend on the number of lines alone.
    fn stretch(&self) -> usize {
        if self.lines < DIVIDED { STRETCH } else { self.lines.div_ceil(STRETCHES).min(STRETCH) }
    }

    /// How many stretches there are.
    pub(crate) fn stretches(&self) -> usize {
        self.lines.div_ceil(self.stretch())
    }
}

/// Reduces each column to one element of `out`: in stretches of lines, whose results are joined in order.
///
/// # Safety
/// Every element of the columns must be readable, and `out` writable for as many as there are columns.
pub unsafe fn reduce_columns<T: Packed>(isa: Isa, how: Reduction, columns: Columns<T>, out: *mut T) {
    T::run(isa, ReduceColumns { columns, how, stretch: columns.stretch(), count: columns.lines, out });
}

/// The partial result of the lines of one stretch, for [`join_stretches`].
///
/// # Safety
/// The elements of these lines must be readable, and `out` writable for as many as there are columns.
pub(crate) unsafe fn reduce_stretch<T: Packed>(
    isa: Isa,
    how: Reduction,
    columns: Columns<T>,
    stretch: usize,
    out: *mut f32,
) {
    let (length, how) = (columns.stretch(), how.of_parts());
    let (first, x) =
        (stretch * length, columns.x.wrapping_offset((stretch * length) as isize * columns.step));
    let lines = length.min(columns.lines - first);
    let columns = Columns { x, lines, ..columns };
    T::run(isa, ReduceColumns { columns, how, stretch: length, count: lines, out });
}

/// What [`reduce_columns`] gives, of the partial results of all stretches of `lines` lines, with the same bits.
///
/// # Safety
/// As of [`reduce_columns`].
pub(crate) unsafe fn join_stretches<T: Packed>(
    isa: Isa,
    how: Reduction,
    partial: Columns,
    lines: usize,
    out: *mut T,
) {
    let how = how.of_partial();
    T::run(isa, ReduceColumns { columns: partial, how, stretch: partial.lines, count: lines, out });
}

/// Columns of `T` that become elements of `O`.
struct ReduceColumns<T, O> {
    columns: Columns<T>,
    how: Reduction,
    /// Lines of a stretch.
    stretch: usize,
    /// What the sum of a mean is divided by.
    count: usize,
    out: *mut O,
}

impl<T: Packed, O: Packed> Kernel for ReduceColumns<T, O> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut first = 0;
        if self.columns.are_far() {
            let whole = self.columns.columns - self.columns.columns % LANES;
            while first < whole {
                let width = (whole - first).min(CHUNK);
                // SAFETY: `reduce_columns` was promised the memory.
                unsafe { far_block(s, &self, first, width) };
                first += width;
            }
        }
        while first < self.columns.columns {
            let width = (self.columns.columns - first).min(WIDE * LANES);
            // SAFETY: `reduce_columns` was promised the memory; first + width ≤ columns.
            unsafe {
                if width == WIDE * LANES {
                    block::<S, T, O, WIDE>(s, &self, first, LANES);
                } else {
                    for at in (0..width).step_by(LANES) {
                        block::<S, T, O, 1>(s, &self, first + at, (width - at).min(LANES));
                    }
                }
            }
            first += width;
        }
    }
}

/// Reduces `width` columns from `first` on, whole vectors of at most [`CHUNK`], along [`BESIDE`] lines at a time. Each column is reduced in the same
/// order as by [`block`].
///
/// # Safety
/// As [`reduce_columns`]; the vectors must be within the columns.
#[inline(always)]
unsafe fn far_block<S: Simd, T: Packed, O: Packed>(
    s: S,
    r: &ReduceColumns<T, O>,
    first: usize,
    width: usize,
) {
    let c = &r.columns;
    let start = s.splat(r.how.start());
    let mut buffers = MaybeUninit::<[[f32; CHUNK]; 2]>::uninit();
    let acc = buffers.as_mut_ptr().cast::<f32>();
    let total = acc.wrapping_add(CHUNK);
    // SAFETY: the caller's promise, and there is room for the columns in both buffers.
    unsafe {
        for v in (0..width).step_by(LANES) {
            s.store(total.add(v), start);
        }
        for stretch in (0..c.lines).step_by(r.stretch) {
            let end = c.lines.min(stretch + r.stretch);
            let mut line = stretch;
            while line < end {
                let count = (end - line).min(BESIDE);
                let x = c.x.wrapping_add(first).wrapping_offset(line as isize * c.step);
                for v in (0..width).step_by(LANES) {
                    let mut sum = if line == stretch { start } else { s.load(acc.add(v)) };
                    if count == BESIDE {
                        for l in 0..BESIDE {
                            let x = x.wrapping_offset(l as isize * c.step).wrapping_add(v);
                            sum = join::<S, T>(s, r.how, T::load(s, x, LANES), sum);
                        }
                    } else {
                        for l in 0..count {
                            let x = x.wrapping_offset(l as isize * c.step).wrapping_add(v);
                            sum = join::<S, T>(s, r.how, T::load(s, x, LANES), sum);
                        }
                    }
                    s.store(acc.add(v), sum);
                }
                line += count;
            }
            for v in (0..width).step_by(LANES) {
                let sum = join_partial(s, r.how, s.load(acc.add(v)), s.load(total.add(v)));
                s.store(total.add(v), sum);
            }
        }
        for v in (0..width).step_by(LANES) {
            let y = finished(s, r.how, s.load(total.add(v)), r.count);
            O::store(s, r.out.wrapping_add(first + v), LANES, y);
        }
    }
}

/// Reduces V vectors of columns from `first` on, whose last has `lanes` of them.
///
/// # Safety
/// As [`reduce_columns`]; the vectors must be within the columns.
#[inline(always)]
unsafe fn block<S: Simd, T: Packed, O: Packed, const V: usize>(
    s: S,
    r: &ReduceColumns<T, O>,
    first: usize,
    lanes: usize,
) {
    let c = &r.columns;
    let start = r.how.start();
    let mut total = [s.splat(start); V];
    let mut line = c.x.wrapping_add(first);
    let mut done = 0;
    while done < c.lines {
        let end = (done + r.stretch).min(c.lines);
        let mut acc = [s.splat(start); V];
        while done < end {
            for (v, acc) in acc.iter_mut().enumerate() {
                // SAFETY: the caller's promise.
                let x = unsafe { T::load(s, line.wrapping_add(v * LANES), lanes) };
                *acc = join::<S, T>(s, r.how, x, *acc);
            }
            line = line.wrapping_offset(c.step);
            done += 1;
        }
        for v in 0..V {
            total[v] = join_partial(s, r.how, acc[v], total[v]);
        }
    }
    for (v, total) in total.iter().enumerate() {
        let y = finished(s, r.how, *total, r.count);
        // SAFETY: the caller's promise.
        unsafe { O::store(s, r.out.wrapping_add(first + v * LANES), lanes, y) };
    }
}

/// The partial result of a stretch of lines, joined with those before.
#[inline(always)]
fn join_partial<S: Simd>(s: S, how: Reduction, part: S::F, total: S::F) -> S::F {
    join::<S, f32>(s, how.of_partial(), part, total)
}

/// An element of `T`, joined with those before.
#[inline(always)]
fn join<S: Simd, T: Packed>(s: S, how: Reduction, x: S::F, acc: S::F) -> S::F {
    match how {
        Reduction::Sum | Reduction::Mean => s.add(acc, x),
        Reduction::SumOfSquares | Reduction::MeanOfSquares => s.add(acc, T::round(s, s.mul(x, x))),
        Reduction::Max => s.max(x, acc),
        Reduction::Min => s.min(x, acc),
    }
}
