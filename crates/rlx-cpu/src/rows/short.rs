//! Softmax of rows that are shorter than a vector: one in each lane, a column in each vector. Each row has the bits that it has alone.

use super::softmax::{Softmax, softmax};
use crate::isa::{Isa, Kernel};
use crate::math;
use crate::simd::{LANES, Simd};

/// The longest row for which it is worth the way into lanes and back.
const LONGEST: usize = 12;

/// Some rows, as many as fill vectors: `y = softmax(x)`, or its logarithm.
struct Short {
    x: *const f32,
    y: *mut f32,
    rows: usize,
    columns: usize,
    log: bool,
}

impl Kernel for Short {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let n = self.columns;
        let mut columns = [[0.0f32; LANES]; LONGEST];
        for first in (0..self.rows).step_by(LANES) {
            // SAFETY: `softmax_rows` was promised the rows.
            let (x, y) = unsafe {
                let elements = LANES * n;
                let x = std::slice::from_raw_parts(self.x.add(first * n), elements);
                (x.as_ptr(), self.y.add(first * n))
            };
            for (c, column) in columns[..n].iter_mut().enumerate() {
                for (r, value) in column.iter_mut().enumerate() {
                    // SAFETY: as above; row r of these has n elements.
                    *value = unsafe { *x.add(r * n + c) };
                }
            }
            softmax_of_columns(s, &mut columns[..n], self.log);
            for (c, column) in columns[..n].iter().enumerate() {
                for (r, value) in column.iter().enumerate() {
                    // SAFETY: as above.
                    unsafe { *y.add(r * n + c) = *value };
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
/// `x` must be readable and `y` writable for `rows · columns` elements. `y` may be `x`, and must not overlap it otherwise.
pub unsafe fn softmax_rows(isa: Isa, x: *const f32, y: *mut f32, rows: usize, columns: usize, log: bool) {
    let side_by_side = if (1..=LONGEST).contains(&columns) { rows / LANES * LANES } else { 0 };
    if side_by_side > 0 {
        isa.run(Short { x, y, rows: side_by_side, columns, log });
    }
    let at = side_by_side * columns;
    // SAFETY: the caller's promise: these are the rows that are left.
    unsafe {
        let (x, y, rows) = (x.add(at), y.add(at), rows - side_by_side);
        softmax(isa, &Softmax { x, y, rows, columns, scale: 1.0, mask: None, log });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rng;

    #[test]
    fn rows_side_by_side_have_the_bits_of_rows_alone() {
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
                for log in [false, true] {
                    let (mut got, mut want) = (x.clone(), vec![0.0; x.len()]);
                    // SAFETY: the vectors hold all rows.
                    unsafe {
                        let (x, y) = (x.as_ptr(), want.as_mut_ptr());
                        for r in 0..rows {
                            let (x, y) = (x.add(r * columns), y.add(r * columns));
                            softmax(isa, &Softmax { x, y, rows: 1, columns, scale: 1.0, mask: None, log });
                        }
                        softmax_rows(isa, got.as_ptr(), got.as_mut_ptr(), rows, columns, log);
                    }
                    for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                        let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                        assert!(same, "{isa} {columns} log {log}: {got} for {want} at {i}");
                    }
                }
            }
        }
    }
}
