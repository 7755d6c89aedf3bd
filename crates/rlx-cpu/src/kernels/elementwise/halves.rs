//! 16-bit floats to and from their f32 registers, in vectors.

use half::{bf16, f16};
use rlx_ir::DType;

use crate::gemm::Packed;
use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd};

/// What is done between a 16-bit float and f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conversion {
    /// Reads 16-bit floats as f32.
    Widen,
    /// Stores f32 as 16-bit floats.
    Narrow,
    /// Rounds f32 to what the 16-bit float can hold.
    Round,
}

/// Converts `n` elements between f32 and the 16-bit float `half`; other types are left alone.
///
/// # Safety
/// `from` must be readable and `to` writable for `n` elements of the types that the conversion names; they may
/// be the same memory when both are f32, and must not overlap otherwise.
pub(crate) unsafe fn convert(
    isa: Isa,
    conversion: Conversion,
    half: DType,
    from: *const u8,
    to: *mut u8,
    n: usize,
) {
    match half {
        DType::BF16 => {
            bf16::run(isa, Convert::<bf16> { conversion, from, to, n, half: std::marker::PhantomData })
        }
        DType::F16 => {
            f16::run(isa, Convert::<f16> { conversion, from, to, n, half: std::marker::PhantomData })
        }
        _ => {}
    }
}

/// Reads `n` elements that are `stride` apart as f32; f32 is copied.
///
/// # Safety
/// The elements must be readable and `to` writable for `n`.
pub(crate) unsafe fn widen_strided(
    isa: Isa,
    dtype: DType,
    from: *const u8,
    stride: isize,
    to: *mut f32,
    n: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match dtype {
            DType::F16 | DType::BF16 if stride == 1 => {
                convert(isa, Conversion::Widen, dtype, from, to.cast(), n);
            }
            DType::F16 => each(from.cast::<f16>(), stride, to, n),
            DType::BF16 => each(from.cast::<bf16>(), stride, to, n),
            _ => each(from.cast::<f32>(), stride, to, n),
        }
    }
}

/// # Safety
/// As [`widen_strided`].
unsafe fn each<T: Packed>(from: *const T, stride: isize, to: *mut f32, n: usize) {
    for i in 0..n {
        // SAFETY: the caller's promise.
        unsafe { *to.add(i) = (*from.wrapping_offset(i as isize * stride)).widen() };
    }
}

struct Convert<T> {
    conversion: Conversion,
    from: *const u8,
    to: *mut u8,
    n: usize,
    half: std::marker::PhantomData<T>,
}

impl<T: Packed> Kernel for Convert<T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (long, long_out) = (self.from.cast::<f32>(), self.to.cast::<f32>());
        let (short, short_out) = (self.from.cast::<T>(), self.to.cast::<T>());
        // Which conversion it is, is asked once. (Loops: a closure would be a function without the instruction set.)
        macro_rules! each {
            (|$i:ident, $n:ident| $e:expr) => {{
                let (whole, mut at) = (self.n - self.n % LANES, 0);
                while at < whole {
                    let ($i, $n) = (at, LANES);
                    $e;
                    at += LANES;
                }
                if whole < self.n {
                    let ($i, $n) = (whole, self.n - whole);
                    $e;
                }
            }};
        }
        // SAFETY: `convert` was promised the memory; i + n ≤ self.n.
        unsafe {
            match self.conversion {
                Conversion::Widen => {
                    each!(|i, n| s.store_upto(long_out.add(i), n, T::load(s, short.add(i), n)))
                }
                Conversion::Narrow => {
                    each!(|i, n| T::store(s, short_out.add(i), n, s.load_upto(long.add(i), n)))
                }
                Conversion::Round => each!(|i, n| {
                    s.store_upto(long_out.add(i), n, T::round(s, s.load_upto(long.add(i), n)))
                }),
            }
        }
    }
}
