//! Bytes by AVX-512 VBMI, 64 at a time.

use std::arch::x86_64::*;

/// Replaces `n` bytes by what a table of 256 has for them.
///
/// # Safety
/// The processor must have AVX-512 F, BW and VBMI; `table` must be readable for 256 bytes, `x` for `n`, and `out` writable for `n`. `out` may be `x`.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(crate) unsafe fn look_up(table: *const u8, x: *const u8, out: *mut u8, n: usize) {
    const BYTES: usize = 64;
    // SAFETY: the caller's promise; the mask has no more bits than bytes are left.
    unsafe {
        let (a, b) = (_mm512_loadu_si512(table.cast()), _mm512_loadu_si512(table.add(BYTES).cast()));
        let [c, d] = [table.add(2 * BYTES), table.add(3 * BYTES)];
        let (c, d) = (_mm512_loadu_si512(c.cast()), _mm512_loadu_si512(d.cast()));
        for i in (0..n).step_by(BYTES) {
            let mask = u64::MAX >> (BYTES - BYTES.min(n - i));
            let x = _mm512_maskz_loadu_epi8(mask, x.add(i).cast());
            let (low, high) = (_mm512_permutex2var_epi8(a, x, b), _mm512_permutex2var_epi8(c, x, d));
            let found = _mm512_mask_blend_epi8(_mm512_movepi8_mask(x), low, high);
            _mm512_mask_storeu_epi8(out.add(i).cast(), mask, found);
        }
    }
}
