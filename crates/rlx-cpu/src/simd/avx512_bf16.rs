//! bf16 by AVX-512: what is rounded, and 32 of them at a time.
//!
//! Two vectors of f32 hold 32 neighbours as the elements of even and of odd places: a shift and a mask widen them, where vectors of neighbours
//! would take twice as many instructions.

use std::arch::x86_64::*;

use super::LANES;
use super::avx512::Halves;

/// Whether a lane is so small that VCVTNEPS2BF16 would round it to zero, which no other instruction set does.
#[inline(always)]
pub(super) fn has_denormals([a, b]: [__m512; 2]) -> bool {
    const DENORMAL: i32 = 0x20;
    // SAFETY: only tokens of AVX-512 lead here, so the processor has AVX-512 DQ.
    unsafe { _mm512_fpclass_ps_mask::<DENORMAL>(a) | _mm512_fpclass_ps_mask::<DENORMAL>(b) != 0 }
}

/// The first and the second sixteen of 32 numbers in turn.
static IN_TURN: Halves = {
    let mut from = [0; 2 * LANES];
    let mut i = 0;
    while i < from.len() {
        from[i] = (i / 2 + i % 2 * LANES) as u16;
        i += 1;
    }
    Halves(from)
};

/// 32 elements, those of even places first.
///
/// # Safety
/// The processor must have AVX-512 F; `p` must be readable for 32 elements.
#[inline(always)]
pub(super) unsafe fn load_two(p: *const u16) -> [__m512; 2] {
    // SAFETY: the caller's promise.
    unsafe { widened(_mm512_loadu_si512(p.cast())) }
}

/// Those of even places and those of odd ones.
///
/// # Safety
/// The processor must have AVX-512 F.
#[inline(always)]
unsafe fn widened(both: __m512i) -> [__m512; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let odd = _mm512_and_si512(both, _mm512_set1_epi32(!0xffff));
        [_mm512_castsi512_ps(_mm512_slli_epi32::<16>(both)), _mm512_castsi512_ps(odd)]
    }
}

/// The sixteen in front and those behind them in turn, as they are in memory.
///
/// # Safety
/// The processor must have AVX-512 BW.
#[inline(always)]
unsafe fn in_turn(halves: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_permutexvar_epi16(_mm512_load_si512((&raw const IN_TURN).cast()), halves) }
}

/// Both vectors by the instruction, one behind the other.
///
/// # Safety
/// The processor must have AVX-512 BF16.
#[inline(always)]
unsafe fn rounded([even, odd]: [__m512; 2]) -> __m512i {
    // SAFETY: the caller's promise; both types are 32 words of 16 bits.
    unsafe { std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(odd, even)) }
}

/// What [`load_two`] reads, rounded by the instruction.
///
/// # Safety
/// The processor must have AVX-512 BF16 and BW; `p` must be writable for 32 elements.
#[inline(always)]
pub(super) unsafe fn store_two(p: *mut u16, x: [__m512; 2]) {
    // SAFETY: the caller's promise.
    unsafe {
        _mm512_storeu_si512(p.cast(), in_turn(rounded(x)));
    }
}

/// Both vectors rounded by the instruction, the first in front.
///
/// # Safety
/// The processor must have AVX-512 BF16 and BW; `p` must be writable for 32 elements.
#[inline(always)]
pub(super) unsafe fn store_pair(p: *mut u16, x: [__m512; 2]) {
    // SAFETY: the caller's promise.
    unsafe { _mm512_storeu_si512(p.cast(), rounded(x)) }
}

/// Both vectors rounded by the instruction.
///
/// # Safety
/// The processor must have AVX-512 BF16 and BW.
#[inline(always)]
pub(super) unsafe fn round_two(x: [__m512; 2]) -> [__m512; 2] {
    // SAFETY: the caller's promise.
    unsafe { widened(in_turn(rounded(x))) }
}
