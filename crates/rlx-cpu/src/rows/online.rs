//! Softmax of rows that come in pieces, whose weighted sums are known before a row ends (Milakov and Gimelshein 2018, "Online normalizer
//! calculation for softmax"; Dao et al. 2022, "FlashAttention").
//!
//! Weights of a piece are relative to the largest score so far, `e^(s − largest)`. Where a later piece has a larger one, what was summed
//! with the earlier weights is scaled to it; at the end the sums are divided by the sum of all weights.

use super::reduce::{max_of, scale_row};
use crate::gemm::Packed;
use crate::isa::{Isa, Kernel};
use crate::math;
use crate::simd::{LANES, Simd};

/// What is known of a row before its next piece.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct RowState {
    /// The largest score, scaled; −∞ of none, NaN if any was NaN.
    pub largest: f32,
    /// The sum of the weights.
    pub total: f32,
}

impl RowState {
    /// Of no score.
    pub const EMPTY: RowState = RowState { largest: f32::NEG_INFINITY, total: 0.0 };
}

/// The next piece of some rows.
#[derive(Debug, Clone, Copy)]
pub struct Piece {
    /// The scores. Their weights are written over them, as elements of `T` from the beginning of each row on.
    pub scores: *mut f32,
    /// Elements from one row of scores to the next.
    pub stride: usize,
    /// Rows.
    pub rows: usize,
    /// Scores of a row.
    pub columns: usize,
    /// How many of them the first row sees; of fewer than none it sees none. Weights of others are 0.
    pub seen: isize,
    /// How many more each next row sees.
    pub grows: isize,
    /// A factor of the scores, above 0.
    pub scale: f32,
    /// What is known of each row.
    pub states: *mut RowState,
    /// What was summed with the weights of earlier pieces, `width` elements of each row.
    pub sums: *mut f32,
    /// Elements of a row of sums.
    pub width: usize,
}

struct Weigh<T> {
    piece: Piece,
    element: std::marker::PhantomData<T>,
}

impl<T: Packed> Kernel for Weigh<T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let p = self.piece;
        let seen =
            |row: usize| p.seen.saturating_add(row as isize * p.grows).clamp(0, p.columns as isize) as usize;
        // SAFETY: `weigh` was promised the rows, their states and sums.
        unsafe {
            // The largest scores of all rows first: none of them waits for another's.
            for row in 0..p.rows {
                let scores = p.scores.wrapping_add(row * p.stride);
                let state = &mut *p.states.wrapping_add(row);
                let largest = larger(state.largest, max_of(s, scores, seen(row)) * p.scale);
                if largest.to_bits() != state.largest.to_bits() {
                    let factor = math::exp_normal(s, s.splat(state.largest - largest));
                    scale_row(s, p.sums.wrapping_add(row * p.width), p.width, factor);
                    *state = RowState { largest, total: state.total * s.to_array(factor)[0] };
                }
            }
            for row in 0..p.rows {
                let scores = p.scores.wrapping_add(row * p.stride);
                let (weights, seen) = (scores.cast::<T>(), seen(row));
                let state = &mut *p.states.wrapping_add(row);
                if state.largest == f32::NEG_INFINITY {
                    fill_zeros(s, weights, 0, p.columns);
                    continue;
                }
                state.total += weights_of(s, scores, weights, seen, p.scale, state.largest);
                fill_zeros(s, weights, seen, p.columns);
            }
        }
    }
}

/// The larger of two; NaN if either is NaN.
#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a.is_nan() || a > b { a } else { b }
}

