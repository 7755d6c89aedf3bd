//! Sixteen lanes as one AVX-512 register.

use std::arch::x86_64::*;
use std::hint::black_box;
use std::time::{Duration, Instant};

use rlx_math::Lanes;

use super::avx2::{eight, four_pairs};
use super::avx512_bf16::{self, has_denormals};
use super::{Kernel, LANES, Simd};

/// The proof that AVX-512 F, BW, DQ and VL (with AVX2 and FMA) may be used, with `BF16` its bf16 products, and with `VNNI` its
/// products of bytes.
#[derive(Debug, Clone, Copy)]
pub struct Avx512<const BF16: bool, const VNNI: bool>(());

/// Runs a kernel compiled for AVX-512.
///
/// # Safety
/// The processor must have AVX-512 F, BW, DQ, VL, AVX2 and FMA.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
pub(crate) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx512::<false, false>(()))
}

/// Runs a kernel compiled for AVX-512 with bf16 products.
///
/// # Safety
/// As [`run`], and the processor must have AVX-512 BF16.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
pub(crate) unsafe fn run_bf16<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx512::<true, false>(()))
}

/// Runs a kernel compiled for AVX-512 with products of bytes.
///
/// # Safety
/// As [`run`], and the processor must have AVX-512 VNNI.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")]
pub(crate) unsafe fn run_vnni<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx512::<false, true>(()))
}

/// Whether products of bf16 are faster than widening and multiplying in f32: VDPBF16PS makes two a lane, so it may take twice the time of a multiply-add,
/// and more, since nothing is widened. On Zen 4 both take one cycle; on Xeons of family 6, model 207, it takes two and a multiply-add half of one.
/// The limit is apart from whole ratios, so that every process finds the same.
///
/// # Safety
/// The processor must have AVX-512 F, BW, DQ, VL and BF16, AVX2 and FMA.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
pub(crate) unsafe fn bf16_pays() -> bool {
    const TRIES: usize = 8;
    // What the compiler knows nothing of, chains of it least of all.
    let x = black_box([[0.0f32; LANES]; 1 + CHAINS]);
    // SAFETY: each array has sixteen elements.
    let load = |i: usize| unsafe { _mm512_loadu_ps(x[i].as_ptr()) };
    let factor = load(CHAINS);
    // SAFETY: both types are 512 bits.
    let pairs = unsafe { std::mem::transmute::<__m512, __m512bh>(factor) };
    let mut best = [Duration::MAX; 2];
    for _ in 0..TRIES {
        let adds = time_of(load, |sum| _mm512_fmadd_ps(factor, factor, sum));
        let dots = time_of(load, |sum| _mm512_dpbf16_ps(sum, pairs, pairs));
        best = [best[0].min(adds), best[1].min(dots)];
    }
    2 * best[1] < 5 * best[0]
}

/// Chains that hide what an instruction waits for the one before it.
const CHAINS: usize = 12;

/// The time of as many rounds of one instruction in each chain.
#[inline(always)]
fn time_of(load: impl Fn(usize) -> __m512, next: impl Fn(__m512) -> __m512) -> Duration {
    const ROUNDS: usize = 512;
    let mut sums: [__m512; CHAINS] = std::array::from_fn(load);
    let start = Instant::now();
    for _ in 0..ROUNDS {
        sums = sums.map(&next);
    }
    black_box(sums);
    start.elapsed()
}

/// Writes each listed method as one expression over intrinsics.
macro_rules! intrinsics {
    ($($name:ident($($a:ident: $t:ty),*) -> $r:ty = $e:expr;)*) => {
        $(#[inline(always)]
        fn $name(self, $($a: $t),*) -> $r {
            // SAFETY: `self` exists only where the processor has the features; no memory is touched.
            unsafe { $e }
        })*
    };
}

const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
const DOWN: i32 = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
const UP: i32 = _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC;
const ZERO: i32 = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;

/// A vector in memory.
#[repr(C, align(64))]
struct Order([u32; LANES]);

