//! One small SIMD layer: sixteen logical f32 lanes on every instruction set.
//!
//! Kernels are written once over [`Simd`] and compiled per instruction set through
//! [`Isa::run`](crate::isa::Isa::run). A vector always has [`LANES`] = 16 lanes (one AVX-512 register,
//! two AVX2 registers, four of NEON or WebAssembly, or an array), so reduction trees have one shape and a
//! kernel's tail handling is the same everywhere. [`Portable`] and WebAssembly round a multiply-add twice.
//!
//! The values implementing [`Simd`] are proofs: `Avx512` can only be made (unsafely) where the
//! processor has the features, so its methods are safe to call.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512_bf16;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512_bytes;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
pub(crate) mod portable;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
pub(crate) mod simd128;
#[cfg(test)]
mod tests;

pub use portable::Portable;

use rlx_math::Lanes;

/// Logical lanes of a vector, on every instruction set.
pub const LANES: usize = 16;

/// How many of `n` elements are before the first line of the cache that begins with one, 15 at most: a vector across two lines takes two accesses.
pub(crate) fn before_line(p: *const f32, n: usize) -> usize {
    let lead = p.align_offset(64);
    if lead < LANES { lead.min(n) } else { 0 }
}

/// A computation written once for every instruction set.
///
/// `run` and everything generic it calls must be `#[inline(always)]`, and must not pass closures:
/// only what is inlined into the entry point is compiled with the instruction set's features.
pub trait Kernel {
    /// What it returns.
    type Output;
    /// The body; `s` is the proof that `S`'s instructions may be used.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}

/// The operations kernels are written in beside those of [`Lanes`]: memory, conversions, and what crosses lanes. Each of the
/// associated types has sixteen lanes.
///
/// `load*`/`store*` need no alignment.
// `self` is the token that proves the instruction set is there, in conversions too.
#[allow(clippy::wrong_self_convention)]
pub trait Simd: Lanes + Send + Sync + 'static {
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
    /// Writes sixteen lanes, past the caches where the processor can.
    /// # Safety
    /// `p` must be writable for 16 elements and a multiple of 64 bytes; nothing may read them before this thread has called `stores::fence`.
    #[inline(always)]
    unsafe fn store_non_temporal(self, p: *mut f32, x: Self::F) {
        // SAFETY: the caller's promise.
        unsafe { self.store(p, x) }
    }
    /// Writes the first `n ≤ 16` lanes; the memory behind the others is not touched.
    /// # Safety
    /// `p` must be writable for `n` elements, `n ≤ 16`.
    unsafe fn store_n(self, p: *mut f32, n: usize, x: Self::F);

    /// One bit per lane, lane 0 lowest.
    fn mask_bits(self, a: Self::M) -> u16;

    /// The lanes as an array.
    fn to_array(self, a: Self::F) -> [f32; LANES];
    /// The lanes of both in turn, `a₀ b₀ a₁ b₁ …`: the first sixteen of them, and the others.
    fn zip(self, a: Self::F, b: Self::F) -> (Self::F, Self::F);
    /// Every other lane of `a` and then of `b`, from the first on and from the second on: [`zip`](Simd::zip) undone.
    #[inline(always)]
    fn unzip(self, a: Self::F, b: Self::F) -> (Self::F, Self::F) {
        let (a, b) = (self.to_array(a), self.to_array(b));
        let (mut even, mut odd) = ([0.0; LANES], [0.0; LANES]);
        for i in 0..LANES / 2 {
            (even[i], odd[i]) = (a[2 * i], a[2 * i + 1]);
            (even[i + LANES / 2], odd[i + LANES / 2]) = (b[2 * i], b[2 * i + 1]);
        }
        (self.from_array(&even), self.from_array(&odd))
    }
    /// The lanes in the opposite order.
    #[inline(always)]
    fn reverse(self, a: Self::F) -> Self::F {
        let mut lanes = self.to_array(a);
        lanes.reverse();
        self.from_array(&lanes)
    }
    /// Whether [`permute`](Simd::permute) takes any of the sixteen lanes.
    const PERMUTES_ALL: bool = false;

