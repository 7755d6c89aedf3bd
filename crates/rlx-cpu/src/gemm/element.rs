//! The element types of packed matmuls: f32, and the 16-bit floats, whose sums are kept in f32.
//!
//! A packed panel is made of 32-bit words, 48 to a row. A row holds one step of depth of f32, and two of 16-bit
//! floats: bf16 as pairs in one word, the form that VDPBF16PS multiplies (elsewhere the two halves are widened by
//! a shift and a mask), f16 as sixteen of the first step and sixteen of the second in turn, widened as they are loaded.

use half::{bf16, f16};

use super::PANEL;
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

    /// Adds one group of depth to R rows × V vectors of sums: `b` is its row of words, `k` its first element in
    /// each row of A. Of the last group of an odd depth `only` the first step is there.
    /// # Safety
    /// The row of words must be readable, and `GROUP` elements at `k` of each row of A, or one if `only`.
    unsafe fn multiply<S: Simd, const R: usize, const V: usize>(
        s: S,
        acc: &mut [[S::F; V]; R],
        a: &[*const Self; R],
        k: usize,
        b: *const f32,
        only: bool,
    );
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
        b: *const f32,
        _: bool,
    ) {
        // SAFETY: the caller promises a row of the panel at `b` and `k` within each row of A.
        unsafe {
            let mut bv = [s.zero(); V];
            for v in 0..V {
                bv[v] = s.load(b.add(v * LANES));
            }
            for r in 0..R {
                let x = s.splat(*a[r].add(k));
                for v in 0..V {
                    acc[r][v] = s.mul_add(x, bv[v], acc[r][v]);
                }
            }
        }
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
        b: *const f32,
        only: bool,
    ) {
        // SAFETY: the caller promises a row of words at `b` and the elements of A.
        unsafe {
            let mut bv = [s.splat_i(0); V];
            for v in 0..V {
                bv[v] = s.bits(s.load(b.add(v * LANES)));
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
        b: *const f32,
        only: bool,
    ) {
        // SAFETY: the caller promises a row of words at `b` and the elements of A.
        unsafe {
            for step in 0..if only { 1 } else { 2 } {
                let mut bv = [s.zero(); V];
                for v in 0..V {
                    let halves = b.add(v * LANES).cast::<u16>().add(step * LANES);
                    bv[v] = s.widen_f16(s.load_u16(halves, LANES));
                }
                for r in 0..R {
                    let x = s.widen_f16(s.splat_i(i32::from((*a[r].add(k + step)).to_bits())));
                    for v in 0..V {
                        acc[r][v] = s.mul_add(x, bv[v], acc[r][v]);
                    }
                }
            }
        }
    }
}
