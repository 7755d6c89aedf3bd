//! Softmax of contiguous rows.

use super::reduce::{fill, max_of};
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