/// The upper halves of the words of two vectors.
#[repr(C, align(64))]
pub(super) struct Halves(pub(super) [u16; 2 * LANES]);
static UPPER: Halves = {
    let mut from = [0; 2 * LANES];
    let mut i = 0;
    while i < from.len() {
        from[i] = 2 * i as u16 + 1;
        i += 1;
    }
    Halves(from)
};

/// Those of the same place in each quarter, for words …
static PLACES: Order = Order([0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15]);

/// … and for the bytes of a quarter, in each.
static TURNS: Order = Order([
    0x0c08_0400,
    0x0d09_0501,
    0x0e0a_0602,
    0x0f0b_0703,
    0x0c08_0400,
    0x0d09_0501,
    0x0e0a_0602,
    0x0f0b_0703,
    0x0c08_0400,
    0x0d09_0501,
    0x0e0a_0602,
    0x0f0b_0703,
    0x0c08_0400,
    0x0d09_0501,
    0x0e0a_0602,
    0x0f0b_0703,
]);

/// The lowest `n ≤ 16` bits.
#[inline(always)]
fn first(n: usize) -> __mmask16 {
    ((1u32 << n) - 1) as __mmask16
}

/// Eight pairs of neighbours: those at the places number `at` and the next, and four, eight and twelve further.
///
/// # Safety
/// The processor must have AVX-512; `places` must be readable there, and `p` for two elements at each of them.
#[inline(always)]
unsafe fn eight_pairs(p: *const f32, places: *const u32, at: usize) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe {
        let low = _mm512_castps256_ps512(four_pairs(p, places, at));
        _mm512_insertf32x8::<1>(low, four_pairs(p, places, at + 8))
    }
}

/// The upper halves of the words of four vectors, numbers with a sign that are held between two bounds of one type of bytes, as bytes: in each
/// quarter first those of the first vector's quarter.
///
/// # Safety
/// The processor must have AVX-512 BW.
#[inline(always)]
unsafe fn bytes_of_upper_halves([a, b, c, d]: [__m512i; 4], [low, high]: [i16; 2]) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe {
        let first = _mm512_packs_epi32(_mm512_srai_epi32::<16>(a), _mm512_srai_epi32::<16>(b));
        let second = _mm512_packs_epi32(_mm512_srai_epi32::<16>(c), _mm512_srai_epi32::<16>(d));
        // What is held between bounds of bytes may be held between others before.
        if low < 0 {
            let bytes = _mm512_packs_epi16(first, second);
            let above = _mm512_max_epi8(bytes, _mm512_set1_epi8(low as i8));
            _mm512_min_epi8(above, _mm512_set1_epi8(high as i8))
        } else {
            let bytes = _mm512_packus_epi16(first, second);
            let above = _mm512_max_epu8(bytes, _mm512_set1_epi8(low as i8));
            _mm512_min_epu8(above, _mm512_set1_epi8(high as i8))
        }
    }
}

impl<const BF16: bool, const VNNI: bool> Lanes for Avx512<BF16, VNNI> {
    type F = __m512;
    type I = __m512i;
    type M = __mmask16;
    const FUSED: bool = true;

