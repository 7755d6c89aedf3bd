//! Sixteen lanes as four NEON registers.

use std::arch::aarch64::*;

use rlx_math::Lanes;

use super::{Kernel, LANES, Simd};

/// The proof that Advanced SIMD may be used.
#[derive(Debug, Clone, Copy)]
pub struct Neon(());

/// Runs a kernel compiled for NEON.
///
/// # Safety
/// The processor must have Advanced SIMD.
#[inline(never)]
#[target_feature(enable = "neon")]
pub(crate) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Neon(()))
}

type F = [float32x4_t; 4];
type I = [int32x4_t; 4];
type M = [uint32x4_t; 4];

/// Writes each listed method as the same intrinsics on all four registers.
macro_rules! quarters {
    ($($name:ident($($a:ident: $t:ty),*) -> $r:ty = $e:expr;)*) => {
        $(#[inline(always)]
        fn $name(self, $($a: $t),*) -> $r {
            // SAFETY: `self` exists only where the processor has the features; no memory is touched.
            unsafe {
                [
                    { $(let $a = $a[0];)* $e },
                    { $(let $a = $a[1];)* $e },
                    { $(let $a = $a[2];)* $e },
                    { $(let $a = $a[3];)* $e },
                ]
            }
        })*
    };
}

impl Lanes for Neon {
    type F = F;
    type I = I;
    type M = M;
    const FUSED: bool = true;

    quarters! {
        add(a: F, b: F) -> F = vaddq_f32(a, b);
        sub(a: F, b: F) -> F = vsubq_f32(a, b);
        mul(a: F, b: F) -> F = vmulq_f32(a, b);
        div(a: F, b: F) -> F = vdivq_f32(a, b);
        mul_add(a: F, b: F, c: F) -> F = vfmaq_f32(c, a, b);
        neg_mul_add(a: F, b: F, c: F) -> F = vfmsq_f32(c, a, b);
        sqrt(a: F) -> F = vsqrtq_f32(a);
        // By comparison, because the NEON minimum returns NaN from either side.
        min_raw(a: F, b: F) -> F = vbslq_f32(vcltq_f32(a, b), a, b);
        max_raw(a: F, b: F) -> F = vbslq_f32(vcgtq_f32(a, b), a, b);
        min(a: F, b: F) -> F = vminq_f32(a, b);
        max(a: F, b: F) -> F = vmaxq_f32(a, b);
        round(a: F) -> F = vrndnq_f32(a);
        floor(a: F) -> F = vrndmq_f32(a);
        ceil(a: F) -> F = vrndpq_f32(a);
        trunc(a: F) -> F = vrndq_f32(a);
        lt(a: F, b: F) -> M = vcltq_f32(a, b);
        le(a: F, b: F) -> M = vcleq_f32(a, b);
        eq(a: F, b: F) -> M = vceqq_f32(a, b);
        select(m: M, a: F, b: F) -> F = vbslq_f32(m, a, b);
        mask_and(a: M, b: M) -> M = vandq_u32(a, b);
        mask_or(a: M, b: M) -> M = vorrq_u32(a, b);
        mask_not(a: M) -> M = vmvnq_u32(a);
        to_int(a: F) -> I = vcvtnq_s32_f32(a);
        from_int(a: I) -> F = vcvtq_f32_s32(a);
        bits(a: F) -> I = vreinterpretq_s32_f32(a);
        from_bits(a: I) -> F = vreinterpretq_f32_s32(a);
        add_i(a: I, b: I) -> I = vaddq_s32(a, b);
        sub_i(a: I, b: I) -> I = vsubq_s32(a, b);
        and_i(a: I, b: I) -> I = vandq_s32(a, b);
        or_i(a: I, b: I) -> I = vorrq_s32(a, b);
        xor_i(a: I, b: I) -> I = veorq_s32(a, b);
        eq_i(a: I, b: I) -> M = vceqq_s32(a, b);
        // Two factors reach every exponent without overflowing on the way; only the last rounds.
        scale2(a: F, n: F) -> F = {
            let n = vcvtnq_s32_f32(n);
            let half = vshrq_n_s32::<1>(n);
            let bias = vdupq_n_s32(127);
            let f1 = vshlq_n_s32::<23>(vaddq_s32(half, bias));
            let f2 = vshlq_n_s32::<23>(vaddq_s32(vsubq_s32(n, half), bias));
            vmulq_f32(vmulq_f32(a, vreinterpretq_f32_s32(f1)), vreinterpretq_f32_s32(f2))
        };
    }

    #[inline(always)]
    fn splat(self, x: f32) -> F {
        // SAFETY: the token proves the features.
        [unsafe { vdupq_n_f32(x) }; 4]
    }
    #[inline(always)]
    fn splat_i(self, x: i32) -> I {
        // SAFETY: the token proves the features.
        [unsafe { vdupq_n_s32(x) }; 4]
    }
    #[inline(always)]
    fn shl_i<const N: i32>(self, a: I) -> I {
        // SAFETY: the token proves the features.
        unsafe {
            let by = vdupq_n_s32(N);
            [vshlq_s32(a[0], by), vshlq_s32(a[1], by), vshlq_s32(a[2], by), vshlq_s32(a[3], by)]
        }
    }
    #[inline(always)]
    fn shr_i<const N: i32>(self, a: I) -> I {
        // SAFETY: the token proves the features; a negative count shifts right with the sign.
        unsafe {
            let by = vdupq_n_s32(-N);
            [vshlq_s32(a[0], by), vshlq_s32(a[1], by), vshlq_s32(a[2], by), vshlq_s32(a[3], by)]
        }
    }
    #[inline(always)]
    fn by_scalar_code(self, fast: Self::M, x: Self::F, f: fn(f32) -> f32) -> Option<Self::F> {
        super::by_scalar_code(self, fast, x, f)
    }
}

