//! The plain matmul of every other element type: any strides, no packing.

use half::{bf16, f16};

/// An element type that matrices are multiplied in.
pub trait Element: Copy {
    /// What sums are kept in.
    type Sum: Copy;
    /// The sum of nothing.
    const ZERO: Self::Sum;
    /// The sum of one element.
    fn start(x: Self) -> Self::Sum;
    /// `sum + a · b`; integers wrap.
    fn mul_add(sum: Self::Sum, a: Self, b: Self) -> Self::Sum;
    /// The sum as an element.
    fn finish(sum: Self::Sum) -> Self;
}

macro_rules! integers {
    ($($t:ty)*) => {$(
        impl Element for $t {
            type Sum = $t;
            const ZERO: $t = 0;
            #[inline(always)]
            fn start(x: $t) -> $t {
                x
            }
            #[inline(always)]
            fn mul_add(sum: $t, a: $t, b: $t) -> $t {
                sum.wrapping_add(a.wrapping_mul(b))
            }
            #[inline(always)]
            fn finish(sum: $t) -> $t {
                sum
            }
        }
    )*};
}
integers!(i8 u8 i16 u16 i32 u32 i64 u64);

macro_rules! floats {
    ($($t:ty: $sum:ty, $widen:expr, $narrow:expr;)*) => {$(
        impl Element for $t {
            type Sum = $sum;
            const ZERO: $sum = 0.0;
            #[inline(always)]
            fn start(x: $t) -> $sum {
                $widen(x)
            }
            #[inline(always)]
            fn mul_add(sum: $sum, a: $t, b: $t) -> $sum {
                sum + $widen(a) * $widen(b)
            }
            #[inline(always)]
            fn finish(sum: $sum) -> $t {
                $narrow(sum)
            }
        }
    )*};
}
floats! {
    f32: f32, f32::from, f32::from;
    f64: f64, f64::from, f64::from;
    f16: f32, f16::to_f32, f16::from_f32;
    bf16: f32, bf16::to_f32, bf16::from_f32;
}

/// A matrix by its first element and strides (in elements).
#[derive(Debug, Clone, Copy)]
pub struct StridedMatrix<T> {
    /// Element (0, 0).
    pub ptr: *const T,
    /// Elements from one row to the next.
    pub row_stride: isize,
    /// Elements from one column to the next.
    pub col_stride: isize,
}

impl<T: Copy> StridedMatrix<T> {
    #[inline(always)]
    unsafe fn get(&self, i: usize, j: usize) -> T {
        let at = i as isize * self.row_stride + j as isize * self.col_stride;
        // SAFETY: the caller promises that the element is there.
        unsafe { *self.ptr.wrapping_offset(at) }
    }
}

/// `C[i, j] = Σₖ A[i, k] · B[k, j]` for the rows `rows` of C (row-major, `c_stride` elements a row).
///
/// Each element is one chain in ascending k; rows are independent, so any split over threads gives the same.
///
/// # Safety
/// Both operands must be readable for `rows.end`×`k` and `k`×`n` elements and C writable for those rows;
/// C must not overlap them.
pub unsafe fn generic_gemm<T: Element>(
    rows: std::ops::Range<usize>,
    n: usize,
    k: usize,
    a: StridedMatrix<T>,
    b: StridedMatrix<T>,
    c: *mut T,
    c_stride: usize,
) {
    /// Columns whose sums are kept at once, so that B is read along its rows.
    const WIDTH: usize = 32;
    for i in rows {
        for j0 in (0..n).step_by(WIDTH) {
            let width = WIDTH.min(n - j0);
            let mut sums = [T::ZERO; WIDTH];
            // SAFETY: the caller's promises; i, p and j0 + j are in range.
            unsafe {
                for p in 0..k {
                    let x = a.get(i, p);
                    for (j, sum) in sums[..width].iter_mut().enumerate() {
                        *sum = T::mul_add(*sum, x, b.get(p, j0 + j));
                    }
                }
                for (j, &sum) in sums[..width].iter().enumerate() {
                    *c.add(i * c_stride + j0 + j) = T::finish(sum);
                }
            }
        }
    }
}