    intrinsics! {
        splat(x: f32) -> __m512 = _mm512_set1_ps(x);
        add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
        sub(a: __m512, b: __m512) -> __m512 = _mm512_sub_ps(a, b);
        mul(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
        div(a: __m512, b: __m512) -> __m512 = _mm512_div_ps(a, b);
        mul_add(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
        neg_mul_add(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fnmadd_ps(a, b, c);
        sqrt(a: __m512) -> __m512 = _mm512_sqrt_ps(a);
        min_raw(a: __m512, b: __m512) -> __m512 = _mm512_min_ps(a, b);
        max_raw(a: __m512, b: __m512) -> __m512 = _mm512_max_ps(a, b);
        round(a: __m512) -> __m512 = _mm512_roundscale_ps::<NEAREST>(a);
        floor(a: __m512) -> __m512 = _mm512_roundscale_ps::<DOWN>(a);
        ceil(a: __m512) -> __m512 = _mm512_roundscale_ps::<UP>(a);
        trunc(a: __m512) -> __m512 = _mm512_roundscale_ps::<ZERO>(a);
        lt(a: __m512, b: __m512) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b);
        le(a: __m512, b: __m512) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_LE_OQ>(a, b);
        eq(a: __m512, b: __m512) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b);
        select(m: __mmask16, a: __m512, b: __m512) -> __m512 = _mm512_mask_blend_ps(m, b, a);
        splat_i(x: i32) -> __m512i = _mm512_set1_epi32(x);
        to_int(a: __m512) -> __m512i = _mm512_cvtps_epi32(a);
        from_int(a: __m512i) -> __m512 = _mm512_cvtepi32_ps(a);
        bits(a: __m512) -> __m512i = _mm512_castps_si512(a);
        from_bits(a: __m512i) -> __m512 = _mm512_castsi512_ps(a);
        add_i(a: __m512i, b: __m512i) -> __m512i = _mm512_add_epi32(a, b);
        sub_i(a: __m512i, b: __m512i) -> __m512i = _mm512_sub_epi32(a, b);
        and_i(a: __m512i, b: __m512i) -> __m512i = _mm512_and_si512(a, b);
        or_i(a: __m512i, b: __m512i) -> __m512i = _mm512_or_si512(a, b);
        xor_i(a: __m512i, b: __m512i) -> __m512i = _mm512_xor_si512(a, b);
        eq_i(a: __m512i, b: __m512i) -> __mmask16 = _mm512_cmpeq_epi32_mask(a, b);
        scale2(a: __m512, n: __m512) -> __m512 = _mm512_scalef_ps(a, n);
    }

    #[inline(always)]
    fn mask_and(self, a: __mmask16, b: __mmask16) -> __mmask16 {
        a & b
    }
    #[inline(always)]
    fn mask_or(self, a: __mmask16, b: __mmask16) -> __mmask16 {
        a | b
    }
    #[inline(always)]
    fn mask_not(self, a: __mmask16) -> __mmask16 {
        !a
    }
    #[inline(always)]
    fn shl_i<const N: i32>(self, a: __m512i) -> __m512i {
        // SAFETY: the token proves the features.
        unsafe { _mm512_sll_epi32(a, _mm_cvtsi32_si128(N)) }
    }
    #[inline(always)]
    fn shr_i<const N: i32>(self, a: __m512i) -> __m512i {
        // SAFETY: the token proves the features.
        unsafe { _mm512_sra_epi32(a, _mm_cvtsi32_si128(N)) }
    }
    #[inline(always)]
    fn look_up(self, table: &[f32; 32], place: __m512i) -> Option<__m512> {
        // SAFETY: the token proves the features; the table has two vectors. Of a place the instruction takes five bits.
        unsafe {
            let p = table.as_ptr();
            Some(_mm512_permutex2var_ps(_mm512_loadu_ps(p), place, _mm512_loadu_ps(p.add(LANES))))
        }
    }
    #[inline(always)]
    fn by_scalar_code(self, fast: Self::M, x: Self::F, f: fn(f32) -> f32) -> Option<Self::F> {
        super::by_scalar_code(self, fast, x, f)
    }
}

impl<const BF16: bool, const VNNI: bool> Simd for Avx512<BF16, VNNI> {
    const GEMM_ROWS: usize = 9;
    const GEMM_VECS: usize = 3;