    /// For each lane, the lane of `a` that `from` names: one of the eight neighbours that it is among itself (lanes 0 to 7 or 8 to 15), if not
    /// of all ([`PERMUTES_ALL`](Simd::PERMUTES_ALL)). Of a number, bits above those do not count.
    #[inline(always)]
    fn permute(self, a: Self::F, from: Self::I) -> Self::F {
        let (a, from) = (self.to_array(a), self.to_array(self.from_bits(from)));
        let mut out = [0.0; LANES];
        for (lane, (out, from)) in out.iter_mut().zip(from).enumerate() {
            *out = a[lane & 8 | from.to_bits() as usize & 7];
        }
        self.from_array(&out)
    }
    /// The number of each lane.
    #[inline(always)]
    fn iota(self) -> Self::I {
        const NUMBERS: [f32; LANES] = {
            let (mut numbers, mut i) = ([0.0; LANES], 0);
            while i < LANES {
                numbers[i] = f32::from_bits(i as u32);
                i += 1;
            }
            numbers
        };
        self.bits(self.from_array(&NUMBERS))
    }
    /// Sum in a fixed order: lanes 8 apart, then 4, 2 and 1.
    fn sum(self, a: Self::F) -> f32;
    /// Starts moving the cache line at `p` into the first-level cache; any address is allowed.
    fn prefetch_l1(self, p: *const f32);
    /// As [`Simd::prefetch_l1`], into the second-level cache.
    fn prefetch_l2(self, p: *const f32);

    /// `a · b`, wrapping.
    #[inline(always)]
    fn mul_i(self, a: Self::I, b: Self::I) -> Self::I {
        by_lanes(self, a, b, i32::wrapping_mul)
    }

    /// `a − b` of each byte, wrapping.
    #[inline(always)]
    fn sub_bytes(self, a: Self::I, b: Self::I) -> Self::I {
        by_lanes(self, a, b, |a, b| {
            let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
            i32::from_le_bytes([0, 1, 2, 3].map(|i| a[i].wrapping_sub(b[i])))
        })
    }

    /// The larger one, with a sign.
    #[inline(always)]
    fn max_i(self, a: Self::I, b: Self::I) -> Self::I {
        by_lanes(self, a, b, i32::max)
    }

