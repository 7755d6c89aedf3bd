//! The element types of packed matmuls: f32, and the 16-bit floats, whose sums are kept in f32.
//!
//! A packed panel is made of 32-bit words, 48 to a row. A row holds one step of depth of f32, and two of 16-bit
//! floats: bf16 as pairs in one word, the form that VDPBF16PS multiplies (elsewhere the two halves are widened by
//! a shift and a mask), f16 as sixteen of the first step and sixteen of the second in turn, widened as they are loaded.

use half::{bf16, f16};

use super::PANEL;
use super::panels::VECTORS;
use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd};

/// An element type that packed matmuls take.
///
/// # Safety
/// [`place`](Packed::place) must stay below `PANEL · 4 / size_of::<Self>()`: packing writes there.
pub unsafe trait Packed: Copy + Default + Send + Sync + 'static {
    /// Steps of depth in one row of words of a panel.
    const GROUP: usize;

    /// Neighbouring columns that are neighbours in a row of words, too.
    const RUN: usize;

    /// Neighbours whose products are added by one instruction where a processor has it: weights of so many channels lie side by side where
    /// groups of a convolution have several.
    const DOT: usize = 1;

    /// Where in its row of words the element of step `step < GROUP` and column `column < PANEL` lies, in elements.
    fn place(step: usize, column: usize) -> usize;

    /// Runs a kernel that multiplies this type on the best instructions for it.
    fn run<K: Kernel>(isa: Isa, kernel: K) -> K::Output;

    /// Whether numbers of this type are multiplied as they are. Those that are not are widened first.
    fn multiplies(isa: Isa) -> bool;

    /// One element as f32.
    fn widen(self) -> f32;

    /// Nothing.
    fn zero() -> Self;

    /// Reads `n ≤ 16` elements as f32.
    /// # Safety
    /// `p` must be readable for `n` elements.
    unsafe fn load<S: Simd>(s: S, p: *const Self, n: usize) -> S::F;

    /// One element in all lanes.
    /// # Safety
    /// `p` must be readable.
    #[inline(always)]
    unsafe fn splat<S: Simd>(s: S, p: *const Self) -> S::F {
        // SAFETY: the caller's promise.
        s.splat(unsafe { *p }.widen())
    }

    /// Writes `n ≤ 16` elements, rounded to this type.
    /// # Safety
    /// `p` must be writable for `n` elements.
    unsafe fn store<S: Simd>(s: S, p: *mut Self, n: usize, x: S::F);

    /// Rounds to what this type can hold.
    fn round<S: Simd>(s: S, x: S::F) -> S::F;

    /// Reads two vectors of elements as f32, in an order that is the instruction set's own: for functions of each element alone.
    /// # Safety
    /// `p` must be readable for 32 elements.
    #[inline(always)]
    unsafe fn load_two<S: Simd>(s: S, p: *const Self) -> [S::F; 2] {
        // SAFETY: the caller's promise.
        unsafe { [Self::load(s, p, LANES), Self::load(s, p.add(LANES), LANES)] }
    }

    /// [`store`](Packed::store) of two vectors in the order of [`load_two`](Packed::load_two).
    /// # Safety
    /// `p` must be writable for 32 elements.
    #[inline(always)]
    unsafe fn store_two<S: Simd>(s: S, p: *mut Self, x: [S::F; 2]) {
        // SAFETY: the caller's promise.
        unsafe { Self::store_pair(s, p, x) }
    }

    /// [`store`](Packed::store) of two vectors, the first in front.
    /// # Safety
    /// `p` must be writable for 32 elements.
    #[inline(always)]
    unsafe fn store_pair<S: Simd>(s: S, p: *mut Self, [a, b]: [S::F; 2]) {
        // SAFETY: the caller's promise.
        unsafe {
            Self::store(s, p, LANES, a);
            Self::store(s, p.add(LANES), LANES, b);
        }
    }

    /// [`round`](Packed::round) of two vectors.
    #[inline(always)]
    fn round_two<S: Simd>(s: S, [a, b]: [S::F; 2]) -> [S::F; 2] {
        [Self::round(s, a), Self::round(s, b)]
    }

    /// [`store`](Packed::store) of sums of products, of which those may be written as 0 that are denormal: bf16 products are so.
    /// # Safety
    /// As [`store`](Packed::store).
    #[inline(always)]
    unsafe fn store_sum<S: Simd>(s: S, p: *mut Self, n: usize, x: S::F) {
        // SAFETY: the caller's promise.
        unsafe { Self::store(s, p, n, x) }
    }

    /// [`round`](Packed::round) of sums of products, as [`store_sum`](Packed::store_sum) has it.
    #[inline(always)]
    fn round_sum<S: Simd>(s: S, x: S::F) -> S::F {
        Self::round(s, x)
    }

    /// Adds one group of depth to R rows × V vectors of sums: `b` is its row of words in a panel and in the next one, for vectors that
    /// the first has not, `k` its first element in each row of A. Of the last group of an odd depth `only` the first step is there.
    /// # Safety
    /// The rows of words must be readable for these vectors, and `GROUP` elements at `k` of each row of A, or one if `only`.
    unsafe fn multiply<S: Simd, const R: usize, const V: usize>(
        s: S,
        acc: &mut [[S::F; V]; R],
        a: &[*const Self; R],
        k: usize,
        b: [*const f32; 2],
        only: bool,
    );

    /// Widens vector `v` of the columns of step `step < GROUP` of a row of words.
    /// # Safety
    /// The row of words must be readable.
    unsafe fn load_step<S: Simd>(s: S, words: *const f32, v: usize, step: usize) -> S::F;
}

