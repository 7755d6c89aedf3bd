//! Matmuls by weights that stay quantised in blocks: `C = epilogue(A · W)`, `W = (w − zero) · scale`.
//!
//! The weights are packed once, as they are: a panel has 48 columns as everywhere, and a row of it is 48 words, one for each
//! column, of four bytes: four steps of depth (8 bits) or eight (4 bits: the first four in the low halves of the bytes). A task makes
//! floats of a part of a panel's depth ([`CHUNK`] steps), which stay in the first-level cache while all of its rows are multiplied by
//! them. So memory delivers an eighth or a quarter of what floats would be, and many rows share the conversion.
//! A few rows do not pay for it: where bits may change they are multiplied [in fixed point](super::fixed_rows).
//!
//! **Same bits.** The floats are those that `Dequantize` makes (`w − zero` is exact where zero points are whole numbers,
//! and the product is rounded once), and each result is one chain of multiply-adds in ascending depth, as in
//! [`Gemm`]: so the results are those of dequantising first.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::epilogue::{Epilogue, each_row};
use super::kernel::{AnyRows, Part, Rows, Strided};
use super::panels::lanes_of;
use super::prefetch::Prefetch;
use super::tiles::tiles_any;
use super::tiling::{TileSizes, Tiling};
use super::{Ahead, Gemm, Lines, PANEL, max_rows, panels};
use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd};

/// Steps of depth that are floats at a time: 24 KB.
const CHUNK: usize = 128;

/// How a weight is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockElement {
    /// 4 or 8 bits.
    pub bits: u8,
    /// Whether it is a signed number.
    pub signed: bool,
}

impl BlockElement {
    /// Bytes of `depth` weights; `None` if there are too many, or half a byte is left.
    pub const fn bytes(self, depth: usize) -> Option<usize> {
        match self.bits {
            8 => Some(depth),
            _ if depth.is_multiple_of(2) => Some(depth / 2),
            _ => None,
        }
    }

    /// Steps of depth in a word of a packed column.
    pub(super) const fn steps(self) -> usize {
        if self.bits == 4 { 8 } else { 4 }
    }

    /// Words of a packed column of `depth` steps.
    pub(super) const fn words(self, depth: usize) -> usize {
        depth.div_ceil(self.steps())
    }

    /// What makes four packed bytes unsigned numbers, which are larger by [`raised`](BlockElement::raised).
    pub(super) const fn flips(self) -> i32 {
        if self.bits == 8 && self.signed { 0x8080_8080_u32 as i32 } else { 0 }
    }

    /// By how much a packed number is larger as an unsigned byte.
    pub(super) const fn raised(self) -> f32 {
        if self.bits == 8 && self.signed { 128.0 } else { 0.0 }
    }

    /// What is added to a stored number: halves of a byte are packed as unsigned ones.
    pub(super) const fn offset(self) -> f32 {
        if self.bits == 4 && self.signed { 8.0 } else { 0.0 }
    }
}

/// Bytes of the packed weights of `n` columns of `depth` elements; `None` if that overflows, or half a byte is left.
pub fn block_bytes(element: BlockElement, depth: usize, n: usize) -> Option<usize> {
    element.bytes(depth)?;
    panels(n).checked_mul(PANEL)?.checked_mul(element.words(depth).checked_mul(4)?)
}

/// Packs some panels of the weights `[n, depth]`, whose rows are at `from` without gaps.
///
/// # Safety
/// All rows must be readable, and `to` writable for [`block_bytes`]; only the given panels are written.
pub unsafe fn pack_blocks(
    from: *const u8,
    element: BlockElement,
    depth: usize,
    n: usize,
    to: *mut u8,
    which: Range<usize>,
) {
    let (bytes, words) = (element.bytes(depth).unwrap_or(0), element.words(depth));
    let flip = if element.bits == 4 && element.signed { 0x8888_8888 } else { 0 };
    // A word has as many bytes of a row as of a packed column, and those that are missing are 0.
    for panel in which {
        let first = panel * PANEL;
        for word in 0..words {
            let line = to.wrapping_add((panel * words + word) * PANEL * 4);
            for column in 0..PANEL {
                let mut of_row = [0u8; 4];
                if first + column < n {
                    let here = (bytes - 4 * word).min(4);
                    let at = from.wrapping_add((first + column) * bytes + 4 * word);
                    // SAFETY: the caller's promise; the column is one of the weights', and so many bytes of its row are left.
                    unsafe { std::ptr::copy_nonoverlapping(at, of_row.as_mut_ptr(), here) };
                }
                let word = u32::from_le_bytes(of_row) ^ flip;
                let word = if element.bits == 4 { halves_apart(word) } else { word };
                // SAFETY: the line is within the panel, which the caller gives.
                unsafe { line.add(4 * column).cast::<u32>().write_unaligned(word) };
            }
        }
    }
}

