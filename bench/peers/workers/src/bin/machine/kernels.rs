//! Loops of nothing but multiply-adds in registers, of as many independent sums as hide their latency.

/// A loop, and how many operations each of its steps is.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    pub run: fn(u64) -> f32,
    pub operations: f64,
}

pub use native::{bf16, f32, int8};

/// Independent sums: more than two units with a latency of four or five cycles have in flight, fewer than there are registers.
const SUMS: usize = 14;

#[cfg(target_arch = "x86_64")]
mod native {
    use super::{Kernel, SUMS};
    use std::arch::x86_64::*;
    use std::hint::black_box;

    pub fn f32() -> Option<Kernel> {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has the instructions, as was just seen.
            return Some(Kernel { run: |n| unsafe { f32x16(n) }, operations: (SUMS * 16 * 2) as f64 });
        }
        let there = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        // SAFETY: as above.
        there.then_some(Kernel { run: |n| unsafe { f32x8(n) }, operations: (SUMS * 8 * 2) as f64 })
    }

    pub fn bf16() -> Option<Kernel> {
        let there = is_x86_feature_detected!("avx512bf16");
        // SAFETY: as above.
        there.then_some(Kernel { run: |n| unsafe { bf16x32(n) }, operations: (SUMS * 32 * 2) as f64 })
    }

    pub fn int8() -> Option<Kernel> {
        let there = is_x86_feature_detected!("avx512vnni");
        // SAFETY: as above.
        there.then_some(Kernel { run: |n| unsafe { u8x64(n) }, operations: (SUMS * 64 * 2) as f64 })
    }

    #[target_feature(enable = "avx512f")]
    fn f32x16(steps: u64) -> f32 {
        let (x, y) = (_mm512_set1_ps(black_box(0.5)), _mm512_set1_ps(black_box(0.25)));
        let mut sums = [_mm512_setzero_ps(); SUMS];
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(x, y, *sum);
            }
        }
        sums.into_iter().map(|sum| _mm512_reduce_add_ps(sum)).sum()
    }

    #[target_feature(enable = "avx2,fma")]
    fn f32x8(steps: u64) -> f32 {
        let (x, y) = (_mm256_set1_ps(black_box(0.5)), _mm256_set1_ps(black_box(0.25)));
        let mut sums = [_mm256_setzero_ps(); SUMS];
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(x, y, *sum);
            }
        }
        sums.into_iter().map(|sum| _mm256_cvtss_f32(sum)).sum()
    }

    #[target_feature(enable = "avx512f,avx512bf16")]
    fn bf16x32(steps: u64) -> f32 {
        let (x, y) = (_mm512_set1_ps(black_box(0.5)), _mm512_set1_ps(black_box(0.25)));
        let (x, y) = (_mm512_cvtne2ps_pbh(x, x), _mm512_cvtne2ps_pbh(y, y));
        let mut sums = [_mm512_setzero_ps(); SUMS];
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = _mm512_dpbf16_ps(*sum, x, y);
            }
        }
        sums.into_iter().map(|sum| _mm512_reduce_add_ps(sum)).sum()
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    fn u8x64(steps: u64) -> f32 {
        let (x, y) = (_mm512_set1_epi8(black_box(1)), _mm512_set1_epi8(black_box(2)));
        let mut sums = [_mm512_setzero_si512(); SUMS];
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, x, y);
            }
        }
        sums.into_iter().map(|sum| _mm512_reduce_add_epi32(sum) as f32).sum()
    }
}

#[cfg(target_arch = "aarch64")]
mod native {
    use super::{Kernel, SUMS};
    use std::arch::aarch64::*;
    use std::hint::black_box;

    pub fn f32() -> Option<Kernel> {
        // SAFETY: every processor of this architecture that Rust's standard library runs on has NEON.
        Some(Kernel { run: |n| unsafe { f32x4(n) }, operations: (SUMS * 4 * 2) as f64 })
    }

    pub fn bf16() -> Option<Kernel> {
        None
    }

    pub fn int8() -> Option<Kernel> {
        None
    }

    #[target_feature(enable = "neon")]
    fn f32x4(steps: u64) -> f32 {
        let (x, y) = (vdupq_n_f32(black_box(0.5)), vdupq_n_f32(black_box(0.25)));
        let mut sums = [vdupq_n_f32(0.0); SUMS];
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = vfmaq_f32(*sum, x, y);
            }
        }
        sums.into_iter().map(|sum| vaddvq_f32(sum)).sum()
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod native {
    use super::Kernel;

    pub fn f32() -> Option<Kernel> {
        None
    }

    pub fn bf16() -> Option<Kernel> {
        None
    }

    pub fn int8() -> Option<Kernel> {
        None
    }
}
