//! Sixteen lanes as two AVX2 registers.

use std::arch::x86_64::*;

use rlx_math::Lanes;

use super::{Kernel, LANES, Simd};

/// The proof that AVX2, FMA and F16C may be used.
#[derive(Debug, Clone, Copy)]
pub struct Avx2(());

/// Runs a kernel compiled for AVX2, FMA and F16C.
///
/// # Safety
/// The processor must have AVX2, FMA and F16C.
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx2(()))
}

/// Two registers: lanes 0–7 and 8–15.
#[derive(Clone, Copy)]
pub struct Pair<T>(T, T);

type F = Pair<__m256>;
type I = Pair<__m256i>;

/// Writes each listed method as the same intrinsics on both halves.
macro_rules! halves {
    ($($name:ident($($a:ident: $t:ty),*) -> $r:ty = $e:expr;)*) => {
        $(#[inline(always)]
        fn $name(self, $($a: $t),*) -> $r {
            // SAFETY: `self` exists only where the processor has the features; no memory is touched.
            unsafe {
                let lo = { $(let $a = $a.0;)* $e };
                let hi = { $(let $a = $a.1;)* $e };
                Pair(lo, hi)
            }
        })*
    };
}

const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
const DOWN: i32 = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
const UP: i32 = _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC;
const ZERO: i32 = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;

/// A window of eight starting at `16 − n` selects the first `n` of eight lanes.
static WINDOW: [i32; 24] =
    [-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

/// Masks that select the first `n ≤ 16` lanes.
#[inline(always)]
unsafe fn first(n: usize) -> I {
    let (lo, hi) = (n.min(8), n.saturating_sub(8));
    // SAFETY: the window starts at 8 … 16 of 24 elements; the caller has AVX2.
    unsafe {
        let at = |n: usize| WINDOW.as_ptr().add(16 - n).cast::<__m256i>();
        Pair(_mm256_loadu_si256(at(lo)), _mm256_loadu_si256(at(hi)))
    }
}

/// The sum of eight lanes: 4 apart, then 2, then 1.
///
/// # Safety
/// The processor must have AVX.
#[inline(always)]
pub(super) unsafe fn sum8(v: __m256) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        let q = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let d = _mm_add_ps(q, _mm_movehl_ps(q, q));
        _mm_cvtss_f32(_mm_add_ss(d, _mm_shuffle_ps::<1>(d, d)))
    }
}

/// The lanes of both in turn.
///
/// # Safety
/// The processor must have AVX.
#[inline(always)]
unsafe fn zip8(a: __m256, b: __m256) -> F {
    // SAFETY: the caller's promise; no memory is touched.
    unsafe {
        // Each instruction works on both halves of a register on their own.
        let (low, high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
        Pair(_mm256_permute2f128_ps::<0x20>(low, high), _mm256_permute2f128_ps::<0x31>(low, high))
    }
}

/// Every other lane of the sixteen, from the first on and from the second on.
///
/// # Safety
/// The processor must have AVX2.
#[inline(always)]
unsafe fn unzip8(x: F) -> (__m256, __m256) {
    // SAFETY: the caller's promise; no memory is touched.
    unsafe {
        let even = _mm256_shuffle_ps::<0b10_00_10_00>(x.0, x.1);
        let odd = _mm256_shuffle_ps::<0b11_01_11_01>(x.0, x.1);
        // The halves hold two numbers of each operand: 0 0 1 1 becomes 0 1 0 1.
        let in_order = |x| _mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(_mm256_castps_pd(x)));
        (in_order(even), in_order(odd))
    }
}

/// Eight elements, at the places from number `at` on.
///
/// # Safety
/// The processor must have AVX; `places` must be readable there, and `p` at each of them.
#[inline(always)]
pub(super) unsafe fn eight(p: *const f32, places: *const u32, at: usize) -> __m256 {
    // SAFETY: the caller's promise.
    unsafe { _mm256_set_m128(four(p, places, at + 4), four(p, places, at)) }
}