/// Of eight numbers of 4 bits in ascending order: the first four as the low halves of the bytes, the others as the high ones.
const fn halves_apart(word: u32) -> u32 {
    let (mut apart, mut i) = (0, 0);
    while i < 8 {
        apart |= (word >> (4 * i) & 15) << (8 * (i % 4) + 4 * (i / 4));
        i += 1;
    }
    apart
}

/// One matmul by quantised weights; the module says how.
#[derive(Debug, Clone, Copy)]
pub struct BlockGemm {
    /// Rows of A and C.
    pub m: usize,
    /// Columns of C.
    pub n: usize,
    /// Elements of a row of A.
    pub k: usize,
    /// The rows of A.
    pub rows: Strided,
    /// The packed weights.
    pub weights: *const u8,
    /// How a weight is stored.
    pub element: BlockElement,
    /// Elements that one column's packed weights have: the depth of whole blocks.
    pub depth: usize,
    /// Elements of a block.
    pub size: usize,
    /// The scale of each block of each column, `[blocks, n]`.
    pub scale: *const f32,
    /// The zero points, if they are not 0; as `scale`.
    pub zero: Option<*const f32>,
    /// The result, row-major.
    pub c: *mut f32,
    /// Elements from one row of C to the next.
    pub c_stride: usize,
    /// What is done to each element before it is written.
    pub epilogue: Epilogue<f32>,
}

// SAFETY: plain addresses; `run`, which uses them, is unsafe and says what must hold across threads.
unsafe impl Send for BlockGemm {}
// SAFETY: as above.
unsafe impl Sync for BlockGemm {}

impl BlockGemm {
    pub(super) fn tiling(&self, max_rows: usize) -> Tiling {
        Tiling::new(self.m, self.n, self.k, max_rows, TileSizes::DEFAULT)
    }

    /// Into how many tasks it is split: a function of shape and instruction set.
    pub fn tasks(&self, isa: Isa) -> usize {
        self.tiling(max_rows(isa)).tasks()
    }

    /// Computes a range of the tasks.
    ///
    /// # Safety
    /// Rows of A must be readable for `k` elements, the weights for [`block_bytes`], scales and zero points for each block
    /// of each column; the m×n elements of C must be writable and, like those of the epilogue's operands, in bounds. C
    /// must not overlap anything else. No two threads may run the same task at once.
    pub unsafe fn run(&self, isa: Isa, tasks: Range<usize>) {
        isa.run(RunTasks { of: self, tasks });
    }

    /// The float matmul whose panel's part is in `b` by turns.
    pub(super) fn floats(&self) -> Gemm<AnyRows<f32>> {
        let &BlockGemm { m, n, k, rows, c, c_stride, epilogue, .. } = self;
        let rows = rows.any();
        let (b, tile_sizes) = (std::ptr::null(), TileSizes::DEFAULT);
        Gemm { m, n, k, rows, b, c, c_stride, epilogue, tile_sizes, ahead: Ahead::Panels, wide: None }
    }

    /// Some rows, in stretches of tiles of one height, of the columns of a panel.
    ///
    /// # Safety
    /// As [`run`](BlockGemm::run), of which this is a part; the rows and columns must be in range.
    #[inline(always)]
    pub(super) unsafe fn run_panel<S: Simd>(
        &self,
        s: S,
        (panel, columns): (usize, Range<usize>),
        runs: impl Iterator<Item = (Range<usize>, usize)> + Clone,
    ) {
        let (floats, mut none) = (self.floats(), Prefetch::NONE);
        let mut buffer = MaybeUninit::<Lines<{ CHUNK * PANEL }>>::uninit();
        let b = buffer.as_mut_ptr().cast::<f32>();
        let chunks = self.k.div_ceil(CHUNK).max(1);
        for chunk in 0..chunks {
            let k = chunk * CHUNK..((chunk + 1) * CHUNK).min(self.k);
            let part = Part { taps: 0..1, k: k.clone(), first: chunk == 0, last: chunk + 1 == chunks };
            // SAFETY: the caller's promise; the buffer holds a chunk of a panel.
            unsafe {
                s.enter(Unpack { of: self, panel, k, to: b });
                for rows in runs.clone() {
                    tiles_any(s, &floats, rows, columns.clone(), b, &part, &mut none);
                }
            }
        }
    }
}

struct RunTasks<'a> {
    of: &'a BlockGemm,
    tasks: Range<usize>,
}

impl Kernel for RunTasks<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let g = self.of;
        let tiling = g.tiling(S::GEMM_ROWS);
        for (panel, tiles) in tiling.stretches(self.tasks) {
            // SAFETY: `BlockGemm::run` was promised valid operands.
            unsafe { g.run_panel(s, (panel, tiling.columns(panel, g.n)), tiling.runs(0, &tiles, g.m)) };
        }
    }
}

