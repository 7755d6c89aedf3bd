//! A few rows by weights quantised in blocks, in fixed point: decoding a token reads each weight once, and has no time to make a float of it.
//!
//! Each block of a row becomes whole numbers of 24 bits with one scale, `x ≈ X · s` where `s = max|x| / L`, and each of these three signed
//! bytes: `X = 2¹⁶·d₀ + 2⁸·d₁ + d₂`. Their products with the weights' bytes are exact (VPDPBUSD takes 64 at a time), so a block of
//! a column is
//!
//! ```text
//! (2¹⁶·Σ w·d₀ + 2⁸·Σ w·d₁ + Σ w·d₂ − zero·Σ X) · (s · scale)
//! ```
//!
//! rounded a few times, and blocks are added in ascending order. What is lost is at most 2⁻²² of a block's largest magnitude in each of its
//! elements, a rounding error of f32 there; a sum by floats loses as much in each of its additions. A row has the same bits beside any other rows, as long as they are few.
//!
//! Rows with infinities, NaN or numbers of extreme size are multiplied as floats ([`BlockGemm`]).

use std::ops::Range;

use super::blocks::BlockGemm;
use super::kernel::Part;
use super::panels::{PANEL, lanes_of, panels};
use super::prefetch::Prefetch;
use super::tiles::tiles_any;
use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd};

/// Bytes that one whole number is.
const DIGITS: usize = 3;

/// The largest whole number: three signed bytes hold 2²³ − 2¹⁵ − 2⁷ and a bit more, of which the product by a rounded quotient takes some.
const LARGEST: f32 = 8_355_000.0;

/// Magnitudes whose quotients are normal numbers.
const SIZES: Range<f32> = 1e-20..1e20;

/// Elements of a block at most, so that no sum of bytes overflows: 256 · (2⁸·255·128 + 255·128) < 2³¹.
const LONGEST: usize = 256;

/// Vectors of columns of a tile: those of a panel.
const VECTORS: usize = PANEL / LANES;

/// Rows of a tile.
const ROWS: usize = 2;

/// Rows that are multiplied so at most: more pay for floats.
const MOST_ROWS: usize = 8;

/// A few rows by weights in blocks, and memory for the rows in fixed point.
#[derive(Debug, Clone, Copy)]
pub struct FixedRows {
    /// The matmul.
    pub of: BlockGemm,
    /// As [`FixedRows::bytes`] of each row.
    pub scratch: *mut u8,
}

// SAFETY: plain addresses; `fix` and `run`, which use them, are unsafe and say what must hold across threads.
unsafe impl Send for FixedRows {}
// SAFETY: as above.
unsafe impl Sync for FixedRows {}

/// Whether weights of blocks of this size may be multiplied so on `isa`, and are faster for it.
pub fn fixes_blocks(isa: Isa, size: usize) -> bool {
    isa.has_vnni() && size.is_multiple_of(8) && (1..=LONGEST).contains(&size)
}

impl FixedRows {
    /// Whether so many rows are.
    pub const fn takes(m: usize) -> bool {
        m <= MOST_ROWS
    }

    /// Bytes of scratch for `m` rows of `blocks` blocks; `None` if they are too many.
    pub fn bytes(m: usize, blocks: usize, size: usize) -> Option<usize> {
        let digits = blocks.checked_mul(size)?.checked_mul(DIGITS)?;
        let row = digits.checked_add(blocks.checked_mul(2 * size_of::<f32>())?)?;
        row.checked_next_multiple_of(64)?.checked_mul(m)
    }

    fn blocks(&self) -> usize {
        self.of.depth / self.of.size
    }

    /// The digits of a row, the highest of all of its elements first.
    fn digits(&self, row: usize) -> *mut u8 {
        let bytes = FixedRows::bytes(1, self.blocks(), self.of.size).unwrap_or(0);
        self.scratch.wrapping_add(row * bytes)
    }

    /// The scale of each block of a row, and behind them the sum of each block's whole numbers. The first scale is NaN where the row is none of them.
    fn scales(&self, row: usize) -> *mut f32 {
        self.digits(row).wrapping_add(DIGITS * self.of.depth).cast()
    }

    /// Makes whole numbers of some rows.
    ///
    /// # Safety
    /// The rows must be readable for `k` elements, and scratch writable. No two threads may do so for one row.
    pub unsafe fn fix(&self, isa: Isa, rows: Range<usize>) {
        isa.run(Fix { of: self, rows });
    }

    /// Tasks: panels of columns.
    pub fn tasks(&self) -> usize {
        panels(self.of.n)
    }

