//! Matmuls of 16-bit floats on processors that multiply f32 faster: operands are widened before they are multiplied, not each time.
//!
//! A panel of 48 columns is widened some [`STEPS`] of its depth at a time, for all rows that are multiplied by it; and as many elements of the rows
//! of a tile, for 48 columns, or for several panels if their depth is short. What multiplies them is the tile of f32; its sums wait beside, in
//! f32, until the depth is done. So a step of a tile of 8 rows takes some two conversions rather than eleven.
//!
//! **Same bits.** Widening is exact, and each result is one chain of multiply-adds in ascending depth: so results are those of widening in
//! registers, which is what [`Packed::multiply`] does for matmuls of few rows.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use super::element::Packed;
use super::epilogue::{Epilogue, Finish};
use super::kernel::{AnyRows, Part, Rows, Strided};
use super::panels::lanes_of;
use super::prefetch::{AHEAD, Prefetch, fetch_row};
use super::tiles::tiles_any;
use super::tiling::{TileSizes, Tiling};
use super::{Ahead, Gemm, Lines, PANEL, Wide, groups};
use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd};

/// Steps of depth that are widened at a time: 24 KB of a panel, which stay in the first-level cache beside a tile's rows.
const STEPS: usize = 128;

/// The most rows of a tile.
const ROWS: usize = 9;

/// Elements from one widened row to the next: not a power of two, which the first-level cache would keep in few places.
const STRIDE: usize = STEPS + LANES;

/// Tiles whose sums wait at a time: 41 KB.
const TILES: usize = 24;

/// Fewer rows do not make up for writing a widened panel.
const FEWEST: usize = 6;

/// What one thread has widened, and its sums.
struct Buffers {
    /// One panel behind the other.
    panels: Lines<{ STEPS * PANEL }>,
    rows: Lines<{ ROWS * STRIDE }>,
    sums: Lines<{ TILES * ROWS * PANEL }>,
}

/// Whether operands of this matmul are widened before they are multiplied: a function of its shape and the instruction set, not of how it is divided.
pub(super) fn pays<T: Packed>(g: &Gemm<AnyRows<T>>, isa: Isa) -> bool {
    !T::multiplies(isa) && g.m >= FEWEST && g.rows.step() == 1
}

/// A range of the tasks of a matmul.
pub(super) struct Widened<'a, T: Packed> {
    pub(super) gemm: &'a Gemm<AnyRows<T>>,
    pub(super) tasks: Range<usize>,
}

impl<T: Packed> Kernel for Widened<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        const { assert!(S::GEMM_ROWS <= ROWS) };
        let g = self.gemm;
        let tiling = g.tiling(S::GEMM_ROWS, false);
        let together = STEPS / (g.rows.taps() * g.k).max(1);
        let mut buffers = MaybeUninit::<Buffers>::uninit();
        let mut stretches = tiling.stretches(self.tasks.clone()).peekable();
        while let Some((panel, tiles)) = stretches.next() {
            let mut panels = panel..panel + 1;
            while panels.len() < together && stretches.next_if_eq(&(panels.end, tiles.clone())).is_some() {
                panels.end += 1;
            }
            let b = (g.b, g.depth(), g.n);
            let ahead = g.ahead.prefetch(&tiling, b, panel, stretches.peek(), self.tasks.start);
            for first in tiles.clone().step_by(TILES) {
                let end = tiles.end.min(first + TILES);
                let ahead = if end == tiles.end { ahead } else { Prefetch::NONE };
                let block = Block { g, tiling, panels: panels.clone(), tiles: first..end };
                // SAFETY: `Gemm::run` was promised valid operands; tiles cover each element of C once.
                unsafe { block.run(s, buffers.as_mut_ptr(), ahead) };
            }
        }
    }
}

/// Some tiles of one panel, or of several whose whole depth is widened at a time.
struct Block<'a, T: Packed> {
    g: &'a Gemm<AnyRows<T>>,
    tiling: Tiling,
    panels: Range<usize>,
    tiles: Range<usize>,
}

