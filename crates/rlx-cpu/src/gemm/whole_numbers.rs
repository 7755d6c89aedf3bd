//! Rows as whole numbers: what is done to rows before they are multiplied [in fixed point](super::fixed_rows), or as floats of 8 bits.

use std::ops::Range;

use super::blocks::BlockGemm;
use super::fixed_rows::{FixedRows, Width};
use super::kernel::Strided;
use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd};

/// The largest whole number of 24 bits: three signed bytes hold 2²³ − 2¹⁵ − 2⁷ and a bit more, of which the product by a rounded quotient takes some.
const LARGEST: f32 = 8_355_000.0;

/// The largest of 8 bits.
const LARGEST_BYTE: f32 = 127.0;

/// What the largest magnitude of a block counts as at least for those.
const LEAST: f32 = 1.0 / (1u128 << 100) as f32;

/// Magnitudes whose quotients are normal numbers.
const SIZES: Range<f32> = 1e-20..1e20;

/// Makes whole numbers of some rows.
pub(super) struct Fix<'a> {
    pub(super) of: &'a FixedRows,
    pub(super) rows: Range<usize>,
}

impl Kernel for Fix<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let FixedRows { of: BlockGemm { rows, k, size, depth, .. }, width, .. } = *self.of;
        let blocks = self.of.blocks();
        for row in self.rows.clone() {
            let scales = self.of.scales(row);
            let x = rows.ptr.wrapping_offset(row as isize * rows.row_stride);
            let to = self.of.digits(row);
            for block in 0..blocks {
                let first = block * size;
                let here = size.min(k.saturating_sub(first));
                let (x, to) = (x.wrapping_add(first), to.wrapping_add(first));
                // SAFETY: `FixedRows::fix` was promised the rows and the scratch.
                unsafe {
                    let made = match width {
                        Width::Digits => digits(s, (x, here), (to, size), depth),
                        Width::Byte => Some(bytes(s, (x, here), (to, size))),
                    };
                    let Some((scale, sum)) = made else {
                        *scales = f32::NAN;
                        break;
                    };
                    *scales.add(block) = scale;
                    *scales.add(blocks + block) = sum;
                }
            }
        }
    }
}

/// Makes whole numbers of 24 bits of the first elements of a block of `size`; the others are 0. Their lower digits are `depth` further on. Gives their scale and their sum.
///
/// # Safety
/// So many elements must be readable, and the block's digits writable.
#[inline(always)]
unsafe fn digits<S: Simd>(
    s: S,
    (x, here): (*const f32, usize),
    (to, size): (*mut u8, usize),
    depth: usize,
) -> Option<(f32, f32)> {
    // SAFETY: the caller's promise.
    let most = unsafe { largest(s, x, here) };
    if most != 0.0 && !SIZES.contains(&most) {
        return None;
    }
    let factor = if most == 0.0 { 0.0 } else { LARGEST / most };
    let mut sums = s.splat_i(0);
    for at in (0..size).step_by(LANES) {
        let (left, lanes) = (LANES.min(here.saturating_sub(at)), LANES.min(size - at));
        // SAFETY: the caller's promise.
        unsafe {
            let x = s.load_upto(x.wrapping_add(at), left);
            let x = s.to_int(s.round(s.mul(x, s.splat(factor))));
            sums = s.add_i(sums, x);
            let half = s.splat_i(128);
            let upper = s.shr_i::<8>(s.add_i(x, half));
            let uppermost = s.shr_i::<8>(s.add_i(upper, half));
            s.store_bytes(to.wrapping_add(at), lanes, uppermost);
            s.store_bytes(to.wrapping_add(depth + at), lanes, upper);
            s.store_bytes(to.wrapping_add(2 * depth + at), lanes, x);
        }
    }
    Some((most / LARGEST, total(s, sums)))
}

