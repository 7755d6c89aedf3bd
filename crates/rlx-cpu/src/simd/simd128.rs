//! Sixteen lanes as four registers of WebAssembly's SIMD.
//!
//! A module is compiled for it as a whole or not at all, since an engine without it rejects the module, so there is nothing to detect: the
//! build says whether it is there (`-C target-feature=+simd128`). There is no fused multiply-add; relaxed SIMD has one
//! whose bits depend on the processor.

use std::arch::wasm32::*;

use rlx_math::Lanes;

use super::{Kernel, LANES, Simd};

/// The proof that `simd128` may be used: it exists only in builds for it.
#[derive(Debug, Clone, Copy)]
pub struct Simd128(());

/// Runs a kernel compiled for `simd128`.
#[inline(never)]
pub(crate) fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Simd128(()))
}

/// Four registers: of f32, of i32, or of masks with all bits of a lane set or none.
type V = [v128; 4];

/// Writes each listed method as the same instructions on all four registers.
macro_rules! quarters {
    ($($name:ident($($a:ident),*) = $e:expr;)*) => {
        $(#[inline(always)]
        fn $name(self, $($a: V),*) -> V {
            [
                { $(let $a = $a[0];)* $e },
                { $(let $a = $a[1];)* $e },
                { $(let $a = $a[2];)* $e },
                { $(let $a = $a[3];)* $e },
            ]
        })*
    };
}

impl Lanes for Simd128 {
    type F = V;
    type I = V;
    type M = V;
    const FUSED: bool = false;

    quarters! {
        add(a, b) = f32x4_add(a, b);
        sub(a, b) = f32x4_sub(a, b);
        mul(a, b) = f32x4_mul(a, b);
        div(a, b) = f32x4_div(a, b);
        mul_add(a, b, c) = f32x4_add(f32x4_mul(a, b), c);
        neg_mul_add(a, b, c) = f32x4_sub(c, f32x4_mul(a, b));
        sqrt(a) = f32x4_sqrt(a);
        // The pseudo-minimum is `second < first ? second : first`.
        min_raw(a, b) = f32x4_pmin(b, a);
        max_raw(a, b) = f32x4_pmax(b, a);
        min(a, b) = f32x4_min(a, b);
        max(a, b) = f32x4_max(a, b);
        round(a) = f32x4_nearest(a);
        floor(a) = f32x4_floor(a);
        ceil(a) = f32x4_ceil(a);
        trunc(a) = f32x4_trunc(a);
        lt(a, b) = f32x4_lt(a, b);
        le(a, b) = f32x4_le(a, b);
        eq(a, b) = f32x4_eq(a, b);
        select(m, a, b) = v128_bitselect(a, b, m);
        mask_and(a, b) = v128_and(a, b);
        mask_or(a, b) = v128_or(a, b);
        mask_not(a) = v128_not(a);
        to_int(a) = i32x4_trunc_sat_f32x4(a);
        from_int(a) = f32x4_convert_i32x4(a);
        bits(a) = a;
        from_bits(a) = a;
        add_i(a, b) = i32x4_add(a, b);
        sub_i(a, b) = i32x4_sub(a, b);
        and_i(a, b) = v128_and(a, b);
        or_i(a, b) = v128_or(a, b);
        xor_i(a, b) = v128_xor(a, b);
        eq_i(a, b) = i32x4_eq(a, b);
        // Two factors reach every exponent without overflowing on the way; only the last rounds.
        scale2(a, n) = {
            let n = i32x4_trunc_sat_f32x4(n);
            let half = i32x4_shr(n, 1);
            let bias = i32x4_splat(127);
            let f1 = i32x4_shl(i32x4_add(half, bias), 23);
            let f2 = i32x4_shl(i32x4_add(i32x4_sub(n, half), bias), 23);
            f32x4_mul(f32x4_mul(a, f1), f2)
        };
    }

    #[inline(always)]
    fn splat(self, x: f32) -> V {
        [f32x4_splat(x); 4]
    }
    #[inline(always)]
    fn splat_i(self, x: i32) -> V {
        [i32x4_splat(x); 4]
    }
    #[inline(always)]
    fn shl_i<const N: i32>(self, a: V) -> V {
        a.map(|x| i32x4_shl(x, N as u32))
    }
    #[inline(always)]
    fn shr_i<const N: i32>(self, a: V) -> V {
        a.map(|x| i32x4_shr(x, N as u32))
    }
    #[inline(always)]
    fn by_scalar_code(self, fast: V, x: V, f: fn(f32) -> f32) -> Option<V> {
        super::by_scalar_code(self, fast, x, f)
    }
}

/// Copies `n ≤ 16` elements to the front of sixteen, the others are zero.
///
/// # Safety
/// `p` must be readable for `n` elements.
#[inline(always)]
unsafe fn padded<T: Copy + Default>(p: *const T, n: usize) -> [T; LANES] {
    let mut out = [T::default(); LANES];
    // SAFETY: the caller's promise; the array has sixteen elements.
    unsafe { std::ptr::copy_nonoverlapping(p, out.as_mut_ptr(), n.min(LANES)) };
    out
}

impl Simd for Simd128 {
    // Three rows are twelve registers of sums: engines on x86-64 have sixteen.
    const GEMM_ROWS: usize = 3;
    const GEMM_VECS: usize = 1;