impl<T: Packed> Block<'_, T> {
    /// # Safety
    /// As [`Gemm::run`], for these tiles.
    #[inline(always)]
    unsafe fn run<S: Simd>(&self, s: S, buffers: *mut Buffers, ahead: Prefetch) {
        let g = self.g;
        let (taps, groups) = (g.rows.taps(), groups::<T>(g.k));
        let words = |panel: usize| g.b.wrapping_add(panel * taps * groups * PANEL);
        let mut before = 0;
        for part in parts::<T>(taps, groups) {
            let len = part.depth() * PANEL;
            let next = words(self.panels.start).wrapping_add(before + len);
            let mut ahead = if part.last { ahead } else { Prefetch::new(next, len) };
            ahead.spread(self.panels.len() * self.tiles.len() * part.depth() * T::GROUP);
            let floats = part.taps.len() * steps::<T>(&part, g.k) * PANEL;
            // SAFETY: the caller's promise; a part of all panels is no deeper than the buffers.
            unsafe {
                let to = (&raw mut (*buffers).panels).cast::<f32>();
                for (i, panel) in self.panels.clone().enumerate() {
                    let (words, to) = (words(panel).wrapping_add(before), to.wrapping_add(i * floats));
                    s.enter(WidenPanel::<T> { words, to, part: &part, k: g.k, element: PhantomData });
                }
                for tile in self.tiles.clone() {
                    let rows = self.tiling.tile_rows(tile, g.m);
                    self.widen_rows(s, rows.clone(), &part, (&raw mut (*buffers).rows).cast());
                    for panel in self.panels.clone() {
                        let b = to.wrapping_add((panel - self.panels.start) * floats);
                        self.tile(s, (panel, tile), &part, b, buffers, &mut ahead);
                    }
                }
            }
            before += len;
        }
    }

    /// Multiplies the widened part of a tile's rows by that of a panel, and writes its results if that is the last part.
    ///
    /// # Safety
    /// As [`Gemm::run`]; the parts must be in their buffers.
    #[inline(always)]
    unsafe fn tile<S: Simd>(
        &self,
        s: S,
        (panel, tile): (usize, usize),
        part: &Part,
        b: *const f32,
        buffers: *mut Buffers,
        ahead: &mut Prefetch,
    ) {
        let (g, rows, col) = (self.g, self.tiling.tile_rows(tile, self.g.m), panel * PANEL);
        let vecs = PANEL.min(g.n - col).div_ceil(LANES);
        // SAFETY: the buffers have room for so many tiles of so many rows; `Gemm::run` was promised the operands.
        unsafe {
            // (Those of several panels are read at once.)
            let at = (tile - self.tiles.start) * ROWS * PANEL;
            let sums = (&raw mut (*buffers).sums).cast::<f32>().wrapping_add(at);
            let (wide, n) = match g.wide {
                Some(wide) => {
                    let sums = wide.sums.wrapping_add(rows.start * wide.stride + col);
                    (Wide { sums, add: wide.add || !part.first, ..wide }, PANEL.min(g.n - col))
                }
                None => (Wide { sums, stride: vecs * LANES, add: !part.first }, vecs * LANES),
            };
            let k = part.taps.len() * steps::<T>(part, g.k);
            let ptr = (&raw const (*buffers).rows).cast::<f32>();
            let floats = Gemm {
                m: rows.len(),
                n,
                k,
                rows: AnyRows::Matrix(Strided { ptr, row_stride: STRIDE as isize }),
                b,
                c: std::ptr::null_mut(),
                c_stride: 0,
                epilogue: Epilogue::NONE,
                tile_sizes: TileSizes::DEFAULT,
                ahead: Ahead::Nothing,
                wide: Some(wide),
            };
            let whole = Part { taps: 0..1, k: 0..k, first: true, last: true };
            tiles_any(s, &floats, (0..rows.len(), rows.len()), 0..n, b, &whole, ahead);
            if part.last && g.wide.is_none() {
                let (c, stride, width) = (g.c, g.c_stride, g.n - col);
                let (row, rows) = (rows.start, rows.len());
                s.enter_plain(Finish { e: &g.epilogue, sums, rows, vecs, c, stride, row, col, width });
            }
        }
    }

    /// # Safety
    /// The rows must be readable as [`Gemm::run`] was promised, and `to` writable for as many rows of [`STRIDE`] floats.
    #[inline(always)]
    unsafe fn widen_rows<S: Simd>(&self, s: S, rows: Range<usize>, part: &Part, to: *mut f32) {
        let (g, row) = (self.g, rows.start);
        macro_rules! heights {
            ($($r:literal)*) => {
                match rows.len() {
                    $($r => if const { $r <= S::GEMM_ROWS } { s.enter(WidenRows::<T, $r> { g, row, part, to }) },)*
                    _ => unreachable!("a tile has at most GEMM_ROWS rows"),
                }
            };
        }
        heights!(1 2 3 4 5 6 7 8 9);
    }
}

