//! Softmax of contiguous rows, with scale and additive mask, and of columns side by side.

use super::reduce::{STRETCH, fill, max_of, scale_row};
use crate::isa::{Isa, Kernel};
use crate::math;
use crate::simd::{LANES, Simd};

/// Some rows: `y = softmax(scale · x + mask)`, or its logarithm.
#[derive(Debug, Clone, Copy)]
pub struct Softmax {
    /// The first row.
    pub x: *const f32,
    /// The first row of the result; may be `x`.
    pub y: *mut f32,
    /// Rows; each follows the one before.
    pub rows: usize,
    /// Elements of a row.
    pub columns: usize,
    /// A factor before the mask.
    pub scale: f32,
    /// A mask added to every row, and elements from one row's mask to the next (0: the same one).
    pub mask: Option<(*const f32, usize)>,
    /// The logarithm of the softmax.
    pub log: bool,
}

/// Rows that are computed together, if they are of at most [`SHORT`] elements: the largest of all, the exponentials of all, and the quotients. Each
/// is reduced lane by lane, which takes a processor longer than it looks ahead; meanwhile it computes the others.
const TOGETHER: usize = 4;

/// Longer rows would leave the first-level cache before they are read again, and have less to wait for.
const SHORT: usize = 1024;

impl Kernel for Softmax {
    type Output = f32;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let together = if self.columns <= SHORT { TOGETHER } else { 1 };
        let mut largest = f32::NEG_INFINITY;
        for first in (0..self.rows).step_by(together) {
            // SAFETY: `softmax` was promised the rows and masks.
            largest = unsafe { self.some(s, first, together.min(self.rows - first)) };
        }
        largest
    }
}

impl Softmax {
    /// `count` rows from `first` on, at most [`TOGETHER`]; gives the largest element of the last.
    ///
    /// # Safety
    /// As [`softmax`].
    #[inline(always)]
    unsafe fn some<S: Simd>(&self, s: S, first: usize, count: usize) -> f32 {
        let n = self.columns;
        let plain = self.scale == 1.0 && self.mask.is_none();
        let mut of = [(self.x, self.y, f32::NEG_INFINITY); TOGETHER];
        let of = &mut of[..count];
        // SAFETY: the caller's promise.
        unsafe {
            for (r, (x, y, largest)) in of.iter_mut().enumerate() {
                let row = first + r;
                (*x, *y) = (self.x.add(row * n), self.y.add(row * n));
                if !plain {
                    prepare(s, *x, *y, n, self.scale, self.mask.map(|(p, stride)| p.add(row * stride)));
                    *x = y.cast_const();
                }
                *largest = max_of(s, *x, n);
            }
            let mut sums = [0.0; TOGETHER];
            let next = self.x.wrapping_add((first + count) * n);
            for (r, (&mut (x, y, largest), sum)) in of.iter_mut().zip(&mut sums).enumerate() {
                let next = next.wrapping_add(r * n);
                *sum = match self.log {
                    true => exp_row::<S, false>(s, x, y, n, largest, next),
                    false => exp_row::<S, true>(s, x, y, n, largest, next),
                };
            }
            for (&mut (x, y, largest), &sum) in of.iter_mut().zip(&sums) {
                if self.log {
                    logarithms(s, x, y, n, largest, sum);
                } else {
                    scale_row(s, y, n, s.splat(1.0 / sum));
                }
            }
        }
        of.last().map_or(f32::NEG_INFINITY, |&(_, _, largest)| largest)
    }
}

/// `y = scale·x + mask`.
#[inline(always)]
unsafe fn prepare<S: Simd>(s: S, x: *const f32, y: *mut f32, n: usize, scale: f32, mask: Option<*const f32>) {
    let scale = s.splat(scale);
    let mut i = 0;
    while i < n {
        let lanes = (n - i).min(LANES);
        // SAFETY: the caller's promise; i + lanes ≤ n.
        unsafe {
            let mut v = s.mul(s.load_upto(x.add(i), lanes), scale);
            if let Some(m) = mask {
                v = s.add(v, s.load_upto(m.add(i), lanes));
            }
            s.store_upto(y.add(i), lanes, v);
        }
        i += lanes;
    }
}

/// The sum of `e^(x − shift)`, 0 where that is denormal; to `y`, too, if `STORED`. Lanes past the end add nothing. Meanwhile the row `next` is
/// fetched: its largest element is found faster than it could be read from memory.
///
/// # Safety
/// `x` must be readable and, if `STORED`, `y` writable for `n` elements.
#[inline(always)]
unsafe fn exp_row<S: Simd, const STORED: bool>(
    s: S,
    x: *const f32,
    y: *mut f32,
    n: usize,
    shift: f32,
    next: *const f32,
) -> f32 {
    let shift_v = s.splat(shift);
    let mut sum = s.zero();
    let whole = n - n % LANES;
    // SAFETY: the caller's promise.
    unsafe {
        for i in (0..whole).step_by(LANES) {
            s.prefetch_l1(next.wrapping_add(i));
            let e = math::exp_normal(s, s.sub(s.load(x.add(i)), shift_v));
            if STORED {
                s.store(y.add(i), e);
            }
            sum = s.add(sum, e);
        }
        if whole < n {
            let lanes = n - whole;
            let e = math::exp_normal(s, s.sub(s.load_n(x.add(whole), lanes), shift_v));
            if STORED {
                s.store_upto(y.add(whole), lanes, e);
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
unsafe fn logarithms<S: Simd>(s: S, x: *const f32, y: *mut f32, n: usize, largest: f32, sum: f32) {
    let (largest, log) = (s.splat(largest), math::log(s, s.splat(sum)));
    let whole = n - n % LANES;
    // SAFETY: the caller's promise.
    unsafe {
        for i in (0..whole).step_by(LANES) {
            s.store(y.add(i), s.sub(s.sub(s.load(x.add(i)), largest), log));
        }
        if whole < n {
            let lanes = n - whole;
            let v = s.sub(s.sub(s.load_n(x.add(whole), lanes), largest), log);
            s.store_upto(y.add(whole), lanes, v);
        }
    }
}

/// Computes the rows. A row whose elements are all −∞ becomes NaN, as the formula says. Gives the largest element of the
/// last row, after scale and mask; NaN if one is NaN.
///
/// # Safety
/// `x` must be readable and `y` writable for `rows · columns` elements, the mask readable for its rows.
/// `y` may be `x`, and must not overlap anything otherwise.
pub unsafe fn softmax(isa: Isa, rows: &Softmax) -> f32 {
    isa.run(*rows)
}

/// The softmax of each row of `columns` elements; what does not fill a row at the end is left.
pub fn softmax_in_place(isa: Isa, x: &mut [f32], columns: usize) {
    let rows = x.len().checked_div(columns).unwrap_or(0);
    let y = x.as_mut_ptr();
    // SAFETY: the rows are within the slice.
    unsafe { softmax(isa, &Softmax { x: y, y, rows, columns, scale: 1.0, mask: None, log: false }) };
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