/// Four elements, at the places from number `at` on.
///
/// # Safety
/// `places` must be readable there, and `p` at each of them.
#[inline(always)]
unsafe fn four(p: *const f32, places: *const u32, at: usize) -> __m128 {
    // SAFETY: the caller's promise; SSE2 is always there.
    unsafe {
        let place = |i: usize| p.add(*places.add(at + i) as usize);
        _mm_setr_ps(*place(0), *place(1), *place(2), *place(3))
    }
}

/// Two pairs of neighbours: those at the places number `at` and the next.
///
/// # Safety
/// `places` must be readable there, and `p` for two elements at each of both.
#[inline(always)]
unsafe fn two_pairs(p: *const f32, places: *const u32, at: usize) -> __m128 {
    // SAFETY: the caller's promise; SSE2 is always there.
    unsafe {
        let pair = |i: usize| p.add(*places.add(at + i) as usize).cast::<f64>();
        _mm_castpd_ps(_mm_loadh_pd(_mm_load_sd(pair(0)), pair(1)))
    }
}

/// Four pairs of neighbours: those at the places number `at` and the next, and four further.
///
/// # Safety
/// The processor must have AVX; `places` must be readable there, and `p` for two elements at each of them.
#[inline(always)]
pub(super) unsafe fn four_pairs(p: *const f32, places: *const u32, at: usize) -> __m256 {
    // SAFETY: the caller's promise.
    unsafe { _mm256_set_m128(two_pairs(p, places, at + 4), two_pairs(p, places, at)) }
}

/// Eight pairs of neighbours, from the place number `at` on: their first elements and their second ones.
///
/// # Safety
/// As [`four_pairs`].
#[inline(always)]
unsafe fn eight_pairs(p: *const f32, places: *const u32, at: usize) -> (__m256, __m256) {
    // SAFETY: the caller's promise.
    unsafe {
        // Each half of the registers has four neighbouring pairs, so the instructions, which work on halves, put them in order.
        let (a, b) = (four_pairs(p, places, at), four_pairs(p, places, at + 2));
        (_mm256_shuffle_ps::<0b10_00_10_00>(a, b), _mm256_shuffle_ps::<0b11_01_11_01>(a, b))
    }
}

impl Lanes for Avx2 {
    type F = F;
    type I = I;
    /// All bits of a lane set, or none.
    type M = F;
    const FUSED: bool = true;