/// The parts of a depth: whole taps, or some groups of steps of one.
fn parts<T: Packed>(taps: usize, groups: usize) -> impl Iterator<Item = Part> {
    let most = STEPS / T::GROUP;
    let (taps_each, groups_each) = match groups <= most {
        true => ((most / groups.max(1)).clamp(1, taps.max(1)), groups.max(1)),
        false => (1, groups.div_ceil(groups.div_ceil(most))),
    };
    let (by_taps, by_groups) = (taps.div_ceil(taps_each).max(1), groups.div_ceil(groups_each).max(1));
    (0..by_taps * by_groups).map(move |part| {
        let (tap, group) = (part / by_groups * taps_each, part % by_groups * groups_each);
        Part {
            taps: tap..taps.min(tap + taps_each),
            k: group..groups.min(group + groups_each),
            first: part == 0,
            last: part + 1 == by_taps * by_groups,
        }
    })
}

/// Steps of each tap that a part has: the last group may lack some.
fn steps<T: Packed>(part: &Part, k: usize) -> usize {
    (part.k.end * T::GROUP).min(k) - part.k.start * T::GROUP
}

/// Widens a part of a panel: a call of its own.
struct WidenPanel<'a, T: Packed> {
    words: *const f32,
    /// Of each step of the part, 48 floats.
    to: *mut f32,
    part: &'a Part,
    k: usize,
    element: PhantomData<T>,
}

impl<T: Packed> Kernel for WidenPanel<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (mut words, mut to) = (self.words, self.to);
        let steps = steps::<T>(self.part, self.k);
        for _ in self.part.taps.clone() {
            let mut left = steps;
            while left > 0 {
                fetch_row::<S, 3>(s, words.wrapping_add(AHEAD * PANEL));
                let here = left.min(T::GROUP);
                for step in 0..here {
                    for v in 0..PANEL / LANES {
                        // SAFETY: `Gemm::run` was promised the panel, and `to` has room for the steps.
                        unsafe { s.store(to.wrapping_add(v * LANES), T::load_step(s, words, v, step)) };
                    }
                    to = to.wrapping_add(PANEL);
                }
                words = words.wrapping_add(PANEL);
                left -= here;
            }
        }
    }
}

/// Widens a part of `R` rows, [`STRIDE`] floats apart: a call of its own.
struct WidenRows<'a, T: Packed, const R: usize> {
    g: &'a Gemm<AnyRows<T>>,
    row: usize,
    part: &'a Part,
    to: *mut f32,
}

impl<T: Packed, const R: usize> Kernel for WidenRows<'_, T, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let rows = &self.g.rows;
        let lines = rows.tile::<R>(self.row);
        let steps = steps::<T>(self.part, self.g.k);
        let from = self.part.k.start * T::GROUP;
        for (i, tap) in self.part.taps.clone().enumerate() {
            let pieces = rows.pointers::<R>(&lines, tap);
            for (r, piece) in pieces.iter().enumerate() {
                let (piece, to) = (piece.wrapping_add(from), self.to.wrapping_add(r * STRIDE + i * steps));
                let mut at = 0;
                // SAFETY: `Gemm::run` was promised `k` elements of each tap; a row of the buffer has room for the part.
                unsafe {
                    while at + 2 * LANES <= steps {
                        let [a, b] = [at, at + LANES].map(|at| T::load(s, piece.wrapping_add(at), LANES));
                        s.store(to.wrapping_add(at), a);
                        s.store(to.wrapping_add(at + LANES), b);
                        at += 2 * LANES;
                    }
                    while at < steps {
                        let n = lanes_of(0, steps - at);
                        s.store_upto(to.wrapping_add(at), n, T::load(s, piece.wrapping_add(at), n));
                        at += LANES;
                    }
                }
            }
        }
    }
}