// SAFETY: a column's number is below the panel's width.
unsafe impl Packed for f32 {
    const GROUP: usize = 1;
    const RUN: usize = PANEL;

    #[inline(always)]
    fn place(_: usize, column: usize) -> usize {
        column
    }
    #[inline(always)]
    fn run<K: Kernel>(isa: Isa, kernel: K) -> K::Output {
        isa.run(kernel)
    }
    #[inline(always)]
    fn multiplies(_: Isa) -> bool {
        true
    }
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
    #[inline(always)]
    fn zero() -> f32 {
        0.0
    }
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const f32, n: usize) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { s.load_upto(p, n) }
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, p: *mut f32, n: usize, x: S::F) {
        // SAFETY: the caller's promise.
        unsafe { s.store_upto(p, n, x) }
    }
    #[inline(always)]
    fn round<S: Simd>(_: S, x: S::F) -> S::F {
        x
    }
    #[inline(always)]
    unsafe fn multiply<S: Simd, const R: usize, const V: usize>(
        s: S,
        acc: &mut [[S::F; V]; R],
        a: &[*const f32; R],
        k: usize,
        b: [*const f32; 2],
        only: bool,
    ) {
        // SAFETY: the caller's promise.
        unsafe { multiply_steps(s, acc, a, k, b, only) }
    }
    #[inline(always)]
    unsafe fn load_step<S: Simd>(s: S, words: *const f32, v: usize, _: usize) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { s.load(words.wrapping_add(v * LANES)) }
    }
}

// SAFETY: 2·47 + 1 is below 96.
unsafe impl Packed for bf16 {
    const GROUP: usize = 2;
    const RUN: usize = 1;
    const DOT: usize = 2;

