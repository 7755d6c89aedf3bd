//! Softmax of contiguous rows, with scale and additive mask.

use super::reduce::{fill, max_of};
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
