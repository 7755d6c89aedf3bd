//! Softmax of rows that are shorter than a vector: one in each lane, a column in each vector. Each row has the bits that it has alone.

use super::softmax::{Softmax, softmax};
use crate::gemm::Packed;
use crate::isa::{Isa, Kernel};
use crate::math;
use crate::simd::{LANES, Simd};

/// The longest row for which it is worth the way into lanes and back.
const LONGEST: usize = 12;

/// Some rows, as many as fill vectors: `y = softmax(x)`, or its logarithm.
struct Short<T> {
    x: *const T,
    y: *mut T,
    rows: usize,
    columns: usize,
    log: bool,
}

impl<T: Packed> Kernel for Short<T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let n = self.columns;
        let mut columns = [[0.0f32; LANES]; LONGEST];
        for first in (0..self.rows).step_by(LANES) {
            let (x, y) = (self.x.wrapping_add(first * n), self.y.wrapping_add(first * n));
            for (c, column) in columns[..n].iter_mut().enumerate() {
                for (r, value) in column.iter_mut().enumerate() {
                    // SAFETY: `softmax_rows` was promised the rows; row r of these has n elements.
                    *value = unsafe { *x.add(r * n + c) }.widen();
                }
            }
            softmax_of_columns(s, &mut columns[..n], self.log);
            for (c, column) in columns[..n].iter().enumerate() {
                let mut narrow = [T::zero(); LANES];
                // SAFETY: there is room for a vector.
                unsafe { T::store(s, narrow.as_mut_ptr(), LANES, s.from_array(column)) };
                for (r, value) in narrow.into_iter().enumerate() {
                    // SAFETY: as above.
                    unsafe { *y.add(r * n + c) = value };
                }
            }
        }
    }
}

/// The softmax of each lane of at most [`LONGEST`] columns.
#[inline(always)]
fn softmax_of_columns<S: Simd>(s: S, columns: &mut [[f32; LANES]], log: bool) {
    let n = columns.len();
    let (mut x, mut e) = ([s.zero(); LONGEST], [s.zero(); LONGEST]);
    let mut largest = s.splat(f32::NEG_INFINITY);
    for (x, column) in x.iter_mut().zip(&*columns) {
        *x = s.from_array(column);
        largest = s.max(*x, largest);
    }
    for (e, x) in e[..n].iter_mut().zip(&x) {
        *e = math::exp_normal(s, s.sub(*x, largest));
    }
    let sum = sum_as_lanes(s, e, n);
    let (factor, total) = (s.div(s.splat(1.0), sum), math::log(s, sum));
    for (i, column) in columns.iter_mut().enumerate() {
        let y = if log { s.sub(s.sub(x[i], largest), total) } else { s.mul(e[i], factor) };
        *column = s.to_array(y);
    }
}

/// The sum of the first `n` vectors in the order in which [`Simd::sum`] adds lanes up.
#[inline(always)]
fn sum_as_lanes<S: Simd>(s: S, mut x: [S::F; LONGEST], n: usize) -> S::F {
    let mut left = n;
    for half in [8, 4, 2, 1] {
        for i in half..left {
            x[i - half] = s.add(x[i - half], x[i]);
        }
        left = left.min(half);
    }
    x[0]
}

/// The softmax of rows, or its logarithm: short ones side by side, with the bits that [`softmax`] gives them.
///
/// # Safety
/// As of [`softmax`].
pub unsafe fn softmax_rows<T: Packed>(isa: Isa, of: &Softmax<T>) {
    let Softmax { x, y, rows, columns, log, .. } = *of;
    let side_by_side = if (1..=LONGEST).contains(&columns) { rows / LANES * LANES } else { 0 };
    if side_by_side > 0 {
        T::run(isa, Short { x, y, rows: side_by_side, columns, log });
    }
    let at = side_by_side * columns;
    // SAFETY: the caller's promise: these are the rows that are left.
    unsafe { softmax(isa, &Softmax { x: x.add(at), y: y.add(at), rows: rows - side_by_side, ..*of }) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rng;

    /// Of rows side by side and of each alone, `narrow` being the type's.
    fn check<T: Packed>(narrow: fn(f32) -> T) {
        let mut rng = Rng::new(61);
        for isa in Isa::available() {
            for columns in 1..=LONGEST + 1 {
                let rows = 2 * LANES + 3;
                let mut x = rng.vec(rows * columns);
                x[columns] = f32::NAN;
                x[2 * columns..3 * columns].fill(f32::NEG_INFINITY);
                x[4 * columns - 1] = f32::INFINITY;
                x[5 * columns] = -0.0;
                x[6 * columns] = 200.0;
                let x: Vec<T> = x.into_iter().map(narrow).collect();
                let mut held = vec![0.0; Softmax::<T>::held(columns)];
                let held = (size_of::<T>() < 4).then_some(held.as_mut_ptr());
                for log in [false, true] {
                    let (mut got, mut want) = (x.clone(), x.clone());
                    // SAFETY: the vectors hold all rows.
                    unsafe {
                        for y in want.chunks_exact_mut(columns).map(|row| row.as_mut_ptr()) {
                            softmax(isa, &Softmax { x: y, y, rows: 1, columns, log, held });
                        }
                        let y = got.as_mut_ptr();
                        softmax_rows(isa, &Softmax { x: y, y, rows, columns, log, held });
                    }
                    for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                        let (got, want) = (got.widen(), want.widen());
                        let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                        assert!(same, "{isa} {columns} log {log}: {got} for {want} at {i}");
                    }
                }
            }
        }
    }

    #[test]
    fn rows_side_by_side_have_the_bits_of_rows_alone() {
        check::<f32>(|x| x);
        check(half::f16::from_f32);
        check(half::bf16::from_f32);
    }
}
