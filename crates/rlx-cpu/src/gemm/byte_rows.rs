//! Many rows of bytes by weights in blocks: what [fixed point](super::fixed_rows) does with one row or two, where weights are unpacked once for all rows.
//!
//! A part of a panel's depth ([`CHUNK`] steps) becomes unsigned bytes, with the scale and the zero point of each of its blocks beside them, which stay in the
//! first-level cache while tiles of [`ROWS`] rows pass by. Their sums wait in memory from one part to the next. A block's sum is exact in whole
//! numbers and what follows is the same as for few rows, so results have the same bits.
//!
//! **Zero points.** VPDPBUSD multiplies unsigned bytes by signed ones. Where zero points are whole numbers, weights less them are the signed ones, and rows are
//! raised by 128: `Σ q·(w − z) = Σ (q + 128)·(w − z) − 128·Σ (w − z)`, of which the last term is the same for all rows: what a block's sums begin with.
//! Elsewhere weights are the unsigned ones, and `z·Σ q` is subtracted from each sum.
//!
//! For a block of 32 weights a vector of sums takes 8 VPDPBUSD, and a conversion, a product and a multiply-add (of unsigned weights two).

use std::mem::MaybeUninit;
use std::ops::{Range, RangeInclusive};

use super::fixed_rows::{FixedRows, TASK_ROWS};
use super::panels::{PANEL, VECTORS, lanes_of, panels};
use super::prefetch::{GROUP, Prefetch};
use super::{Lines, blocks::BlockGemm};
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// Steps of depth that are bytes at a time: 12 KB. No block is longer, and none shorter than [`SHORTEST`].
const CHUNK: usize = 256;
const SHORTEST: usize = 8;

/// Four bytes of 128.
const RAISED: i32 = 0x8080_8080_u32 as i32;

/// Rows of a tile: with three vectors of columns, as many as registers hold sums of two kinds for.
const ROWS: usize = 4;

/// A part of a panel.
#[repr(C)]
struct Part {
    /// For each four steps a word for each column.
    words: Lines<{ CHUNK / 4 * PANEL }>,
    /// For each block the scales of all columns.
    scales: Lines<{ CHUNK / SHORTEST * PANEL }>,
    /// And the zero points' opposites; where bytes are signed, the sums to begin with.
    zeros: Lines<{ CHUNK / SHORTEST * PANEL }>,
    /// The rows' sums of all parts before.
    sums: Lines<{ TASK_ROWS * PANEL }>,
}

/// Addresses within a [`Part`].
#[derive(Clone, Copy)]
struct Places {
    words: *mut f32,
    scales: *mut f32,
    zeros: *mut f32,
    sums: *mut f32,
}

impl Places {
    fn of(part: &mut MaybeUninit<Part>) -> Places {
        let part = part.as_mut_ptr();
        // SAFETY: only addresses within the part are computed.
        unsafe {
            Places {
                words: (&raw mut (*part).words).cast(),
                scales: (&raw mut (*part).scales).cast(),
                zeros: (&raw mut (*part).zeros).cast(),
                sums: (&raw mut (*part).sums).cast(),
            }
        }
    }
}

/// The sums of at most [`TASK_ROWS`] rows by a panel of weights of 4 bits (`HALVES`) or 8, into C.
///
/// # Safety
/// As [`FixedRows::run`], of which this is a part; rows are of [`Width::Byte`](super::Width::Byte), and panel and rows must be in range.
#[inline(always)]
pub(super) unsafe fn multiply<S: Simd, const HALVES: bool>(
    s: S,
    f: &FixedRows,
    panel: usize,
    rows: Range<usize>,
) {
    let mut part = MaybeUninit::uninit();
    let to = Places::of(&mut part);
    let blocks = f.blocks();
    let at_once = (CHUNK / f.of.size).max(1);
    for first in (0..blocks).step_by(at_once) {
        let which = first..blocks.min(first + at_once);
        let mut ahead = ahead(f, panel, which.clone(), rows.clone());
        let signed = s.enter(Unpack::<HALVES> { g: &f.of, panel, blocks: which.clone(), to });
        let mut row = rows.start;
        while row < rows.end {
            let sums = to.sums.wrapping_add((row - rows.start) * PANEL);
            let (of, blocks, ahead) = (Places { sums, ..to }, which.clone(), &mut ahead);
            let whole = row + ROWS <= rows.end;
            match (whole, signed) {
                (true, true) => s.enter(Tile::<ROWS, true> { f, row, blocks, of, ahead }),
                (true, false) => s.enter(Tile::<ROWS, false> { f, row, blocks, of, ahead }),
                (false, true) => s.enter(Tile::<1, true> { f, row, blocks, of, ahead }),
                (false, false) => s.enter(Tile::<1, false> { f, row, blocks, of, ahead }),
            }
            row += if whole { ROWS } else { 1 };
        }
    }
    let first = panel * PANEL;
    for (i, row) in rows.enumerate() {
        for v in 0..VECTORS {
            let c = f.of.c.wrapping_add(row * f.of.c_stride + first + v * LANES);
            // SAFETY: the caller's promise; sums of all rows were stored.
            unsafe {
                let sums = s.load(to.sums.wrapping_add(i * PANEL + v * LANES));
                s.store_upto(c, lanes_of(v, f.of.n - first), sums);
            }
        }
    }
}