    #[inline(always)]
    fn enter<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: `self` exists only where the processor has the features.
        unsafe {
            if VNNI {
                run_vnni(kernel)
            } else if BF16 {
                run_bf16(kernel)
            } else {
                run(kernel)
            }
        }
    }
    #[inline(always)]
    fn enter_plain<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: `self` exists only where the processor has the features.
        unsafe { run(kernel) }
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m512 {
        // SAFETY: the caller promises sixteen readable elements.
        unsafe { _mm512_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn load_half(self, p: *const f32) -> __m512 {
        // SAFETY: the caller promises eight readable elements.
        unsafe { _mm512_zextps256_ps512(_mm256_loadu_ps(p)) }
    }
    #[inline(always)]
    unsafe fn load_n(self, p: *const f32, n: usize) -> __m512 {
        // SAFETY: the caller promises `n` readable elements; masked lanes are not touched.
        unsafe { _mm512_maskz_loadu_ps(first(n), p) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, x: __m512) {
        // SAFETY: the caller promises sixteen writable elements.
        unsafe { _mm512_storeu_ps(p, x) }
    }
    #[inline(always)]
    unsafe fn store_non_temporal(self, p: *mut f32, x: __m512) {
        // SAFETY: the caller promises sixteen writable elements at a multiple of 64 bytes, and to call the fence.
        unsafe { _mm512_stream_ps(p, x) }
    }
    #[inline(always)]
    unsafe fn store_n(self, p: *mut f32, n: usize, x: __m512) {
        // SAFETY: the caller promises `n` writable elements; masked lanes are not touched.
        unsafe { _mm512_mask_storeu_ps(p, first(n), x) }
    }

    intrinsics! {
        permute(a: __m512, from: __m512i) -> __m512 = _mm512_permutexvar_ps(from, a);
        mul_i(a: __m512i, b: __m512i) -> __m512i = _mm512_mullo_epi32(a, b);
        max_i(a: __m512i, b: __m512i) -> __m512i = _mm512_max_epi32(a, b);
        min_i(a: __m512i, b: __m512i) -> __m512i = _mm512_min_epi32(a, b);
        sub_bytes(a: __m512i, b: __m512i) -> __m512i = _mm512_sub_epi8(a, b);
        // Without the instruction, even and odd bytes as 16 bits, as on AVX2.
        dot_bytes(acc: __m512i, a: __m512i, b: __m512i) -> __m512i = if VNNI {
            _mm512_dpbusd_epi32(acc, a, b)
        } else {
            let (a_even, a_odd) = (_mm512_and_si512(a, _mm512_set1_epi16(0xff)), _mm512_srli_epi16::<8>(a));
            let b_even = _mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(b));
            let b_odd = _mm512_srai_epi16::<8>(b);
            let even = _mm512_add_epi32(acc, _mm512_madd_epi16(a_even, b_even));
            _mm512_add_epi32(even, _mm512_madd_epi16(a_odd, b_odd))
        };
        to_array(a: __m512) -> [f32; LANES] = std::mem::transmute::<__m512, [f32; LANES]>(a);
        sum(a: __m512) -> f32 = {
            let h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            super::avx2::sum8(h)
        };
    }

    #[inline(always)]
    fn reduce_max(self, a: __m512) -> f32 {
        // SAFETY: the token proves the features; no memory is touched.
        unsafe {
            if _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a) != 0 {
                return super::largest_with_nan(&self.to_array(a));
            }
            // As the tree has it, the second of two equal numbers.
            let eight = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            let four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        }
    }
    #[inline(always)]
    fn zip(self, a: __m512, b: __m512) -> (__m512, __m512) {
        // SAFETY: the token proves the features; no memory is touched. Lanes from 16 on are those of `b`.
        unsafe {
            let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            let high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
            (_mm512_permutex2var_ps(a, low, b), _mm512_permutex2var_ps(a, high, b))
        }
    }
    #[inline(always)]
    fn unzip(self, a: __m512, b: __m512) -> (__m512, __m512) {
        // SAFETY: the token proves the features; no memory is touched. Lanes from 16 on are those of `b`.
        unsafe {
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
            (_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b))
        }
    }
    #[inline(always)]
    fn reverse(self, a: __m512) -> __m512 {
        // SAFETY: the token proves the features.
        unsafe {
            let from = _mm512_setr_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
            _mm512_permutexvar_ps(from, a)
        }
    }
    #[inline(always)]
    unsafe fn pick(self, p: *const f32, places: *const u32) -> __m512 {
        // SAFETY: the caller's promise, and the token proves the features.
        unsafe {
            // Loads of their own, which a Zen 4 does sooner than a gather from the first-level cache.
            let low = _mm512_castps256_ps512(eight(p, places, 0));
            _mm512_insertf32x8::<1>(low, eight(p, places, 8))
        }
    }
    #[inline(always)]
    unsafe fn pick_pairs(self, p: *const f32, places: *const u32) -> (__m512, __m512) {
        // SAFETY: the caller's promise, and the token proves the features.
        unsafe {
            // Loads of their own, as above. Each quarter of the registers has four neighbouring pairs, so the instructions, which work on
            // quarters, put them in order.
            let (a, b) = (eight_pairs(p, places, 0), eight_pairs(p, places, 2));
            (_mm512_shuffle_ps::<0b10_00_10_00>(a, b), _mm512_shuffle_ps::<0b11_01_11_01>(a, b))
        }
    }
    #[inline(always)]
    fn mask_bits(self, a: __mmask16) -> u16 {
        a
    }
    const BF16_DOT: bool = BF16;
    const PERMUTES_ALL: bool = true;

