//! Functions of one and two floats in vectors: of f32, and of 16-bit floats, which are widened as they are read and rounded as
//! they are written.

use rlx_ir::DType;

use super::chain::{self, Link};
use super::instr::Source;
use crate::gemm::Packed;
use crate::isa::{Isa, Kernel};
use crate::kernels::packed_type;
use crate::math::{self, Unary};
use crate::simd::{LANES, Simd};

/// Functions of two floats that have vector code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
    Pow,
}

/// `out[i] = f(x[i])` of f32 or 16-bit floats; other types are left alone.
///
/// # Safety
/// `x` must be readable and `out` writable for `n` elements of the type; they may be the same, but must not overlap otherwise.
pub(super) unsafe fn unary(isa: Isa, f: Unary, dtype: DType, x: *const u8, out: *mut u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { packed_type!(dtype, T => math::apply(isa, f, x.cast::<T>(), out.cast::<T>(), n), _ => {}) }
}

/// `out[i] = op(a[i], b[i])` of f32 or 16-bit floats; other types are left alone.
///
/// # Safety
/// The sources must be readable for `n` elements of the type (1 where they step by 0) and `out` writable for `n`; `out` may be a
/// source, but must not overlap one otherwise.
pub(super) unsafe fn binary(
    isa: Isa,
    op: Binary,
    dtype: DType,
    a: Source,
    b: Source,
    out: *mut u8,
    n: usize,
) {
    if op == Binary::Pow {
        packed_type!(dtype, T => T::run(isa, Pow { a, b, out: out.cast::<T>(), n }), _ => {});
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { chain::run(isa, &[Link::Binary(op)], dtype, &[a, b], out, n) }
}

struct Pow<T> {
    a: Source,
    b: Source,
    out: *mut T,
    n: usize,
}

impl<T: Packed> Kernel for Pow<T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Source { ptr: a, step: a_step } = self.a;
        let Source { ptr: b, step: b_step } = self.b;
        let (a, b) = (a.cast::<T>(), b.cast::<T>());
        let mut i = 0;
        while i < self.n {
            let n = (self.n - i).min(LANES);
            // SAFETY: `binary` was promised the memory; i + n ≤ self.n.
            unsafe {
                let x = if a_step == 0 { T::splat(s, a) } else { T::load(s, a.add(i), n) };
                let y = if b_step == 0 { T::splat(s, b) } else { T::load(s, b.add(i), n) };
                T::store(s, self.out.add(i), n, math::pow(s, x, y));
            }
            i += n;
        }
    }
}
