//! Layer, group and root-mean-square normalisation of contiguous rows.

use super::reduce::{Term, sum_of};
use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd};

/// Some rows: `y = (x − mean) / √(variance + ε) · γ + β`, or without the mean.
#[derive(Debug, Clone, Copy)]
pub struct Norm {
    /// The first row.
    pub x: *const f32,
    /// A matrix of the same shape added to `x` first; the sum is what is normalised.
    pub residual: Option<*const f32>,
    /// Where the sum of `x` and `residual` is kept, if anyone needs it.
    pub sum: Option<*mut f32>,
    /// The first row of the result; may be `x`.
    pub y: *mut f32,
    /// Rows; each follows the one before.
    pub rows: usize,
    /// Elements of a row.
    pub columns: usize,
    /// Added to the variance.
    pub epsilon: f32,
    /// The factor of each column.
    pub gamma: Option<*const f32>,
    /// What is added to each column.
    pub beta: Option<*const f32>,
    /// Whether the mean is subtracted (layer norm) or not (RMS norm).
    pub centred: bool,
}

impl Kernel for Norm {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let n = self.columns;
        for r in 0..self.rows {
            // SAFETY: `normalize` was promised the rows.
            unsafe {
                let (mut x, y) = (self.x.add(r * n), self.y.add(r * n));
                if let Some(other) = self.residual {
                    let sum = self.sum.map_or(y, |p| p.add(r * n));
                    add_rows(s, x, other.add(r * n), sum, n);
                    x = sum;
                }
                let (mean, factor) = moments(s, x, n, self.centred, self.epsilon);
                scale_row(s, &self, x, y, mean, factor);
            }
        }
    }
}

/// The mean of a row, or 0, and one over its deviation.
///
/// # Safety
/// `x` must be readable for `n` elements.
#[inline(always)]
unsafe fn moments<S: Simd>(s: S, x: *const f32, n: usize, centred: bool, epsilon: f32) -> (f32, f32) {
    // SAFETY: the caller's promise.
    unsafe {
        let mean = if centred { sum_of(s, x, n, Term::Value, 0.0) / n as f32 } else { 0.0 };
        // Two passes: the difference of large sums would lose the variance of a far-off row.
        let variance = sum_of(s, x, n, Term::Square, mean) / n as f32;
        (mean, 1.0 / (variance + epsilon).sqrt())
    }
}

#[inline(always)]
unsafe fn add_rows<S: Simd>(s: S, a: *const f32, b: *const f32, out: *mut f32, n: usize) {
    let mut i = 0;
    while i < n {
        let lanes = (n - i).min(LANES);
        // SAFETY: the caller's promise; i + lanes ≤ n.
        unsafe {
            let sum = s.add(s.load_upto(a.add(i), lanes), s.load_upto(b.add(i), lanes));
            s.store_upto(out.add(i), lanes, sum);
        }
        i += lanes;
    }
}

#[inline(always)]
unsafe fn scale_row<S: Simd>(s: S, norm: &Norm, x: *const f32, y: *mut f32, mean: f32, factor: f32) {
    let (mean, factor) = (s.splat(mean), s.splat(factor));
    let n = norm.columns;
    let mut i = 0;
    while i < n {
        let lanes = (n - i).min(LANES);
        // SAFETY: the caller's promise; i + lanes ≤ n.
        unsafe {
            let mut v = s.mul(s.sub(s.load_upto(x.add(i), lanes), mean), factor);
            if let Some(g) = norm.gamma {
                v = s.mul(v, s.load_upto(g.add(i), lanes));
            }
            if let Some(b) = norm.beta {
                v = s.add(v, s.load_upto(b.add(i), lanes));
            }
            s.store_upto(y.add(i), lanes, v);
        }
        i += lanes;
    }
}

/// Computes the rows.
///
/// # Safety
/// `x` and the residual must be readable, `y` and `sum` writable for `rows · columns` elements, `gamma` and
/// `beta` readable for `columns`. `y` and `sum` may each be `x` or the residual, and must not overlap
/// anything otherwise.
pub unsafe fn normalize(isa: Isa, rows: &Norm) {
    isa.run(*rows);
}

/// Some rows that are groups of channels: `y = (x − mean) / √(variance + ε) · γ + β`, with a γ and a β for each channel.
#[derive(Debug, Clone, Copy)]
pub struct GroupNorm {
    /// The first row.
    pub x: *const f32,
    /// The first row of the result; may be `x`.
    pub y: *mut f32,
    /// The number of the first row: it is of group `first` modulo `groups`.
    pub first: usize,
    /// Rows; each follows the one before.
    pub rows: usize,
    /// Groups of an image.
    pub groups: usize,
    /// Channels of a group.
    pub channels: usize,
    /// Elements of a channel.
    pub inner: usize,
    /// Added to the variance.
    pub epsilon: f32,
    /// The factor of each channel of an image.
    pub gamma: *const f32,
    /// What is added to each channel of an image.
    pub beta: *const f32,
}

impl Kernel for GroupNorm {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let n = self.channels * self.inner;
        for r in 0..self.rows {
            let group = (self.first + r) % self.groups;
            // SAFETY: `normalize_groups` was promised the rows and the numbers of each channel.
            unsafe {
                let (x, y) = (self.x.add(r * n), self.y.add(r * n));
                let (mean, factor) = moments(s, x, n, true, self.epsilon);
                let mean = s.splat(mean);
                for c in 0..self.channels {
                    let channel = group * self.channels + c;
                    let scale = s.splat(factor * *self.gamma.add(channel));
                    let shift = s.splat(*self.beta.add(channel));
                    let (x, y) = (x.add(c * self.inner), y.add(c * self.inner));
                    for i in (0..self.inner).step_by(LANES) {
                        let lanes = (self.inner - i).min(LANES);
                        let centred = s.sub(s.load_upto(x.add(i), lanes), mean);
                        s.store_upto(y.add(i), lanes, s.mul_add(centred, scale, shift));
                    }
                }
            }
        }
    }
}

/// Computes the rows.
///
/// # Safety
/// `x` must be readable and `y` writable for `rows · channels · inner` elements, `gamma` and `beta` readable for `groups · channels`. `y` may
/// be `x`, and must not overlap anything otherwise.
pub unsafe fn normalize_groups(isa: Isa, rows: &GroupNorm) {
    isa.run(*rows);
}
