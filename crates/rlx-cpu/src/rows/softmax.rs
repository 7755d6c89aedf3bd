//! Softmax of contiguous rows, with scale and additive mask, and of columns side by side.

use super::reduce::{STRETCH, fill, max_of};
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

impl Kernel for Softmax {
    type Output = f32;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let n = self.columns;
        let mut largest = f32::NEG_INFINITY;
        for r in 0..self.rows {
            // SAFETY: `softmax` was promised the rows and masks.
            unsafe {
                let (x, y) = (self.x.add(r * n), self.y.add(r * n));
                let plain = self.scale == 1.0 && self.mask.is_none();
                let src = if plain {
                    x
                } else {
                    prepare(s, x, y, n, self.scale, self.mask.map(|(p, stride)| p.add(r * stride)));
                    y.cast_const()
                };
                largest = max_of(s, src, n);
                if self.log { log_row(s, src, y, n, largest) } else { row(s, src, y, n, largest) }
            }
        }
        largest
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

/// `y = e^(x − shift)`, 0 where that is denormal, and the sum of it; lanes past the end add nothing.
#[inline(always)]
unsafe fn exp_row<S: Simd>(s: S, x: *const f32, y: Option<*mut f32>, n: usize, shift: f32) -> f32 {
    let shift_v = s.splat(shift);
    let mut sum = s.zero();
    let mut i = 0;
    while i < n {
        let lanes = (n - i).min(LANES);
        // SAFETY: the caller's promise; i + lanes ≤ n.
        unsafe {
            let mut e = math::exp_normal(s, s.sub(s.load_upto(x.add(i), lanes), shift_v));
            if let Some(y) = y {
                s.store_upto(y.add(i), lanes, e);
            }
            if lanes < LANES {
                e = fill(s, e, lanes, 0.0);
            }
            sum = s.add(sum, e);
        }
        i += lanes;
    }
    s.sum(sum)
}

#[inline(always)]
unsafe fn row<S: Simd>(s: S, x: *const f32, y: *mut f32, n: usize, max: f32) {
    // SAFETY: the caller's promise.
    unsafe {
        let sum = exp_row(s, x, Some(y), n, max);
        let factor = s.splat(1.0 / sum);
        let mut i = 0;
        while i < n {
            let lanes = (n - i).min(LANES);
            s.store_upto(y.add(i), lanes, s.mul(s.load_upto(y.add(i), lanes), factor));
            i += lanes;
        }
    }
}

#[inline(always)]
unsafe fn log_row<S: Simd>(s: S, x: *const f32, y: *mut f32, n: usize, max: f32) {
    // SAFETY: the caller's promise.
    unsafe {
        let sum = exp_row(s, x, None, n, max);
        let (max, log) = (s.splat(max), math::log(s, s.splat(sum)));
        let mut i = 0;
        while i < n {
            let lanes = (n - i).min(LANES);
            let v = s.sub(s.sub(s.load_upto(x.add(i), lanes), max), log);
            s.store_upto(y.add(i), lanes, v);
            i += lanes;
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