/// Makes floats of a part of a panel's depth: a call of its own.
struct Unpack<'a> {
    of: &'a BlockGemm,
    panel: usize,
    /// Begins with a word.
    k: Range<usize>,
    /// As many rows of 48 floats.
    to: *mut f32,
}

impl Kernel for Unpack<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let BlockGemm { element, size, .. } = *self.of;
        let mut k = self.k.start;
        while k < self.k.end {
            let end = self.k.end.min((k / size + 1) * size);
            for v in 0..PANEL / LANES {
                // SAFETY: `BlockGemm::run` was promised the weights and their scales.
                unsafe {
                    let params = self.of.params(s, self.panel, k / size, v);
                    match (element.bits, element.signed) {
                        (4, _) => self.steps::<S, 8, false>(s, k..end, v, params),
                        (_, true) => self.steps::<S, 4, true>(s, k..end, v, params),
                        _ => self.steps::<S, 4, false>(s, k..end, v, params),
                    }
                }
            }
            k = end;
        }
    }
}

impl BlockGemm {
    /// Scales and zero points of a block for one vector of columns of a panel. Zero points are of numbers as they are stored.
    ///
    /// # Safety
    /// As [`run`](BlockGemm::run); the block is one of the weights', and the panel has columns.
    #[inline(always)]
    pub(super) unsafe fn params<S: Simd>(&self, s: S, panel: usize, block: usize, v: usize) -> (S::F, S::F) {
        let column = panel * PANEL + v * LANES;
        let here = lanes_of(v, self.n - panel * PANEL);
        let at = block * self.n + column.min(self.n);
        // SAFETY: the caller's promise, for the columns that there are.
        unsafe {
            let zero = self.zero.map_or(s.zero(), |zero| s.load_upto(zero.wrapping_add(at), here));
            let scale = s.load_upto(self.scale.wrapping_add(at), here);
            (scale, s.add(zero, s.splat(self.element.offset())))
        }
    }

    /// The words of a vector of columns from word `word` on; those of the next steps are a panel's words further on.
    #[inline(always)]
    pub(super) fn words_at(&self, panel: usize, word: usize, v: usize) -> *const f32 {
        let words = self.element.words(self.depth);
        self.weights.cast::<f32>().wrapping_add((panel * words + word) * PANEL + v * LANES)
    }
}

impl Unpack<'_> {
    /// Makes floats of steps of a block.
    ///
    /// # Safety
    /// As [`BlockGemm::run`]; `k` is of steps of the weights, and `to` has room for them.
    #[inline(always)]
    unsafe fn steps<S: Simd, const STEPS: usize, const SIGNED: bool>(
        &self,
        s: S,
        k: Range<usize>,
        v: usize,
        (scale, zero): (S::F, S::F),
    ) {
        // The lane of a number of four bits is that number.
        let numbers = s.from_int(s.iota());
        for word in k.start / STEPS..k.end.div_ceil(STEPS) {
            let step = word * STEPS;
            let at = self.of.words_at(self.panel, word, v);
            // What is behind this chunk in the panel, or in the next one.
            s.prefetch_l2(at.wrapping_add(CHUNK / STEPS * PANEL));
            // SAFETY: the caller's promise.
            let words = unsafe { s.bits(s.load(at)) };
            let to = self.to.wrapping_add(v * LANES);
            let to = to.wrapping_offset((step as isize - self.k.start as isize) * PANEL as isize);
            macro_rules! store_each {
                ($i:ident => $is_meant:expr) => {
                    each_row!(STEPS, $i => {
                        const PLACE: i32 = $i as i32 % 4;
                        let x = match SIGNED {
                            _ if STEPS == 8 && S::PERMUTES_ALL => {
                                s.permute(numbers, s.shr_i::<{ 8 * PLACE + $i as i32 / 4 * 4 }>(words))
                            }
                            _ if STEPS == 8 => {
                                let x = s.shr_i::<{ 8 * PLACE + $i as i32 / 4 * 4 }>(words);
                                s.from_int(s.and_i(x, s.splat_i(15)))
                            }
                            false => s.from_int(s.and_i(s.shr_i::<{ 8 * PLACE }>(words), s.splat_i(255))),
                            true => s.from_int(s.shr_i::<24>(s.shl_i::<{ 24 - 8 * PLACE }>(words))),
                        };
                        if $is_meant {
                            let x = s.mul(s.sub(x, zero), scale);
                            // SAFETY: the caller's promise.
                            unsafe { s.store(to.wrapping_add($i * PANEL), x) };
                        }
                    })
                };
            }
            if k.start <= step && step + STEPS <= k.end {
                store_each!(i => true);
            } else {
                store_each!(i => k.contains(&(step + i)));
            }
        }
    }
}