/// `weights = e^(scale · scores − largest)`, rounded, and the sum of them before they are rounded. Where they are rounded to 16 bits, the
/// exponential has as many.
///
/// # Safety
/// There must be `n` scores, and room for as many weights, which may begin where the scores do.
#[inline(always)]
unsafe fn weights_of<S: Simd, T: Packed>(
    s: S,
    scores: *const f32,
    weights: *mut T,
    n: usize,
    scale: f32,
    largest: f32,
) -> f32 {
    let (scale, shift) = (s.splat(scale), s.splat(-largest));
    let mut sum = s.zero();
    let whole = n / LANES * LANES;
    // SAFETY: the caller's promise. A vector of weights ends before the scores that are read after it begin.
    unsafe {
        for i in (0..whole).step_by(LANES) {
            let e = exponential::<S, T>(s, s.mul_add(s.load(scores.add(i)), scale, shift));
            T::store_sum(s, weights.add(i), LANES, e);
            sum = s.add(sum, e);
        }
        if whole < n {
            let lanes = n - whole;
            let e = exponential::<S, T>(s, s.mul_add(s.load_n(scores.add(whole), lanes), scale, shift));
            T::store_sum(s, weights.add(whole), lanes, e);
            sum = s.add(sum, super::reduce::fill(s, e, lanes, 0.0));
        }
    }
    s.sum(sum)
}

/// eˣ as exactly as `T` can hold it, 0 where that is a denormal f32.
#[inline(always)]
fn exponential<S: Simd, T: Packed>(s: S, x: S::F) -> S::F {
    if const { size_of::<T>() == 2 } { math::exp_short(s, x) } else { math::exp_normal(s, x) }
}

/// Makes the elements from `from` on zeros.
///
/// # Safety
/// The elements up to `to` must be writable.
#[inline(always)]
unsafe fn fill_zeros<S: Simd, T: Packed>(s: S, x: *mut T, from: usize, to: usize) {
    for i in (from..to).step_by(LANES) {
        // SAFETY: the caller's promise.
        unsafe { T::store(s, x.add(i), LANES.min(to - i), s.zero()) };
    }
}

/// Turns the scores of a piece into weights of `T`, and scales what was summed before to them.
///
/// # Safety
/// Scores must be readable and writable for all rows and columns, states for all rows, and sums for `width` elements of each row.
pub unsafe fn weigh<T: Packed>(isa: Isa, piece: Piece) {
    T::run(isa, Weigh::<T> { piece, element: std::marker::PhantomData });
}

/// Rows of sums whose last piece is there.
#[derive(Debug, Clone, Copy)]
pub struct Sums<T> {
    /// What was summed with the weights, `width` elements of each row.
    pub sums: *const f32,
    /// Elements of a row.
    pub width: usize,
    /// What is known of each row.
    pub states: *const RowState,
    /// Rows.
    pub rows: usize,
    /// What a row gives whose scores are all −∞.
    pub unseen: f32,
    /// Whether a row gives 0 where a score is NaN, or +∞.
    pub guard: bool,
    /// The result, and how far apart its rows are.
    pub y: *mut T,
    /// Elements from one row of the result to the next.
    pub stride: isize,
}

impl<T: Packed> Kernel for Sums<T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for row in 0..self.rows {
            // SAFETY: `divide` was promised the rows.
            unsafe {
                let state = *self.states.add(row);
                let from = self.sums.add(row * self.width);
                let to = self.y.wrapping_offset(row as isize * self.stride);
                let fixed = if state.largest == f32::NEG_INFINITY {
                    Some(self.unseen)
                } else if self.guard && state.total.is_nan() {
                    Some(0.0)
                } else {
                    None
                };
                let factor = s.splat(1.0 / state.total);
                for i in (0..self.width).step_by(LANES) {
                    let lanes = LANES.min(self.width - i);
                    let y = match fixed {
                        Some(y) => s.splat(y),
                        None => s.mul(s.load_upto(from.add(i), lanes), factor),
                    };
                    T::store(s, to.add(i), lanes, y);
                }
            }
        }
    }
}

/// Divides each row of sums by the sum of its weights.
///
/// # Safety
/// Sums and states must be readable and the result writable for all rows.
pub unsafe fn divide<T: Packed>(isa: Isa, sums: Sums<T>) {
    T::run(isa, sums);
}