/// The words of the next part, to be fetched while these rows are multiplied by this one, if it is not that of the next rows.
fn ahead(f: &FixedRows, panel: usize, blocks: Range<usize>, rows: Range<usize>) -> Prefetch {
    let (g, all) = (&f.of, f.blocks());
    if blocks.end == all && rows.end < g.m {
        return Prefetch::NONE;
    }
    let words = |blocks: usize| blocks * g.size / g.element.steps() * PANEL;
    let left = (panels(g.n) - panel) * words(all) - words(blocks.end);
    let from = g.words_at(panel, 0, 0).wrapping_add(words(blocks.end));
    let mut ahead = Prefetch::new(from, left.min(words(blocks.len())));
    ahead.spread(GROUP * blocks.len() * (rows.len() / ROWS).max(1));
    ahead
}

/// Unpacks some blocks of a panel.
struct Unpack<'a, const HALVES: bool> {
    g: &'a BlockGemm,
    panel: usize,
    blocks: Range<usize>,
    to: Places,
}

impl<const HALVES: bool> Kernel for Unpack<'_, HALVES> {
    /// Whether the bytes are signed.
    type Output = bool;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> bool {
        let signed = self.params(s);
        if signed {
            self.words::<S, true>(s)
        } else {
            self.words::<S, false>(s)
        }
        signed
    }
}

impl<const HALVES: bool> Unpack<'_, HALVES> {
    /// The zero points of unsigned bytes that leave signed ones.
    const SIGNED: RangeInclusive<f32> = if HALVES { 0.0..=127.0 } else { 128.0..=128.0 };

    /// Stores scales and zero points, of the unsigned bytes; whether those are whole numbers that weights less them are signed bytes for.
    #[inline(always)]
    fn params<S: Simd>(&self, s: S) -> bool {
        let Unpack { g, panel, ref blocks, to } = *self;
        let above = s.splat(g.element.raised() + g.element.offset());
        let lanes = [0, 1, 2].map(|v| lanes_of(v, g.n - panel * PANEL));
        let (mut least, mut most, mut odd) = (s.splat_i(i32::MAX), s.splat_i(i32::MIN), s.zero());
        let mut next = (panel, blocks.start + CHUNK / g.size);
        for (i, block) in blocks.clone().enumerate() {
            if next.1 >= g.depth / g.size {
                next = (next.0 + 1, 0);
            }
            for v in 0..VECTORS {
                let at = block * g.n + panel * PANEL + v * LANES;
                let ahead = next.1 * g.n + next.0 * PANEL + v * LANES;
                s.prefetch_l2(g.scale.wrapping_add(ahead));
                let mut zero = s.zero();
                // SAFETY: `multiply` was promised the scales and zero points; a part has room for those of the blocks.
                unsafe {
                    if let Some(zeros) = g.zero {
                        s.prefetch_l2(zeros.wrapping_add(ahead));
                        zero = s.load_upto(zeros.wrapping_add(at), lanes[v]);
                    }
                    zero = s.add(zero, above);
                    let to_block = i * PANEL + v * LANES;
                    s.store(to.zeros.wrapping_add(to_block), zero);
                    let scale = s.load_upto(g.scale.wrapping_add(at), lanes[v]);
                    s.store(to.scales.wrapping_add(to_block), scale);
                }
                let whole = s.to_int(zero);
                (least, most) = (s.min_i(least, whole), s.max_i(most, whole));
                odd = s.add(odd, s.abs(s.sub(zero, s.from_int(whole))));
            }
            next.1 += 1;
        }
        let [least, most] = [least, most].map(|x| s.to_array(s.from_int(x)));
        let (odd, within) = (s.to_array(odd), |x: &f32| Self::SIGNED.contains(x));
        odd.iter().all(|&odd| odd == 0.0) && least.iter().all(within) && most.iter().all(within)
    }

    /// Stores the words and, in the place of zero points, their opposites or the sums to begin with.
    #[inline(always)]
    fn words<S: Simd, const SIGNED: bool>(&self, s: S) {
        let Unpack { g, panel, ref blocks, to } = *self;
        let (words, flips) = (g.size / g.element.steps(), s.splat_i(g.element.flips()));
        let low = s.splat_i(0x0f0f_0f0f);
        for (i, block) in blocks.clone().enumerate() {
            for v in 0..VECTORS {
                let from = g.words_at(panel, block * words, v);
                let zeros = to.zeros.wrapping_add(i * PANEL + v * LANES);
                // SAFETY: `multiply` was promised the weights; a part has room for the blocks.
                unsafe {
                    let zero = s.load(zeros);
                    let minus = s.mul_i(s.to_int(zero), s.splat_i(0x0101_0101));
                    let mut sums = s.splat_i(0);
                    let to = to.words.wrapping_add(i * g.size / 4 * PANEL + v * LANES);
                    for word in 0..words {
                        let w = s.bits(s.load(from.wrapping_add(word * PANEL)));
                        if const { HALVES } {
                            let upper = s.and_i(s.shr_i::<4>(w), low);
                            let to = to.wrapping_add(2 * word * PANEL);
                            keep::<S, SIGNED>(s, s.and_i(w, low), minus, &mut sums, to);
                            keep::<S, SIGNED>(s, upper, minus, &mut sums, to.wrapping_add(PANEL));
                        } else {
                            let to = to.wrapping_add(word * PANEL);
                            keep::<S, SIGNED>(s, s.xor_i(w, flips), minus, &mut sums, to);
                        }
                    }
                    let begin = s.from_bits(s.sub_i(s.splat_i(0), sums));
                    s.store(zeros, if SIGNED { begin } else { s.neg(zero) });
                }
            }
        }
    }
}

