//! Matmuls by weights that stay quantised in blocks: `C = epilogue(A · W)`, `W = (w − zero) · scale`.
//!
//! The weights are packed once, as they are: a panel has 48 columns as everywhere, and a row of it is 48 bytes, one for each
//! column, with one step of depth (8 bits) or two (4 bits, the first in the low half). A task makes floats of a part
//! of a panel's depth ([`CHUNK`] steps), which stay in the first-level cache while all of its rows are multiplied by
//! them. So memory delivers an eighth or a quarter of what floats would be, and many rows share the conversion.
//!
//! **Same bits always.** The floats are those that `Dequantize` makes (`w − zero` is exact where zero points are whole numbers,
//! and the product is rounded once), and each result is one chain of multiply-adds in ascending depth, as in
//! [`Gemm`]: so the results are those of dequantising first.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::epilogue::Epilogue;
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

    /// What is added to a stored number: halves of a byte are packed as unsigned ones.
    const fn offset(self) -> f32 {
        if self.bits == 4 && self.signed { 8.0 } else { 0.0 }
    }
}

/// Bytes of the packed weights of `n` columns of `depth` elements; `None` if that overflows.
pub fn block_bytes(element: BlockElement, depth: usize, n: usize) -> Option<usize> {
    panels(n).checked_mul(PANEL)?.checked_mul(element.bytes(depth)?)
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
    let rows = element.bytes(depth).unwrap_or(0);
    let flip = if element.bits == 4 && element.signed { 0x88 } else { 0 };
    for panel in which {
        let first = panel * PANEL;
        let width = PANEL.min(n - first);
        for row in 0..rows {
            let line = to.wrapping_add((panel * rows + row) * PANEL);
            for column in 0..PANEL {
                // SAFETY: the caller's promise; the column is one of the weights', and the panel is within `to`.
                unsafe {
                    let byte =
                        if column < width { *from.add((first + column) * rows + row) ^ flip } else { 0 };
                    *line.add(column) = byte;
                }
            }
        }
    }
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
    /// Elements of a block; even where two share a byte.
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
    fn tiling(&self, max_rows: usize) -> Tiling {
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
    fn floats(&self) -> Gemm<AnyRows<f32>> {
        let &BlockGemm { m, n, k, rows, c, c_stride, epilogue, .. } = self;
        let rows = rows.any();
        let (b, tile_sizes) = (std::ptr::null(), TileSizes::DEFAULT);
        Gemm { m, n, k, rows, b, c, c_stride, epilogue, tile_sizes, ahead: Ahead::Panels, wide: None }
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
        let (g, floats, mut none) = (self.of, self.of.floats(), Prefetch::NONE);
        let tiling = g.tiling(S::GEMM_ROWS);
        let mut buffer = MaybeUninit::<Lines<{ CHUNK * PANEL }>>::uninit();
        let b = buffer.as_mut_ptr().cast::<f32>();
        let chunks = g.k.div_ceil(CHUNK).max(1);
        for (panel, tiles) in tiling.stretches(self.tasks) {
            let columns = tiling.columns(panel, g.n);
            for chunk in 0..chunks {
                let k = chunk * CHUNK..((chunk + 1) * CHUNK).min(g.k);
                let part = Part { taps: 0..1, k: k.clone(), first: chunk == 0, last: chunk + 1 == chunks };
                // SAFETY: `BlockGemm::run` was promised valid operands; the buffer holds a chunk of a panel.
                unsafe {
                    s.enter(Unpack { of: g, panel, k, to: b });
                    for rows in tiling.runs(0, &tiles, g.m) {
                        tiles_any(s, &floats, rows, columns.clone(), b, &part, &mut none);
                    }
                }
            }
        }
    }
}

/// Makes floats of a part of a panel's depth: a call of its own.
struct Unpack<'a> {
    of: &'a BlockGemm,
    panel: usize,
    /// Begins at an even step.
    k: Range<usize>,
    /// As many rows of 48 floats, up to an even number.
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
                    let params = self.params(s, k / size, v);
                    match (element.bits, element.signed) {
                        (4, _) => self.halves(s, k..end, v, params),
                        (_, true) => self.bytes::<S, true>(s, k..end, v, params),
                        _ => self.bytes::<S, false>(s, k..end, v, params),
                    }
                }
            }
            k = end;
        }
    }
}

impl Unpack<'_> {
    /// Scales and zero points of a block for one vector of columns.
    ///
    /// # Safety
    /// As [`BlockGemm::run`]; the block is one of the weights', and the panel has columns.
    #[inline(always)]
    unsafe fn params<S: Simd>(&self, s: S, block: usize, v: usize) -> (S::F, S::F) {
        let g = self.of;
        let column = self.panel * PANEL + v * LANES;
        let here = lanes_of(v, g.n - self.panel * PANEL);
        let at = block * g.n + column.min(g.n);
        // SAFETY: the caller's promise, for the columns that there are.
        unsafe {
            let zero = g.zero.map_or(s.zero(), |zero| s.load_upto(zero.wrapping_add(at), here));
            let scale = s.load_upto(g.scale.wrapping_add(at), here);
            (scale, s.add(zero, s.splat(g.element.offset())))
        }
    }

    /// Where the weights of a step are, or of the pair that it begins, and where its floats go.
    #[inline(always)]
    fn places(&self, row: usize, step: usize, v: usize) -> (*const u8, *mut f32) {
        let g = self.of;
        let rows = g.element.bytes(g.depth).unwrap_or(0);
        let from = g.weights.wrapping_add((self.panel * rows + row) * PANEL + v * LANES);
        (from, self.to.wrapping_add((step - self.k.start) * PANEL + v * LANES))
    }

    /// Makes floats of steps of 4 bits, two to a byte.
    ///
    /// # Safety
    /// As [`BlockGemm::run`]; `k` begins at an even step of the weights, and `to` has room for its steps, up to an even number.
    #[inline(always)]
    unsafe fn halves<S: Simd>(&self, s: S, k: Range<usize>, v: usize, (scale, zero): (S::F, S::F)) {
        let low = s.splat_i(15);
        let (mut from, mut to) = self.places(k.start / 2, k.start, v);
        for _ in 0..k.len().div_ceil(2) {
            // SAFETY: the caller's promise; an odd depth has room for one step more.
            unsafe {
                let both = s.load_bytes::<false>(from, LANES);
                let halves = [s.and_i(both, low), s.shr_i::<4>(both)];
                s.store(to, s.mul(s.sub(s.from_int(halves[0]), zero), scale));
                s.store(to.wrapping_add(PANEL), s.mul(s.sub(s.from_int(halves[1]), zero), scale));
            }
            (from, to) = (from.wrapping_add(PANEL), to.wrapping_add(2 * PANEL));
        }
    }

    /// Makes floats of steps of 8 bits.
    ///
    /// # Safety
    /// As [`BlockGemm::run`]; `k` is of steps of the weights, and `to` has room for them.
    #[inline(always)]
    unsafe fn bytes<S: Simd, const SIGNED: bool>(
        &self,
        s: S,
        k: Range<usize>,
        v: usize,
        (scale, zero): (S::F, S::F),
    ) {
        let (mut from, mut to) = self.places(k.start, k.start, v);
        for _ in k {
            // SAFETY: the caller's promise.
            unsafe {
                let x = s.from_int(s.load_bytes::<SIGNED>(from, LANES));
                s.store(to, s.mul(s.sub(x, zero), scale));
            }
            (from, to) = (from.wrapping_add(PANEL), to.wrapping_add(PANEL));
        }
    }
}
