//! Layer, group and root-mean-square normalisation of contiguous rows.

use super::reduce::{Term, sum_of};
use crate::gemm::Packed;
use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd};

/// Some rows: `y = (x − mean) / √(variance + ε) · γ + β`, or without the mean. 16-bit floats are widened as they are read and rounded once, as
/// they are written.
#[derive(Debug, Clone, Copy)]
pub struct Norm<T = f32> {
    /// The first row.
    pub x: *const T,
    /// The first row of the result; may be `x`.
    pub y: *mut T,
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

/// Rows whose moments are computed together: each waits for its own sums, lane by lane, and meanwhile a processor computes the others.
const TOGETHER: usize = 4;

/// Bytes of the rows of a call (a thread's) from which on those behind are fetched while these are written: fewer stay in a last-level cache together with the result, from which they are
/// read fast enough.
const FETCHED: usize = 8 << 20;

/// The longest rows that are fetched: the second-level cache holds as many as are computed together, and what is written meanwhile.
const FETCHED_ROW: usize = 64 << 10;

impl<T: Packed> Kernel for Norm<T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let row = self.columns * size_of::<T>();
        // SAFETY: `normalize` was promised the rows.
        unsafe {
            if row <= FETCHED_ROW && row * self.rows >= FETCHED {
                self.all::<S, true>(s);
            } else {
                self.all::<S, false>(s);
            }
        }
    }
}

impl<T: Packed> Norm<T> {
    /// Computes the rows, and fetches those behind meanwhile, if it `FETCHES`.
    ///
    /// # Safety
    /// As [`normalize`].
    #[inline(always)]
    unsafe fn all<S: Simd, const FETCHES: bool>(&self, s: S) {
        let n = self.columns;
        for first in (0..self.rows).step_by(TOGETHER) {
            let count = TOGETHER.min(self.rows - first);
            let (x, y) = (self.x.wrapping_add(first * n), self.y.wrapping_add(first * n));
            let mut moments = [(0.0, 0.0); TOGETHER];
            // SAFETY: the caller's promise.
            unsafe {
                if self.centred {
                    for (r, (mean, _)) in moments[..count].iter_mut().enumerate() {
                        *mean = mean_of(s, x.add(r * n), n);
                    }
                }
                for (r, (mean, factor)) in moments[..count].iter_mut().enumerate() {
                    *factor = factor_of(s, x.add(r * n), n, *mean, self.epsilon);
                }
                for (r, &of_row) in moments[..count].iter().enumerate() {
                    scale_row::<S, T, FETCHES>(s, self, x.add(r * n), y.add(r * n), of_row);
                }
            }
        }
    }
}

/// The mean of a row.
///
/// # Safety
/// `x` must be readable for `n` elements.
#[inline(always)]
unsafe fn mean_of<S: Simd, T: Packed>(s: S, x: *const T, n: usize) -> f32 {
    // SAFETY: the caller's promise.
    unsafe { sum_of(s, x, n, Term::Value, 0.0) / n as f32 }
}

/// One over the deviation of a row from its mean. This is a pass of its own: the difference of large sums would lose the variance of a far-off row.
///
/// # Safety
/// As [`mean_of`].
#[inline(always)]
unsafe fn factor_of<S: Simd, T: Packed>(s: S, x: *const T, n: usize, mean: f32, epsilon: f32) -> f32 {
    // SAFETY: the caller's promise.
    let variance = unsafe { sum_of(s, x, n, Term::Square, mean) } / n as f32;
    1.0 / (variance + epsilon).sqrt()
}

/// Writes a row with its mean taken off, scaled and shifted; meanwhile the row is fetched that comes as many behind as are computed together, if it `FETCHES`.
///
/// # Safety
/// `x` must be readable and `y` writable for the row, `norm`'s scale and shift readable.
#[inline(always)]
unsafe fn scale_row<S: Simd, T: Packed, const FETCHES: bool>(
    s: S,
    norm: &Norm<T>,
    x: *const T,
    y: *mut T,
    (mean, factor): (f32, f32),
) {
    let (mean, factor) = (s.splat(mean), s.splat(factor));
    let n = norm.columns;
    let mut i = 0;
    while i < n {
        let lanes = (n - i).min(LANES);
        if FETCHES {
            s.prefetch_l2(x.wrapping_add(TOGETHER * n + i).cast());
        }
        // SAFETY: the caller's promise; i + lanes ≤ n.
        unsafe {
            let mut v = s.mul(s.sub(T::load(s, x.add(i), lanes), mean), factor);
            if let Some(g) = norm.gamma {
                v = s.mul(v, s.load_upto(g.add(i), lanes));
            }
            if let Some(b) = norm.beta {
                v = s.add(v, s.load_upto(b.add(i), lanes));
            }
            T::store(s, y.add(i), lanes, v);
        }
        i += lanes;
    }
}

/// Computes the rows.
///
/// # Safety
/// `x` must be readable and `y` writable for `rows · columns` elements, `gamma` and `beta` readable for `columns`. `y` may be `x`, and must not
/// overlap anything otherwise.
pub unsafe fn normalize<T: Packed>(isa: Isa, rows: &Norm<T>) {
    T::run(isa, *rows);
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
                let mean = mean_of(s, x, n);
                let (factor, mean) = (factor_of(s, x, n, mean, self.epsilon), s.splat(mean));
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