    halves! {
        add(a: F, b: F) -> F = _mm256_add_ps(a, b);
        sub(a: F, b: F) -> F = _mm256_sub_ps(a, b);
        mul(a: F, b: F) -> F = _mm256_mul_ps(a, b);
        div(a: F, b: F) -> F = _mm256_div_ps(a, b);
        mul_add(a: F, b: F, c: F) -> F = _mm256_fmadd_ps(a, b, c);
        neg_mul_add(a: F, b: F, c: F) -> F = _mm256_fnmadd_ps(a, b, c);
        sqrt(a: F) -> F = _mm256_sqrt_ps(a);
        min_raw(a: F, b: F) -> F = _mm256_min_ps(a, b);
        max_raw(a: F, b: F) -> F = _mm256_max_ps(a, b);
        round(a: F) -> F = _mm256_round_ps::<NEAREST>(a);
        floor(a: F) -> F = _mm256_round_ps::<DOWN>(a);
        ceil(a: F) -> F = _mm256_round_ps::<UP>(a);
        trunc(a: F) -> F = _mm256_round_ps::<ZERO>(a);
        lt(a: F, b: F) -> F = _mm256_cmp_ps::<_CMP_LT_OQ>(a, b);
        le(a: F, b: F) -> F = _mm256_cmp_ps::<_CMP_LE_OQ>(a, b);
        eq(a: F, b: F) -> F = _mm256_cmp_ps::<_CMP_EQ_OQ>(a, b);
        select(m: F, a: F, b: F) -> F = _mm256_blendv_ps(b, a, m);
        mask_and(a: F, b: F) -> F = _mm256_and_ps(a, b);
        mask_or(a: F, b: F) -> F = _mm256_or_ps(a, b);
        mask_not(a: F) -> F = _mm256_xor_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(-1)));
        to_int(a: F) -> I = _mm256_cvtps_epi32(a);
        from_int(a: I) -> F = _mm256_cvtepi32_ps(a);
        bits(a: F) -> I = _mm256_castps_si256(a);
        from_bits(a: I) -> F = _mm256_castsi256_ps(a);
        add_i(a: I, b: I) -> I = _mm256_add_epi32(a, b);
        sub_i(a: I, b: I) -> I = _mm256_sub_epi32(a, b);
        and_i(a: I, b: I) -> I = _mm256_and_si256(a, b);
        or_i(a: I, b: I) -> I = _mm256_or_si256(a, b);
        xor_i(a: I, b: I) -> I = _mm256_xor_si256(a, b);
        eq_i(a: I, b: I) -> F = _mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b));
        // Two factors reach every exponent without overflowing on the way; only the last rounds.
        scale2(a: F, n: F) -> F = {
            let n = _mm256_cvtps_epi32(n);
            let half = _mm256_srai_epi32::<1>(n);
            let bias = _mm256_set1_epi32(127);
            let f1 = _mm256_slli_epi32::<23>(_mm256_add_epi32(half, bias));
            let f2 = _mm256_slli_epi32::<23>(_mm256_add_epi32(_mm256_sub_epi32(n, half), bias));
            _mm256_mul_ps(_mm256_mul_ps(a, _mm256_castsi256_ps(f1)), _mm256_castsi256_ps(f2))
        };
    }

    #[inline(always)]
    fn splat(self, x: f32) -> F {
        // SAFETY: the token proves the features.
        let v = unsafe { _mm256_set1_ps(x) };
        Pair(v, v)
    }
    #[inline(always)]
    fn splat_i(self, x: i32) -> I {
        // SAFETY: the token proves the features.
        let v = unsafe { _mm256_set1_epi32(x) };
        Pair(v, v)
    }
    #[inline(always)]
    fn shl_i<const N: i32>(self, a: I) -> I {
        // SAFETY: the token proves the features.
        unsafe { Pair(_mm256_slli_epi32::<N>(a.0), _mm256_slli_epi32::<N>(a.1)) }
    }
    #[inline(always)]
    fn shr_i<const N: i32>(self, a: I) -> I {
        // SAFETY: the token proves the features.
        unsafe { Pair(_mm256_srai_epi32::<N>(a.0), _mm256_srai_epi32::<N>(a.1)) }
    }
    #[inline(always)]
    fn by_scalar_code(self, fast: Self::M, x: Self::F, f: fn(f32) -> f32) -> Option<Self::F> {
        super::by_scalar_code(self, fast, x, f)
    }
}

impl Simd for Avx2 {
    const GEMM_ROWS: usize = 6;
    const GEMM_VECS: usize = 1;

    halves! {
        max_i(a: I, b: I) -> I = _mm256_max_epi32(a, b);
        min_i(a: I, b: I) -> I = _mm256_min_epi32(a, b);
    }