    #[inline(always)]
    fn dot_bf16(self, acc: __m512, a: __m512i, b: __m512i) -> __m512 {
        if BF16 {
            // SAFETY: the token proves the feature; both types are sixteen words of any bits.
            return unsafe {
                let (a, b) = std::mem::transmute::<(__m512i, __m512i), (__m512bh, __m512bh)>((a, b));
                _mm512_dpbf16_ps(acc, a, b)
            };
        }
        let high = self.splat_i(!0xffff);
        let acc = self.mul_add(self.widen_bf16(a), self.widen_bf16(b), acc);
        self.mul_add(self.from_bits(self.and_i(a, high)), self.from_bits(self.and_i(b, high)), acc)
    }
    #[inline(always)]
    unsafe fn load_u16(self, p: *const u16, n: usize) -> __m512i {
        // SAFETY: the caller promises `n` readable elements; masked lanes are not touched.
        unsafe {
            _mm512_cvtepu16_epi32(if n == LANES {
                _mm256_loadu_si256(p.cast())
            } else {
                _mm256_maskz_loadu_epi16(first(n), p.cast())
            })
        }
    }
    #[inline(always)]
    unsafe fn store_u16(self, p: *mut u16, n: usize, x: __m512i) {
        // SAFETY: the caller promises `n` writable elements; masked lanes are not touched.
        unsafe {
            let low = _mm512_cvtepi32_epi16(x);
            if n == LANES {
                _mm256_storeu_si256(p.cast(), low)
            } else {
                _mm256_mask_storeu_epi16(p.cast(), first(n), low)
            }
        }
    }
    #[inline(always)]
    unsafe fn store_bf16<const EXACT: bool>(self, p: *mut u16, n: usize, x: __m512) {
        if BF16 && !(EXACT && has_denormals([x, x])) {
            // SAFETY: the token proves the feature; the caller promises `n` writable elements, masked lanes are not touched.
            unsafe {
                let low = std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(x));
                if n == LANES {
                    _mm256_storeu_si256(p.cast(), low)
                } else {
                    _mm256_mask_storeu_epi16(p.cast(), first(n), low)
                }
            }
        } else {
            // SAFETY: the caller's promise.
            unsafe { self.store_u16(p, n, self.narrow_bf16(x)) }
        }
    }
    #[inline(always)]
    fn splat_bf16(self, bits: u16) -> __m512 {
        // SAFETY: `self` exists only where the processor has the features.
        self.widen_bf16(unsafe { _mm512_set1_epi16(bits as i16) })
    }
    #[inline(always)]
    fn round_bf16<const EXACT: bool>(self, x: __m512) -> __m512 {
        if BF16 && !(EXACT && has_denormals([x, x])) {
            // SAFETY: the token proves the feature; both types are sixteen 16-bit words.
            let low = unsafe { std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(x)) };
            // SAFETY: `self` exists only where the processor has the features.
            self.widen_bf16(unsafe { _mm512_cvtepu16_epi32(low) })
        } else {
            self.widen_bf16(self.narrow_bf16(x))
        }
    }
    #[inline(always)]
    unsafe fn load_two_bf16(self, p: *const u16) -> [__m512; 2] {
        // SAFETY: the caller promises 32 readable elements, the token the features.
        unsafe { avx512_bf16::load_two(p) }
    }
    #[inline(always)]
    unsafe fn store_two_bf16(self, p: *mut u16, x: [__m512; 2]) {
        // SAFETY: the caller promises 32 writable elements, the token the features.
        unsafe {
            if BF16 && !has_denormals(x) {
                avx512_bf16::store_two(p, x);
            } else {
                let [even, odd] = [self.narrow_bf16(x[0]), self.narrow_bf16(x[1])];
                let both = self.or_i(self.and_i(even, self.splat_i(0xffff)), self.shl_i::<16>(odd));
                _mm512_storeu_si512(p.cast(), both);
            }
        }
    }
    #[inline(always)]
    unsafe fn store_pair_bf16(self, p: *mut u16, [a, b]: [__m512; 2]) {
        // SAFETY: the caller promises 32 writable elements, the token the features.
        unsafe {
            if BF16 && !has_denormals([a, b]) {
                avx512_bf16::store_pair(p, [a, b]);
            } else {
                self.store_bf16::<true>(p, LANES, a);
                self.store_bf16::<true>(p.add(LANES), LANES, b);
            }
        }
    }
    #[inline(always)]
    fn round_two_bf16(self, [a, b]: [__m512; 2]) -> [__m512; 2] {
        if BF16 && !has_denormals([a, b]) {
            // SAFETY: the token proves the features.
            unsafe { avx512_bf16::round_two([a, b]) }
        } else {
            [self.widen_bf16(self.narrow_bf16(a)), self.widen_bf16(self.narrow_bf16(b))]
        }
    }
    #[inline(always)]
    unsafe fn load_bytes<const SIGNED: bool>(self, p: *const u8, n: usize) -> __m512i {
        // SAFETY: the caller promises `n` readable bytes; masked lanes are not touched.
        unsafe {
            let bytes =
                if n == LANES { _mm_loadu_si128(p.cast()) } else { _mm_maskz_loadu_epi8(first(n), p.cast()) };
            if SIGNED { _mm512_cvtepi8_epi32(bytes) } else { _mm512_cvtepu8_epi32(bytes) }
        }
    }
    #[inline(always)]
    unsafe fn load_words(self, from: [*const u8; 4], n: usize) -> __m512i {
        // SAFETY: the caller promises `n` readable bytes at each place; masked lanes are not touched.
        unsafe {
            let [a, b, c, d] = if n == LANES {
                from.map(|p| _mm_loadu_si128(p.cast()))
            } else {
                from.map(|p| _mm_maskz_loadu_epi8(first(n), p.cast()))
            };
            let ab = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(a), b);
            let all = _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(ab, c), d);
            // Four lanes' bytes of each place side by side, then in turn. Of orders that it knows, the compiler makes nine instructions
            // for the one unit that does both of these; so it must not look.
            let places = std::ptr::read_volatile((&raw const PLACES).cast::<__m512i>());
            let turns = std::ptr::read_volatile((&raw const TURNS).cast::<__m512i>());
            _mm512_shuffle_epi8(_mm512_permutexvar_epi32(places, all), turns)
        }
    }
    #[inline(always)]
    unsafe fn store_bytes(self, p: *mut u8, n: usize, x: __m512i) {
        // SAFETY: the caller promises `n` writable bytes; masked lanes are not touched.
        unsafe {
            let low = _mm512_cvtepi32_epi8(x);
            if n == LANES {
                _mm_storeu_si128(p.cast(), low)
            } else {
                _mm_mask_storeu_epi8(p.cast(), first(n), low)
            }
        }
    }
    #[inline(always)]
    unsafe fn store_upper_halves(self, to: [*mut u8; 2], [a, b]: [__m512i; 2], [low, high]: [i16; 2]) {
        // SAFETY: the caller promises sixteen writable bytes at each place, the token the features.
        unsafe {
            // One instruction narrows both: it takes twice as long as a permutation.
            let halves = _mm512_permutex2var_epi16(a, _mm512_load_si512((&raw const UPPER).cast()), b);
            let above = _mm512_max_epi16(halves, _mm512_set1_epi16(low));
            let bytes = _mm512_cvtepi16_epi8(_mm512_min_epi16(above, _mm512_set1_epi16(high)));
            _mm_storeu_si128(to[0].cast(), _mm256_castsi256_si128(bytes));
            _mm_storeu_si128(to[1].cast(), _mm256_extracti128_si256::<1>(bytes));
        }
    }
    #[inline(always)]
    unsafe fn load_quad(self, from: [*const u8; 4]) -> [__m512i; 4] {
        // SAFETY: the caller promises 64 readable bytes at each place, the token the features.
        unsafe {
            let (a, b) = (_mm512_loadu_si512(from[0].cast()), _mm512_loadu_si512(from[1].cast()));
            let (c, d) = (_mm512_loadu_si512(from[2].cast()), _mm512_loadu_si512(from[3].cast()));
            let low = [_mm512_unpacklo_epi8(a, b), _mm512_unpacklo_epi8(c, d)];
            let high = [_mm512_unpackhi_epi8(a, b), _mm512_unpackhi_epi8(c, d)];
            [
                _mm512_unpacklo_epi16(low[0], low[1]),
                _mm512_unpackhi_epi16(low[0], low[1]),
                _mm512_unpacklo_epi16(high[0], high[1]),
                _mm512_unpackhi_epi16(high[0], high[1]),
            ]
        }
    }
    #[inline(always)]
    unsafe fn store_quad(self, to: *mut u8, x: [__m512i; 4], bounds: [i16; 2]) {
        // SAFETY: the caller promises 64 writable bytes, the token the features.
        unsafe {
            let bytes = bytes_of_upper_halves(x, bounds);
            _mm512_storeu_si512(to.cast(), bytes);
        }
    }
    #[inline(always)]
    fn quarters(self, [a, b, c, d]: [__m512; 4]) -> [__m512; 4] {
        // SAFETY: the token proves the features; no memory is touched.
        unsafe {
            let (ab, cd) = (_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0x44>(c, d));
            let (ab_high, cd_high) = (_mm512_shuffle_f32x4::<0xee>(a, b), _mm512_shuffle_f32x4::<0xee>(c, d));
            [
                _mm512_shuffle_f32x4::<0x88>(ab, cd),
                _mm512_shuffle_f32x4::<0xdd>(ab, cd),
                _mm512_shuffle_f32x4::<0x88>(ab_high, cd_high),
                _mm512_shuffle_f32x4::<0xdd>(ab_high, cd_high),
            ]
        }
    }
    #[inline(always)]
    fn any_lower_half_below(self, [a, b]: [__m512i; 2], limits: __m512i) -> bool {
        // SAFETY: the token proves the features.
        unsafe {
            // Upper halves are not below those of the limits, which are 0.
            _mm512_cmplt_epu16_mask(_mm512_min_epu16(a, b), limits) != 0
        }
    }
    #[inline(always)]
    fn widen_f16(self, x: __m512i) -> __m512 {
        // SAFETY: the token proves the features.
        unsafe { _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x)) }
    }
    #[inline(always)]
    fn narrow_f16(self, x: __m512) -> __m512i {
        // SAFETY: the token proves the features.
        unsafe { _mm512_cvtepu16_epi32(_mm512_cvtps_ph::<NEAREST>(x)) }
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
