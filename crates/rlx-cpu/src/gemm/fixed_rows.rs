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
//!
//! **Rows of 8 bits** ([`Width::Byte`]) are the same with one byte: what [`rlx_ir::Op::DynamicMatMulBlocks`] quantises is the whole number, so nothing but
//! sums of blocks is rounded, and any number of rows is multiplied so.

use std::ops::Range;

use super::blocks::BlockGemm;
use super::byte_rows;
use super::kernel::Part;
use super::panels::{PANEL, VECTORS, lanes_of, panels};
use super::prefetch::Prefetch;
use super::tiles::tiles_any;
use super::whole_numbers::Fix;
use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd};

/// What an element of a row becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// A whole number of 24 bits, in three bytes.
    Digits,
    /// One of 8 bits, rounded as [`rlx_ir::Op::DynamicMatMulBlocks`] says.
    Byte,
}

impl Width {
    /// Bytes of a whole number.
    const fn bytes(self) -> usize {
        match self {
            Width::Digits => DIGITS,
            Width::Byte => 1,
        }
    }
}

/// Bytes of a whole number of 24 bits.
const DIGITS: usize = 3;

/// Elements of a block at most, so that no sum of bytes overflows: 256 · (2⁸·255·128 + 255·128) < 2³¹.
const LONGEST: usize = 256;

/// Rows of a tile.
const ROWS: usize = 2;

/// Rows of one byte for which weights are not unpacked first, at most.
const FEW_ROWS: usize = 4;

/// Rows of 24 bits at most: more pay for floats.
const MOST_ROWS: usize = 8;

/// Rows of a task.
pub(super) const TASK_ROWS: usize = 64;

/// Rows by weights in blocks, and memory for the rows in fixed point.
#[derive(Debug, Clone, Copy)]
pub struct FixedRows {
    /// The matmul.
    pub of: BlockGemm,
    /// What an element of a row becomes.
    pub width: Width,
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
    /// Whether so many rows are multiplied as 24 bits.
    pub const fn takes(m: usize) -> bool {
        m <= MOST_ROWS
    }

    /// Bytes of scratch for `m` rows of `blocks` blocks; `None` if they are too many.
    pub fn bytes(width: Width, m: usize, blocks: usize, size: usize) -> Option<usize> {
        let digits = blocks.checked_mul(size)?.checked_mul(width.bytes())?;
        let row = digits.checked_add(blocks.checked_mul(2 * size_of::<f32>())?)?;
        row.checked_next_multiple_of(64)?.checked_mul(m)
    }

    pub(super) fn blocks(&self) -> usize {
        self.of.depth / self.of.size
    }

    /// The digits of a row, the highest of all of its elements first.
    pub(super) fn digits(&self, row: usize) -> *mut u8 {
        let bytes = FixedRows::bytes(self.width, 1, self.blocks(), self.of.size).unwrap_or(0);
        self.scratch.wrapping_add(row * bytes)
    }

    /// The scale of each block of a row, and behind them the sum of each block's whole numbers. The first scale is NaN where a row is not of 24 bits.
    pub(super) fn scales(&self, row: usize) -> *mut f32 {
        self.digits(row).wrapping_add(self.width.bytes() * self.of.depth).cast()
    }

    /// Makes whole numbers of some rows.
    ///
    /// # Safety
    /// The rows must be readable for `k` elements, and scratch writable. No two threads may do so for one row.
    pub unsafe fn fix(&self, isa: Isa, rows: Range<usize>) {
        isa.run(Fix { of: self, rows });
    }

    /// Tasks: panels of columns, each for some rows after the other.
    pub fn tasks(&self) -> usize {
        panels(self.of.n) * self.stretches()
    }

    /// Tasks of a panel.
    fn stretches(&self) -> usize {
        self.of.m.div_ceil(TASK_ROWS)
    }

    /// Does some tasks, when all rows are whole numbers.
    ///
    /// # Safety
    /// As [`BlockGemm::run`].
    pub unsafe fn run(&self, isa: Isa, which: Range<usize>) {
        isa.run_vnni(RunTasks { of: self, which });
    }
}

struct RunTasks<'a> {
    of: &'a FixedRows,
    which: Range<usize>,
}

