//! Softmax of columns side by side, as along the channels of an NCHW image.
//!
//! Three passes over some neighbouring columns: the largest element of each, the exponentials and their sums, the quotients. Lines may be
//! whole pages apart, so each pass reads long runs of every line ([`CHUNK`]), and what it has found so far of each column is in the
//! first-level cache. Nothing foresees where a line goes on: it is fetched ahead.
//!
//! Of narrow lines, which follow each other in memory, a few vectors of columns are computed at a time, in registers.

use std::mem::MaybeUninit;

use super::reduce_columns::STRETCH;
use crate::isa::{Isa, Kernel};
use crate::math;
use crate::simd::{LANES, Simd};

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
}

/// The most columns that are computed together.
const CHUNK: usize = 1024;

/// Lines of fewer elements are narrow.
const NARROW: usize = 128;

/// Vectors of columns of narrow lines that are computed side by side.
const WIDE: usize = 4;

/// Lines whose largest elements are found side by side.
const BESIDE: usize = 4;

impl Kernel for SoftmaxColumns {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut first = 0;
        while first < self.columns {
            let left = self.columns - first;
            // SAFETY: `softmax_columns` was promised the elements.
            first += unsafe {
                if self.step >= NARROW && left >= LANES {
                    self.chunk(s, first, left.min(CHUNK) / LANES * LANES)
                } else if left >= WIDE * LANES {
                    self.block::<S, WIDE>(s, first, LANES)
                } else {
                    self.block::<S, 1>(s, first, left.min(LANES))
                }
            };
        }
    }
}

/// What is known of each column of a chunk, a number for each.
#[derive(Clone, Copy)]
struct Known {
    largest: *mut f32,
    /// The sum of the exponentials of a stretch of lines.
    sum: *mut f32,
    /// The sum of all, then [`SoftmaxColumns::joined`] of it.
    total: *mut f32,
}

impl SoftmaxColumns {
    /// How many columns of lines that are `step` elements apart are best computed together.
    pub(crate) fn together(step: usize) -> usize {
        if step < NARROW { WIDE * LANES } else { CHUNK }
    }

    /// `width` columns from `first` on, whole vectors and at most [`CHUNK`]; gives their number.
    ///
    /// # Safety
    /// The elements must be readable in `x` and writable in `y`.
    #[inline(always)]
    unsafe fn chunk<S: Simd>(&self, s: S, first: usize, width: usize) -> usize {
        let mut room = MaybeUninit::<[[f32; CHUNK]; 3]>::uninit();
        let room: *mut f32 = room.as_mut_ptr().cast();
        let [largest, sum, total] = [0, 1, 2].map(|i| room.wrapping_add(i * CHUNK));
        let of = Known { largest, sum, total };
        // SAFETY: the caller's promise; there is room for the columns, and each pass writes what the next one reads.
        unsafe {
            self.largest(s, of, first, width);
            self.exponentials(s, of, first, width);
            for v in (0..width).step_by(LANES) {
                let sum = s.load(total.add(v));
                s.store(total.add(v), self.joined(s, sum));
            }
            self.results(s, of, first, width);
        }
        width
    }

    /// What exponentials are multiplied by, or what is subtracted from their logarithms, by their sum.
    #[inline(always)]
    fn joined<S: Simd>(&self, s: S, sum: S::F) -> S::F {
        if self.log { math::log(s, sum) } else { s.div(s.splat(1.0), sum) }
    }

    /// The largest element of each column.
    ///
    /// # Safety
    /// As [`SoftmaxColumns::chunk`]; there must be room for `width` columns in `of`.
    #[inline(always)]
    unsafe fn largest<S: Simd>(&self, s: S, of: Known, first: usize, width: usize) {
        for line in (0..self.lines).step_by(BESIDE) {
            let count = BESIDE.min(self.lines - line);
            let x = self.x.wrapping_add(line * self.step + first);
            for v in (0..width).step_by(LANES) {
                // SAFETY: the caller's promise.
                unsafe {
                    let start = s.splat(f32::NEG_INFINITY);
                    let mut largest = if line == 0 { start } else { s.load(of.largest.add(v)) };
                    for l in 0..BESIDE {
                        if l == count {
                            break;
                        }
                        let x = x.add(l * self.step + v);
                        s.prefetch_l1(x.wrapping_add(BESIDE * self.step));
                        largest = s.max(s.load(x), largest);
                    }
                    s.store(of.largest.add(v), largest);
                }
            }
        }
    }