/// As [`digits`], of 8 bits: a block with NaN or an infinity is zeros of which the scale is NaN.
///
/// # Safety
/// As [`digits`].
#[inline(always)]
unsafe fn bytes<S: Simd>(s: S, (x, here): (*const f32, usize), (to, size): (*mut u8, usize)) -> (f32, f32) {
    // SAFETY: the caller's promise.
    let (factor, scale) = byte_scales(unsafe { largest(s, x, here) });
    let mut sums = s.splat_i(0);
    for at in (0..size).step_by(LANES) {
        let (left, lanes) = (LANES.min(here.saturating_sub(at)), LANES.min(size - at));
        // SAFETY: the caller's promise.
        unsafe {
            let x = s.load_upto(x.wrapping_add(at), left);
            let whole = s.to_int(s.round(s.mul(x, s.splat(factor))));
            sums = s.add_i(sums, whole);
            s.store_bytes(to.wrapping_add(at), lanes, whole);
        }
    }
    // Of bytes every sum of sums is a whole number that a float holds.
    (scale, s.sum(s.from_int(sums)))
}

/// The largest magnitude of so many numbers, NaN if one is.
///
/// # Safety
/// They must be readable.
#[inline(always)]
unsafe fn largest<S: Simd>(s: S, x: *const f32, n: usize) -> f32 {
    // Bits of magnitudes are in their order, with NaN behind all others.
    let mut most = s.splat_i(0);
    for at in (0..n).step_by(LANES) {
        // SAFETY: the caller's promise.
        let x = unsafe { s.load_upto(x.wrapping_add(at), LANES.min(n - at)) };
        most = s.max_i(most, s.and_i(s.bits(x), s.splat_i(i32::MAX)));
    }
    let most = s.to_array(s.from_bits(most)).iter().fold(0, |most, x| x.to_bits().max(most));
    f32::from_bits(most)
}

/// What makes integers of 8 bits of a block with this largest magnitude, and its scale: NaN if that is infinite or NaN.
#[inline(always)]
fn byte_scales(most: f32) -> (f32, f32) {
    if most < f32::INFINITY {
        let most = most.max(LEAST);
        (LARGEST_BYTE / most, most / LARGEST_BYTE)
    } else {
        (0.0, f32::NAN)
    }
}

/// The sum of a vector of integers.
#[inline(always)]
fn total<S: Simd>(s: S, sums: S::I) -> f32 {
    let sums = s.to_array(s.from_bits(sums));
    sums.iter().fold(0i32, |sum, x| sum.wrapping_add(x.to_bits() as i32)) as f32
}

/// Rows quantised to 8 bits and back, in blocks, where nothing multiplies bytes.
#[derive(Debug, Clone, Copy)]
pub struct QuantizedRows {
    /// The rows, of `k` elements.
    pub rows: Strided,
    /// Elements of a row.
    pub k: usize,
    /// Elements of a block.
    pub size: usize,
    /// Where what they become goes, without gaps.
    pub to: *mut f32,
}

// SAFETY: plain addresses; `run`, which uses them, is unsafe and says what must hold across threads.
unsafe impl Send for QuantizedRows {}
// SAFETY: as above.
unsafe impl Sync for QuantizedRows {}

impl QuantizedRows {
    /// Does some rows.
    ///
    /// # Safety
    /// They must be readable, and `to` writable for them. No two threads may do so for one row.
    pub unsafe fn run(&self, isa: Isa, which: Range<usize>) {
        isa.run(Requantize { of: self, which });
    }
}

struct Requantize<'a> {
    of: &'a QuantizedRows,
    which: Range<usize>,
}

impl Kernel for Requantize<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let QuantizedRows { rows, k, size, to } = *self.of;
        for row in self.which {
            let x = rows.ptr.wrapping_offset(row as isize * rows.row_stride);
            for first in (0..k).step_by(size.max(1)) {
                let end = k.min(first + size);
                // SAFETY: `QuantizedRows::run` was promised the rows and the place of their results.
                unsafe {
                    let (factor, scale) = byte_scales(largest(s, x.wrapping_add(first), end - first));
                    for at in (first..end).step_by(LANES) {
                        let lanes = LANES.min(end - at);
                        let x = s.load_upto(x.wrapping_add(at), lanes);
                        let whole = s.round(s.mul(x, s.splat(factor)));
                        s.store_upto(to.wrapping_add(row * k + at), lanes, s.mul(whole, s.splat(scale)));
                    }
                }
            }
        }
    }
}