    /// The smaller one, with a sign.
    #[inline(always)]
    fn min_i(self, a: Self::I, b: Self::I) -> Self::I {
        by_lanes(self, a, b, i32::min)
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

    /// Reads one element for each lane, which may be anywhere: those at sixteen places behind `p`.
    /// # Safety
    /// `places` must be readable for 16 numbers, and `p` at each of them.
    #[inline(always)]
    unsafe fn pick(self, p: *const f32, places: *const u32) -> Self::F {
        let mut lanes = [0.0; LANES];
        for (i, lane) in lanes.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { *lane = *p.add(*places.add(i) as usize) };
        }
        self.from_array(&lanes)
    }
    /// As [`pick`](Simd::pick), and the neighbour behind each of them.
    /// # Safety
    /// `places` must be readable for 16 numbers, and `p` for two elements at each of them.
    #[inline(always)]
    unsafe fn pick_pairs(self, p: *const f32, places: *const u32) -> (Self::F, Self::F) {
        // SAFETY: the caller's promise.
        unsafe { (self.pick(p, places), self.pick(p.add(1), places)) }
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
    /// Reads the first `n ≤ 16` bytes at each of the places: a lane's word has one from each, the first place's lowest. The other
    /// lanes are zero.
    /// # Safety
    /// Each place must be readable for `n` elements, `n ≤ 16`.
    #[inline(always)]
    unsafe fn load_words(self, from: [*const u8; 4], n: usize) -> Self::I {
        // SAFETY: the caller's promise.
        let [a, b, c, d] = unsafe { from.map(|p| self.load_bytes::<false>(p, n)) };
        let low = self.or_i(a, self.shl_i::<8>(b));
        self.or_i(low, self.shl_i::<16>(self.or_i(c, self.shl_i::<8>(d))))
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

    /// Writes the upper half of each lane of two vectors, a number with a sign that is held between two bounds, as a byte; each vector to sixteen bytes
    /// at its place.
    /// # Safety
    /// Both places must be writable for 16 bytes.
    #[inline(always)]
    unsafe fn store_upper_halves(self, to: [*mut u8; 2], x: [Self::I; 2], bounds: [i16; 2]) {
        let [low, high] = bounds.map(|bound| self.splat_i(i32::from(bound)));
        for (to, x) in to.into_iter().zip(x) {
            let within = self.min_i(self.max_i(self.shr_i::<16>(x), low), high);
            // SAFETY: the caller's promise.
            unsafe { self.store_bytes(to, LANES, within) };
        }
    }

    /// Reads 64 bytes at each of the places as words that have one of each, the first place's lowest, in the [order of quarters](Simd::quarters).
    /// # Safety
    /// Each place must be readable for 64 bytes.
    #[inline(always)]
    unsafe fn load_quad(self, from: [*const u8; 4]) -> [Self::I; 4] {
        let [a, b, c, d] = from;
        let mut words = [self.zero(); 4];
        for (v, to) in words.iter_mut().enumerate() {
            let at = v * LANES;
            let places = [a.wrapping_add(at), b.wrapping_add(at), c.wrapping_add(at), d.wrapping_add(at)];
            // SAFETY: the caller's promise.
            *to = self.from_bits(unsafe { self.load_words(places, LANES) });
        }
        let [a, b, c, d] = self.quarters(words);
        [self.bits(a), self.bits(b), self.bits(c), self.bits(d)]
    }

    /// [`store_upper_halves`](Simd::store_upper_halves) of four vectors in the [order of quarters](Simd::quarters), to 64 bytes. Bounds are
    /// those of one type of bytes.
    /// # Safety
    /// `to` must be writable for 64 bytes.
    #[inline(always)]
    unsafe fn store_quad(self, to: *mut u8, x: [Self::I; 4], bounds: [i16; 2]) {
        let [a, b, c, d] = x;
        let x = [self.from_bits(a), self.from_bits(b), self.from_bits(c), self.from_bits(d)];
        let [a, b, c, d] = self.quarters(x);
        let (first, second) = ([self.bits(a), self.bits(b)], [self.bits(c), self.bits(d)]);
        // SAFETY: the caller's promise.
        unsafe {
            self.store_upper_halves([to, to.wrapping_add(LANES)], first, bounds);
            self.store_upper_halves([to.wrapping_add(2 * LANES), to.wrapping_add(3 * LANES)], second, bounds);
        }
    }

    /// Four vectors in the order of quarters, and back: quarter q (four lanes) of vector v becomes quarter v of vector q. Instructions that interleave or
    /// narrow work within the quarters of a register, and have four vectors in this order.
    #[inline(always)]
    fn quarters(self, x: [Self::F; 4]) -> [Self::F; 4] {
        let [a, b, c, d] = x;
        let from = [self.to_array(a), self.to_array(b), self.to_array(c), self.to_array(d)];
        let mut to = [[0.0; LANES]; 4];
        for (v, to) in to.iter_mut().enumerate() {
            for (lane, to) in to.iter_mut().enumerate() {
                *to = from[lane / 4][v * 4 + lane % 4];
            }
        }
        [self.from_array(&to[0]), self.from_array(&to[1]), self.from_array(&to[2]), self.from_array(&to[3])]
    }

    /// Whether the lower half of any lane of two vectors, unsigned, is below that lane of `limits`, which is less than 2¹⁶.
    #[inline(always)]
    fn any_lower_half_below(self, [a, b]: [Self::I; 2], limits: Self::I) -> bool {
        let (lower, limits) = (self.splat_i(0xffff), self.from_int(limits));
        let first = self.lt(self.from_int(self.and_i(a, lower)), limits);
        let second = self.lt(self.from_int(self.and_i(b, lower)), limits);
        self.mask_bits(self.mask_or(first, second)) != 0
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

    /// Writes the nearest bf16 of the first `n ≤ 16` lanes; unless it is to be `EXACT`, perhaps 0 for what is denormal.
    /// # Safety
    /// `p` must be writable for `n` elements, `n ≤ 16`.
    #[inline(always)]
    unsafe fn store_bf16<const EXACT: bool>(self, p: *mut u16, n: usize, x: Self::F) {
        // SAFETY: the caller's promise.
        unsafe { self.store_u16(p, n, self.narrow_bf16(x)) }
    }
    /// A bf16 in all lanes.
    #[inline(always)]
    fn splat_bf16(self, bits: u16) -> Self::F {
        self.splat(f32::from_bits(u32::from(bits) << 16))
    }
    /// Each lane rounded to the nearest bf16, as [`store_bf16`](Simd::store_bf16) does.
    #[inline(always)]
    fn round_bf16<const EXACT: bool>(self, x: Self::F) -> Self::F {
        self.widen_bf16(self.narrow_bf16(x))
    }

    /// Reads 32 bf16 as two vectors, in an order that is this instruction set's own.
    /// # Safety
    /// `p` must be readable for 32 elements.
    #[inline(always)]
    unsafe fn load_two_bf16(self, p: *const u16) -> [Self::F; 2] {
        // SAFETY: the caller's promise.
        let [a, b] = unsafe { [self.load_u16(p, LANES), self.load_u16(p.add(LANES), LANES)] };
        [self.widen_bf16(a), self.widen_bf16(b)]
    }
    /// Writes the nearest bf16 of two vectors, in the order of [`load_two_bf16`](Simd::load_two_bf16).
    /// # Safety
    /// `p` must be writable for 32 elements.
    #[inline(always)]
    unsafe fn store_two_bf16(self, p: *mut u16, [a, b]: [Self::F; 2]) {
        // SAFETY: the caller's promise.
        unsafe { self.store_pair_bf16(p, [a, b]) }
    }
    /// Writes the nearest bf16 of two vectors, the first in front.
    /// # Safety
    /// `p` must be writable for 32 elements.
    #[inline(always)]
    unsafe fn store_pair_bf16(self, p: *mut u16, [a, b]: [Self::F; 2]) {
        // SAFETY: the caller's promise.
        unsafe {
            self.store_bf16::<true>(p, LANES, a);
            self.store_bf16::<true>(p.add(LANES), LANES, b);
        }
    }
    /// Each lane of two vectors rounded to the nearest bf16, as [`store_two_bf16`](Simd::store_two_bf16) does.
    #[inline(always)]
    fn round_two_bf16(self, [a, b]: [Self::F; 2]) -> [Self::F; 2] {
        [self.round_bf16::<true>(a), self.round_bf16::<true>(b)]
    }

    /// The lanes of an array.
    #[inline(always)]
    fn from_array(self, a: &[f32; LANES]) -> Self::F {
        // SAFETY: the array has sixteen elements.
        unsafe { self.load(a.as_ptr()) }
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
    /// Reads the first eight lanes, the others are zero: without a mask, where that takes time.
    /// # Safety
    /// `p` must be readable for eight elements.
    #[inline(always)]
    unsafe fn load_half(self, p: *const f32) -> Self::F {
        // SAFETY: the caller's promise.
        unsafe { self.load_n(p, LANES / 2) }
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

/// `f` of each lane of two vectors.
#[inline(always)]
fn by_lanes<S: Simd>(s: S, a: S::I, b: S::I, f: impl Fn(i32, i32) -> i32) -> S::I {
    let (a, b) = (s.to_array(s.from_bits(a)), s.to_array(s.from_bits(b)));
    let mut out = [0.0; LANES];
    for (out, (a, b)) in out.iter_mut().zip(a.into_iter().zip(b)) {
        *out = f32::from_bits(f(a.to_bits() as i32, b.to_bits() as i32) as u32);
    }
    s.bits(s.from_array(&out))
}

/// [`Lanes::by_scalar_code`] of every instruction set.
#[inline(always)]
fn by_scalar_code<S: Simd>(s: S, fast: S::M, x: S::F, f: fn(f32) -> f32) -> Option<S::F> {
    if s.mask_bits(fast) == u16::MAX {
        return None;
    }
    let mut lanes = s.to_array(x);
    each_lane(&mut lanes, f);
    Some(s.from_array(&lanes))
}

#[cold]
#[inline(never)]
fn each_lane(lanes: &mut [f32; LANES], f: fn(f32) -> f32) {
    for v in lanes {
        *v = f(*v);
    }
}

/// [`Simd::reduce_max`] where a lane is NaN, out of the way of what is common.
#[cfg(target_arch = "x86_64")]
#[cold]
#[inline(never)]
fn largest_with_nan(lanes: &[f32; LANES]) -> f32 {
    fold_tree(*lanes, max_nan)
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