    /// `e^(x − largest)`, 0 where that is denormal, to the result unless its logarithm is wanted; and the sums, in stretches of lines, so
    /// that those of many stay exact.
    ///
    /// # Safety
    /// As [`SoftmaxColumns::largest`], which must have been called.
    #[inline(always)]
    unsafe fn exponentials<S: Simd>(&self, s: S, of: Known, first: usize, width: usize) {
        for start in (0..self.lines).step_by(STRETCH) {
            for line in start..self.lines.min(start + STRETCH) {
                let at = line * self.step + first;
                let (x, y) = (self.x.wrapping_add(at), self.y.wrapping_add(at));
                for v in (0..width).step_by(LANES) {
                    // SAFETY: the caller's promise.
                    unsafe {
                        let (x, y) = (x.add(v), y.add(v));
                        s.prefetch_l1(x.wrapping_add(self.step));
                        let e = math::exp_normal(s, s.sub(s.load(x), s.load(of.largest.add(v))));
                        if !self.log {
                            s.prefetch_l1(y.wrapping_add(self.step).cast_const());
                            s.store(y, e);
                        }
                        let before = if line == start { s.zero() } else { s.load(of.sum.add(v)) };
                        s.store(of.sum.add(v), s.add(before, e));
                    }
                }
            }
            for v in (0..width).step_by(LANES) {
                // SAFETY: there is room for the columns.
                unsafe {
                    let before = if start == 0 { s.zero() } else { s.load(of.total.add(v)) };
                    s.store(of.total.add(v), s.add(before, s.load(of.sum.add(v))));
                }
            }
        }
    }

    /// The results, by [`SoftmaxColumns::joined`] of each column.
    ///
    /// # Safety
    /// As [`SoftmaxColumns::exponentials`], which must have been called.
    #[inline(always)]
    unsafe fn results<S: Simd>(&self, s: S, of: Known, first: usize, width: usize) {
        for line in 0..self.lines {
            let at = line * self.step + first;
            let (x, y) = (self.x.wrapping_add(at), self.y.wrapping_add(at));
            for v in (0..width).step_by(LANES) {
                // SAFETY: the caller's promise.
                unsafe {
                    let (x, y, by) = (x.add(v), y.add(v), s.load(of.total.add(v)));
                    s.prefetch_l1(y.wrapping_add(2 * self.step).cast_const());
                    let result = if self.log {
                        s.prefetch_l1(x.wrapping_add(2 * self.step));
                        s.sub(s.sub(s.load(x), s.load(of.largest.add(v))), by)
                    } else {
                        s.mul(s.load(y), by)
                    };
                    s.store(y, result);
                }
            }
        }
    }

    /// As [`SoftmaxColumns::chunk`], to the bit, of V vectors of columns in place, of which one has `lanes`.
    ///
    /// # Safety
    /// The elements must be readable in `x` and writable in `y`.
    #[inline(always)]
    unsafe fn block<S: Simd, const V: usize>(&self, s: S, first: usize, lanes: usize) -> usize {
        let at = |line: usize, v: usize| line * self.step + first + v * LANES;
        let mut largest = [s.splat(f32::NEG_INFINITY); V];
        let mut total = [s.zero(); V];
        // SAFETY: the caller's promise.
        unsafe {
            for line in 0..self.lines {
                for (v, largest) in largest.iter_mut().enumerate() {
                    *largest = s.max(s.load_upto(self.x.add(at(line, v)), lanes), *largest);
                }
            }
            for start in (0..self.lines).step_by(STRETCH) {
                let mut sum = [s.zero(); V];
                for line in start..self.lines.min(start + STRETCH) {
                    for v in 0..V {
                        let x = s.load_upto(self.x.add(at(line, v)), lanes);
                        let e = math::exp_normal(s, s.sub(x, largest[v]));
                        if !self.log {
                            s.store_upto(self.y.add(at(line, v)), lanes, e);
                        }
                        sum[v] = s.add(sum[v], e);
                    }
                }
                for v in 0..V {
                    total[v] = s.add(total[v], sum[v]);
                }
            }
            for total in &mut total {
                *total = self.joined(s, *total);
            }
            for line in 0..self.lines {
                for v in 0..V {
                    let y = self.y.add(at(line, v));
                    let result = if self.log {
                        s.sub(s.sub(s.load_upto(self.x.add(at(line, v)), lanes), largest[v]), total[v])
                    } else {
                        s.mul(s.load_upto(y, lanes), total[v])
                    };
                    s.store_upto(y, lanes, result);
                }
            }
        }
        if V == 1 { lanes } else { V * LANES }
    }
}

