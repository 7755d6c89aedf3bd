//! Softmax of contiguous rows, and of columns side by side.

use super::reduce::{STRETCH, fill, max_of};
use crate::gemm::Packed;
use crate::isa::{Isa, Kernel};
use crate::math;
use crate::simd::{LANES, Simd};

/// Some rows: `y = softmax(x)`, or its logarithm. 16-bit floats are widened as they are read and rounded once, as they are written.
#[derive(Debug, Clone, Copy)]
pub struct Softmax<T = f32> {
    /// The first row.
    pub x: *const T,
    /// The first row of the result; may be `x`.
    pub y: *mut T,
    /// Rows; each follows the one before.
    pub rows: usize,
    /// Elements of a row.
    pub columns: usize,
    /// The logarithm of the softmax.
    pub log: bool,
    /// Room for the exponentials of [`Softmax::held`] elements, which `y` must hold where there is none: `y` is of f32 then.
    pub held: Option<*mut f32>,
}

/// Rows that are computed together: the largest of all, the exponentials of all, and the quotients. Each is reduced lane by lane, which takes a
/// processor longer than it looks ahead; meanwhile it computes the others. The shorter rows are, the more of them it takes.
const TOGETHER: usize = 16;

/// The longest rows of which as many are computed together, and of which a quarter are. Still longer ones would leave the first-level cache before
/// they are read again, and have less to wait for.
const LONGEST: [usize; 2] = [128, 1024];

/// Whether elements are shorter than exponentials, which are held elsewhere then.
const fn shortens<T>() -> bool {
    size_of::<T>() < size_of::<f32>()
}

/// How many rows of `columns` elements are computed together.
const fn together(columns: usize) -> usize {
    let [short, long] = LONGEST;
    match columns {
        _ if columns <= short => TOGETHER,
        _ if columns <= long => TOGETHER / 4,
        _ => 1,
    }
}

impl<T: Packed> Kernel for Softmax<T> {
    type Output = f32;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let together = together(self.columns);
        let mut largest = f32::NEG_INFINITY;
        for first in (0..self.rows).step_by(together) {
            // SAFETY: `softmax` was promised the rows.
            largest = unsafe { self.some(s, first, together.min(self.rows - first)) };
        }
        largest
    }
}

impl<T: Packed> Softmax<T> {
    /// Elements of f32 that exponentials of 16-bit rows of `columns` elements need room for.
    pub const fn held(columns: usize) -> usize {
        Self::held_row(columns) * together(columns)
    }

    /// Elements from one row of these to the next: whole vectors. (A processor hands on what a masked store writes only when that is in its cache.)
    const fn held_row(columns: usize) -> usize {
        columns.next_multiple_of(LANES)
    }

    /// `count` rows from `first` on, at most [`TOGETHER`]; gives the largest element of the last.
    ///
    /// # Safety
    /// As [`softmax`].
    #[inline(always)]
    unsafe fn some<S: Simd>(&self, s: S, first: usize, count: usize) -> f32 {
        let n = self.columns;
        let mut of = [(self.x, self.y, f32::NEG_INFINITY); TOGETHER];
        let of = &mut of[..count];
        // SAFETY: the caller's promise.
        unsafe {
            for (r, (x, y, largest)) in of.iter_mut().enumerate() {
                let row = first + r;
                (*x, *y) = (self.x.add(row * n), self.y.add(row * n));
                *largest = max_of(s, *x, n);
            }
            let mut sums = [0.0; TOGETHER];
            let next = self.x.wrapping_add((first + count) * n);
            for (r, (&mut (x, y, largest), sum)) in of.iter_mut().zip(&mut sums).enumerate() {
                let (next, e) = (next.wrapping_add(r * n), self.exponentials(r, y));
                *sum = match self.log {
                    true => exp_row::<S, T, false>(s, x, e, n, largest, next),
                    false => exp_row::<S, T, true>(s, x, e, n, largest, next),
                };
            }
            for (r, (&mut (x, y, largest), &sum)) in of.iter_mut().zip(&sums).enumerate() {
                if self.log {
                    logarithms(s, x, y, n, largest, sum);
                } else {
                    quotients(s, self.exponentials(r, y), y, n, s.splat(1.0 / sum));
                }
            }
        }
        of.last().map_or(f32::NEG_INFINITY, |&(_, _, largest)| largest)
    }

    /// Where the exponentials of the row are that is number `r` of those computed together, and whose result is `y`.
    #[inline(always)]
    fn exponentials(&self, r: usize, y: *mut T) -> *mut f32 {
        self.held.map_or(y.cast(), |held| held.wrapping_add(r * Self::held_row(self.columns)))
    }
}