impl Simd for Neon {
    const GEMM_ROWS: usize = 6;
    const GEMM_VECS: usize = 1;

    quarters! {
        max_i(a: I, b: I) -> I = vmaxq_s32(a, b);
        min_i(a: I, b: I) -> I = vminq_s32(a, b);
    }

    #[inline(always)]
    fn enter<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: `self` exists only where the processor has the features.
        unsafe { run(kernel) }
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> F {
        // SAFETY: the caller promises sixteen readable elements.
        unsafe { [vld1q_f32(p), vld1q_f32(p.add(4)), vld1q_f32(p.add(8)), vld1q_f32(p.add(12))] }
    }
    #[inline(always)]
    unsafe fn load_n(self, p: *const f32, n: usize) -> F {
        let mut out = [0.0; LANES];
        // SAFETY: the caller promises `n ≤ 16` readable elements.
        unsafe {
            std::ptr::copy_nonoverlapping(p, out.as_mut_ptr(), n);
            self.load(out.as_ptr())
        }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, x: F) {
        // SAFETY: the caller promises sixteen writable elements.
        unsafe {
            vst1q_f32(p, x[0]);
            vst1q_f32(p.add(4), x[1]);
            vst1q_f32(p.add(8), x[2]);
            vst1q_f32(p.add(12), x[3]);
        }
    }
    #[inline(always)]
    unsafe fn store_n(self, p: *mut f32, n: usize, x: F) {
        let tmp = self.to_array(x);
        // SAFETY: the caller promises `n ≤ 16` writable elements.
        unsafe { std::ptr::copy_nonoverlapping(tmp.as_ptr(), p, n) }
    }

    #[inline(always)]
    fn zip(self, a: F, b: F) -> (F, F) {
        // SAFETY: `self` exists only where the processor has the features; no memory is touched.
        unsafe {
            (
                [
                    vzip1q_f32(a[0], b[0]),
                    vzip2q_f32(a[0], b[0]),
                    vzip1q_f32(a[1], b[1]),
                    vzip2q_f32(a[1], b[1]),
                ],
                [
                    vzip1q_f32(a[2], b[2]),
                    vzip2q_f32(a[2], b[2]),
                    vzip1q_f32(a[3], b[3]),
                    vzip2q_f32(a[3], b[3]),
                ],
            )
        }
    }
    #[inline(always)]
    fn reverse(self, a: F) -> F {
        // SAFETY: `self` exists only where the processor has the features; no memory is touched.
        unsafe {
            [a[3], a[2], a[1], a[0]].map(|q| {
                let pairs = vrev64q_f32(q);
                vextq_f32::<2>(pairs, pairs)
            })
        }
    }
    #[inline(always)]
    fn permute(self, a: F, from: I) -> F {
        // SAFETY: `self` exists only where the processor has the features; no memory is touched.
        unsafe {
            let half =
                |low: usize| uint8x16x2_t(vreinterpretq_u8_f32(a[low]), vreinterpretq_u8_f32(a[low + 1]));
            // A lane's number of eight as those of its four bytes.
            let bytes = |from: int32x4_t| {
                let lane = vandq_u32(vreinterpretq_u32_s32(from), vdupq_n_u32(7));
                vreinterpretq_u8_u32(vmlaq_u32(vdupq_n_u32(0x0302_0100), lane, vdupq_n_u32(0x0404_0404)))
            };
            let part = |low: usize, q: usize| vreinterpretq_f32_u8(vqtbl2q_u8(half(low), bytes(from[q])));
            [part(0, 0), part(0, 1), part(2, 2), part(2, 3)]
        }
    }
    #[inline(always)]
    fn mask_bits(self, a: M) -> u16 {
        let mut lanes = [0u32; LANES];
        // SAFETY: four stores of four lanes fill the array.
        unsafe {
            for (q, v) in a.iter().enumerate() {
                vst1q_u32(lanes.as_mut_ptr().add(4 * q), *v);
            }
        }
        lanes.iter().rev().fold(0, |acc, &l| (acc << 1) | (l & 1) as u16)
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
        unsafe {
            let q = vaddq_f32(vaddq_f32(a[0], a[2]), vaddq_f32(a[1], a[3]));
            let d = vadd_f32(vget_low_f32(q), vget_high_f32(q));
            vget_lane_f32::<0>(d) + vget_lane_f32::<1>(d)
        }
    }
    #[inline(always)]
    fn prefetch_l1(self, p: *const f32) {
        // SAFETY: a prefetch never faults.
        unsafe {
            std::arch::asm!("prfm pldl1keep, [{}]", in(reg) p, options(nostack, readonly, preserves_flags))
        }
    }
    #[inline(always)]
    fn prefetch_l2(self, p: *const f32) {
        // SAFETY: a prefetch never faults.
        unsafe {
            std::arch::asm!("prfm pldl2keep, [{}]", in(reg) p, options(nostack, readonly, preserves_flags))
        }
    }
}