    /// Computes some panels, when all rows are whole numbers.
    ///
    /// # Safety
    /// As [`BlockGemm::run`].
    pub unsafe fn run(&self, isa: Isa, which: Range<usize>) {
        isa.run_vnni(RunPanels { of: self, which });
    }
}

struct Fix<'a> {
    of: &'a FixedRows,
    rows: Range<usize>,
}

impl Kernel for Fix<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let FixedRows { of: BlockGemm { k, size, .. }, .. } = *self.of;
        let blocks = self.of.blocks();
        for row in self.rows.clone() {
            let scales = self.of.scales(row);
            for block in 0..blocks {
                let first = block * size;
                // SAFETY: `FixedRows::fix` was promised the rows and the scratch.
                unsafe {
                    let here = size.min(k.saturating_sub(first));
                    let Some((scale, sum)) = self.block(s, row, first, here) else {
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

impl Fix<'_> {
    /// Makes whole numbers of the first `here` elements of a block; the others are 0. Gives their scale and their sum.
    ///
    /// # Safety
    /// As [`FixedRows::fix`]; so many elements must be there.
    #[inline(always)]
    unsafe fn block<S: Simd>(&self, s: S, row: usize, first: usize, here: usize) -> Option<(f32, f32)> {
        let FixedRows { of: BlockGemm { rows, size, depth, .. }, .. } = *self.of;
        let x = rows.ptr.wrapping_offset(row as isize * rows.row_stride).wrapping_add(first);
        let digits = self.of.digits(row).wrapping_add(first);
        // Bits of magnitudes are in their order, with NaN behind all others.
        let mut most = s.splat_i(0);
        for at in (0..here).step_by(LANES) {
            // SAFETY: the caller's promise.
            let x = unsafe { s.load_upto(x.wrapping_add(at), LANES.min(here - at)) };
            most = s.max_i(most, s.and_i(s.bits(x), s.splat_i(i32::MAX)));
        }
        let most = s.to_array(s.from_bits(most)).iter().fold(0, |most, x| x.to_bits().max(most));
        let most = f32::from_bits(most);
        if most != 0.0 && !SIZES.contains(&most) {
            return None;
        }
        let factor = if most == 0.0 { 0.0 } else { LARGEST / most };
        let mut sums = s.splat_i(0);
        for at in (0..size).step_by(LANES) {
            let (left, lanes) = (LANES.min(here.saturating_sub(at)), LANES.min(size - at));
            // SAFETY: the caller's promise; the digits of a row have room for all of its blocks.
            unsafe {
                let x = s.load_upto(x.wrapping_add(at), left);
                let x = s.to_int(s.round(s.mul(x, s.splat(factor))));
                sums = s.add_i(sums, x);
                let half = s.splat_i(128);
                let upper = s.shr_i::<8>(s.add_i(x, half));
                let uppermost = s.shr_i::<8>(s.add_i(upper, half));
                s.store_bytes(digits.wrapping_add(at), lanes, uppermost);
                s.store_bytes(digits.wrapping_add(depth + at), lanes, upper);
                s.store_bytes(digits.wrapping_add(2 * depth + at), lanes, x);
            }
        }
        let sums = s.to_array(s.from_bits(sums));
        let sum: i32 = sums.iter().fold(0, |sum, x| sum.wrapping_add(x.to_bits() as i32));
        Some((most / LARGEST, sum as f32))
    }
}

struct RunPanels<'a> {
    of: &'a FixedRows,
    which: Range<usize>,
}

impl Kernel for RunPanels<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let f = self.of;
        let m = f.of.m;
        // SAFETY: the scales of all rows are there.
        let fixed = |row: usize| row < m && unsafe { !(*f.scales(row)).is_nan() };
        for panel in self.which.clone() {
            let columns = panel * PANEL..f.of.n.min((panel + 1) * PANEL);
            let floats =
                |rows, are_sums| ByFloats { of: &f.of, panel, columns: columns.clone(), rows, are_sums };
            let mut row = 0;
            while row < m {
                if !fixed(row) {
                    s.enter_plain(floats(row..row + 1, false));
                    row += 1;
                    continue;
                }
                let rows = if fixed(row + 1) { ROWS } else { 1 };
                match (rows, f.of.element.bits) {
                    (ROWS, 4) => s.enter(Tile::<ROWS, true> { f, panel, row }),
                    (ROWS, _) => s.enter(Tile::<ROWS, false> { f, panel, row }),
                    (_, 4) => s.enter(Tile::<1, true> { f, panel, row }),
                    _ => s.enter(Tile::<1, false> { f, panel, row }),
                }
                if !f.of.epilogue.is_none() {
                    s.enter_plain(floats(row..row + rows, true));
                }
                row += rows;
            }
        }
    }
}