impl Kernel for RunTasks<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for task in self.which.clone() {
            let (panel, stretch) = (task / self.of.stretches(), task % self.of.stretches());
            let rows = stretch * TASK_ROWS..self.of.of.m.min((stretch + 1) * TASK_ROWS);
            match (self.of.width, self.of.of.element.bits) {
                (Width::Digits, 4) => self.panel::<S, DIGITS, true>(s, panel, rows),
                (Width::Digits, _) => self.panel::<S, DIGITS, false>(s, panel, rows),
                (Width::Byte, 4) => self.bytes::<S, true>(s, panel, rows),
                (Width::Byte, _) => self.bytes::<S, false>(s, panel, rows),
            }
        }
    }
}

impl RunTasks<'_> {
    /// The columns of a panel of rows of one byte.
    #[inline(always)]
    fn bytes<S: Simd, const HALVES: bool>(&self, s: S, panel: usize, rows: Range<usize>) {
        if rows.len() <= FEW_ROWS {
            return self.panel::<S, 1, HALVES>(s, panel, rows);
        }
        // SAFETY: `FixedRows::run` was promised valid operands.
        unsafe { byte_rows::multiply::<S, HALVES>(s, self.of, panel, rows.clone()) }
        if !self.of.of.epilogue.is_none() {
            for row in rows.clone().step_by(ROWS) {
                s.enter_plain(self.by_floats(panel, row..rows.end.min(row + ROWS), true));
            }
        }
    }

    /// What is done in floats for the columns of a panel.
    fn by_floats(&self, panel: usize, rows: Range<usize>, are_sums: bool) -> ByFloats<'_> {
        let columns = panel * PANEL..self.of.of.n.min((panel + 1) * PANEL);
        ByFloats { of: &self.of.of, panel, columns, rows, are_sums }
    }

    /// The columns of a panel of some rows, of which a tile takes [`ROWS`], or one.
    #[inline(always)]
    fn panel<S: Simd, const D: usize, const HALVES: bool>(&self, s: S, panel: usize, rows: Range<usize>) {
        let f = self.of;
        // SAFETY: the scales of all rows are there.
        let floats = |row: usize| f.width == Width::Digits && unsafe { (*f.scales(row)).is_nan() };
        let mut row = rows.start;
        while row < rows.end {
            if floats(row) {
                s.enter_plain(self.by_floats(panel, row..row + 1, false));
                row += 1;
                continue;
            }
            let whole = row + ROWS <= rows.end && !(row..row + ROWS).any(floats);
            let end = row + if whole { ROWS } else { 1 };
            if whole {
                s.enter(Tile::<D, ROWS, HALVES> { f, panel, row });
            } else {
                s.enter(Tile::<D, 1, HALVES> { f, panel, row });
            }
            if !f.of.epilogue.is_none() {
                s.enter_plain(self.by_floats(panel, row..end, true));
            }
            row = end;
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

/// The sums of R rows of whole numbers of D bytes by a panel, of weights of 4 bits (`HALVES`) or 8.
struct Tile<'a, const D: usize, const R: usize, const HALVES: bool> {
    f: &'a FixedRows,
    panel: usize,
    row: usize,
}

impl<const D: usize, const R: usize, const HALVES: bool> Kernel for Tile<'_, D, R, HALVES> {
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
        let (flips, raised) = (s.splat_i(g.element.flips()), g.element.raised());
        let mut sums = [[s.zero(); VECTORS]; R];
        // SAFETY: `FixedRows::run` was promised the weights, their scales and the rows' whole numbers.
        unsafe {
            for block in 0..blocks {
                let mut products = [[[s.splat_i(0); VECTORS]; D]; R];
                let from = g.words_at(self.panel, block * words, 0);
                for word in 0..words {
                    let step = block * g.size + word * g.element.steps();
                    for v in 0..VECTORS {
                        let w = s.bits(s.load(from.wrapping_add(word * PANEL + v * LANES)));
                        if const { HALVES } {
                            let low = s.splat_i(0x0f0f_0f0f);
                            let halves = [s.and_i(w, low), s.and_i(s.shr_i::<4>(w), low)];
                            for r in 0..R {
                                for d in 0..D {
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
                                for d in 0..D {
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
                        let mut whole = s.from_int(products[r][0][v]);
                        if const { D == DIGITS } {
                            let [middle, low] = [products[r][1][v], products[r][2][v]];
                            let lower = s.from_int(s.add_i(s.shl_i::<8>(middle), low));
                            whole = s.mul_add(whole, s.splat(65536.0), lower);
                        }
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
