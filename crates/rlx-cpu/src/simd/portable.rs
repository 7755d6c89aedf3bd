//! Sixteen lanes as plain arrays: runs everywhere, and the reference for the other instruction sets.

use rlx_math::Lanes;

use super::{Kernel, LANES, Simd};

/// The proof needed for plain Rust: none.
#[derive(Debug, Clone, Copy)]
pub struct Portable;

/// Runs a kernel in plain Rust.
#[inline(never)]
pub(crate) fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Portable)
}

/// Writes each listed method as a loop over the lanes.
macro_rules! lanewise {
    (#[$inline:meta] $($name:ident($($a:ident: $t:ty),+) -> $r:ty = $e:expr;)*) => {
        $(#[$inline]
        fn $name(self, $($a: $t),+) -> [$r; LANES] {
            let mut out = [<$r>::default(); LANES];
            for i in 0..LANES {
                $(let $a = $a[i];)+
                out[i] = $e;
            }
            out
        })*
    };
}

type F = [f32; LANES];
type I = [i32; LANES];
type M = [bool; LANES];

impl Lanes for Portable {
    type F = F;
    type I = I;
    type M = M;
    const FUSED: bool = false;

    lanewise! {
        #[inline(always)]
        add(a: F, b: F) -> f32 = a + b;
        sub(a: F, b: F) -> f32 = a - b;
        mul(a: F, b: F) -> f32 = a * b;
        mul_add(a: F, b: F, c: F) -> f32 = a * b + c;
        neg_mul_add(a: F, b: F, c: F) -> f32 = c - a * b;
    }

    // Calls, because sixteen branches each would make kernels enormous to compile.
    lanewise! {
        #[inline(never)]
        div(a: F, b: F) -> f32 = a / b;
        sqrt(a: F) -> f32 = a.sqrt();
        min_raw(a: F, b: F) -> f32 = if a < b { a } else { b };
        max_raw(a: F, b: F) -> f32 = if a > b { a } else { b };
        round(a: F) -> f32 = a.round_ties_even();
        floor(a: F) -> f32 = a.floor();
        ceil(a: F) -> f32 = a.ceil();
        trunc(a: F) -> f32 = a.trunc();
        lt(a: F, b: F) -> bool = a < b;
        le(a: F, b: F) -> bool = a <= b;
        eq(a: F, b: F) -> bool = a == b;
        select(m: M, a: F, b: F) -> f32 = if m { a } else { b };
        mask_and(a: M, b: M) -> bool = a & b;
        mask_or(a: M, b: M) -> bool = a | b;
        mask_not(a: M) -> bool = !a;
        to_int(a: F) -> i32 = a as i32;
        from_int(a: I) -> f32 = a as f32;
        bits(a: F) -> i32 = a.to_bits() as i32;
        from_bits(a: I) -> f32 = f32::from_bits(a as u32);
        add_i(a: I, b: I) -> i32 = a.wrapping_add(b);
        sub_i(a: I, b: I) -> i32 = a.wrapping_sub(b);
        and_i(a: I, b: I) -> i32 = a & b;
        or_i(a: I, b: I) -> i32 = a | b;
        xor_i(a: I, b: I) -> i32 = a ^ b;
        eq_i(a: I, b: I) -> bool = a == b;
        // Two factors reach every exponent without overflowing on the way; only the last rounds.
        scale2(a: F, n: F) -> f32 = {
            let n = n as i32;
            let half = n >> 1;
            a * pow2(half) * pow2(n - half)
        };
    }

    #[inline(always)]
    fn splat(self, x: f32) -> F {
        [x; LANES]
    }
    #[inline(always)]
    fn splat_i(self, x: i32) -> I {
        [x; LANES]
    }
    #[inline(always)]
    fn shl_i<const N: i32>(self, a: I) -> I {
        a.map(|x| x << N)
    }
    #[inline(always)]
    fn shr_i<const N: i32>(self, a: I) -> I {
        a.map(|x| x >> N)
    }
    #[inline(always)]
    fn by_scalar_code(self, fast: Self::M, x: Self::F, f: fn(f32) -> f32) -> Option<Self::F> {
        super::by_scalar_code(self, fast, x, f)
    }
}

impl Simd for Portable {
    const GEMM_ROWS: usize = 2;
    const GEMM_VECS: usize = 1;

    #[inline(always)]
    fn enter<K: Kernel>(self, kernel: K) -> K::Output {
        run(kernel)
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> F {
        // SAFETY: the caller promises sixteen readable elements; no alignment is assumed beyond f32's.
        unsafe { p.cast::<F>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn load_n(self, p: *const f32, n: usize) -> F {
        let mut out = [0.0; LANES];
        // SAFETY: the caller promises `n ≤ 16` readable elements.
        unsafe { std::ptr::copy_nonoverlapping(p, out.as_mut_ptr(), n) };
        out
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, x: F) {
        // SAFETY: the caller promises sixteen writable elements.
        unsafe { p.cast::<F>().write_unaligned(x) }
    }
    #[inline(always)]
    unsafe fn store_n(self, p: *mut f32, n: usize, x: F) {
        // SAFETY: the caller promises `n ≤ 16` writable elements.
        unsafe { std::ptr::copy_nonoverlapping(x.as_ptr(), p, n) }
    }

    #[inline(always)]
    fn mask_bits(self, a: M) -> u16 {
        a.iter().rev().fold(0, |acc, &b| (acc << 1) | u16::from(b))
    }
    #[inline(always)]
    fn to_array(self, a: F) -> F {
        a
    }
    #[inline(always)]
    fn zip(self, a: F, b: F) -> (F, F) {
        let half = |from: usize| {
            let mut out = [0.0; LANES];
            for i in 0..LANES / 2 {
                (out[2 * i], out[2 * i + 1]) = (a[from + i], b[from + i]);
            }
            out
        };
        (half(0), half(LANES / 2))
    }
    #[inline(always)]
    fn sum(self, a: F) -> f32 {
        super::fold_tree(a, |x, y| x + y)
    }
    #[inline(always)]
    fn prefetch_l1(self, _: *const f32) {}
    #[inline(always)]
    fn prefetch_l2(self, _: *const f32) {}
}

/// `2ⁿ` for −126 ≤ n ≤ 127.
#[inline(always)]
fn pow2(n: i32) -> f32 {
    f32::from_bits(((n + 127) << 23) as u32)
}