    #[inline(always)]
    fn enter<K: Kernel>(self, kernel: K) -> K::Output {
        run(kernel)
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> V {
        let p = p.cast::<v128>();
        // SAFETY: the caller promises sixteen readable elements; these loads need no alignment.
        unsafe { [v128_load(p), v128_load(p.add(1)), v128_load(p.add(2)), v128_load(p.add(3))] }
    }
    #[inline(always)]
    unsafe fn load_n(self, p: *const f32, n: usize) -> V {
        // SAFETY: the caller promises `n ≤ 16` readable elements.
        unsafe { self.load(padded(p, n).as_ptr()) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, x: V) {
        let p = p.cast::<v128>();
        // SAFETY: the caller promises sixteen writable elements; these stores need no alignment.
        unsafe {
            v128_store(p, x[0]);
            v128_store(p.add(1), x[1]);
            v128_store(p.add(2), x[2]);
            v128_store(p.add(3), x[3]);
        }
    }
    #[inline(always)]
    unsafe fn store_n(self, p: *mut f32, n: usize, x: V) {
        let lanes = self.to_array(x);
        // SAFETY: the caller promises `n ≤ 16` writable elements.
        unsafe { std::ptr::copy_nonoverlapping(lanes.as_ptr(), p, n) }
    }

    quarters! {
        mul_i(a, b) = i32x4_mul(a, b);
        max_i(a, b) = i32x4_max(a, b);
        min_i(a, b) = i32x4_min(a, b);
        // Even and odd bytes as 16 bits, whose products are summed in pairs without saturating.
        dot_bytes(acc, a, b) = {
            let (a_even, a_odd) = (v128_and(a, i16x8_splat(0xff)), u16x8_shr(a, 8));
            let (b_even, b_odd) = (i16x8_shr(i16x8_shl(b, 8), 8), i16x8_shr(b, 8));
            let even = i32x4_add(acc, i32x4_dot_i16x8(a_even, b_even));
            i32x4_add(even, i32x4_dot_i16x8(a_odd, b_odd))
        };
    }

    #[inline(always)]
    fn zip(self, a: V, b: V) -> (V, V) {
        let low = |q: usize| i32x4_shuffle::<0, 4, 1, 5>(a[q], b[q]);
        let high = |q: usize| i32x4_shuffle::<2, 6, 3, 7>(a[q], b[q]);
        ([low(0), high(0), low(1), high(1)], [low(2), high(2), low(3), high(3)])
    }
    #[inline(always)]
    fn reverse(self, a: V) -> V {
        [a[3], a[2], a[1], a[0]].map(|q| i32x4_shuffle::<3, 2, 1, 0>(q, q))
    }
    #[inline(always)]
    fn permute(self, a: V, from: V) -> V {
        // A lane's number of eight as those of its four bytes; a byte that a register does not have is 0.
        let part = |low: usize, q: usize| {
            let lane = v128_and(from[q], i32x4_splat(7));
            let bytes = i32x4_add(i32x4_mul(lane, i32x4_splat(0x0404_0404)), i32x4_splat(0x0302_0100));
            let high = u8x16_sub(bytes, u8x16_splat(16));
            v128_or(u8x16_swizzle(a[low], bytes), u8x16_swizzle(a[low + 1], high))
        };
        [part(0, 0), part(0, 1), part(2, 2), part(2, 3)]
    }
    #[inline(always)]
    fn mask_bits(self, a: V) -> u16 {
        let bits = a.map(|q| u16::from(i32x4_bitmask(q)));
        bits[0] | bits[1] << 4 | bits[2] << 8 | bits[3] << 12
    }
    #[inline(always)]
    fn to_array(self, a: V) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        // SAFETY: the array has sixteen elements.
        unsafe { self.store(out.as_mut_ptr(), a) };
        out
    }
    #[inline(always)]
    fn sum(self, a: V) -> f32 {
        let q = f32x4_add(f32x4_add(a[0], a[2]), f32x4_add(a[1], a[3]));
        let d = f32x4_add(q, i32x4_shuffle::<2, 3, 0, 1>(q, q));
        f32x4_extract_lane::<0>(d) + f32x4_extract_lane::<1>(d)
    }
    /// WebAssembly has no prefetch.
    #[inline(always)]
    fn prefetch_l1(self, _: *const f32) {}
    #[inline(always)]
    fn prefetch_l2(self, _: *const f32) {}

    #[inline(always)]
    unsafe fn load_u16(self, p: *const u16, n: usize) -> V {
        // SAFETY: the caller promises `n ≤ 16` readable elements.
        unsafe {
            let lanes = padded(p, n);
            let (a, b) = (v128_load(lanes.as_ptr().cast()), v128_load(lanes.as_ptr().add(8).cast()));
            [
                u32x4_extend_low_u16x8(a),
                u32x4_extend_high_u16x8(a),
                u32x4_extend_low_u16x8(b),
                u32x4_extend_high_u16x8(b),
            ]
        }
    }
    #[inline(always)]
    unsafe fn load_bytes<const SIGNED: bool>(self, p: *const u8, n: usize) -> V {
        // SAFETY: the caller promises `n ≤ 16` readable bytes.
        let bytes = unsafe { v128_load(padded(p, n).as_ptr().cast()) };
        if SIGNED {
            let (a, b) = (i16x8_extend_low_i8x16(bytes), i16x8_extend_high_i8x16(bytes));
            [
                i32x4_extend_low_i16x8(a),
                i32x4_extend_high_i16x8(a),
                i32x4_extend_low_i16x8(b),
                i32x4_extend_high_i16x8(b),
            ]
        } else {
            let (a, b) = (u16x8_extend_low_u8x16(bytes), u16x8_extend_high_u8x16(bytes));
            [
                u32x4_extend_low_u16x8(a),
                u32x4_extend_high_u16x8(a),
                u32x4_extend_low_u16x8(b),
                u32x4_extend_high_u16x8(b),
            ]
        }
    }
}
