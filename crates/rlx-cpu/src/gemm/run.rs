//! Runs a matmul: with its operands as they are, panel by panel, or widened for many rows at a time.

use std::ops::Range;

use super::element::Packed;
use super::kernel::{Rows, parts};
use super::packing::groups;
use super::panels::{BLOCK_DEPTH, WIDEST_ROWS};
use super::prefetch::Prefetch;
use super::tiles::tiles_any;
use super::tiling::Tiling;
use super::widened::{self, Widened};
use super::{Gemm, PANEL};
use crate::isa::{Isa, Kernel};
use crate::simd::Simd;

impl<R: Rows<Element: Packed>> Gemm<R> {
    /// Computes a range of the tasks.
    ///
    /// # Safety
    /// Every row of A must be readable for `k` elements per tap, `b` must hold `packed_words(k, n)` packed
    /// words per tap, the m×n elements of C (or of the wide sums) must be writable and, like those of the epilogue's
    /// operands, in bounds. C may be the same memory as an [`Epilogue::combine`](super::Epilogue::combine) with equal strides that
    /// comes before the activation, and must not overlap anything else. No two threads may run the same task at once.
    pub unsafe fn run(&self, isa: Isa, tasks: Range<usize>) {
        // Compiled once for all sources of rows: where they are is asked once for a tile and a tap.
        let any = self.with_rows(self.rows.any());
        if const { R::Element::GROUP != 1 } && widened::pays(&any, isa) {
            isa.run(Widened { gemm: &any, tasks });
        } else if R::Element::multiplies(isa) {
            R::Element::run(isa, RunTasks { gemm: &any, tasks });
        } else {
            isa.run(RunTasks { gemm: &any, tasks });
        }
    }
}

/// Some tasks of a matmul, as a kernel.
pub(super) struct RunTasks<'a, R: Rows> {
    pub(super) gemm: &'a Gemm<R>,
    pub(super) tasks: Range<usize>,
}

impl<R: Rows<Element: Packed>> Kernel for RunTasks<'_, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let g = self.gemm;
        let tiling = g.tiling(S::GEMM_ROWS, const { R::Element::GROUP == 1 || S::BF16_DOT });
        debug_assert!(self.tasks.end <= tiling.tasks());
        // SAFETY: `Gemm::run` was promised valid operands; tiles cover each element of C once.
        unsafe {
            let mut stretches = tiling.stretches(self.tasks.clone());
            let mut next = stretches.next();
            while let Some((panel, tiles)) = next {
                next = stretches.next();
                let ahead =
                    g.ahead.prefetch(&tiling, (g.b, g.depth(), g.n), panel, next.as_ref(), self.tasks.start);
                run_column(s, g, &tiling, panel, tiles, ahead);
            }
        }
    }
}

/// Computes some tiles of one panel, or of the widest tile's columns.
///
/// # Safety
/// As [`Gemm::run`], for these tiles.
#[inline(always)]
unsafe fn run_column<S: Simd, R: Rows<Element: Packed>>(
    s: S,
    g: &Gemm<R>,
    tiling: &Tiling,
    panel: usize,
    tiles: Range<usize>,
    ahead: Prefetch,
) {
    let (taps, groups) = (g.rows.taps(), groups::<R::Element>(g.k));
    let depth = groups * taps;
    let columns = tiling.columns(panel, g.n);
    // Partial sums in C need C to themselves and its type to hold them.
    let in_place = g.wide.is_some()
        || g.epilogue.combine.is_some_and(|c| std::ptr::eq(c.ptr, g.c))
        || R::Element::GROUP != 1;
    let most = if in_place { usize::MAX } else { BLOCK_DEPTH };
    // SAFETY: the caller's promises; offsets stay within panel and row.
    unsafe {
        let mut b = g.b.add(panel * depth * PANEL);
        for part in parts(taps, groups, most) {
            let len = part.depth() * PANEL;
            // While a block is computed, the next one is fetched.
            let next = b.wrapping_add(len);
            let mut ahead = if part.last { ahead } else { Prefetch::new(next, len) };
            ahead.spread(tiles.len() * part.depth());
            for line in tiling.lines(&tiles) {
                for (rows, height) in tiling.runs(line, &tiles, g.m) {
                    if columns.len() > PANEL && height > WIDEST_ROWS {
                        // As many tiles of six rows as there are, and one that is lower.
                        let middle = rows.end - rows.len() % WIDEST_ROWS;
                        let (most, rest) = (rows.start..middle, middle..rows.end);
                        let height = rest.len();
                        tiles_any(s, g, (most, WIDEST_ROWS), columns.clone(), b, &part, &mut ahead);
                        if height > 0 {
                            tiles_any(s, g, (rest, height), columns.clone(), b, &part, &mut ahead);
                        }
                    } else {
                        tiles_any(s, g, (rows, height), columns.clone(), b, &part, &mut ahead);
                    }
                }
            }
            b = next;
        }
    }
}