/// What is done in floats: a row that is no whole numbers, or what follows on sums that wait in C. A call of its own, since floats are multiplied
/// by the same instructions with VNNI and without.
struct ByFloats<'a> {
    of: &'a BlockGemm,
    panel: usize,
    columns: Range<usize>,
    rows: Range<usize>,
    are_sums: bool,
}

impl Kernel for ByFloats<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let rows = (self.rows.clone(), self.rows.len());
        // SAFETY: `FixedRows::run` was promised valid operands.
        unsafe {
            if self.are_sums {
                let nothing = Part { taps: 0..1, k: 0..0, first: false, last: true };
                let (floats, mut ahead) = (self.of.floats(), Prefetch::NONE);
                tiles_any(s, &floats, rows, self.columns, std::ptr::null(), &nothing, &mut ahead);
            } else {
                self.of.run_panel(s, (self.panel, self.columns), std::iter::once(rows));
            }
        }
    }
}

/// The sums of R rows of whole numbers by a panel, of weights of 4 bits (`HALVES`) or 8.
struct Tile<'a, const R: usize, const HALVES: bool> {
    f: &'a FixedRows,
    panel: usize,
    row: usize,
}

impl<const R: usize, const HALVES: bool> Kernel for Tile<'_, R, HALVES> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (f, g) = (self.f, &self.f.of);
        let blocks = f.blocks();
        let words = g.size / g.element.steps();
        let mut rows = [std::ptr::null::<u8>(); R];
        let mut scales = [std::ptr::null::<f32>(); R];
        for r in 0..R {
            rows[r] = f.digits(self.row + r);
            scales[r] = f.scales(self.row + r);
        }
        let flips =
            s.splat_i(if g.element.bits == 8 && g.element.signed { 0x8080_8080_u32 as i32 } else { 0 });
        let raised = if g.element.bits == 8 && g.element.signed { 128.0 } else { 0.0 };
        let mut sums = [[s.zero(); VECTORS]; R];
        // SAFETY: `FixedRows::run` was promised the weights, their scales and the rows' whole numbers.
        unsafe {
            for block in 0..blocks {
                let mut products = [[[s.splat_i(0); VECTORS]; DIGITS]; R];
                let from = g.words_at(self.panel, block * words, 0);
                for word in 0..words {
                    let step = block * g.size + word * g.element.steps();
                    for v in 0..VECTORS {
                        let w = s.bits(s.load(from.wrapping_add(word * PANEL + v * LANES)));
                        if const { HALVES } {
                            let low = s.splat_i(0x0f0f_0f0f);
                            let halves = [s.and_i(w, low), s.and_i(s.shr_i::<4>(w), low)];
                            for r in 0..R {
                                for d in 0..DIGITS {
                                    let digits = rows[r].wrapping_add(d * g.depth + step).cast::<i32>();
                                    let first = s.splat_i(digits.read_unaligned());
                                    let second = s.splat_i(digits.add(1).read_unaligned());
                                    let sum = s.dot_bytes(products[r][d][v], halves[0], first);
                                    products[r][d][v] = s.dot_bytes(sum, halves[1], second);
                                }
                            }
                        } else {
                            let w = s.xor_i(w, flips);
                            for r in 0..R {
                                for d in 0..DIGITS {
                                    let digits = rows[r].wrapping_add(d * g.depth + step).cast::<i32>();
                                    let digits = s.splat_i(digits.read_unaligned());
                                    products[r][d][v] = s.dot_bytes(products[r][d][v], w, digits);
                                }
                            }
                        }
                    }
                }
                for v in 0..VECTORS {
                    let (scale, zero) = g.params(s, self.panel, block, v);
                    let minus = s.sub(s.splat(-raised), zero);
                    for r in 0..R {
                        let [high, middle, low] = [products[r][0][v], products[r][1][v], products[r][2][v]];
                        let lower = s.from_int(s.add_i(s.shl_i::<8>(middle), low));
                        let whole = s.mul_add(s.from_int(high), s.splat(65536.0), lower);
                        let sum = s.splat(*scales[r].add(blocks + block));
                        let factor = s.mul(scale, s.splat(*scales[r].add(block)));
                        sums[r][v] = s.mul_add(s.mul_add(minus, sum, whole), factor, sums[r][v]);
                    }
                }
            }
            let first = self.panel * PANEL;
            for r in 0..R {
                for v in 0..VECTORS {
                    let lanes = lanes_of(v, g.n - first);
                    let to = g.c.wrapping_add((self.row + r) * g.c_stride + first + v * LANES);
                    s.store_upto(to, lanes, sums[r][v]);
                }
            }
        }
    }
}
