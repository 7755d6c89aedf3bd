//! One small SIMD layer: sixteen logical f32 lanes on every instruction set.
//!
//! Kernels are written once over [`Simd`] and compiled per instruction set through
//! [`Isa::run`](crate::isa::Isa::run). A vector always has [`LANES`] = 16 lanes (one AVX-512 register,
//! two AVX2 registers, four NEON registers, or an array), so reduction trees have one shape and a
//! kernel's tail handling is the same everywhere. Only [`Portable`] rounds a multiply-add twice.
//!
//! The values implementing [`Simd`] are proofs: `Avx512` can only be made (unsafely) where the
//! processor has the features, so its methods are safe to call.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
pub(crate) mod portable;
#[cfg(test)]
mod tests;

pub use portable::Portable;

use crate::isa::Kernel;

/// Logical lanes of a vector, on every instruction set.
pub const LANES: usize = 16;

/// The operations kernels are written in; lanes are independent unless a method says otherwise.
///
/// Floating-point comparisons are false on NaN. `load*`/`store*` need no alignment.
// `self` is the token that proves the instruction set is there, in conversions too.
#[allow(clippy::wrong_self_convention)]
pub trait Simd: Copy + Send + Sync + 'static {
    /// Sixteen f32.
    type F: Copy;
    /// Sixteen i32.
    type I: Copy;
    /// Sixteen booleans.
    type M: Copy;

    /// Whether [`mul_add`](Simd::mul_add) rounds once.
    const FUSED: bool;
    /// Rows of the GEMM micro-kernel that fit the register file …
    const GEMM_ROWS: usize;
    /// … next to this many vectors of columns (1 or 3).
    const GEMM_VECS: usize;

    /// Runs another kernel on this instruction set, as a call of its own: keeps large code out of small
    /// kernels that are compiled many times over.
    fn enter<K: Kernel>(self, kernel: K) -> K::Output;

    /// As [`enter`](Simd::enter), on the instruction set without extensions: what does not multiply short numbers is
    /// compiled once for all of them.
    #[inline(always)]
    fn enter_plain<K: Kernel>(self, kernel: K) -> K::Output {
        self.enter(kernel)
    }

    /// All lanes `x`.
    fn splat(self, x: f32) -> Self::F;
    /// Reads sixteen lanes.
    /// # Safety
    /// `p` must be readable for 16 elements.
    unsafe fn load(self, p: *const f32) -> Self::F;
    /// Reads the first `n ≤ 16` lanes, the others are zero and not touched in memory.
    /// # Safety
    /// `p` must be readable for `n` elements, `n ≤ 16`.
    unsafe fn load_n(self, p: *const f32, n: usize) -> Self::F;
    /// Writes sixteen lanes.
    /// # Safety
    /// `p` must be writable for 16 elements.
    unsafe fn store(self, p: *mut f32, x: Self::F);
    /// Writes the first `n ≤ 16` lanes; the memory behind the others is not touched.
    /// # Safety
    /// `p` must be writable for `n` elements, `n ≤ 16`.
    unsafe fn store_n(self, p: *mut f32, n: usize, x: Self::F);

    /// `a + b`.
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a − b`.
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a · b`.
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a / b`.
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a · b + c`, rounded once where [`FUSED`](Simd::FUSED).
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `c − a · b`, rounded once where [`FUSED`](Simd::FUSED).
    fn neg_mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The square root, correctly rounded.
    fn sqrt(self, a: Self::F) -> Self::F;
    /// The smaller one; `b` if either is NaN.
    fn min_raw(self, a: Self::F, b: Self::F) -> Self::F;
    /// The larger one; `b` if either is NaN.
    fn max_raw(self, a: Self::F, b: Self::F) -> Self::F;
    /// Rounds to the nearest integer, ties to even.
    fn round(self, a: Self::F) -> Self::F;
    /// Rounds towards −∞.
    fn floor(self, a: Self::F) -> Self::F;
    /// Rounds towards +∞.
    fn ceil(self, a: Self::F) -> Self::F;
    /// Rounds towards zero.
    fn trunc(self, a: Self::F) -> Self::F;

    /// `a < b`.
    fn lt(self, a: Self::F, b: Self::F) -> Self::M;
    /// `a ≤ b`.
    fn le(self, a: Self::F, b: Self::F) -> Self::M;
    /// `a = b`.
    fn eq(self, a: Self::F, b: Self::F) -> Self::M;
    /// `a` where `m`, else `b`.
    fn select(self, m: Self::M, a: Self::F, b: Self::F) -> Self::F;
    /// Both.
    fn mask_and(self, a: Self::M, b: Self::M) -> Self::M;
    /// Either.
    fn mask_or(self, a: Self::M, b: Self::M) -> Self::M;
    /// The opposite.
    fn mask_not(self, a: Self::M) -> Self::M;
    /// One bit per lane, lane 0 lowest.
    fn mask_bits(self, a: Self::M) -> u16;

    /// All lanes `x`.
    fn splat_i(self, x: i32) -> Self::I;
    /// The integer value of integral floats within i32's range.
    fn to_int(self, a: Self::F) -> Self::I;
    /// The nearest float.
    fn from_int(self, a: Self::I) -> Self::F;
    /// The same bits as integers.
    fn bits(self, a: Self::F) -> Self::I;
    /// The same bits as floats.
    fn from_bits(self, a: Self::I) -> Self::F;
    /// `a + b`, wrapping.
    fn add_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// `a − b`, wrapping.
    fn sub_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Bitwise and.
    fn and_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Bitwise or.
    fn or_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Bitwise exclusive or.
    fn xor_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Shifts left.
    fn shl_i<const N: i32>(self, a: Self::I) -> Self::I;
    /// Shifts right, keeping the sign.
    fn shr_i<const N: i32>(self, a: Self::I) -> Self::I;
    /// `a = b`.
    fn eq_i(self, a: Self::I, b: Self::I) -> Self::M;

    /// `a · 2ⁿ` for integral `n` in −200 … 200, with overflow to ±∞ and gradual underflow; rounds once if
    /// 2⁻²⁰ ≤ |a| ≤ 2²⁰.
    fn scale2(self, a: Self::F, n: Self::F) -> Self::F;
    /// The lanes as an array.
    fn to_array(self, a: Self::F) -> [f32; LANES];
    /// Sum in a fixed order: lanes 8 apart, then 4, 2 and 1.
    fn sum(self, a: Self::F) -> f32;
    /// Starts moving the cache line at `p` into the second-level cache; any address is allowed.
    fn prefetch_l2(self, p: *const f32);

    /// `a · b`, wrapping.
    #[inline(always)]
    fn mul_i(self, a: Self::I, b: Self::I) -> Self::I {
        let (a, b) = (self.to_array(self.from_bits(a)), self.to_array(self.from_bits(b)));
        let mut out = [0.0; LANES];
        for i in 0..LANES {
            out[i] = f32::from_bits(a[i].to_bits().wrapping_mul(b[i].to_bits()));
        }
        self.bits(self.from_array(&out))
    }

    /// `acc + Σ aᵢ·bᵢ` over the four bytes in each lane, unsigned in `a` and signed in `b`; exact, then wrapping.
    #[inline(always)]
    fn dot_bytes(self, acc: Self::I, a: Self::I, b: Self::I) -> Self::I {
        let (a, b) = (self.to_array(self.from_bits(a)), self.to_array(self.from_bits(b)));
        let mut out = [0.0; LANES];
        for i in 0..LANES {
            let (a, b) = (a[i].to_bits().to_le_bytes(), b[i].to_bits().to_le_bytes());
            let mut sum = 0i32;
            for j in 0..4 {
                sum += i32::from(a[j]) * i32::from(b[j] as i8);
            }
            out[i] = f32::from_bits(sum as u32);
        }
        self.add_i(acc, self.bits(self.from_array(&out)))
    }

    /// Whether [`dot_bf16`](Simd::dot_bf16) is one instruction.
    const BF16_DOT: bool = false;

    /// `acc + a₀·b₀ + a₁·b₁` of the two bf16 in each lane (the first one low), summed in f32. Where it is one
    /// instruction, that keeps no denormal numbers and rounds in its own order.
    #[inline(always)]
    fn dot_bf16(self, acc: Self::F, a: Self::I, b: Self::I) -> Self::F {
        let high = self.splat_i(!0xffff);
        let acc = self.mul_add(self.widen_bf16(a), self.widen_bf16(b), acc);
        self.mul_add(self.from_bits(self.and_i(a, high)), self.from_bits(self.and_i(b, high)), acc)
    }

    /// Reads the first `n ≤ 16` 16-bit numbers; their upper halves and the other lanes are zero.
    /// # Safety
    /// `p` must be readable for `n` elements, `n ≤ 16`.
    #[inline(always)]
    unsafe fn load_u16(self, p: *const u16, n: usize) -> Self::I {
        let mut lanes = [0u32; LANES];
        // SAFETY: the caller's promise; the array has sixteen elements.
        unsafe {
            for (i, lane) in lanes.iter_mut().enumerate().take(n) {
                *lane = u32::from(*p.add(i));
            }
            self.bits(self.load(lanes.as_ptr().cast()))
        }
    }
    /// Writes the lower halves of the first `n ≤ 16` lanes.
    /// # Safety
    /// `p` must be writable for `n` elements, `n ≤ 16`.
    #[inline(always)]
    unsafe fn store_u16(self, p: *mut u16, n: usize, x: Self::I) {
        let lanes = self.to_array(self.from_bits(x));
        for (i, lane) in lanes.iter().enumerate().take(n) {
            // SAFETY: the caller's promise.
            unsafe { *p.add(i) = lane.to_bits() as u16 };
        }
    }

    /// Reads the first `n ≤ 16` bytes as numbers, signed or not; the other lanes are zero.
    /// # Safety
    /// `p` must be readable for `n` elements, `n ≤ 16`.
    #[inline(always)]
    unsafe fn load_bytes<const SIGNED: bool>(self, p: *const u8, n: usize) -> Self::I {
        let mut lanes = [0i32; LANES];
        // SAFETY: the caller's promise; the array has sixteen elements.
        unsafe {
            for (i, lane) in lanes.iter_mut().enumerate().take(n) {
                let byte = *p.add(i);
                *lane = if SIGNED { i32::from(byte as i8) } else { i32::from(byte) };
            }
            self.bits(self.load(lanes.as_ptr().cast()))
        }
    }
    /// Writes the lowest bytes of the first `n ≤ 16` lanes.
    /// # Safety
    /// `p` must be writable for `n` elements, `n ≤ 16`.
    #[inline(always)]
    unsafe fn store_bytes(self, p: *mut u8, n: usize, x: Self::I) {
        let lanes = self.to_array(self.from_bits(x));
        for (i, lane) in lanes.iter().enumerate().take(n) {
            // SAFETY: the caller's promise.
            unsafe { *p.add(i) = lane.to_bits() as u8 };
        }
    }

    /// The f32 of the f16 in the lower half of each lane; the upper half must be zero.
    #[inline(always)]
    fn widen_f16(self, x: Self::I) -> Self::F {
        let sign = self.shl_i::<16>(self.and_i(x, self.splat_i(0x8000)));
        let magnitude = self.shl_i::<13>(self.and_i(x, self.splat_i(0x7fff)));
        // The exponent's bias is 112 less: one product for normal and denormal numbers alike.
        let finite = self.mul(self.from_bits(magnitude), self.splat(f32::from_bits((112 + 127) << 23)));
        let special = self.from_bits(self.or_i(magnitude, self.splat_i(0x7f80_0000)));
        let is_special = self.le(self.splat(f32::from_bits(0x7c00 << 13)), self.from_bits(magnitude));
        let magnitude = self.bits(self.select(is_special, special, finite));
        self.from_bits(self.or_i(magnitude, sign))
    }
    /// The nearest f16 of each lane, in its lower half; the upper half is zero.
    #[inline(always)]
    fn narrow_f16(self, x: Self::F) -> Self::I {
        let bits = self.bits(x);
        let sign = self.and_i(self.shr_i::<16>(bits), self.splat_i(0x8000));
        let magnitude = self.and_i(bits, self.splat_i(i32::MAX));
        let size = self.from_bits(magnitude);
        // Half a unit less one, and one more where the last bit that stays is odd: ties go to even.
        let odd = self.and_i(self.shr_i::<13>(magnitude), self.splat_i(1));
        let rounded = self.add_i(self.add_i(magnitude, self.splat_i(0xfff - (112 << 23))), odd);
        let normal = self.shr_i::<13>(rounded);
        // Below the smallest normal number, adding ½ leaves the digits that stay at the end.
        let half = self.splat(0.5);
        let denormal = self.sub_i(self.bits(self.add(size, half)), self.bits(half));
        let small = self.lt(size, self.splat(f32::from_bits((127 - 14) << 23)));
        let large = self.le(self.splat(65520.0), size);
        let out = self.select(small, self.from_bits(denormal), self.from_bits(normal));
        let out = self.select(large, self.from_bits(self.splat_i(0x7c00)), out);
        let out = self.select(self.is_nan(x), self.from_bits(self.splat_i(0x7e00)), out);
        self.or_i(self.bits(out), sign)
    }
    /// The f32 of the bf16 in the lower half of each lane.
    #[inline(always)]
    fn widen_bf16(self, x: Self::I) -> Self::F {
        self.from_bits(self.shl_i::<16>(x))
    }
    /// The nearest bf16 of each lane, in its lower half; the upper half means nothing.
    #[inline(always)]
    fn narrow_bf16(self, x: Self::F) -> Self::I {
        let bits = self.bits(x);
        let odd = self.and_i(self.shr_i::<16>(bits), self.splat_i(1));
        let rounded = self.add_i(self.add_i(bits, self.splat_i(0x7fff)), odd);
        // A NaN must not be rounded up into an infinity.
        let quiet = self.or_i(bits, self.splat_i(0x40_0000));
        let kept = self.select(self.is_nan(x), self.from_bits(quiet), self.from_bits(rounded));
        self.shr_i::<16>(self.bits(kept))
    }

    /// The lanes of an array.
    #[inline(always)]
    fn from_array(self, a: &[f32; LANES]) -> Self::F {
        // SAFETY: the array has sixteen elements.
        unsafe { self.load(a.as_ptr()) }
    }
    /// All lanes zero.
    #[inline(always)]
    fn zero(self) -> Self::F {
        self.splat(0.0)
    }
    /// `|a|`, also of NaN.
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        self.from_bits(self.and_i(self.bits(a), self.splat_i(i32::MAX)))
    }
    /// `−a`, also of zero and NaN.
    #[inline(always)]
    fn neg(self, a: Self::F) -> Self::F {
        self.from_bits(self.xor_i(self.bits(a), self.splat_i(i32::MIN)))
    }
    /// The magnitude of `a` with the sign of `b`.
    #[inline(always)]
    fn copysign(self, a: Self::F, b: Self::F) -> Self::F {
        let sign = self.splat_i(i32::MIN);
        let mag = self.and_i(self.bits(a), self.splat_i(i32::MAX));
        self.from_bits(self.or_i(mag, self.and_i(self.bits(b), sign)))
    }
    /// Where a lane is NaN.
    #[inline(always)]
    fn is_nan(self, a: Self::F) -> Self::M {
        self.mask_not(self.eq(a, a))
    }
    /// The larger one; NaN if either is NaN.
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        self.select(self.is_nan(a), a, self.max_raw(a, b))
    }
    /// The smaller one; NaN if either is NaN.
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        self.select(self.is_nan(a), a, self.min_raw(a, b))
    }
    /// The largest lane; NaN if any lane is NaN.
    #[inline(always)]
    fn reduce_max(self, a: Self::F) -> f32 {
        fold_tree(self.to_array(a), max_nan)
    }
    /// The smallest lane; NaN if any lane is NaN.
    #[inline(always)]
    fn reduce_min(self, a: Self::F) -> f32 {
        fold_tree(self.to_array(a), min_nan)
    }
    /// Reads `n ≤ 16` lanes, whole vectors without a mask.
    /// # Safety
    /// As [`load_n`](Simd::load_n).
    #[inline(always)]
    unsafe fn load_upto(self, p: *const f32, n: usize) -> Self::F {
        // SAFETY: the caller's promise.
        unsafe { if n == LANES { self.load(p) } else { self.load_n(p, n) } }
    }
    /// Writes `n ≤ 16` lanes, whole vectors without a mask.
    /// # Safety
    /// As [`store_n`](Simd::store_n).
    #[inline(always)]
    unsafe fn store_upto(self, p: *mut f32, n: usize, x: Self::F) {
        // SAFETY: the caller's promise.
        unsafe { if n == LANES { self.store(p, x) } else { self.store_n(p, n, x) } }
    }
}

/// The larger of two; NaN if either is NaN.
#[inline(always)]
pub fn max_nan(a: f32, b: f32) -> f32 {
    if a.is_nan() || a > b { a } else { b }
}

/// The smaller of two; NaN if either is NaN.
#[inline(always)]
pub fn min_nan(a: f32, b: f32) -> f32 {
    if a.is_nan() || a < b { a } else { b }
}

#[inline(always)]
fn fold_tree(mut v: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            v[i] = f(v[i], v[i + width]);
        }
        width /= 2;
    }
    v[0]
}