    #[inline(always)]
    fn enter<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: `self` exists only where the processor has the features.
        unsafe { run(kernel) }
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> F {
        // SAFETY: the caller promises sixteen readable elements.
        unsafe { Pair(_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))) }
    }
    #[inline(always)]
    unsafe fn load_n(self, p: *const f32, n: usize) -> F {
        // SAFETY: the caller promises `n` readable elements; masked lanes are not touched.
        unsafe {
            let m = first(n);
            Pair(_mm256_maskload_ps(p, m.0), _mm256_maskload_ps(p.wrapping_add(8), m.1))
        }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, x: F) {
        // SAFETY: the caller promises sixteen writable elements.
        unsafe {
            _mm256_storeu_ps(p, x.0);
            _mm256_storeu_ps(p.add(8), x.1);
        }
    }
    #[inline(always)]
    unsafe fn store_non_temporal(self, p: *mut f32, x: F) {
        // SAFETY: the caller promises sixteen writable elements at a multiple of 64 bytes, and to call the fence.
        unsafe {
            _mm256_stream_ps(p, x.0);
            _mm256_stream_ps(p.add(8), x.1);
        }
    }
    #[inline(always)]
    unsafe fn store_n(self, p: *mut f32, n: usize, x: F) {
        // SAFETY: the caller promises `n` writable elements; masked lanes are not touched.
        unsafe {
            let m = first(n);
            _mm256_maskstore_ps(p, m.0, x.0);
            _mm256_maskstore_ps(p.wrapping_add(8), m.1, x.1);
        }
    }

    halves! {
        mul_i(a: I, b: I) -> I = _mm256_mullo_epi32(a, b);
        // Even and odd bytes as 16 bits: products in pairs never saturate there, as they would in 8 by 8.
        dot_bytes(acc: I, a: I, b: I) -> I = {
            let (a_even, a_odd) = (_mm256_and_si256(a, _mm256_set1_epi16(0xff)), _mm256_srli_epi16::<8>(a));
            let b_even = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(b));
            let b_odd = _mm256_srai_epi16::<8>(b);
            let even = _mm256_add_epi32(acc, _mm256_madd_epi16(a_even, b_even));
            _mm256_add_epi32(even, _mm256_madd_epi16(a_odd, b_odd))
        };
    }

    #[inline(always)]
    fn zip(self, a: F, b: F) -> (F, F) {
        // SAFETY: the token proves the features.
        unsafe { (zip8(a.0, b.0), zip8(a.1, b.1)) }
    }
    #[inline(always)]
    fn unzip(self, a: F, b: F) -> (F, F) {
        // SAFETY: the token proves the features.
        let ((a_even, a_odd), (b_even, b_odd)) = unsafe { (unzip8(a), unzip8(b)) };
        (Pair(a_even, b_even), Pair(a_odd, b_odd))
    }
    #[inline(always)]
    fn reverse(self, a: F) -> F {
        // SAFETY: the token proves the features.
        unsafe {
            let from = _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0);
            Pair(_mm256_permutevar8x32_ps(a.1, from), _mm256_permutevar8x32_ps(a.0, from))
        }
    }
    #[inline(always)]
    fn permute(self, a: F, from: I) -> F {
        // SAFETY: the token proves the features. Of a lane's number the instruction takes three bits.
        unsafe { Pair(_mm256_permutevar8x32_ps(a.0, from.0), _mm256_permutevar8x32_ps(a.1, from.1)) }
    }
    #[inline(always)]
    fn mask_bits(self, a: F) -> u16 {
        // SAFETY: the token proves the features.
        unsafe { (_mm256_movemask_ps(a.0) | (_mm256_movemask_ps(a.1) << 8)) as u16 }
    }
    #[inline(always)]
    fn to_array(self, a: F) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        // SAFETY: the array has sixteen elements.
        unsafe { self.store(out.as_mut_ptr(), a) };
        out
    }
    #[inline(always)]
    fn sum(self, a: F) -> f32 {
        // SAFETY: the token proves the features.
        unsafe { sum8(_mm256_add_ps(a.0, a.1)) }
    }
    #[inline(always)]
    unsafe fn pick(self, p: *const f32, places: *const u32) -> F {
        // SAFETY: the caller's promise, and the token proves the features.
        unsafe { Pair(eight(p, places, 0), eight(p, places, 8)) }
    }
    #[inline(always)]
    unsafe fn pick_pairs(self, p: *const f32, places: *const u32) -> (F, F) {
        // SAFETY: the caller's promise, and the token proves the features.
        unsafe {
            let (low, low_next) = eight_pairs(p, places, 0);
            let (high, high_next) = eight_pairs(p, places, 8);
            (Pair(low, high), Pair(low_next, high_next))
        }
    }
    #[inline(always)]
    unsafe fn load_u16(self, p: *const u16, n: usize) -> I {
        let mut tail = [0u16; LANES];
        // SAFETY: the caller promises `n ≤ 16` readable elements.
        unsafe {
            let from = if n == LANES {
                p
            } else {
                std::ptr::copy_nonoverlapping(p, tail.as_mut_ptr(), n);
                tail.as_ptr()
            };
            Pair(
                _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast())),
                _mm256_cvtepu16_epi32(_mm_loadu_si128(from.add(8).cast())),
            )
        }
    }
    #[inline(always)]
    unsafe fn store_u16(self, p: *mut u16, n: usize, x: I) {
        // SAFETY: the caller promises `n ≤ 16` writable elements.
        unsafe {
            let low = _mm256_set1_epi32(0xffff);
            let packed = _mm256_packus_epi32(_mm256_and_si256(x.0, low), _mm256_and_si256(x.1, low));
            // Packing works within each half register.
            let packed = _mm256_permute4x64_epi64::<0b11_01_10_00>(packed);
            if n == LANES {
                return _mm256_storeu_si256(p.cast(), packed);
            }
            let mut tail = [0u16; LANES];
            _mm256_storeu_si256(tail.as_mut_ptr().cast(), packed);
            std::ptr::copy_nonoverlapping(tail.as_ptr(), p, n);
        }
    }
    #[inline(always)]
    unsafe fn load_bytes<const SIGNED: bool>(self, p: *const u8, n: usize) -> I {
        let mut tail = [0u8; LANES];
        // SAFETY: the caller promises `n ≤ 16` readable bytes.
        unsafe {
            let from = if n == LANES {
                p
            } else {
                std::ptr::copy_nonoverlapping(p, tail.as_mut_ptr(), n);
                tail.as_ptr()
            };
            let bytes = _mm_loadu_si128(from.cast());
            let high = _mm_unpackhi_epi64(bytes, bytes);
            if SIGNED {
                Pair(_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(high))
            } else {
                Pair(_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(high))
            }
        }
    }
    #[inline(always)]
    unsafe fn store_bytes(self, p: *mut u8, n: usize, x: I) {
        // SAFETY: the caller promises `n ≤ 16` writable bytes.
        unsafe {
            let low = _mm256_set1_epi32(0xff);
            let words = _mm256_packus_epi32(_mm256_and_si256(x.0, low), _mm256_and_si256(x.1, low));
            // Packing works within each half register.
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(words);
            let bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
            if n == LANES {
                return _mm_storeu_si128(p.cast(), bytes);
            }
            let mut tail = [0u8; LANES];
            _mm_storeu_si128(tail.as_mut_ptr().cast(), bytes);
            std::ptr::copy_nonoverlapping(tail.as_ptr(), p, n);
        }
    }
    #[inline(always)]
    fn any_lower_half_below(self, [a, b]: [I; 2], limits: I) -> bool {
        // SAFETY: the token proves the features; no memory is touched.
        unsafe {
            let (first, second) = (_mm256_min_epu16(a.0, b.0), _mm256_min_epu16(a.1, b.1));
            // What is not below is the larger of itself and the limit; upper halves are not below those of the limits, which are 0.
            let first = _mm256_cmpeq_epi16(_mm256_max_epu16(first, limits.0), first);
            let second = _mm256_cmpeq_epi16(_mm256_max_epu16(second, limits.1), second);
            _mm256_movemask_epi8(_mm256_and_si256(first, second)) != -1
        }
    }
    #[inline(always)]
    fn widen_f16(self, x: I) -> F {
        // SAFETY: the token proves the features.
        unsafe {
            Pair(
                _mm256_cvtph_ps(_mm_packus_epi32(
                    _mm256_castsi256_si128(x.0),
                    _mm256_extracti128_si256::<1>(x.0),
                )),
                _mm256_cvtph_ps(_mm_packus_epi32(
                    _mm256_castsi256_si128(x.1),
                    _mm256_extracti128_si256::<1>(x.1),
                )),
            )
        }
    }
    #[inline(always)]
    fn narrow_f16(self, x: F) -> I {
        // SAFETY: the token proves the features.
        unsafe {
            Pair(
                _mm256_cvtepu16_epi32(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x.0)),
                _mm256_cvtepu16_epi32(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x.1)),
            )
        }
    }
    #[inline(always)]
    fn prefetch_l1(self, p: *const f32) {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
    #[inline(always)]
    fn prefetch_l2(self, p: *const f32) {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
    }
}