/// Computes the columns. A column whose elements are all −∞ becomes NaN, as the formula says. The bits of a column do not depend on
/// the others.
///
/// # Safety
/// `x` must be readable and `y` writable for the elements. `y` may be `x`, and must not overlap it otherwise.
pub unsafe fn softmax_columns(isa: Isa, columns: &SoftmaxColumns) {
    isa.run(*columns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rng, assert_close};

    /// Each column of `x` by the formula, in f64.
    fn by_formula(x: &[f32], lines: usize, step: usize, columns: usize, log: bool) -> Vec<f64> {
        let mut y = vec![0.0; lines * columns];
        for column in 0..columns {
            let at = |line: usize| f64::from(x[line * step + column]);
            let largest = (0..lines).map(at).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = (0..lines).map(|line| (at(line) - largest).exp()).sum();
            for line in 0..lines {
                let e = at(line) - largest;
                y[line * columns + column] = if log { e - sum.ln() } else { e.exp() / sum };
            }
        }
        y
    }

    #[test]
    fn columns_of_all_widths_are_right_and_have_the_bits_that_they_have_alone() {
        let mut rng = Rng::new(62);
        let narrow = [(1, 8), (3, 20), (130, 64), (300, 100)];
        let wide = [(1, 130), (2, 128), (5, 2100), (131, 1030), (300, 200)];
        for (lines, columns) in narrow.into_iter().chain(wide) {
            let step = columns + 3;
            let x = rng.vec(lines * step);
            for (log, isa) in [false, true]
                .into_iter()
                .flat_map(|log| Isa::available().into_iter().map(move |isa| (log, isa)))
            {
                // In place, so what is between the columns must stay.
                let (mut all, mut alone) = (x.clone(), x.clone());
                let y = all.as_mut_ptr();
                let of = SoftmaxColumns { x: y, y, step, lines, columns, log };
                // SAFETY: the vectors hold all lines.
                unsafe {
                    softmax_columns(isa, &of);
                    for column in 0..columns {
                        let y = alone.as_mut_ptr().add(column);
                        softmax_columns(isa, &SoftmaxColumns { x: y, y, columns: 1, ..of });
                    }
                }
                assert_eq!(all, alone, "{lines}×{columns}, log {log}, {isa}");
                let got: Vec<f32> = all.chunks(step).flat_map(|line| line[..columns].to_vec()).collect();
                assert_close(&got, &by_formula(&x, lines, step, columns, log), 1e-5, "softmax of columns");
            }
        }
    }

    #[test]
    fn a_nan_or_nothing_allowed_makes_its_column_nan() {
        for columns in [20, 200] {
            let mut x = vec![1.0f32; 9 * columns];
            x[4 * columns + 2] = f32::NAN;
            (0..9).for_each(|line| x[line * columns + 5] = f32::NEG_INFINITY);
            x[7 * columns + 6] = f32::NEG_INFINITY;
            for isa in Isa::available() {
                let mut y = vec![0.0; x.len()];
                let of = SoftmaxColumns {
                    x: x.as_ptr(),
                    y: y.as_mut_ptr(),
                    step: columns,
                    lines: 9,
                    columns,
                    log: false,
                };
                // SAFETY: the vectors hold all lines.
                unsafe { softmax_columns(isa, &of) };
                for (i, y) in y.into_iter().enumerate() {
                    match (i / columns, i % columns) {
                        (_, 2 | 5) => assert!(y.is_nan(), "{isa}: {y} at {i}"),
                        (7, 6) => assert_eq!(y, 0.0, "{isa}"),
                        (_, 6) => assert_eq!(y, 0.125, "{isa}"),
                        _ => assert!((y - 1.0 / 9.0).abs() < 1e-6, "{isa}: {y} at {i}"),
                    }
                }
            }
        }
    }
}