/// Stores unsigned bytes or, after something is subtracted, signed ones, whose sums with 128 are added.
///
/// # Safety
/// `to` must be writable for a vector.
#[inline(always)]
unsafe fn keep<S: Simd, const SIGNED: bool>(
    s: S,
    mut bytes: S::I,
    minus: S::I,
    sums: &mut S::I,
    to: *mut f32,
) {
    if SIGNED {
        bytes = s.sub_bytes(bytes, minus);
        *sums = s.dot_bytes(*sums, s.splat_i(RAISED), bytes);
    }
    // SAFETY: the caller's promise.
    unsafe { s.store(to, s.from_bits(bytes)) }
}

/// What some blocks add to the sums of R rows, by bytes that are signed or not.
struct Tile<'a, const R: usize, const SIGNED: bool> {
    f: &'a FixedRows,
    row: usize,
    blocks: Range<usize>,
    of: Places,
    ahead: &'a mut Prefetch,
}

impl<const R: usize, const SIGNED: bool> Kernel for Tile<'_, R, SIGNED> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Tile { f, row, blocks, of, ahead } = self;
        let (all, size) = (f.blocks(), f.of.size);
        let mut rows = [std::ptr::null::<u8>(); R];
        let mut scales = [std::ptr::null::<f32>(); R];
        for r in 0..R {
            rows[r] = f.digits(row + r).wrapping_add(blocks.start * size);
            scales[r] = f.scales(row + r).wrapping_add(blocks.start);
        }
        let mut sums = [[s.zero(); VECTORS]; R];
        // SAFETY: `multiply` was promised the rows' whole numbers; the blocks were unpacked, and sums of blocks before are there.
        unsafe {
            if blocks.start > 0 {
                for r in 0..R {
                    for v in 0..VECTORS {
                        sums[r][v] = s.load(of.sums.wrapping_add(r * PANEL + v * LANES));
                    }
                }
            }
            for block in 0..blocks.len() {
                ahead.step(s);
                let mut products = [[s.splat_i(0); VECTORS]; R];
                if SIGNED {
                    for v in 0..VECTORS {
                        let begin = s.bits(s.load(of.zeros.wrapping_add(block * PANEL + v * LANES)));
                        for r in 0..R {
                            products[r][v] = begin;
                        }
                    }
                }
                for step in (block * size..(block + 1) * size).step_by(4) {
                    let w = of.words.wrapping_add(step / 4 * PANEL);
                    let mut words = [s.splat_i(0); VECTORS];
                    for v in 0..VECTORS {
                        words[v] = s.bits(s.load(w.wrapping_add(v * LANES)));
                    }
                    for r in 0..R {
                        let x = s.splat_i(rows[r].wrapping_add(step).cast::<i32>().read_unaligned());
                        for v in 0..VECTORS {
                            products[r][v] = match SIGNED {
                                true => s.dot_bytes(products[r][v], s.xor_i(x, s.splat_i(RAISED)), words[v]),
                                false => s.dot_bytes(products[r][v], words[v], x),
                            };
                        }
                    }
                }
                for v in 0..VECTORS {
                    let at = block * PANEL + v * LANES;
                    let scale = s.load(of.scales.wrapping_add(at));
                    for r in 0..R {
                        let factor = s.mul(scale, s.splat(*scales[r].add(block)));
                        let mut whole = s.from_int(products[r][v]);
                        if !SIGNED {
                            let minus = s.load(of.zeros.wrapping_add(at));
                            whole = s.mul_add(minus, s.splat(*scales[r].add(all + block)), whole);
                        }
                        sums[r][v] = s.mul_add(whole, factor, sums[r][v]);
                    }
                }
            }
            for r in 0..R {
                for v in 0..VECTORS {
                    s.store(of.sums.wrapping_add(r * PANEL + v * LANES), sums[r][v]);
                }
            }
        }
    }
}