/// The sum of `e^(x − shift)`, 0 where that is denormal; to `y`, too, if `STORED`. Lanes past the end add nothing. Meanwhile the row `next` is
/// fetched: its largest element is found faster than it could be read from memory.
///
/// # Safety
/// `x` must be readable and, if `STORED`, `y` writable for `n` elements, or for whole vectors where `T` is shorter than f32.
#[inline(always)]
unsafe fn exp_row<S: Simd, T: Packed, const STORED: bool>(
    s: S,
    x: *const T,
    y: *mut f32,
    n: usize,
    shift: f32,
    next: *const T,
) -> f32 {
    let shift_v = s.splat(shift);
    let mut sum = s.zero();
    let whole = n - n % LANES;
    // SAFETY: the caller's promise.
    unsafe {
        for i in (0..whole).step_by(LANES) {
            s.prefetch_l1(next.wrapping_add(i).cast());
            let e = math::exp_normal(s, s.sub(T::load(s, x.add(i), LANES), shift_v));
            if STORED {
                s.store(y.add(i), e);
            }
            sum = s.add(sum, e);
        }
        if whole < n {
            let lanes = n - whole;
            let e = math::exp_normal(s, s.sub(T::load(s, x.add(whole), lanes), shift_v));
            if STORED {
                s.store_upto(y.add(whole), if const { shortens::<T>() } { LANES } else { lanes }, e);
            }
            sum = s.add(sum, fill(s, e, lanes, 0.0));
        }
    }
    s.sum(sum)
}

/// `y = x − largest − log sum`.
///
/// # Safety
/// `x` must be readable and `y` writable for `n` elements.
#[inline(always)]
unsafe fn logarithms<S: Simd, T: Packed>(s: S, x: *const T, y: *mut T, n: usize, largest: f32, sum: f32) {
    let (largest, log) = (s.splat(largest), math::log(s, s.splat(sum)));
    for i in (0..n).step_by(LANES) {
        let lanes = LANES.min(n - i);
        // SAFETY: the caller's promise; i + lanes ≤ n.
        unsafe {
            let v = s.sub(s.sub(T::load(s, x.add(i), lanes), largest), log);
            T::store(s, y.add(i), lanes, v);
        }
    }
}

/// `y = e · factor`.
///
/// # Safety
/// `e` must be readable, for whole vectors where `T` is shorter than f32, and `y` writable for `n` elements; they may be the same.
#[inline(always)]
unsafe fn quotients<S: Simd, T: Packed>(s: S, e: *const f32, y: *mut T, n: usize, factor: S::F) {
    let whole = n - n % LANES;
    // SAFETY: the caller's promise.
    unsafe {
        for i in (0..whole).step_by(LANES) {
            T::store(s, y.add(i), LANES, s.mul(s.load(e.add(i)), factor));
        }
        if whole < n {
            let lanes = n - whole;
            let e = s.load_upto(e.add(whole), if const { shortens::<T>() } { LANES } else { lanes });
            T::store(s, y.add(whole), lanes, s.mul(e, factor));
        }
    }
}

/// Computes the rows. A row whose elements are all −∞ becomes NaN, as the formula says. Gives the largest element of the
/// last row; NaN if one is NaN.
///
/// # Safety
/// `x` must be readable and `y` writable for `rows · columns` elements, and `held`, without which they must be of f32, for
/// [`Softmax::held`]. `y` may be `x`, and must not overlap anything otherwise.
pub unsafe fn softmax<T: Packed>(isa: Isa, rows: &Softmax<T>) -> f32 {
    T::run(isa, *rows)
}

/// The softmax of each row of `columns` elements; what does not fill a row at the end is left.
pub fn softmax_in_place(isa: Isa, x: &mut [f32], columns: usize) {
    let rows = x.len().checked_div(columns).unwrap_or(0);
    let y = x.as_mut_ptr();
    // SAFETY: the rows are within the slice.
    unsafe { softmax(isa, &Softmax { x: y, y, rows, columns, log: false, held: None }) };
}

/// Neighbouring columns: `y = softmax(x)` along lines that are `step` elements apart, or its logarithm.
#[derive(Debug, Clone, Copy)]
pub struct SoftmaxColumns {
    /// The first element.
    pub x: *const f32,
    /// The first element of the result; may be `x`.
    pub y: *mut f32,
    /// Elements from one line to the next, of both.
    pub step: usize,
    /// Lines.
    pub lines: usize,
    /// Columns.
    pub columns: usize,
    /// The logarithm of the softmax.
    pub log: bool,
    /// Room for [`COLUMNS`] elements of each line, which stay in a cache better than those of `y`: columns that are a power of two
    /// apart push each other out. `y` holds the exponentials where there is none.
    pub held: Option<*mut f32>,
}

/// Vectors of columns that are computed side by side.
const WIDE: usize = 4;

/// Columns that are best computed together.
pub const COLUMNS: usize = WIDE * LANES;

/// Lines between the one that is read and the one that is fetched.
const AHEAD: usize = 8;