    #[inline(always)]
    fn place(step: usize, column: usize) -> usize {
        2 * column + step
    }
    #[inline(always)]
    fn run<K: Kernel>(isa: Isa, kernel: K) -> K::Output {
        isa.run_bf16(kernel)
    }
    #[inline(always)]
    fn multiplies(isa: Isa) -> bool {
        isa.multiplies_bf16()
    }
    #[inline(always)]
    fn widen(self) -> f32 {
        self.to_f32()
    }
    #[inline(always)]
    fn zero() -> bf16 {
        bf16::ZERO
    }
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const bf16, n: usize) -> S::F {
        // SAFETY: the caller's promise.
        s.widen_bf16(unsafe { s.load_u16(p.cast(), n) })
    }
    #[inline(always)]
    unsafe fn splat<S: Simd>(s: S, p: *const bf16) -> S::F {
        // SAFETY: the caller's promise.
        s.splat_bf16(unsafe { *p }.to_bits())
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, p: *mut bf16, n: usize, x: S::F) {
        // SAFETY: the caller's promise.
        unsafe { s.store_bf16::<true>(p.cast(), n, x) }
    }
    #[inline(always)]
    fn round<S: Simd>(s: S, x: S::F) -> S::F {
        s.round_bf16::<true>(x)
    }
    #[inline(always)]
    unsafe fn load_two<S: Simd>(s: S, p: *const bf16) -> [S::F; 2] {
        // SAFETY: the caller's promise.
        unsafe { s.load_two_bf16(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store_two<S: Simd>(s: S, p: *mut bf16, x: [S::F; 2]) {
        // SAFETY: the caller's promise.
        unsafe { s.store_two_bf16(p.cast(), x) }
    }
    #[inline(always)]
    unsafe fn store_pair<S: Simd>(s: S, p: *mut bf16, x: [S::F; 2]) {
        // SAFETY: the caller's promise.
        unsafe { s.store_pair_bf16(p.cast(), x) }
    }
    #[inline(always)]
    fn round_two<S: Simd>(s: S, x: [S::F; 2]) -> [S::F; 2] {
        s.round_two_bf16(x)
    }
    #[inline(always)]
    unsafe fn store_sum<S: Simd>(s: S, p: *mut bf16, n: usize, x: S::F) {
        // SAFETY: the caller's promise.
        unsafe { s.store_bf16::<false>(p.cast(), n, x) }
    }
    #[inline(always)]
    fn round_sum<S: Simd>(s: S, x: S::F) -> S::F {
        s.round_bf16::<false>(x)
    }
    #[inline(always)]
    unsafe fn multiply<S: Simd, const R: usize, const V: usize>(
        s: S,
        acc: &mut [[S::F; V]; R],
        a: &[*const bf16; R],
        k: usize,
        b: [*const f32; 2],
        only: bool,
    ) {
        if const { !S::BF16_DOT } {
            // SAFETY: the caller's promise.
            return unsafe { multiply_steps(s, acc, a, k, b, only) };
        }
        // SAFETY: the caller promises a row of words at `b` and the elements of A.
        unsafe {
            let mut bv = [s.splat_i(0); V];
            for v in 0..V {
                bv[v] = s.bits(s.load(b[v / VECTORS].add(v % VECTORS * LANES)));
            }
            for r in 0..R {
                let at = a[r].add(k);
                // The panel has zeros where the second step is missing.
                let pair = if only { i32::from((*at).to_bits()) } else { at.cast::<i32>().read_unaligned() };
                let x = s.splat_i(pair);
                for v in 0..V {
                    // A pair that is multiplied once is spread as it is read, which only the second operand can be (8 products with 8 rows
                    // take 8 cycles of a Zen 4, not 11).
                    acc[r][v] = match const { V == 1 && R > 1 } {
                        true => s.dot_bf16(acc[r][v], bv[v], x),
                        false => s.dot_bf16(acc[r][v], x, bv[v]),
                    };
                }
            }
        }
    }
    #[inline(always)]
    unsafe fn load_step<S: Simd>(s: S, words: *const f32, v: usize, step: usize) -> S::F {
        // SAFETY: the caller's promise.
        let pairs = s.bits(unsafe { s.load(words.wrapping_add(v * LANES)) });
        match step {
            0 => s.widen_bf16(pairs),
            _ => s.from_bits(s.and_i(pairs, s.splat_i(!0xffff))),
        }
    }
}

// SAFETY: 64 + 16 + 15 is below 96.
unsafe impl Packed for f16 {
    const GROUP: usize = 2;
    const RUN: usize = LANES;

    #[inline(always)]
    fn place(step: usize, column: usize) -> usize {
        column / LANES * 2 * LANES + step * LANES + column % LANES
    }
    #[inline(always)]
    fn run<K: Kernel>(isa: Isa, kernel: K) -> K::Output {
        isa.run(kernel)
    }
    #[inline(always)]
    fn multiplies(_: Isa) -> bool {
        false
    }
    #[inline(always)]
    fn widen(self) -> f32 {
        self.to_f32()
    }
    #[inline(always)]
    fn zero() -> f16 {
        f16::ZERO
    }
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const f16, n: usize) -> S::F {
        // SAFETY: the caller's promise.
        s.widen_f16(unsafe { s.load_u16(p.cast(), n) })
    }
    #[inline(always)]
    unsafe fn splat<S: Simd>(s: S, p: *const f16) -> S::F {
        // SAFETY: the caller's promise.
        s.widen_f16(s.splat_i(i32::from(unsafe { *p }.to_bits())))
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, p: *mut f16, n: usize, x: S::F) {
        // SAFETY: the caller's promise.
        unsafe { s.store_u16(p.cast(), n, s.narrow_f16(x)) }
    }
    #[inline(always)]
    fn round<S: Simd>(s: S, x: S::F) -> S::F {
        s.widen_f16(s.narrow_f16(x))
    }
    #[inline(always)]
    unsafe fn multiply<S: Simd, const R: usize, const V: usize>(
        s: S,
        acc: &mut [[S::F; V]; R],
        a: &[*const f16; R],
        k: usize,
        b: [*const f32; 2],
        only: bool,
    ) {
        // SAFETY: the caller's promise.
        unsafe { multiply_steps(s, acc, a, k, b, only) }
    }
    #[inline(always)]
    unsafe fn load_step<S: Simd>(s: S, words: *const f32, v: usize, step: usize) -> S::F {
        let halves = words.wrapping_add(v * LANES).cast::<u16>().wrapping_add(step * LANES);
        // SAFETY: the caller's promise.
        s.widen_f16(unsafe { s.load_u16(halves, LANES) })
    }
}

/// [`Packed::multiply`] of one step of depth after the other, in f32.
///
/// # Safety
/// As [`Packed::multiply`].
#[inline(always)]
unsafe fn multiply_steps<T: Packed, S: Simd, const R: usize, const V: usize>(
    s: S,
    acc: &mut [[S::F; V]; R],
    a: &[*const T; R],
    k: usize,
    b: [*const f32; 2],
    only: bool,
) {
    for step in 0..if only { 1 } else { T::GROUP } {
        // SAFETY: the caller promises a row of words at `b` and the elements of A.
        unsafe {
            let mut bv = [s.zero(); V];
            for v in 0..V {
                bv[v] = T::load_step(s, b[v / VECTORS], v % VECTORS, step);
            }
            for r in 0..R {
                let x = T::splat(s, a[r].add(k + step));
                for v in 0..V {
                    acc[r][v] = s.mul_add(x, bv[v], acc[r][v]);
                }
            }
        }
    }
}