impl Kernel for SoftmaxColumns {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut first = 0;
        while first < self.columns {
            let left = self.columns - first;
            // SAFETY: `softmax_columns` was promised the elements.
            unsafe {
                if left >= COLUMNS {
                    self.block::<S, WIDE>(s, first, LANES);
                    first += COLUMNS;
                } else {
                    self.block::<S, 1>(s, first, left.min(LANES));
                    first += left.min(LANES);
                }
            }
        }
    }
}

impl SoftmaxColumns {
    /// Vector `v` of a line's columns from `first` on.
    #[inline(always)]
    fn at(&self, line: usize, first: usize, v: usize) -> usize {
        line * self.step + first + v * LANES
    }

    /// Where the exponentials of line 0 are while they are summed, and the elements from a line to the next one.
    #[inline(always)]
    fn exponentials(&self, first: usize) -> (*mut f32, usize) {
        match self.held {
            Some(held) => (held, COLUMNS),
            None => (self.y.wrapping_add(first), self.step),
        }
    }

    /// V vectors of columns from `first` on, of which one vector has `lanes`.
    ///
    /// # Safety
    /// The elements must be readable in `x` and writable in `y`.
    #[inline(always)]
    unsafe fn block<S: Simd, const V: usize>(&self, s: S, first: usize, lanes: usize) {
        let mut largest = [s.splat(f32::NEG_INFINITY); V];
        // SAFETY: the caller's promise.
        unsafe {
            for line in 0..self.lines {
                for (v, largest) in largest.iter_mut().enumerate() {
                    let p = self.x.wrapping_add(self.at(line, first, v));
                    s.prefetch_l1(p.wrapping_add(AHEAD * self.step));
                    *largest = s.max(s.load_upto(p, lanes), *largest);
                }
            }
            let sum = self.sum::<S, V>(s, first, lanes, &largest);
            if self.log {
                return self.logarithms::<S, V>(s, first, lanes, &largest, sum);
            }
            let mut factor = sum;
            for factor in &mut factor {
                *factor = s.div(s.splat(1.0), *factor);
            }
            let (held, step) = self.exponentials(first);
            for line in 0..self.lines {
                for (v, &factor) in factor.iter().enumerate() {
                    let to = self.y.wrapping_add(self.at(line, first, v));
                    s.prefetch_l1(to.wrapping_add(AHEAD * self.step).cast_const());
                    let e = s.load_upto(held.wrapping_add(line * step + v * LANES), lanes);
                    s.store_upto(to, lanes, s.mul(e, factor));
                }
            }
        }
    }

    /// `x − largest − log sum`.
    ///
    /// # Safety
    /// As [`SoftmaxColumns::block`].
    #[inline(always)]
    unsafe fn logarithms<S: Simd, const V: usize>(
        &self,
        s: S,
        first: usize,
        lanes: usize,
        largest: &[S::F; V],
        sum: [S::F; V],
    ) {
        let mut log = sum;
        for log in &mut log {
            *log = math::log(s, *log);
        }
        for line in 0..self.lines {
            for v in 0..V {
                let at = self.at(line, first, v);
                // SAFETY: the caller's promise.
                unsafe {
                    let x = s.load_upto(self.x.wrapping_add(at), lanes);
                    s.store_upto(self.y.wrapping_add(at), lanes, s.sub(s.sub(x, largest[v]), log[v]));
                }
            }
        }
    }

    /// The sums of `e^(x − largest)`, 0 where that is denormal, which are kept where no logarithm is wanted: in stretches, so that
    /// sums of many lines stay exact.
    ///
    /// # Safety
    /// As [`SoftmaxColumns::block`].
    #[inline(always)]
    unsafe fn sum<S: Simd, const V: usize>(
        &self,
        s: S,
        first: usize,
        lanes: usize,
        largest: &[S::F; V],
    ) -> [S::F; V] {
        let (held, step) = self.exponentials(first);
        let mut total = [s.zero(); V];
        for start in (0..self.lines).step_by(STRETCH) {
            let mut sum = [s.zero(); V];
            for line in start..self.lines.min(start + STRETCH) {
                for v in 0..V {
                    // SAFETY: the caller's promise.
                    unsafe {
                        let p = self.x.wrapping_add(self.at(line, first, v));
                        s.prefetch_l1(p.wrapping_add(AHEAD * self.step));
                        let e = math::exp_normal(s, s.sub(s.load_upto(p, lanes), largest[v]));
                        if !self.log {
                            s.store_upto(held.wrapping_add(line * step + v * LANES), lanes, e);
                        }
                        sum[v] = s.add(sum[v], e);
                    }
                }
            }
            for v in 0..V {
                total[v] = s.add(total[v], sum[v]);
            }
        }
        total
    }
}

/// Computes the columns. A column whose elements are all −∞ becomes NaN, as the formula says. The bits of a column do not depend on
/// the others.
///
/// # Safety
/// `x` must be readable and `y` writable for the elements, and `held` if it is there. `y` may be `x`, and must not overlap anything
/// otherwise.
pub unsafe fn softmax_columns(isa: Isa, columns: &SoftmaxColumns) {
    isa.run(*columns)
}
